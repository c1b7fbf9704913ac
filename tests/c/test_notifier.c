/* Tests the notifier. First tests each of its rules. Then two threads pass a number back and forth, and sleep in
 * between. If a wake-up is lost, both threads sleep forever, and the test's alarm reports a failure. */
#include "boundary/notifier.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"
#include "llm.h"

static bool is_woken(const notifier *d)
{
    struct pollfd looked = {.fd = notifier_fd(d), .events = POLLIN};
    return poll(&looked, 1, 0) == 1;
}

static void it_opens_armed_and_coalesces(void)
{
    notifier *d;
    CHECK_INT(notifier_open(&d), LLM_OK);
    CHECK(!is_woken(d));
    notifier_wake(d);
    CHECK(is_woken(d));
    notifier_wake(d);
    notifier_clear(d);
    CHECK(!is_woken(d));
    notifier_close(d);
    notifier_close(NULL);
}

static void an_awake_consumer_is_not_disturbed(void)
{
    notifier *d;
    CHECK_INT(notifier_open(&d), LLM_OK);
    notifier_clear(d); /* disarms the consumer */
    notifier_wake(d);
    CHECK(!is_woken(d));
    notifier_arm(d);
    notifier_wake(d);
    CHECK(is_woken(d));
    notifier_close(d);
}

static bool say_true(void *context)
{
    ++*(int *)context;
    return true;
}

static bool say_false(void *context)
{
    ++*(int *)context;
    return false;
}

static void waiting_asks_once_and_ends(void)
{
    notifier *d;
    int asked = 0;
    CHECK_INT(notifier_open(&d), LLM_OK);
    notifier_wait(d, say_true, &asked, -1); /* there is work, so it does not sleep */
    CHECK_INT(asked, 1);
    notifier_wait(d, say_false, &asked, 0); /* returns because the time is over */
    CHECK_INT(asked, 2);
    notifier_arm(d);
    notifier_wake(d);
    notifier_wait(d, say_false, &asked, -1); /* the consumer was woken before, so it does not sleep */
    CHECK_INT(asked, 3);
    CHECK(!is_woken(d));
    notifier_close(d);
}

typedef struct latecomer {
    notifier *consumer;
    bool was_heard;
} latecomer;

/* Returns false, as if there were no work. But before that, a producer publishes work and wakes the consumer. */
static bool say_false_and_be_woken(void *context)
{
    latecomer *l = context;
    notifier_wake(l->consumer);
    l->was_heard = is_woken(l->consumer);
    return !l->was_heard; /* if the consumer were not woken, it would sleep forever */
}

static void a_ring_between_the_look_and_the_sleep_is_heard(void)
{
    latecomer l = {0};
    CHECK_INT(notifier_open(&l.consumer), LLM_OK);
    notifier_clear(l.consumer); /* as after a drain, the consumer is awake */
    notifier_wait(l.consumer, say_false_and_be_woken, &l, -1);
    CHECK(l.was_heard);
    CHECK(!is_woken(l.consumer));
    notifier_close(l.consumer);
}

/* ---- two threads ---- */

enum { ROUNDS = 50000, BURSTS = 200000 };

typedef struct player {
    notifier *own;
    notifier *other;
    _Atomic int *ball; /* number of the player whose turn it is */
    int number;
} player;

static bool has_ball(void *context)
{
    player *p = context;
    return atomic_load_explicit(p->ball, memory_order_acquire) == p->number;
}

static void *play(void *argument)
{
    player *p = argument;
    for (int round = 0; round < ROUNDS; round++) {
        while (!has_ball(p)) {
            notifier_wait(p->own, has_ball, p, -1);
        }
        atomic_store_explicit(p->ball, 1 - p->number, memory_order_release);
        notifier_wake(p->other);
    }
    return NULL;
}

static void ping_pong_never_sleeps_for_good(void)
{
    notifier *notifiers[2];
    _Atomic int ball = 0;
    pthread_t thread;
    CHECK_INT(notifier_open(&notifiers[0]), LLM_OK);
    CHECK_INT(notifier_open(&notifiers[1]), LLM_OK);
    player a = {.own = notifiers[0], .other = notifiers[1], .ball = &ball, .number = 0};
    player b = {.own = notifiers[1], .other = notifiers[0], .ball = &ball, .number = 1};
    CHECK_INT(pthread_create(&thread, NULL, play, &b), 0);
    play(&a);
    pthread_join(thread, NULL);
    CHECK_INT(atomic_load(&ball), 0);
    notifier_close(notifiers[0]);
    notifier_close(notifiers[1]);
}

typedef struct stream {
    notifier *consumer;
    _Atomic int published;
    int taken;
} stream;

static void *publish(void *argument)
{
    stream *s = argument;
    for (int i = 1; i <= BURSTS; i++) {
        atomic_store_explicit(&s->published, i, memory_order_release);
        notifier_wake(s->consumer);
    }
    return NULL;
}

static bool has_more(void *context)
{
    stream *s = context;
    return atomic_load_explicit(&s->published, memory_order_acquire) != s->taken;
}

/* The producer does not wait. So wake-ups come while the consumer arms, sleeps or drains, in every order. */
static void the_last_ring_is_always_heard(void)
{
    stream s = {0};
    pthread_t thread;
    CHECK_INT(notifier_open(&s.consumer), LLM_OK);
    CHECK_INT(pthread_create(&thread, NULL, publish, &s), 0);
    while (s.taken != BURSTS) {
        notifier_wait(s.consumer, has_more, &s, -1);
        s.taken = atomic_load_explicit(&s.published, memory_order_acquire);
    }
    pthread_join(thread, NULL);
    CHECK_INT(s.taken, BURSTS);
    notifier_close(s.consumer);
}

int main(void)
{
    alarm(60); /* a lost wake-up is a hang, which the alarm ends */
    RUN(it_opens_armed_and_coalesces);
    RUN(an_awake_consumer_is_not_disturbed);
    RUN(waiting_asks_once_and_ends);
    RUN(a_ring_between_the_look_and_the_sleep_is_heard);
    RUN(ping_pong_never_sleeps_for_good);
    RUN(the_last_ring_is_always_heard);
    return CHECK_RESULT();
}
