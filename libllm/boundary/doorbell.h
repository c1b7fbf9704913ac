/* doorbell.h: wakes one sleeping consumer through an eventfd. Carries no data: it coalesces, so the consumer drains
 * until empty. Lost wake-ups are impossible if both sides follow the order below; doorbell.c says why.
 *
 *   producer   publish data; doorbell_ring          (writes the eventfd only if the consumer is armed)
 *   consumer   drain; doorbell_arm; check the data once more; if empty: wait for the descriptor
 *              on wake: doorbell_clear; drain; ...
 */
#ifndef LLM_DOORBELL_H
#define LLM_DOORBELL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct doorbell doorbell;

int doorbell_open(doorbell **out); /* LLM_OK, LLM_IO, LLM_NO_MEMORY; opens armed */
void doorbell_close(doorbell *d);  /* NULL is allowed */
int doorbell_fd(const doorbell *d);

void doorbell_ring(doorbell *d);  /* any producer thread */
void doorbell_arm(doorbell *d);   /* consumer */
void doorbell_clear(doorbell *d); /* consumer: empties the eventfd and disarms */
/* Consumer: arms, then sleeps until rung or timeout_ms (-1: forever) has passed, then clears. `ready` is asked once
 * after arming; if it says true, the wait is skipped. */
void doorbell_wait(doorbell *d, bool (*ready)(void *context), void *context, int timeout_ms);

#endif
