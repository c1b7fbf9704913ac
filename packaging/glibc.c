/* Functions that llmd, llama.cpp or the build machine's libstdc++ use, and that are missing in glibc 2.28, which a wheel
 * must run with. A library of the wheel that uses one of them links this one; it is not visible outside of the library. */
#include <pthread.h>
#include <stdint.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* Since 2.32: whether the process has one thread, so that reference counts need no atomic instruction. Never assume it. */
char __libc_single_threaded = 0;

/* Since 2.30. */
pid_t gettid(void)
{
    return (pid_t)syscall(SYS_gettid);
}

/* Since 2.36: std::random_device. */
uint32_t arc4random(void)
{
    uint32_t value = 0;
    while (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) {
    }
    return value;
}

/* The wait ends at a time of `clock`; older functions know CLOCK_REALTIME alone. */
static struct timespec in_realtime(clockid_t clock, const struct timespec *deadline)
{
    struct timespec now, real;
    clock_gettime(clock, &now);
    clock_gettime(CLOCK_REALTIME, &real);
    real.tv_sec += deadline->tv_sec - now.tv_sec;
    real.tv_nsec += deadline->tv_nsec - now.tv_nsec;
    if (real.tv_nsec < 0) {
        real.tv_sec--;
        real.tv_nsec += 1000000000;
    } else if (real.tv_nsec >= 1000000000) {
        real.tv_sec++;
        real.tv_nsec -= 1000000000;
    }
    return real;
}

/* Since 2.30: std::condition_variable::wait_for. */
int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *deadline)
{
    const struct timespec real = in_realtime(clock, deadline);
    return pthread_cond_timedwait(cond, mutex, &real);
}

/* Since 2.30: std::timed_mutex. */
int pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock, const struct timespec *deadline)
{
    const struct timespec real = in_realtime(clock, deadline);
    return pthread_mutex_timedlock(mutex, &real);
}
