/* notifier.c: see notifier.h.
 *
 * Why no wake-up is lost. Both sides touch `armed` only with read-modify-write operations that acquire and release, so
 * these stand in one order. Take a producer that has published data and then wakes (exchange to 0), and a consumer
 * that arms (exchange to 1) and then looks at the data once more:
 *
 *   the wake comes first    the consumer's exchange reads from it, or from an exchange after it, and so synchronizes
 *                           with it: the second look sees the data.
 *   the arming comes first  the producer's exchange reads 1 and writes the eventfd, unless another wake or a
 *                           notifier_clear came between: the other wake has written it, and after a clear the consumer
 *                           drains, having synchronized as above if the clear came last, and arms again if not.
 *
 * Plain stores and loads would not do: a store may pass a later load on both sides, and each would miss the other.
 */
#include "boundary/notifier.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "llm.h"

struct notifier {
    _Atomic uint32_t armed; /* 1: the consumer sleeps or is about to; set by it, taken by the producer that wakes it */
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
    /* EAGAIN means that the counter is at its maximum, and then it is readable already. */
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
        poll(&waited, 1, timeout_ms); /* an interrupted wait is one more look at the data, nothing else */
    }
    notifier_clear(d);
}
