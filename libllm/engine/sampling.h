/* sampling.h: threads beside the decode thread that pick tokens where that takes long: an answer that must have a form, or
 * goes through samplers that sort the vocabulary. The others' steps go on meanwhile.
 *
 * A generation that is picked for is in no step. Its sampler and a copy of its logits are the threads' until the result is
 * taken; whoever ends it before just lets go of both.
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

/* `consumer` is woken with each result. LLM_OK, LLM_NO_MEMORY. The threads are made with the first job. All functions: decode
 * thread, or who opened it. */
int sampling_open(uint32_t n_vocab, notifier *consumer, sampling_threads **out);
/* Every job was abandoned. NULL is allowed. */
void sampling_close(sampling_threads *p);

/* Of one generation: its sampler, which it owns from here on, and room for logits. NULL: memory is short. */
sampling_job *sampling_job_open(sampling_threads *p, sampler *s);
void sampling_abandon(sampling_job *j); /* NULL is allowed */

/* Copies the logits, and has a token picked from them. Where no thread can be had, it is picked at once. */
void sampling_begin(sampling_job *j, const float *logits);
/* Whether it is picked; `status` and `token` as of sampler_next. */
bool sampling_take(sampling_job *j, int *status, int32_t *token);

/* Asked after arming the notifier: something was picked since the last sampling_settle. */
bool sampling_has_result(const sampling_threads *p);
/* Waits until all is picked, or so long. Then what is picked has been seen. */
void sampling_settle(sampling_threads *p, uint32_t us_max);

#endif
