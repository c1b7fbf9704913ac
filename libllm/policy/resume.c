#include "policy/resume.h"

#include <string.h>

uint32_t resume_common_prefix(const int32_t *a, uint32_t n_a, const int32_t *b, uint32_t n_b)
{
    const uint32_t n = n_a < n_b ? n_a : n_b;
    uint32_t i = 0;
    /* Whole blocks first: memcmp runs at memory speed, and histories agree for most of their length. */
    enum { BLOCK = 64 };
    while (n - i >= BLOCK && memcmp(a + i, b + i, BLOCK * sizeof *a) == 0) {
        i += BLOCK;
    }
    while (i < n && a[i] == b[i]) {
        i++;
    }
    return i;
}

/* One way to reach a prefix. */
typedef struct way {
    uint32_t n_keep;
    uint32_t n_cost; /* in tokens */
    int32_t donor;
    int32_t checkpoint;
    bool has_logits;
} way;

/* A later one must be really better: each copy that it takes has to gain more than it costs. */
static void consider(way *best, way candidate)
{
    if ((uint64_t)candidate.n_keep + best->n_cost > (uint64_t)best->n_keep + candidate.n_cost) {
        *best = candidate;
    }
}

/* The most that may be kept without kept logits: they come only from consuming a token. */
static uint32_t most_of(const resume_input *in)
{
    return in->may_keep_all ? in->n_prompt : in->n_prompt - 1;
}

static uint32_t common_with(const resume_input *in, const resume_source *source)
{
    return resume_common_prefix(source->tokens, source->n_tokens, in->prompt, in->n_prompt);
}

/* What a cut of the source alone gives: its whole common prefix where the memory allows the cut, else nothing. */
static uint32_t cut_of(const resume_source *source, uint32_t common, uint32_t most)
{
    const uint32_t k = common < most ? common : most;
    return k == source->n_tokens || k >= source->rewind_floor ? k : 0;
}

/* The longest checkpoint that needs no more than `attention` tokens of a source; -1: none. */
static int32_t longest_checkpoint(const resume_input *in, uint32_t attention, bool whole_only)
{
    int32_t best = -1;
    for (uint32_t i = 0; i < in->n_checkpoints; i++) {
        const resume_checkpoint *c = &in->checkpoints[i];
        const uint32_t most = c->has_logits ? in->n_prompt : most_of(in);
        const bool fits = whole_only ? c->is_whole : c->k <= attention;
        if (fits && c->k <= most && (best < 0 || c->k > in->checkpoints[best].k)) {
            best = (int32_t)i;
        }
    }
    return best;
}

static void consider_checkpoint(const resume_input *in, way *best, int32_t donor, uint32_t attention, bool whole_only)
{
    const int32_t i = longest_checkpoint(in, attention, whole_only);
    if (i >= 0) {
        const resume_checkpoint *c = &in->checkpoints[i];
        consider(best, (way){.n_keep = c->k,
                             .n_cost = c->n_cost + (donor >= 0 ? in->donors[donor].n_cost : 0),
                             .donor = donor,
                             .checkpoint = i,
                             .has_logits = c->has_logits && c->k == in->n_prompt});
    }
}

static void consider_own(const resume_input *in, way *best, uint32_t common)
{
    const bool logits_fit = in->own_logits_at == in->n_prompt && common == in->n_prompt;
    if (logits_fit && cut_of(&in->own, common, in->n_prompt) == in->n_prompt) {
        consider(best, (way){.n_keep = in->n_prompt, .donor = -1, .checkpoint = -1, .has_logits = true});
    }
    consider(best, (way){.n_keep = cut_of(&in->own, common, most_of(in)), .donor = -1, .checkpoint = -1});
    consider_checkpoint(in, best, -1, common, false);
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
    for (uint32_t i = 0; i < in->n_donors; i++) {
        const uint32_t common = common_with(in, &in->donors[i]);
        const uint32_t k = cut_of(&in->donors[i], common, most_of(in));
        consider(&best, (way){.n_keep = k, .n_cost = in->donors[i].n_cost, .donor = (int32_t)i, .checkpoint = -1});
    }
    for (uint32_t i = 0; i < in->n_donors; i++) {
        consider_checkpoint(in, &best, (int32_t)i, common_with(in, &in->donors[i]), false);
    }
    consider_checkpoint(in, &best, -1, 0, true);
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
