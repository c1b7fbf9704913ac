/* share.h: how much of a shared limit one owner can hold, and which holding is given up when the limit is reached. Pure
 * functions. The daemon's own queues use the same rule (shares.py). */
#ifndef LLM_SHARE_H
#define LLM_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns how much of a limit one of n owners can hold, at least 1. Half of the equal part of each other owner is left
 * free, at least one in total, so that no owner is locked out. A single owner can hold everything. */
uint32_t share_of(uint32_t limit, uint32_t n_owners);

/* Converts bytes to an amount: units of 4 KiB, rounded up. */
uint32_t share_units(size_t n_bytes);

typedef struct share_holding {
    uint32_t owner;
    uint32_t amount;
    bool may_go;
    uint64_t order; /* of the holdings that may go, that with the smallest order goes first */
    bool is_going;  /* chosen as a victim */
    /* Used by share_victim only. The account of an owner adds up the owner's holdings. The account is kept in the
     * owner's first holding, and a hash table finds the account. */
    uint32_t account; /* index of that first holding */
    uint32_t bucket;  /* 1 + the first account of the hash bucket with this index; 0 if none */
    uint32_t next;    /* 1 + the next account of the same bucket; 0 if none */
    uint32_t n_going; /* holdings of the account that may still go */
    uint64_t held;
} share_holding;

typedef struct share_claim {
    uint32_t asker;    /* the owner who needs a holding to go */
    uint32_t limit;    /* total that all owners can hold */
    uint32_t n_owners; /* owners that share it */
    bool is_lost;      /* a holding that goes is lost, not just moved elsewhere */
} share_claim;

/* Returns the index of the holding that goes, or n if none may go. That is the first holding (by order) of the owner
 * who holds most beyond an equal part, or the first of all holdings if no owner holds more than an equal part. If
 * is_lost, an asker that already has an equal part never takes the last holding that another owner could lose. Takes
 * time in proportion to n. */
uint32_t share_victim(share_holding *holdings, uint32_t n, const share_claim *claim);

/* Choose several victims before any of them goes: call share_add_up once, then share_next_victim for each victim. */
void share_add_up(share_holding *holdings, uint32_t n);
uint32_t share_next_victim(share_holding *holdings, uint32_t n, const share_claim *claim);

#endif
