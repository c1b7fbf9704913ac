/* notifier.h: wakes one sleeping consumer through an eventfd. A wake carries no data, and several wakes may become one.
 * So the consumer takes data until none is left. The consumer is armed while it sleeps or is about to sleep. No wake is
 * lost if both sides follow the order below. notifier.c says why.
 *
 *   producer   publish data; notifier_wake          (writes the eventfd only if the consumer is armed)
 *   consumer   drain; notifier_arm; check the data once more; if empty: wait for the descriptor
 *              on wake: notifier_clear; drain; ...
 *  */
#ifndef LLM_NOTIFIER_H
#define LLM_NOTIFIER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct notifier notifier;

int notifier_open(notifier **out); /* returns LLM_OK, LLM_IO or LLM_NO_MEMORY; the consumer is armed at first */
void notifier_close(notifier *d);  /* NULL is allowed */
int notifier_fd(const notifier *d);

void notifier_wake(notifier *d);  /* called by any producer thread */
void notifier_arm(notifier *d);   /* called by the consumer */
void notifier_clear(notifier *d); /* called by the consumer: empties the eventfd and disarms the notifier */
/* Called by the consumer. Arms the notifier, and sleeps until a wake. The sleep also ends after timeout_ms, unless
 * timeout_ms is -1. Then clears the notifier. `ready` is called once after arming. If `ready` returns true, the
 * consumer does not sleep. */
void notifier_wait(notifier *d, bool (*ready)(void *context), void *context, int timeout_ms);

#endif
