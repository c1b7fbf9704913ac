/* sampling.h: threads that pick tokens for the decode thread. They are used where picking takes long: for structured
 * output where sampler_next_quick cannot pick, and for samplers that sort the vocabulary. The steps of other requests
 * go on meanwhile.
 *
 * A generation whose token is being picked takes part in no step. Its sampler and a copy of its logits belong to the
 * threads until the result is taken. If the request ends before that, it leaves both to the threads (sampling_abandon).
 *
 *            sampling_begin          done            sampling_take
 *   (none) -----------------> QUEUED ----> DONE --------------------> (none)
 *                               |            |
 *                               +------------+--- sampling_abandon --> (freed at once, or when the thread is done)
 */
#ifndef LLM_SAMPLING_THREADS_H
#define LLM_SAMPLING_THREADS_H

#include <stdbool.h>
#include <stdint.h>

#include "boundary/notifier.h"
#include "text/sampling/sampler.h"

typedef struct sampling_threads sampling_threads;
typedef struct sampling_job sampling_job;

/* Each result wakes `consumer`. Returns LLM_OK or LLM_NO_MEMORY. Threads are created when the first job begins. All
 * functions in this header are called by the decode thread, or by the thread that opens the engine. */
int sampling_open(uint32_t n_vocab, notifier *consumer, sampling_threads **out);
/* All jobs must have been abandoned. NULL is allowed. */
void sampling_close(sampling_threads *p);

/* Creates the sampling job of one generation, with space for logits. The job is used for every token of the generation,
 * and owns the sampler from now on. Returns NULL if memory is short. */
sampling_job *sampling_job_open(sampling_threads *p, sampler *s);
void sampling_abandon(sampling_job *j); /* NULL is allowed */

/* Copies the logits and queues the job. If no thread can be created, the calling thread picks the token before this
 * function returns. */
void sampling_begin(sampling_job *j, const float *logits);
/* Returns whether the token was picked. If it was, stores the results of sampler_next in *status and *token. */
bool sampling_take(sampling_job *j, int *status, int32_t *token);

/* Whether a token was picked since the last sampling_settle. The decode thread arms its notifier before it calls this
 * function. Thus the thread misses no result. */
bool sampling_has_result(const sampling_threads *p);
/* Waits until all queued jobs have picked their tokens, but at most us_max microseconds. Clears sampling_has_result. */
void sampling_settle(sampling_threads *p, uint32_t us_max);

#endif
