/* table_pin.c: pins and unpins branches. A pinned branch is never forgotten. */
#include <string.h>

#include "sessions/branch_table.h"

static uint32_t count_pinned(const branch_table *table, const uint32_t *owner)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < table->n_entries; i++) {
        const branch *b = &table->branches[i];
        n += b->is_open && b->record.is_pinned && (owner == NULL || b->owner == *owner);
    }
    return n;
}

uint32_t table_pins_max_of(uint32_t n_names)
{
    enum { UNPINNED_SHARE = 4 }; /* a quarter of all entries is left to unpinned branches */
    return n_names - (n_names >= UNPINNED_SHARE ? n_names / UNPINNED_SHARE : 1);
}

uint32_t table_pins_max(const branch_table *table)
{
    return table_pins_max_of(table_names_max(table));
}

static bool may_pin(branch_table *table, uint32_t owner, uint32_t n_more)
{
    const uint32_t n_max = table_pins_max(table);
    return count_pinned(table, NULL) + n_more <= n_max &&
           count_pinned(table, &owner) + n_more <= share_of(n_max, atomic_load(&table->n_owners));
}

int table_pin(branch_table *table, session_name name, bool pinned)
{
    uint32_t n_branches = 0;
    uint32_t n_more = 0;
    branch *b = NULL;
    while ((b = table_next(table, name, b)) != NULL) {
        n_branches++;
        n_more += b->record.is_pinned == LLM_PIN_NONE;
    }
    if (n_branches == 0) {
        return LLM_NOT_FOUND;
    }
    if (pinned && ((n_more > 0 && !may_pin(table, name.owner, n_more)) || n_branches == BRANCHES_COMPARED_MAX)) {
        return LLM_PINS;
    }
    while ((b = table_next(table, name, b)) != NULL) {
        b->record.is_pinned = pinned ? LLM_PIN_ANCHORED : LLM_PIN_NONE;
        branch_publish(b);
    }
    return LLM_OK;
}

bool table_is_pinned(branch_table *table, session_name name)
{
    branch *b = NULL;
    while ((b = table_next(table, name, b)) != NULL) {
        if (b->record.is_pinned == LLM_PIN_ANCHORED) {
            return true;
        }
    }
    const loose_file *f = NULL;
    while ((f = table_next_loose(table, name, f)) != NULL) {
        if (f->is_pinned) {
            return true;
        }
    }
    return false;
}

void table_pin_with_others(branch_table *table, branch *b)
{
    if (b->record.is_pinned == LLM_PIN_NONE && table_is_pinned(table, branch_session_name(b)) &&
        may_pin(table, b->owner, 1)) {
        b->record.is_pinned = LLM_PIN_SESSION;
        branch_publish(b);
    }
}

void table_pin_follow(branch_table *table, uint32_t owner, const char *name)
{
    branch *b = NULL;
    while ((b = table_next(table, session_name_from(owner, name), b)) != NULL) {
        if (b->record.is_pinned == LLM_PIN_SESSION) {
            b->record.is_pinned = LLM_PIN_NONE;
            branch_publish(b);
        }
    }
    while ((b = table_next(table, session_name_from(owner, name), b)) != NULL) {
        table_pin_with_others(table, b);
    }
}

void table_pin_later_branches(branch_table *table)
{
    for (uint32_t i = 0; i < table->n_entries; i++) {
        if (table->branches[i].is_open && table->branches[i].name[0] != '\0') {
            table_pin_with_others(table, &table->branches[i]);
        }
    }
}
