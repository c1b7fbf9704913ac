/* copy_cost.h: whether a state is worth its copy: the time to read its tokens again against the time to copy its bytes, both as
 * measured here; whether who decodes meanwhile can wait for it; and whether one that lies on the disk is worth fetching.
 * Pure. */
#ifndef LLM_COPY_COST_H
#define LLM_COPY_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    COPY_COST_TOKENS_MIN = 32,          /* fewer are read again within one step */
    COPY_COST_FREE_BYTES = 1024 * 1024, /* copied in less time than any step takes */
    COPY_COST_MIB_US_FIRST = 1000,      /* of a copy, before one was measured: slow memory */
    COPY_COST_DISK_MIB_US_FIRST = 1000, /* of the disk, before it was */
    COPY_COST_SUFFIX_TOKENS = 4,        /* with which a template may begin an answer, and which it leaves out later */
};

/* Moving averages, kept by the decode thread. 0: not known yet. */
typedef struct copy_cost_pace {
    double token_us;       /* one prompt token read */
    double token_us_first; /* idem, before one was: copy_cost_token_us_first */
    double mib_us;         /* one MiB of a state copied once */
    double disk_us;        /* one MiB read from the disk */
} copy_cost_pace;

/* A guess: two operations for each parameter, on a fast processor or a fast GPU; of a small model, whose parameters are not what
 * takes the time, 50 and 5. */
double copy_cost_token_us_first(uint64_t n_params, bool on_gpu);

/* How many tokens could be read in the time that n_bytes are copied in. What is not measured yet costs nothing. */
uint32_t copy_cost_tokens(const copy_cost_pace *pace, size_t n_bytes);

/* How long a copy of n_bytes takes, by what is known. */
double copy_cost_us(const copy_cost_pace *pace, size_t n_bytes);

/* A copy of so many bytes took `us`; or reading them from the disk did. */
void copy_cost_learn(copy_cost_pace *pace, size_t n_bytes, double us);
void copy_cost_learn_disk(copy_cost_pace *pace, size_t n_bytes, double us);

/* How long what brings n_tokens may be waited for: as long as reading them takes, and a second where that is less. */
double copy_cost_wait_us_max(const copy_cost_pace *pace, uint32_t n_tokens);

/* How much sooner than by reading them a prompt is n_tokens further with n_bytes from the disk, which has n_bytes_before to move
 * first, and which are copied then; 0: it is not worth it. */
double copy_cost_fetch_saves_us(const copy_cost_pace *pace, size_t n_bytes, size_t n_bytes_before, uint32_t n_tokens);

/* A branch that is to go on with a prompt which parts from what it holds. */
typedef struct copy_cost_divergence {
    uint32_t n_tokens;  /* it holds */
    uint32_t n_history; /* of them, its last prompt's: what came after is one answer */
    uint32_t n_common;  /* of them, the prompt's first ones */
    uint32_t n_prompt;
    uint32_t n_cost;        /* of keeping it: copy_cost_tokens */
    double copy_us;         /* idem: copy_cost_us */
    double stall_budget_us; /* of who decodes meanwhile; HUGE_VAL: nobody does */
} copy_cost_divergence;

/* Whether what the truncation discards is to be kept for who comes back to it: it takes longer to read again than to copy, and nobody
 * waits longer for the copy than he can; reading it again would make nobody wait. An answer in whose stead the prompt brings
 * another one is not: its client has changed it for good, as templates do that drop reasoning. */
bool copy_cost_pays_off(const copy_cost_divergence *c);

#endif
