/* The doorbell: what it promises one by one, then two threads that hand each other a number and sleep in between: one
 * lost wake-up and the game stands still, which the test's alarm turns into a failure. */
#include "boundary/doorbell.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"
#include "llm.h"

static bool is_rung(const doorbell *d)
{
    struct pollfd looked = {.fd = doorbell_fd(d), .events = POLLIN};
    return poll(&looked, 1, 0) == 1;
}

static void it_opens_armed_and_coalesces(void)
{
    doorbell *d;
    CHECK_INT(doorbell_open(&d), LLM_OK);
    CHECK(!is_rung(d));
    doorbell_ring(d);
    CHECK(is_rung(d));
    doorbell_ring(d);
    doorbell_clear(d);
    CHECK(!is_rung(d));
    doorbell_close(d);
    doorbell_close(NULL);
}

static void an_awake_consumer_is_not_disturbed(void)
{
    doorbell *d;
    CHECK_INT(doorbell_open(&d), LLM_OK);
    doorbell_clear(d); /* disarms */
    doorbell_ring(d);
    CHECK(!is_rung(d));
    doorbell_arm(d);
    doorbell_ring(d);
    CHECK(is_rung(d));
    doorbell_close(d);
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
    doorbell *d;
    int asked = 0;
    CHECK_INT(doorbell_open(&d), LLM_OK);
    doorbell_wait(d, say_true, &asked, -1); /* ready: does not sleep */
    CHECK_INT(asked, 1);
    doorbell_wait(d, say_false, &asked, 0); /* times out */
    CHECK_INT(asked, 2);
    doorbell_arm(d);
    doorbell_ring(d);
    doorbell_wait(d, say_false, &asked, -1); /* already rung: does not sleep */
    CHECK_INT(asked, 3);
    CHECK(!is_rung(d));
    doorbell_close(d);
}

typedef struct latecomer {
    doorbell *bell;
    bool was_heard;
} latecomer;

/* A producer that publishes just after the look, and rings. */
static bool say_false_and_be_rung(void *context)
{
    latecomer *l = context;
    doorbell_ring(l->bell);
    l->was_heard = is_rung(l->bell);
    return !l->was_heard; /* or it would sleep for good */
}

static void a_ring_between_the_look_and_the_sleep_is_heard(void)
{
    latecomer l = {0};
    CHECK_INT(doorbell_open(&l.bell), LLM_OK);
    doorbell_clear(l.bell); /* awake, as after a drain */
    doorbell_wait(l.bell, say_false_and_be_rung, &l, -1);
    CHECK(l.was_heard);
    CHECK(!is_rung(l.bell));
    doorbell_close(l.bell);
}

/* ---- two threads ---- */

enum { ROUNDS = 50000, BURSTS = 200000 };

typedef struct player {
    doorbell *own;
    doorbell *other;
    _Atomic int *ball; /* whose turn: the player's number */
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
            doorbell_wait(p->own, has_ball, p, -1);
        }
        atomic_store_explicit(p->ball, 1 - p->number, memory_order_release);
        doorbell_ring(p->other);
    }
    return NULL;
}

static void ping_pong_never_sleeps_for_good(void)
{
    doorbell *bells[2];
    _Atomic int ball = 0;
    pthread_t thread;
    CHECK_INT(doorbell_open(&bells[0]), LLM_OK);
    CHECK_INT(doorbell_open(&bells[1]), LLM_OK);
    player a = {.own = bells[0], .other = bells[1], .ball = &ball, .number = 0};
    player b = {.own = bells[1], .other = bells[0], .ball = &ball, .number = 1};
    CHECK_INT(pthread_create(&thread, NULL, play, &b), 0);
    play(&a);
    pthread_join(thread, NULL);
    CHECK_INT(atomic_load(&ball), 0);
    doorbell_close(bells[0]);
    doorbell_close(bells[1]);
}

typedef struct stream {
    doorbell *bell;
    _Atomic int published;
    int taken;
} stream;

static void *publish(void *argument)
{
    stream *s = argument;
    for (int i = 1; i <= BURSTS; i++) {
        atomic_store_explicit(&s->published, i, memory_order_release);
        doorbell_ring(s->bell);
    }
    return NULL;
}

static bool has_more(void *context)
{
    stream *s = context;
    return atomic_load_explicit(&s->published, memory_order_acquire) != s->taken;
}

/* The producer does not wait: rings meet an arming, a sleeping and a draining consumer in every order. */
static void the_last_ring_is_always_heard(void)
{
    stream s = {0};
    pthread_t thread;
    CHECK_INT(doorbell_open(&s.bell), LLM_OK);
    CHECK_INT(pthread_create(&thread, NULL, publish, &s), 0);
    while (s.taken != BURSTS) {
        doorbell_wait(s.bell, has_more, &s, -1);
        s.taken = atomic_load_explicit(&s.published, memory_order_acquire);
    }
    pthread_join(thread, NULL);
    CHECK_INT(s.taken, BURSTS);
    doorbell_close(s.bell);
}

int main(void)
{
    alarm(60); /* a lost wake-up hangs: let it kill the test */
    RUN(it_opens_armed_and_coalesces);
    RUN(an_awake_consumer_is_not_disturbed);
    RUN(waiting_asks_once_and_ends);
    RUN(a_ring_between_the_look_and_the_sleep_is_heard);
    RUN(ping_pong_never_sleeps_for_good);
    RUN(the_last_ring_is_always_heard);
    return CHECK_RESULT();
}
