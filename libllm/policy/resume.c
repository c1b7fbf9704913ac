#include "policy/resume.h"

#include <string.h>

uint32_t resume_common_prefix(const int32_t *a, uint32_t n_a, const int32_t *b, uint32_t n_b)
{
    const uint32_t n = n_a < n_b ? n_a : n_b;
    uint32_t i = 0;
    /* Compares whole blocks first. memcmp runs at memory speed, and the two arrays are equal for most of their
     * length. */
    enum { BLOCK = 64 };
    while (n - i >= BLOCK && memcmp(a + i, b + i, BLOCK * sizeof *a) == 0) {
        i += BLOCK;
    }
    while (i < n && a[i] == b[i]) {
        i++;
    }
    return i;
}

uint32_t resume_longest(const int32_t *prompt, uint32_t n_prompt, const resume_source *sources, uint32_t n_sources,
                        uint32_t n_least)
{
    uint32_t n = n_least;
    for (uint32_t i = 0; i < n_sources && n < n_prompt; i++) {
        const resume_source *s = &sources[i];
        /* a source whose token at index n differs has at most n tokens in common with the prompt */
        if (s->n_tokens > n && s->tokens[n] == prompt[n]) {
            const uint32_t common = resume_common_prefix(s->tokens, s->n_tokens, prompt, n_prompt);
            n = common > n ? common : n;
        }
    }
    return n;
}

/* One way to get the state of a prefix of the prompt. */
typedef struct way {
    uint32_t n_keep;
    uint32_t n_cost; /* cost of the copies: how many tokens could be prefilled in the same time */
    int32_t donor;
    int32_t checkpoint;
    bool has_logits;
} way;

/* Returns the number of tokens saved, minus the number that could be prefilled in the time of the copies. */
static int64_t gain_of(uint32_t n_keep, uint32_t n_cost)
{
    return (int64_t)n_keep - n_cost;
}

/* Whether the candidate replaces the best way so far. The candidate's gain must be larger. If the gains are equal, the
 * best way so far stays, because ways that copy less are considered first. */
static bool is_better(const way *candidate, const way *best)
{
    return gain_of(candidate->n_keep, candidate->n_cost) > gain_of(best->n_keep, best->n_cost);
}

static void consider(way *best, way candidate)
{
    if (is_better(&candidate, best)) {
        *best = candidate;
    }
}

/* Returns how many prompt tokens can be reused if no logits after the prompt were kept. Then the last token must be
 * consumed to get these logits. Exception: with may_keep_all, no logits are needed. */
static uint32_t most_of(const resume_input *in)
{
    return in->may_keep_all ? in->n_prompt : in->n_prompt - 1;
}

static uint32_t common_with(const resume_input *in, const resume_source *source)
{
    return resume_common_prefix(source->tokens, source->n_tokens, in->prompt, in->n_prompt);
}

/* Returns how many tokens a truncation of the source provides: the common prefix, but at most `most` tokens. Returns 0
 * if the memory does not allow that truncation. */
static uint32_t truncation_of(const resume_source *source, uint32_t common, uint32_t most)
{
    const uint32_t k = common < most ? common : most;
    return k == source->n_tokens || k >= source->truncate_floor ? k : 0;
}

/* Returns the index of the checkpoint with the largest gain, or -1 if there is none. With whole_only, considers the
 * checkpoints that hold the whole state. Otherwise considers the checkpoints of at most `attention` tokens. These fit
 * into a branch whose first `attention` tokens equal the prompt's. */
static int32_t best_checkpoint(const resume_input *in, uint32_t attention, bool whole_only)
{
    int32_t best = -1;
    int64_t most_gained = 0;
    for (uint32_t i = 0; i < in->n_checkpoints; i++) {
        const resume_checkpoint *c = &in->checkpoints[i];
        const uint32_t most = c->has_logits ? in->n_prompt : most_of(in);
        const bool fits = whole_only ? c->is_whole : c->k <= attention;
        if (fits && c->k <= most && gain_of(c->k, c->n_cost) > most_gained) {
            best = (int32_t)i;
            most_gained = gain_of(c->k, c->n_cost);
        }
    }
    return best;
}

/* Returns the way that copies the donor (another branch) and restores the best checkpoint into the copy. If `donor` is
 * -1, nothing is copied, and the checkpoint is restored into the request's own branch. The branch that gets the
 * checkpoint begins with the first `attention` tokens of the prompt. With whole_only, the checkpoint holds the whole
 * state, so it needs no tokens of a branch. */
static way checkpoint_way(const resume_input *in, int32_t donor, uint32_t attention, bool whole_only)
{
    const int32_t i = best_checkpoint(in, attention, whole_only);
    if (i < 0) {
        return (way){.donor = -1, .checkpoint = -1};
    }
    const resume_checkpoint *c = &in->checkpoints[i];
    return (way){.n_keep = c->k,
                 .n_cost = c->n_cost + (donor >= 0 ? in->donors[donor].n_cost : 0),
                 .donor = donor,
                 .checkpoint = i,
                 .has_logits = c->has_logits && c->k == in->n_prompt};
}

/* Returns the way that copies the donor and truncates the copy. */
static way truncation_way(const resume_input *in, int32_t donor, uint32_t common)
{
    const resume_source *source = &in->donors[donor];
    return (way){.n_keep = truncation_of(source, common, most_of(in)),
                 .n_cost = source->n_cost,
                 .donor = donor,
                 .checkpoint = -1};
}

/* Considers all donors, that is other branches that can be copied. No donor has more than `longest` tokens in common
 * with the prompt. To compare hundreds of donors with a long common beginning would take long. So each donor is first
 * judged as if it had as many tokens in common as possible. Its tokens are compared only if it would then be the
 * best. */
static void consider_donors(const resume_input *in, way *best, uint32_t longest, bool with_checkpoints)
{
    for (uint32_t i = 0; i < in->n_donors; i++) {
        const int32_t donor = (int32_t)i;
        const uint32_t n_tokens = in->donors[i].n_tokens;
        const uint32_t at_most = n_tokens < longest ? n_tokens : longest;
        const way bound =
            with_checkpoints ? checkpoint_way(in, donor, at_most, false) : truncation_way(in, donor, at_most);
        if (is_better(&bound, best)) {
            const uint32_t common = common_with(in, &in->donors[i]);
            consider(best,
                     with_checkpoints ? checkpoint_way(in, donor, common, false) : truncation_way(in, donor, common));
        }
    }
}

static void consider_own(const resume_input *in, way *best, uint32_t common)
{
    const bool logits_fit = in->own_logits_at == in->n_prompt && common == in->n_prompt;
    if (logits_fit && truncation_of(&in->own, common, in->n_prompt) == in->n_prompt) {
        consider(best, (way){.n_keep = in->n_prompt, .donor = -1, .checkpoint = -1, .has_logits = true});
    }
    consider(best, (way){.n_keep = truncation_of(&in->own, common, most_of(in)), .donor = -1, .checkpoint = -1});
    consider(best, checkpoint_way(in, -1, common, false));
}

static way best_way(const resume_input *in, uint32_t own_common)
{
    way best = {.donor = -1, .checkpoint = -1};
    if (in->cold) {
        return best;
    }
    if (!in->torn && in->own.n_tokens > 0) {
        consider_own(in, &best, own_common);
    }
    const uint32_t longest = resume_longest(in->prompt, in->n_prompt, in->donors, in->n_donors, own_common);
    consider_donors(in, &best, longest, false);
    consider_donors(in, &best, longest, true);
    consider(&best, checkpoint_way(in, -1, 0, true));
    return best;
}

static llm_reason reason_of(const resume_input *in, const way *w, uint32_t own_common)
{
    if (w->n_keep == 0) {
        if (in->torn) {
            return LLM_REASON_TORN;
        }
        return in->own.n_tokens == 0 ? LLM_REASON_NEW : LLM_REASON_MISMATCH;
    }
    if (w->donor >= 0 || (w->checkpoint >= 0 && w->n_keep > own_common)) {
        return LLM_REASON_SHARED;
    }
    if (w->has_logits) {
        return LLM_REASON_EQUAL;
    }
    if (w->checkpoint >= 0) {
        return LLM_REASON_CHECKPOINT;
    }
    if (in->was_parked) {
        return LLM_REASON_RESTORED;
    }
    if (w->n_keep == in->own.n_tokens) {
        return LLM_REASON_EXACT_PREFIX;
    }
    const bool equal = own_common == in->n_prompt && in->own.n_tokens == in->n_prompt;
    return equal ? LLM_REASON_EQUAL : LLM_REASON_REWIND;
}

resume_plan resume_decide(const resume_input *in)
{
    const uint32_t common = in->torn ? 0 : common_with(in, &in->own);
    const bool extends = in->torn || common == in->own.n_tokens || common == in->n_prompt;
    const way w = best_way(in, common);
    return (resume_plan){
        .reason = reason_of(in, &w, common),
        .n_keep = w.n_keep,
        .diverged_at = extends ? -1 : (int32_t)common,
        .donor = w.donor,
        .checkpoint = w.checkpoint,
        .has_logits = w.has_logits,
    };
}
