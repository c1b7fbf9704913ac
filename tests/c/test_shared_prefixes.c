#include "check.h"
#include "model/shared_prefixes.h"

enum { N_SEQ = 4 };

static void test_a_copy_is_counted_for_the_lower_number(void)
{
    shared_prefixes p;
    CHECK(shared_prefixes_open(&p, N_SEQ));
    shared_prefixes_copy(&p, 2, 1, 100);
    CHECK_INT(shared_prefixes_counted_before(&p, 1), 0);
    CHECK_INT(shared_prefixes_counted_before(&p, 2), 100);
    shared_prefixes_close(&p);
}

static void test_copies_of_a_copy_share_when_the_source_is_gone(void)
{
    shared_prefixes p;
    CHECK(shared_prefixes_open(&p, N_SEQ));
    shared_prefixes_copy(&p, 0, 1, 100);
    shared_prefixes_truncate(&p, 1, 60);
    shared_prefixes_copy(&p, 1, 3, 80); /* the copy has 20 tokens that sequence 0 does not have */
    CHECK_INT(shared_prefixes_counted_before(&p, 3), 80);
    shared_prefixes_truncate(&p, 0, 0);
    CHECK_INT(shared_prefixes_counted_before(&p, 1), 0);
    CHECK_INT(shared_prefixes_counted_before(&p, 3), 80);
    shared_prefixes_truncate(&p, 1, 0);
    CHECK_INT(shared_prefixes_counted_before(&p, 3), 0);
    shared_prefixes_close(&p);
}

static void test_no_sequences_share_nothing(void)
{
    shared_prefixes p;
    CHECK(shared_prefixes_open(&p, 0));
    shared_prefixes_truncate(&p, 3, 0);
    CHECK_INT(shared_prefixes_counted_before(&p, 3), 0);
    shared_prefixes_close(&p);
}

int main(void)
{
    RUN(test_a_copy_is_counted_for_the_lower_number);
    RUN(test_copies_of_a_copy_share_when_the_source_is_gone);
    RUN(test_no_sequences_share_nothing);
    return CHECK_RESULT();
}
