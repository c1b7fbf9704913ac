/* sampling.h: threads that pick tokens for the decode thread if that takes long: an answer that must have a form, or
 * one that goes through samplers that sort the vocabulary. The others' steps go on meanwhile.
 *
 * A generation whose token is being picked takes part in no step. Its sampler and a copy of its logits are the threads'
 * until the result is taken; a request that ends earlier abandons both.
 *
 *            sampling_begin          done            sampling_take
 *   (none) -----------------> QUEUED ----> DONE --------------------> (none)
 *                               |            |
 *                               +------------+--- sampling_abandon --> (freed, at once or when the thread is through)
 */
#ifndef LLM_SAMPLING_THREADS_H
#define LLM_SAMPLING_THREADS_H

#include <stdbool.h>
#include <stdint.h>

#include "boundary/notifier.h"
#include "text/sampling/sampler.h"

typedef struct sampling_threads sampling_threads;
typedef struct sampling_job sampling_job;

/* `consumer` is woken with each result. LLM_OK, LLM_NO_MEMORY. Threads are created with the first job. All functions:
 * decode thread, or the opener. */
int sampling_open(uint32_t n_vocab, notifier *consumer, sampling_threads **out);
/* All jobs must have been abandoned. NULL is allowed. */
void sampling_close(sampling_threads *p);

/* Makes the job of one generation, which owns the sampler from here on, with room for logits. NULL: memory is short. */
sampling_job *sampling_job_open(sampling_threads *p, sampler *s);
void sampling_abandon(sampling_job *j); /* NULL is allowed */

/* Copies the logits and queues the job. If no thread can be created, the token is picked at once. */
void sampling_begin(sampling_job *j, const float *logits);
/* Returns whether the token is picked; `status` and `token` are those of sampler_next. */
bool sampling_take(sampling_job *j, int *status, int32_t *token);

/* Whether a token was picked since the last sampling_settle; asked after arming the notifier. */
bool sampling_has_result(const sampling_threads *p);
/* Waits until all tokens are picked, at most wait_us. Clears sampling_has_result. */
void sampling_settle(sampling_threads *p, uint32_t us_max);

#endif
