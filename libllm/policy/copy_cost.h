/* copy_cost.h: decides whether a copy of a state, or a read from disk, is faster than prefilling its tokens. Also
 * decides whether decoding requests can wait for the copy. Uses times that were measured on this machine. Pure
 * functions. */
#ifndef LLM_COPY_COST_H
#define LLM_COPY_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    COPY_COST_TOKENS_MIN = 32, /* fewer tokens are not worth a copy: prefilling them takes only one step */
    /* a copy of at most this size counts as free: it takes less time than any step */
    COPY_COST_FREE_BYTES = 1024 * 1024,
    /* microseconds to copy a MiB, assumed before the first measurement. Only slow memory takes that long */
    COPY_COST_MIB_US_FIRST = 1000,
    COPY_COST_DISK_MIB_US_FIRST = 1000, /* microseconds to read a MiB from disk, assumed before the first measurement */
    /* a chat template may begin an answer with up to this many tokens that it omits in later prompts */
    COPY_COST_SUFFIX_TOKENS = 4,
};

/* Moving averages, kept by the decode thread; 0 before the first measurement. */
typedef struct copy_cost_pace {
    double token_us;       /* microseconds to prefill one token */
    double token_us_first; /* token_us assumed before the first measurement (copy_cost_token_us_first) */
    double mib_us;         /* microseconds for one copy of a MiB of state */
    double disk_us;        /* microseconds to read a MiB from disk */
} copy_cost_pace;

/* Guesses how many microseconds the prefill of a token takes, from two operations per parameter on a fast processor or
 * GPU. The guess is at least 50 us, or 5 us on a GPU. In a small model, fixed costs take most of the time. */
double copy_cost_token_us_first(uint64_t n_params, bool on_gpu);

/* Returns how many tokens could be prefilled in the time that copying n_bytes takes. Returns 0 if prefill was not
 * measured yet. Also returns 0 for at most COPY_COST_FREE_BYTES. */
uint32_t copy_cost_tokens(const copy_cost_pace *pace, size_t n_bytes);

/* Returns the expected microseconds for a copy of n_bytes. */
double copy_cost_us(const copy_cost_pace *pace, size_t n_bytes);

/* Learn that copying n_bytes, or reading n_bytes from disk, took `us`. */
void copy_cost_learn(copy_cost_pace *pace, size_t n_bytes, double us);
void copy_cost_learn_disk(copy_cost_pace *pace, size_t n_bytes, double us);

/* Returns the longest useful wait for a state of n_tokens on disk, in microseconds. This is as long as prefilling the
 * tokens takes, but at least a second. */
double copy_cost_wait_us_max(const copy_cost_pace *pace, uint32_t n_tokens);

/* Returns the microseconds saved by loading n_bytes of state from disk instead of prefilling n_tokens. Returns 0 if
 * nothing is saved, or for fewer than COPY_COST_TOKENS_MIN tokens. Loading includes the copy into the model. It also
 * includes the wait for n_bytes_before, the bytes of earlier reads and writes that the disk has not finished. */
double copy_cost_fetch_saves_us(const copy_cost_pace *pace, size_t n_bytes, size_t n_bytes_before, uint32_t n_tokens);

/* A branch, and a prompt that continues the branch but diverges from its tokens. */
typedef struct copy_cost_divergence {
    uint32_t n_tokens;  /* tokens of the branch */
    uint32_t n_history; /* tokens of the branch's last prompt; the rest of the branch is the answer */
    uint32_t n_common;  /* tokens of the common prefix with the prompt */
    uint32_t n_prompt;
    uint32_t n_cost;        /* cost of copying the branch, in tokens (copy_cost_tokens) */
    double copy_us;         /* cost of copying the branch, in microseconds (copy_cost_us) */
    double stall_budget_us; /* time that decoding requests can wait, or HUGE_VAL if none decodes */
} copy_cost_divergence;

/* Whether to copy the branch before it is truncated to the common prefix. The copy keeps the tokens that the truncation
 * discards. Prefilling these tokens again must take longer than the copy, and the copy must fit the stall budget of
 * decoding requests. The prefill needs no such limit, because it is divided into steps and delays no decoding request.
 *
 * If the prompt only replaces the last answer, the old answer is not kept, because no client will send it again. For
 * example, if a template drops the reasoning of past answers, the next prompt replaces the last answer. */
bool copy_cost_pays_off(const copy_cost_divergence *c);

#endif
