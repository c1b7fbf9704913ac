/* share.h: what one of several owners may take of what they share, and whose is given up when it runs short. Pure. The
 * daemon's own queues use the same rule (shares.py). */
#ifndef LLM_SHARE_H
#define LLM_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most that one of n owners may hold of a limit: half of each other one's equal part stays free, and at least one in
 * all, so that nobody is locked out. One owner alone may hold everything. At least 1. */
uint32_t share_of(uint32_t limit, uint32_t n_owners);

/* Bytes as an amount: units of 4 KiB, rounded up, so that it fits; 0 bytes are 0. */
uint32_t share_units(size_t n_bytes);

typedef struct share_holding {
    uint32_t owner;
    uint32_t amount;
    bool may_go;
    uint64_t order; /* of those that may go the smallest is the first */
    bool is_going;  /* it is a victim */
    /* share_victim's own: what an owner holds is added up at its first holding, which a hash finds. */
    uint32_t account; /* where that is */
    uint32_t bucket;  /* 1 + the first account of the bucket of this number; 0: none */
    uint32_t next;    /* 1 + the next account of the same bucket */
    uint32_t n_going; /* of an account */
    uint64_t held;
} share_holding;

typedef struct share_claim {
    uint32_t asker;    /* owner of whom room is made for */
    uint32_t limit;    /* of what all may hold together */
    uint32_t n_owners; /* who share it */
    bool is_lost;      /* what goes is gone for good, not just moved elsewhere */
} share_claim;

/* Which holding makes way, or n: none. The first of the owner who holds most beyond an equal part; where nobody does, the
 * first of all. What would be lost is never the last one that another owner could lose, if the asker has an equal part
 * already. Takes time in proportion to n. */
uint32_t share_victim(share_holding *holdings, uint32_t n, const share_claim *claim);

/* Several of them, before any of them goes: add up once, then take one after the other. */
void share_add_up(share_holding *holdings, uint32_t n);
uint32_t share_next_victim(share_holding *holdings, uint32_t n, const share_claim *claim);

#endif
