#include "check.h"
#include "machine/idle_clock.h"

enum { DAY_MS = 24 * 3600 * 1000 };

static void test_it_is_the_wall_clock(void)
{
    idle_clock c = {0};
    CHECK_INT(idle_clock_now(&c, 1000, 50), 1000);
    CHECK_INT(idle_clock_now(&c, 3000, 2050), 3000);
    CHECK_INT(idle_clock_now(&c, 3500, 2550), 3500);
}

/* The clock was wrong, and is set right. A session that was used a minute ago still counts as used a minute ago. */
static void test_a_jump_forward_is_no_time(void)
{
    idle_clock c = {0};
    (void)idle_clock_now(&c, 1000, 50);
    CHECK_INT(idle_clock_now(&c, 1000 + DAY_MS, 150), 1100);
    CHECK_INT(idle_clock_now(&c, 1000 + DAY_MS + 100, 250), 1200);
}

/* Time in which the machine is suspended counts. */
static void test_time_that_has_passed_counts(void)
{
    idle_clock c = {0};
    (void)idle_clock_now(&c, 1000, 50);
    CHECK_INT(idle_clock_now(&c, 1000 + DAY_MS, 50 + DAY_MS), 1000 + DAY_MS);
}

static void test_a_jump_back_is_followed(void)
{
    idle_clock c = {0};
    (void)idle_clock_now(&c, DAY_MS, 50);
    CHECK_INT(idle_clock_now(&c, 1000, 150), 1000);
    CHECK_INT(idle_clock_now(&c, DAY_MS, 250), 1100);
}

int main(void)
{
    RUN(test_it_is_the_wall_clock);
    RUN(test_a_jump_forward_is_no_time);
    RUN(test_time_that_has_passed_counts);
    RUN(test_a_jump_back_is_followed);
    return CHECK_RESULT();
}
