#include "policy/share.h"

uint32_t share_of(uint32_t limit, uint32_t n_owners)
{
    if (n_owners <= 1) {
        return limit > 0 ? limit : 1;
    }
    if (limit <= 1) {
        return 1;
    }
    /* Multiply first. With many owners, limit / (2 * n_owners) would round to 0. Then one owner could take almost
     * everything. */
    const uint64_t kept = (uint64_t)(n_owners - 1) * limit / (2 * (uint64_t)n_owners);
    return (uint32_t)(limit - (kept > 0 ? kept : 1));
}

uint32_t share_units(size_t n_bytes)
{
    enum { UNIT_BYTES = 4096 };
    const size_t n = n_bytes / UNIT_BYTES + (n_bytes % UNIT_BYTES != 0);
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static uint64_t equal_part(const share_claim *claim)
{
    const uint32_t part = claim->n_owners > 1 ? claim->limit / claim->n_owners : claim->limit;
    return part > 0 ? part : 1;
}

/* Returns the index of the holding that keeps the account of holding i's owner (share.h). If no earlier holding has
 * that owner, this is `i` itself. */
static uint32_t account_of(share_holding *holdings, uint32_t n, uint32_t i)
{
    const uint32_t owner = holdings[i].owner;
    uint32_t *link = &holdings[(uint32_t)((owner * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % n].bucket;
    while (*link != 0 && holdings[*link - 1].owner != owner) {
        link = &holdings[*link - 1].next;
    }
    if (*link == 0) {
        *link = i + 1;
    }
    return *link - 1;
}

void share_add_up(share_holding *holdings, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        holdings[i].is_going = false;
        holdings[i].bucket = holdings[i].next = holdings[i].n_going = 0;
        holdings[i].held = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        holdings[i].account = account_of(holdings, n, i);
        share_holding *account = &holdings[holdings[i].account];
        account->held += holdings[i].amount;
        account->n_going += holdings[i].may_go;
    }
}

static bool has_equal_part(const share_holding *holdings, uint32_t n, const share_claim *claim)
{
    uint64_t held = 0;
    for (uint32_t i = 0; i < n; i++) {
        held += holdings[i].owner == claim->asker ? holdings[i].amount : 0;
    }
    return held >= equal_part(claim);
}

uint32_t share_next_victim(share_holding *holdings, uint32_t n, const share_claim *claim)
{
    const bool shared = claim->n_owners > 1;
    const bool spares_last = shared && claim->is_lost && has_equal_part(holdings, n, claim);
    uint32_t victim = n;
    uint64_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        const share_holding *h = &holdings[i];
        const share_holding *account = &holdings[h->account];
        if (!h->may_go || h->is_going || (spares_last && h->owner != claim->asker && account->n_going == 1)) {
            continue;
        }
        /* by how much the holding's owner exceeds an equal part */
        const uint64_t excess = shared && account->held > equal_part(claim) ? account->held - equal_part(claim) : 0;
        if (victim == n || excess > most || (excess == most && h->order < holdings[victim].order)) {
            victim = i;
            most = excess;
        }
    }
    if (victim < n) {
        share_holding *account = &holdings[holdings[victim].account];
        account->held -= holdings[victim].amount;
        account->n_going--;
        holdings[victim].is_going = true;
    }
    return victim;
}

uint32_t share_victim(share_holding *holdings, uint32_t n, const share_claim *claim)
{
    share_add_up(holdings, n);
    return share_next_victim(holdings, n, claim);
}
