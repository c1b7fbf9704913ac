/* Tests the ring. First tests each of its rules. Then one thread pushes records of random sizes and another drains
 * them, both as fast as possible. */
#include "boundary/ring.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "check.h"
#include "llm.h"

static void capacity_is_a_power_of_two_and_records_are_bounded(void)
{
    ring *r;
    CHECK_INT(ring_open(1000, &r), LLM_OK);
    CHECK_INT(ring_record_max(r), 1024 / 2 - 8);
    CHECK(ring_reserve(r, ring_record_max(r)) != NULL);
    CHECK(ring_reserve(r, ring_record_max(r) + 1) == NULL);
    CHECK(ring_reserve(r, 0) == NULL);
    CHECK(ring_reserve(r, SIZE_MAX) == NULL);
    ring_close(r);
    CHECK_INT(ring_open(SIZE_MAX / 2, &r), LLM_NO_MEMORY);
    ring_close(NULL);
}

static void nothing_is_visible_before_commit(void)
{
    ring *r;
    size_t n = 0;
    CHECK_INT(ring_open(256, &r), LLM_OK);
    CHECK(ring_is_empty(r));
    CHECK(ring_peek(r, &n) == NULL);
    memcpy(ring_reserve(r, 9), "discarded", 9);
    CHECK(ring_is_empty(r));
    CHECK(ring_peek(r, &n) == NULL);
    memcpy(ring_reserve(r, 64), "kept and shrunk", 15);
    ring_commit(r, 4);
    CHECK(!ring_is_empty(r));
    const void *record = ring_peek(r, &n);
    CHECK_INT(n, 4);
    CHECK(memcmp(record, "kept", 4) == 0);
    CHECK((uintptr_t)record % 8 == 0);
    CHECK(ring_peek(r, &n) == record); /* peeking removes no record */
    ring_release(r);
    CHECK(ring_is_empty(r));
    CHECK(ring_peek(r, &n) == NULL);
    ring_close(r);
}

/* An empty ring has room for the largest record at every place. So no sequence of sizes can block it. */
static void the_largest_record_fits_from_every_place(void)
{
    for (size_t start = 1; start <= 120; start++) {
        ring *r;
        size_t n = 0;
        CHECK_INT(ring_open(128, &r), LLM_OK);
        for (size_t moved = 0; moved < start; moved++) {
            CHECK(ring_reserve(r, 1 + moved % 40) != NULL);
            ring_commit(r, 1 + moved % 40);
            CHECK(ring_peek(r, &n) != NULL);
            CHECK_INT(n, 1 + moved % 40);
            ring_release(r);
        }
        CHECK(ring_reserve(r, ring_record_max(r)) != NULL);
        ring_commit(r, ring_record_max(r));
        CHECK(ring_peek(r, &n) != NULL);
        CHECK_INT(n, ring_record_max(r));
        ring_release(r);
        ring_close(r);
    }
}

static void full_is_an_answer_and_passes(void)
{
    ring *r;
    size_t n;
    CHECK_INT(ring_open(128, &r), LLM_OK);
    for (uint64_t i = 0; i < 8; i++) { /* 8 records of 8 + 8 bytes fill the ring completely */
        uint64_t *record = ring_reserve(r, 8);
        CHECK(record != NULL);
        *record = i;
        ring_commit(r, 8);
    }
    CHECK(ring_reserve(r, 1) == NULL);
    for (uint64_t i = 0; i < 8; i++) {
        const uint64_t *record = ring_peek(r, &n);
        CHECK(record != NULL);
        CHECK_INT(*record, i);
        ring_release(r);
        CHECK(ring_reserve(r, 8) != NULL);
    }
    CHECK(ring_is_empty(r));
    ring_close(r);
}

/* ---- two threads ---- */

enum { STRESS_RECORDS_MAX = 4000000 };
#define STRESS_NS_MAX INT64_C(1000000000)

typedef struct stress {
    ring *r;
    _Atomic uint64_t total; /* number of records pushed, valid when `done` is set */
    _Atomic int done;
    _Atomic uint64_t full;  /* how often the producer found no room */
    _Atomic uint64_t empty; /* how often the consumer found no record */
} stress;

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Returns the size of record i. Its size and its bytes depend only on i. Most records are small, and some are large. */
static size_t size_of(uint64_t i, size_t max)
{
    uint64_t h = mix(i);
    return h % 16 == 0 ? 1 + (size_t)((h >> 8) % max) : 1 + (size_t)((h >> 8) % 40);
}

static void fill(uint8_t *record, uint64_t i, size_t n)
{
    for (size_t at = 0; at < n; at++) {
        record[at] = (uint8_t)(i + 31 * at);
    }
}

static int is_intact(const uint8_t *record, uint64_t i, size_t n)
{
    unsigned difference = 0;
    for (size_t at = 0; at < n; at++) {
        difference |= (unsigned)(record[at] ^ (uint8_t)(i + 31 * at));
    }
    return difference == 0;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void *produce(void *argument)
{
    stress *s = argument;
    size_t max = ring_record_max(s->r);
    int64_t deadline = now_ns() + STRESS_NS_MAX;
    uint64_t i = 0;
    for (; i < STRESS_RECORDS_MAX && (i % 4096 != 0 || i == 0 || now_ns() < deadline); i++) {
        while (i == 2000 && atomic_load(&s->empty) == 0) { /* waits until the consumer has found the ring empty once */
            sched_yield();
        }
        size_t n = size_of(i, max);
        /* some commits are smaller than what was reserved */
        size_t reserved = n < max && (i & 3) == 0 ? n + 1 + (size_t)(i % (max - n)) : n;
        uint8_t *record;
        while ((record = ring_reserve(s->r, reserved)) == NULL) {
            atomic_fetch_add(&s->full, 1);
            sched_yield();
        }
        fill(record, i, n);
        ring_commit(s->r, n);
    }
    atomic_store(&s->total, i);
    atomic_store(&s->done, 1);
    return NULL;
}

static void two_threads_lose_and_tear_nothing(void)
{
    stress s = {0};
    pthread_t producer;
    uint64_t i = 0, torn = 0;
    CHECK_INT(ring_open(4096, &s.r), LLM_OK);
    CHECK_INT(pthread_create(&producer, NULL, produce, &s), 0);
    while (atomic_load(&s.full) == 0) { /* waits until the producer has found the ring full once */
        sched_yield();
    }
    for (;;) {
        int done = atomic_load(&s.done); /* read first: if it is set and the ring is empty, no record comes any more */
        size_t n;
        const uint8_t *record = ring_peek(s.r, &n);
        if (record == NULL) {
            if (done) {
                break;
            }
            atomic_fetch_add(&s.empty, 1);
            sched_yield();
            continue;
        }
        torn += n != size_of(i, ring_record_max(s.r)) || !is_intact(record, i, n);
        ring_release(s.r);
        i++;
    }
    pthread_join(producer, NULL);
    CHECK_INT(torn, 0);
    CHECK_INT(i, atomic_load(&s.total));
    CHECK(i >= 4096);
    CHECK(ring_is_empty(s.r));
    ring_close(s.r);
}

int main(void)
{
    RUN(capacity_is_a_power_of_two_and_records_are_bounded);
    RUN(nothing_is_visible_before_commit);
    RUN(the_largest_record_fits_from_every_place);
    RUN(full_is_an_answer_and_passes);
    RUN(two_threads_lose_and_tear_nothing);
    return CHECK_RESULT();
}
