/* branch_table.h: the table of all branches of an engine, open or not. The table has three parts. Each part has a
 * header of its own, and members that only the files of the part access (enforced by tests/test_structure.py):
 *
 *   slots.h    which branch has an entry or a slot     branch_table.c, table_keep, _expected, _copy, _publish, _memory
 *   shelf.h    states in memory and on the disk        table_parked, _disk, _files, _saved, _stored, _stop
 *   naming.h   names, pins, and removed files          table_pin, _change, _removal
 *
 * Owned by the decode thread. */
#ifndef LLM_BRANCH_TABLE_H
#define LLM_BRANCH_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "llm.h"
#include "sessions/branch.h"
#include "policy/share.h"
#include "states/store.h"
#include "sessions/naming.h"
#include "sessions/slots.h"
#include "sessions/shelf.h"

typedef struct branch_table_options {
    llm_policy policy;
    uint32_t n_named;          /* slots for named branches */
    uint32_t n_scratch;        /* slots for scratch branches */
    uint32_t n_parked_max;     /* open named branches allowed beyond n_named; 0 without policy park */
    uint32_t n_parked_entries; /* n_parked_max, or more if an earlier daemon left more sessions (adoption.h) */
    uint32_t branches_max;     /* limit on the branches of one session */
    uint32_t n_owners;         /* initial value of branch_table.n_owners */
    /* limit on bytes of states in memory: parked states, and states on their way to or from the store. States on their
     * way may always take 256 MiB. A single state may be even larger (engine.c, ledger.h). */
    size_t parked_bytes_max;
    /* limit on bytes of state files. 0 stands for 1/TABLE_DISK_SHARE of the disk space that is free or taken by state
     * files */
    size_t parked_disk_bytes_max;
} branch_table_options;

enum {
    TABLE_DISK_SHARE = 2,
    TABLE_MOVING_SHARE = 4 /* 1/4 of parked_bytes_max is for states on their way to or from the store */
};
enum { REFUSED_REMOVALS_MAX = 1024, BRANCHES_COMPARED_MAX = 64 };

struct branch_table {
    branch_shared shared;
    branch_table_options options;
    store *store; /* NULL if there is no state directory */
    copy_cost_pace pace;
    branch_totals totals;
    struct {
        uint64_t n_changes;    /* value of branch_totals.n_changes */
        uint64_t n_uses;       /* number of uses and evictions of checkpoints */
    } accounted;               /* the counts of changes when table_account last wrote the records */
    _Atomic uint32_t n_owners; /* number of owners that share the table. Any thread can change this number */
    share_holding *holdings;   /* n_entries elements: the input of share.h, filled before each decision */
    uint32_t n_entries;        /* n_named + n_scratch + n_parked_entries */
    branch *branches;          /* n_entries branches, open or not */
    table_slots slots;
    table_shelf shelf;
    table_naming naming;
};

/* Returns the share_claim (share.h) for a limit of n_bytes_max bytes, which the owners share. Its `asker` is not set,
 * because no owner asks for bytes. */
share_claim table_bytes_claim(const branch_table *table, size_t n_bytes_max);

int table_open(branch_table *table, const branch_shared *shared, const branch_table_options *options, store *disk);
void table_close(branch_table *table);

#endif
