#include "check.h"
#include "machine/team.h"

enum { ALONE_US = 10000, MS = 1000 };

/* A machine with n_cores cores, of which other programs want n_wanted. If too few cores are left for all threads, a
 * step waits for the thread that shares a core. */
typedef struct machine {
    int32_t n_cores, n_wanted;
    bool is_unknown;  /* whether the number of idle cores is unknown */
    int32_t n_useful; /* more threads than this are no faster; 0 means that each further thread makes a step faster */
    uint64_t now_us;
    uint32_t n_steps_with[33];
} machine;

static double step_us(const machine *m, int32_t n_threads)
{
    const int32_t n_useful = m->n_useful > 0 && m->n_useful < n_threads ? m->n_useful : n_threads;
    const double us = (double)ALONE_US / n_useful;
    return n_threads + m->n_wanted > m->n_cores ? 2.5 * us : us;
}

static void make_steps(machine *m, team *t, uint32_t n_tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const int32_t n_threads = team_size(t);
        const double us = step_us(m, n_threads);
        m->n_steps_with[n_threads]++;
        m->now_us += (uint64_t)us;
        const int32_t n_idle = m->n_cores - m->n_wanted - n_threads;
        team_learn(t, n_tokens, us, n_idle < 0 ? us / 2 : 0, m->is_unknown ? -1 : n_idle > 0 ? n_idle : 0, m->now_us);
    }
}

static void test_alone_all_of_them_work(void)
{
    machine m = {.n_cores = 4};
    team t;
    team_open(&t, 4, 4);
    make_steps(&m, &t, 1, 5000);
    CHECK_INT(m.n_steps_with[4], 5000);
}

static void test_a_thread_less_while_others_want_its_core(void)
{
    machine m = {.n_cores = 4, .n_wanted = 1};
    team t;
    team_open(&t, 4, 4);
    make_steps(&m, &t, 1, 1000);
    CHECK_INT(t.n_settled, 3);
    CHECK(m.n_steps_with[3] > 900);
    m.n_wanted = 2;
    make_steps(&m, &t, 1, 5000);
    CHECK_INT(t.n_settled, 2);
}

/* A large difference is recognized immediately, so only few steps of a short answer are slow. */
static void test_a_short_answer_is_enough_to_learn(void)
{
    machine m = {.n_cores = 2, .n_wanted = 1};
    team t;
    team_open(&t, 2, 2);
    make_steps(&m, &t, 1, 24);
    CHECK(m.n_steps_with[2] <= 4);
    make_steps(&m, &t, 1, 1000);
    CHECK(m.n_steps_with[2] <= 12);
}

static void test_it_comes_back_when_they_are_gone(void)
{
    machine m = {.n_cores = 2, .n_wanted = 1};
    team t;
    team_open(&t, 2, 2);
    make_steps(&m, &t, 1, 3000);
    CHECK_INT(t.n_settled, 1);
    m.n_wanted = 0;
    make_steps(&m, &t, 1, 4000);
    CHECK_INT(t.n_settled, 2);
}

/* If two other programs want both cores, one thread must share its core, too. */
static void test_a_thread_less_that_is_no_faster_is_soon_left_alone(void)
{
    machine m = {.n_cores = 2, .n_wanted = 2};
    team t;
    team_open(&t, 2, 2);
    make_steps(&m, &t, 1, 10000);
    CHECK_INT(t.n_settled, 2);
    CHECK(m.n_steps_with[1] > 0 && m.n_steps_with[1] < 100);
}

static void test_only_steps_alike_are_compared(void)
{
    machine m = {.n_cores = 2, .n_wanted = 1};
    team t;
    team_open(&t, 2, 2);
    for (uint32_t i = 0; i < 500; i++) {
        make_steps(&m, &t, 1 + i % 3, 1);
    }
    CHECK_INT(t.n_settled, 2);
    CHECK_INT(m.n_steps_with[2], 500);
}

/* Trials with more threads slow down other programs. So they are rare if no core is idle. */
static void test_more_are_tried_where_there_is_room(void)
{
    machine seeing = {.n_cores = 2, .n_wanted = 1}, blind = {.n_cores = 2, .n_wanted = 1, .is_unknown = true};
    team t, u;
    team_open(&t, 2, 2);
    team_open(&u, 2, 2);
    make_steps(&seeing, &t, 1, 600);
    make_steps(&blind, &u, 1, 600);
    CHECK_INT(seeing.n_steps_with[2], 3);
    CHECK(blind.n_steps_with[2] > 5);
    make_steps(&seeing, &t, 1, 6000);
    CHECK(seeing.n_steps_with[2] > 3 && seeing.n_steps_with[2] < 12);
    seeing.n_wanted = 0;
    make_steps(&seeing, &t, 1, 60);
    CHECK_INT(t.n_settled, 2);
}

/* The number of tokens changes in the middle of each trial, so the trial ends. Its slow step counts nevertheless. */
static void test_a_guess_that_is_given_up_counts(void)
{
    machine m = {.n_cores = 2, .n_wanted = 1};
    team t;
    team_open(&t, 2, 2);
    make_steps(&m, &t, 1, 600);
    m.now_us += 20000 * MS; /* so that a trial is due */
    m.n_steps_with[2] = 0;
    for (uint32_t i = 0; i < 100; i++) {
        make_steps(&m, &t, 2 + i % 2, 5);
    }
    CHECK_INT(m.n_steps_with[2], 1);
}

/* The first size was measured while other programs were busy, for example at the start of the machine. */
static void test_a_team_that_began_too_small_grows(void)
{
    machine m = {.n_cores = 4};
    team t;
    team_open(&t, 4, 1);
    make_steps(&m, &t, 1, 1000);
    CHECK_INT(t.n_settled, 4);
    CHECK(m.n_steps_with[4] > 800);
}

/* With many threads, one more makes no difference that can be measured. So a large team grows by several threads, until
 * few are left. */
static void test_a_large_team_grows_by_more(void)
{
    machine m = {.n_cores = 32};
    team t;
    team_open(&t, 32, 20);
    make_steps(&m, &t, 1, 10000);
    CHECK(t.n_settled >= 30);
}

/* The clock counts from the start of the machine, so it is not 0 at first. */
static void test_no_guess_is_made_at_once(void)
{
    machine m = {.n_cores = 2, .n_wanted = 1, .now_us = 3600000000};
    team t;
    team_open(&t, 2, 1);
    make_steps(&m, &t, 1, 100);
    CHECK_INT(m.n_steps_with[2], 0);
}

static void test_what_was_measured_well_is_left_alone(void)
{
    machine m = {.n_cores = 8, .n_useful = 3};
    team t;
    team_open(&t, 8, 3);
    make_steps(&m, &t, 1, 20000); /* a minute of steps */
    CHECK_INT(t.n_settled, 3);
    CHECK(m.n_steps_with[4] > 0 && m.n_steps_with[4] < 60);
}

static void test_one_is_the_least(void)
{
    machine m = {.n_cores = 1, .n_wanted = 3};
    team t;
    team_open(&t, 1, 1);
    make_steps(&m, &t, 1, 1000);
    CHECK_INT(m.n_steps_with[1], 1000);
}

int main(void)
{
    RUN(test_alone_all_of_them_work);
    RUN(test_a_thread_less_while_others_want_its_core);
    RUN(test_a_short_answer_is_enough_to_learn);
    RUN(test_it_comes_back_when_they_are_gone);
    RUN(test_a_thread_less_that_is_no_faster_is_soon_left_alone);
    RUN(test_only_steps_alike_are_compared);
    RUN(test_more_are_tried_where_there_is_room);
    RUN(test_a_guess_that_is_given_up_counts);
    RUN(test_a_team_that_began_too_small_grows);
    RUN(test_a_large_team_grows_by_more);
    RUN(test_no_guess_is_made_at_once);
    RUN(test_what_was_measured_well_is_left_alone);
    RUN(test_one_is_the_least);
    return CHECK_RESULT();
}
