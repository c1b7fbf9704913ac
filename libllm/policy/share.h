/* share.h: how much of a shared limit one owner can take, and whose holding makes way when the limit is reached. Pure.
 * The daemon's own queues use the same rule (shares.py). */
#ifndef LLM_SHARE_H
#define LLM_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns how much of a limit one of n owners can hold: half of the equal part of each other owner stays free, at least
 * one in all, so that no owner is locked out. A single owner can hold everything. At least 1. */
uint32_t share_of(uint32_t limit, uint32_t n_owners);

/* Converts bytes to an amount: units of 4 KiB, rounded up. */
uint32_t share_units(size_t n_bytes);

typedef struct share_holding {
    uint32_t owner;
    uint32_t amount;
    bool may_go;
    uint64_t order; /* of those that may go the smallest goes first */
    bool is_going;  /* chosen as a victim */
    /* Used by share_victim only. The account of an owner, which adds up its holdings, is kept in its first holding and
     * found by a hash. */
    uint32_t account; /* index of that first holding */
    uint32_t bucket;  /* 1 + the first account of the bucket of this number; 0: none */
    uint32_t next;    /* 1 + the next account of the same bucket */
    uint32_t n_going; /* holdings of the account that may still go */
    uint64_t held;
} share_holding;

typedef struct share_claim {
    uint32_t asker;    /* the owner for whom room is made */
    uint32_t limit;    /* total that all owners can hold */
    uint32_t n_owners; /* owners that share it */
    bool is_lost;      /* a holding that goes is lost, not just moved elsewhere */
} share_claim;

/* Returns the holding that makes way, or n: none. It is the first one (by order) of the owner who holds most beyond an
 * equal part; if no owner does, the first of all. If holdings are lost, an asker that already has an equal part never
 * gets the last one that another owner could lose. Takes time in proportion to n. */
uint32_t share_victim(share_holding *holdings, uint32_t n, const share_claim *claim);

/* Choose several victims before any of them goes: add up once, then take one after the other. */
void share_add_up(share_holding *holdings, uint32_t n);
uint32_t share_next_victim(share_holding *holdings, uint32_t n, const share_claim *claim);

#endif
