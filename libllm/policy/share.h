/* share.h: how much of a shared limit one owner can hold, and what is given up at the limit. A holding is one thing
 * that an owner holds and that counts against the limit. A slot or a checkpoint is an example. Pure functions. The
 * daemon's own queues use the same rule (shares.py). */
#ifndef LLM_SHARE_H
#define LLM_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns how much of a limit one of n owners can hold, at least 1. An owner must leave half of limit / n_owners to
 * each of the other owners, and at least 1 to all of them together. Thus no owner is locked out. A single owner can
 * hold everything. */
uint32_t share_of(uint32_t limit, uint32_t n_owners);

/* Converts bytes to an amount: units of 4 KiB, rounded up. */
uint32_t share_units(size_t n_bytes);

typedef struct share_holding {
    uint32_t owner;
    uint32_t amount;
    bool may_go;
    uint64_t order; /* holdings with a smaller order are given up first */
    bool is_going;  /* the holding was already chosen to be given up */
    /* The other members are set by share_add_up. An owner's account adds up all holdings of the owner. The account is
     * kept in the owner's first holding, and is found with a hash table. */
    uint32_t account; /* index of the owner's first holding, which keeps the owner's account */
    /* in the i-th holding, bucket number i of the hash table: 1 + index of the bucket's first account, or 0 if the
     * bucket is empty */
    uint32_t bucket;
    uint32_t next;    /* 1 + index of the next account in the same hash bucket; 0: none */
    uint32_t n_going; /* number of the owner's holdings that can still be given up */
    uint64_t held;
} share_holding;

typedef struct share_claim {
    uint32_t asker;    /* the owner for whom a holding must be given up */
    uint32_t limit;    /* amount that all owners together can hold */
    uint32_t n_owners; /* owners that share the limit */
    bool is_lost;      /* a holding that is given up is lost, not just moved elsewhere */
} share_claim;

/* Chooses which holding is given up, for example which slot. Returns its index, or n if no holding may go. First
 * chooses the owner who exceeds an equal part of the limit most. Then chooses that owner's holding with the smallest
 * order. If no owner exceeds an equal part, chooses the holding with the smallest order of all. Exception: suppose
 * that claim->is_lost is set, and that the asker has an equal part or more. Then every other owner keeps at least one
 * of the holdings that could be given up. Takes time in proportion to n. */
uint32_t share_victim(share_holding *holdings, uint32_t n, const share_claim *claim);

/* To choose several holdings before any of them is given up, call share_add_up once, and then share_next_victim for
 * each of them. */
void share_add_up(share_holding *holdings, uint32_t n);
uint32_t share_next_victim(share_holding *holdings, uint32_t n, const share_claim *claim);

#endif
