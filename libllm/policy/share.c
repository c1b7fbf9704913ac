#include "policy/share.h"

uint32_t share_of(uint32_t limit, uint32_t n_owners)
{
    if (n_owners <= 1) {
        return limit > 0 ? limit : 1;
    }
    const uint64_t kept = (uint64_t)(n_owners - 1) * (limit / (2 * (uint64_t)n_owners));
    if (limit <= 1) {
        return 1;
    }
    return (uint32_t)(limit - (kept > 0 ? kept : 1));
}

static uint64_t equal_part(const share_claim *claim)
{
    const uint32_t part = claim->n_owners > 1 ? claim->limit / claim->n_owners : claim->limit;
    return part > 0 ? part : 1;
}

static uint64_t held_by(const share_holding *holdings, uint32_t n, uint32_t owner)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += holdings[i].owner == owner ? holdings[i].amount : 0;
    }
    return sum;
}

static uint32_t n_that_may_go(const share_holding *holdings, uint32_t n, uint32_t owner)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        count += holdings[i].owner == owner && holdings[i].may_go;
    }
    return count;
}

/* How much its owner holds beyond an equal part. */
static uint64_t excess_of(const share_holding *holdings, uint32_t n, uint32_t owner, const share_claim *claim)
{
    const uint64_t held = held_by(holdings, n, owner);
    return held > equal_part(claim) ? held - equal_part(claim) : 0;
}

uint32_t share_victim(const share_holding *holdings, uint32_t n, const share_claim *claim)
{
    const bool shared = claim->n_owners > 1;
    const bool spares_last = shared && claim->is_lost && held_by(holdings, n, claim->asker) >= equal_part(claim);
    uint32_t victim = n;
    uint64_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        const share_holding *h = &holdings[i];
        if (!h->may_go || (spares_last && h->owner != claim->asker && n_that_may_go(holdings, n, h->owner) == 1)) {
            continue;
        }
        const uint64_t excess = shared ? excess_of(holdings, n, h->owner, claim) : 0;
        if (victim == n || excess > most || (excess == most && h->order < holdings[victim].order)) {
            victim = i;
            most = excess;
        }
    }
    return victim;
}
