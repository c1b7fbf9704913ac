/* notifier.c: see notifier.h.
 *
 * Why no wake-up is lost. Both sides change `armed` only with read-modify-write operations that acquire and release. So
 * all these operations have one order. Consider a producer that publishes data and then calls notifier_wake, which
 * exchanges `armed` with 0. The consumer calls notifier_arm, which exchanges `armed` with 1, and then looks at the data
 * once more:
 *
 *   the wake comes first    The consumer's exchange reads the value of the producer's exchange, or of a later one, and
 *                           so synchronizes with the producer. The consumer's look sees the data.
 *   the arming comes first  The producer's exchange reads 1, and the producer writes the eventfd. If the producer's
 *                           exchange reads 0 instead, another wake or a notifier_clear came between the arming and this
 *                           exchange. After another wake, the other producer writes the eventfd. After a
 *                           notifier_clear, the consumer is awake. In both cases, the consumer's next notifier_clear or
 *                           notifier_arm comes after this producer's exchange and synchronizes with it. The consumer
 *                           looks at the data after that.
 *
 * Plain stores and loads are not enough. On each side, the store may become visible only after a later load. Then each
 * side would miss the other's store.
 *  */
#include "boundary/notifier.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "llm.h"

struct notifier {
    _Atomic uint32_t armed; /* 1 if the consumer sleeps or is about to. Set by the consumer, cleared by the wake */
    int fd;                 /* immutable after notifier_open */
};

int notifier_open(notifier **out)
{
    notifier *d = malloc(sizeof *d);
    if (d == NULL) {
        return LLM_NO_MEMORY;
    }
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) {
        free(d);
        return LLM_IO;
    }
    d->fd = fd;
    atomic_init(&d->armed, 1);
    *out = d;
    return LLM_OK;
}

void notifier_close(notifier *d)
{
    if (d != NULL) {
        close(d->fd);
        free(d);
    }
}

int notifier_fd(const notifier *d)
{
    return d->fd;
}

void notifier_wake(notifier *d)
{
    if (atomic_exchange_explicit(&d->armed, 0, memory_order_acq_rel) == 0) {
        return;
    }
    const uint64_t one = 1;
    /* EAGAIN means that the counter is at its maximum, so the descriptor is already readable. */
    while (write(d->fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

void notifier_arm(notifier *d)
{
    atomic_exchange_explicit(&d->armed, 1, memory_order_acq_rel);
}

void notifier_clear(notifier *d)
{
    atomic_exchange_explicit(&d->armed, 0, memory_order_acq_rel);
    uint64_t count;
    while (read(d->fd, &count, sizeof count) < 0 && errno == EINTR) {
    }
}

void notifier_wait(notifier *d, bool (*ready)(void *context), void *context, int timeout_ms)
{
    notifier_arm(d);
    if (!ready(context)) {
        struct pollfd waited = {.fd = d->fd, .events = POLLIN};
        /* if a signal interrupts the wait, the consumer only looks at the data once more */
        poll(&waited, 1, timeout_ms);
    }
    notifier_clear(d);
}
