#include "resume.h"

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

static resume_plan plan(llm_reason reason, uint32_t n_keep, int32_t diverged_at)
{
    return (resume_plan){.reason = reason, .n_keep = n_keep, .diverged_at = diverged_at};
}

resume_plan resume_decide(const resume_input *in)
{
    if (in->torn) {
        return plan(LLM_REASON_TORN, 0, -1);
    }
    if (in->n_resident == 0) {
        return plan(LLM_REASON_NEW, 0, -1);
    }
    const uint32_t common = resume_common_prefix(in->resident, in->n_resident, in->prompt, in->n_prompt);
    const bool extends = common == in->n_resident || common == in->n_prompt;
    const int32_t diverged_at = extends ? -1 : (int32_t)common;

    if (in->cold) {
        return plan(LLM_REASON_MISMATCH, 0, diverged_at);
    }
    if (common == in->n_resident && common < in->n_prompt) {
        return plan(LLM_REASON_EXACT_PREFIX, common, -1);
    }
    /* From here the session must be cut: to the divergence, or one token before the prompt's end. */
    const uint32_t keep = common < in->n_prompt ? common : in->n_prompt - 1;
    if (keep == 0 || keep < in->rewind_floor) {
        return plan(LLM_REASON_MISMATCH, 0, diverged_at);
    }
    const bool equal = common == in->n_prompt && in->n_prompt == in->n_resident;
    return plan(equal ? LLM_REASON_EQUAL : LLM_REASON_REWIND, keep, diverged_at);
}
