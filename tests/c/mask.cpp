#include "mask.h"

#include <new>
#include <string>

#include "text/grammar/grammar_walk.h"

/* `operator new`. test_mask is linked with --wrap=_Znwm. */
extern "C" void *__real__Znwm(size_t n_bytes);
extern "C" void *__wrap__Znwm(size_t n_bytes);

static uint32_t n_allocations_left = UINT32_MAX;

void *__wrap__Znwm(size_t n_bytes)
{
    if (n_allocations_left == 0) {
        throw std::bad_alloc();
    }
    n_allocations_left -= n_allocations_left != UINT32_MAX;
    return __real__Znwm(n_bytes);
}

struct mask {
    const model *m;
    grammar_walk walk;
    token_set found;

    std::string text_of(int32_t token) const
    {
        char piece[MODEL_PIECE_BYTES_MAX];
        const int32_t n = m->ops->piece(m, token, false, piece, sizeof piece);
        return std::string(piece, static_cast<size_t>(n));
    }
};

mask *mask_open(const model *m, const char *grammar)
{
    try {
        auto rules = std::make_shared<const struct grammar>(grammar::read(grammar, m));
        return new mask{m, grammar_walk(std::move(rules), vocabulary_trie::of(m)), {}};
    } catch (const grammar_fault &) {
        return nullptr;
    }
}

void mask_close(mask *k)
{
    delete k;
}

void mask_find(mask *k, bool *allowed)
{
    k->walk.find_allowed(k->m->info.n_vocab, k->found);
    for (uint32_t token = 0; token < k->m->info.n_vocab; token++) {
        allowed[token] = k->found.has(static_cast<int32_t>(token));
    }
}

bool mask_allows(mask *k, int32_t token)
{
    const std::string text = k->text_of(token);
    return k->walk.allows(token, text.data(), text.size());
}

bool mask_accept(mask *k, int32_t token)
{
    const std::string text = k->text_of(token);
    const bool is_allowed = k->walk.accept(token, text.data(), text.size());
    k->walk.forget();
    return is_allowed;
}

bool mask_accept_text(mask *k, const char *text, size_t n, bool is_guessed)
{
    try {
        if (!is_guessed) {
            k->walk.never_guess();
        }
        return k->walk.accept(-1, text, n);
    } catch (const grammar_fault &) {
        return false;
    }
}

size_t mask_guess(mask *k, char *out, size_t n_out)
{
    const std::string text = k->walk.guess(n_out);
    return text.copy(out, n_out);
}

bool mask_guess_within(mask *k, uint32_t n_allocations)
{
    bool is_enough = true;
    n_allocations_left = n_allocations;
    try {
        k->walk.guess(16);
    } catch (const std::bad_alloc &) {
        is_enough = false;
    }
    n_allocations_left = UINT32_MAX;
    return is_enough;
}
