#include "check.h"
#include "random.h"
#include "policy/share.h"

enum { N_MAX = 200 };

static void test_one_owner_may_take_everything(void)
{
    CHECK_INT(share_of(256, 1), 256);
    CHECK_INT(share_of(256, 0), 256);
    CHECK_INT(share_of(1, 1), 1);
    CHECK_INT(share_of(0, 1), 1);
}

static void test_half_of_each_equal_part_stays_free(void)
{
    CHECK_INT(share_of(256, 2), 192);
    CHECK_INT(share_of(64, 4), 40);
    CHECK_INT(share_of(8, 4), 5);
    CHECK_INT(share_of(8, 5), 5);
    CHECK_INT(share_of(256, 129), 129);
    CHECK_INT(share_of(2, 100), 1);
    CHECK_INT(share_of(1, 100), 1);
}

static void test_whoever_takes_all_it_may_locks_nobody_out(void)
{
    for (uint32_t limit = 0; limit < 400; limit++) {
        for (uint32_t n = 1; n < 40; n++) {
            const uint32_t most = share_of(limit, n);
            CHECK(most >= 1 && (limit == 0 || most <= limit));
            CHECK(n == 1 || limit < 2 || most < limit);
            CHECK(limit - most >= (n - 1) * limit / (2 * n) || limit < 2);
            CHECK(share_of(limit, n + 1) <= most); /* with more owners, no owner gets more */
        }
    }
    CHECK_INT(share_of(UINT32_MAX, UINT32_MAX), UINT32_C(1) << 31);
}

/* ---- victims ---- */

static share_holding of(uint32_t owner, uint64_t order)
{
    return (share_holding){.owner = owner, .amount = 1, .may_go = true, .order = order};
}

static void test_alone_the_oldest_goes(void)
{
    share_holding h[] = {of(1, 5), of(2, 3), of(1, 4)};
    CHECK_INT(share_victim(h, 3, &(share_claim){.asker = 1, .limit = 3, .n_owners = 1, .is_lost = true}), 1);
    h[1].may_go = false;
    CHECK_INT(share_victim(h, 3, &(share_claim){.asker = 1, .limit = 3, .n_owners = 1, .is_lost = true}), 2);
    CHECK_INT(share_victim(h, 0, &(share_claim){.asker = 1, .limit = 3, .n_owners = 1}), 0);
}

static void test_who_holds_most_gives_first(void)
{
    share_holding h[] = {of(1, 1), of(2, 9), of(2, 8), of(2, 7)};
    CHECK_INT(share_victim(h, 4, &(share_claim){.asker = 1, .limit = 4, .n_owners = 2, .is_lost = true}), 3);
    CHECK_INT(share_victim(h, 4, &(share_claim){.asker = 2, .limit = 4, .n_owners = 2, .is_lost = true}), 3);
}

static void test_the_last_one_of_another_is_not_lost_to_who_has_enough(void)
{
    share_holding h[] = {of(1, 1), of(2, 9), of(2, 8)};
    h[1].may_go = h[2].may_go = false;
    share_claim claim = {.asker = 2, .limit = 4, .n_owners = 2, .is_lost = true};
    CHECK_INT(share_victim(h, 3, &claim), 3);
    claim.is_lost = false; /* the victim is only moved, and comes back later */
    CHECK_INT(share_victim(h, 3, &claim), 0);
    claim.is_lost = true;
    claim.asker = 3; /* an owner without holdings */
    CHECK_INT(share_victim(h, 3, &claim), 0);
}

static uint32_t sum_of(const share_holding *h, uint32_t n, uint32_t owner)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += h[i].owner == owner ? h[i].amount : 0;
    }
    return sum;
}

static uint32_t n_going_of(const share_holding *h, uint32_t n, uint32_t owner)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        count += h[i].owner == owner && h[i].may_go;
    }
    return count;
}

static uint32_t excess_of(const share_holding *h, uint32_t n, uint32_t owner, uint32_t equal)
{
    const uint32_t held = sum_of(h, n, owner);
    return held > equal ? held - equal : 0;
}

static void check_victim(share_holding *h, uint32_t n, const share_claim *claim)
{
    const uint32_t equal = claim->limit / claim->n_owners > 0 ? claim->limit / claim->n_owners : 1;
    const uint32_t v = share_victim(h, n, claim);
    const bool has_enough = sum_of(h, n, claim->asker) >= equal;
    CHECK(v == n || h[v].may_go);
    CHECK(v == n || !has_enough || !claim->is_lost || h[v].owner == claim->asker || n_going_of(h, n, h[v].owner) > 1);
    for (uint32_t i = 0; i < n; i++) {
        const bool is_spared =
            has_enough && claim->is_lost && h[i].owner != claim->asker && n_going_of(h, n, h[i].owner) == 1;
        if (!h[i].may_go || is_spared) {
            continue;
        }
        CHECK(v < n); /* there is a victim, unless all holdings are spared */
        const uint32_t excess = excess_of(h, n, h[i].owner, equal), most = excess_of(h, n, h[v].owner, equal);
        CHECK(excess < most || (excess == most && h[i].order >= h[v].order));
    }
}

static void check_any(random_source *r, uint32_t n, uint32_t n_owners)
{
    static share_holding h[N_MAX];
    const uint32_t spread = 1 + random_below(r, UINT32_MAX / N_MAX); /* the numbers of owners can be large */
    for (uint32_t i = 0; i < n; i++) {
        h[i] = (share_holding){.owner = spread * random_below(r, n_owners),
                               .amount = 1 + random_below(r, 3),
                               .may_go = random_below(r, 3) > 0,
                               .order = i * 7 % 13};
    }
    check_victim(h, n,
                 &(share_claim){.asker = spread * random_below(r, n_owners),
                                .limit = random_below(r, 2 * n + 2),
                                .n_owners = n_owners,
                                .is_lost = random_below(r, 2) == 1});
}

static void test_any_holdings(void)
{
    random_source r = {.state = 3};
    for (int round = 0; round < 50000; round++) {
        check_any(&r, random_below(&r, 13), 2 + random_below(&r, 4));
        CHECK_STILL_GOOD();
    }
    for (int round = 0; round < 200; round++) {
        check_any(&r, random_below(&r, N_MAX + 1), 2 + random_below(&r, N_MAX - 2));
        CHECK_STILL_GOOD();
    }
}

int main(void)
{
    RUN(test_one_owner_may_take_everything);
    RUN(test_half_of_each_equal_part_stays_free);
    RUN(test_whoever_takes_all_it_may_locks_nobody_out);
    RUN(test_alone_the_oldest_goes);
    RUN(test_who_holds_most_gives_first);
    RUN(test_the_last_one_of_another_is_not_lost_to_who_has_enough);
    RUN(test_any_holdings);
    return CHECK_RESULT();
}
