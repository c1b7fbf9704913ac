/* places_pin.c: which histories are kept for good. */
#include <string.h>

#include "sessions/places.h"

static uint32_t count_pinned(const places *p, const uint32_t *owner)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_places; i++) {
        const branch *b = &p->branches[i];
        n += b->is_open && b->record.is_pinned && (owner == NULL || b->owner == *owner);
    }
    return n;
}

uint32_t places_pins_max_of(uint32_t n_names)
{
    enum { UNPINNED_SHARE = 4 }; /* one in so many places stays free for what is not pinned */
    return n_names - (n_names >= UNPINNED_SHARE ? n_names / UNPINNED_SHARE : 1);
}

uint32_t places_pins_max(const places *p)
{
    return places_pins_max_of(places_names_max(p));
}

static bool may_pin(places *p, uint32_t owner, uint32_t n_more)
{
    const uint32_t n_max = places_pins_max(p);
    return count_pinned(p, NULL) + n_more <= n_max &&
           count_pinned(p, &owner) + n_more <= share_of(n_max, atomic_load(&p->n_owners));
}

int places_pin(places *p, session_name name, bool pinned)
{
    uint32_t n_branches = 0;
    uint32_t n_more = 0;
    branch *b = NULL;
    while ((b = places_next(p, name, b)) != NULL) {
        n_branches++;
        n_more += b->record.is_pinned == LLM_PIN_NONE;
    }
    if (n_branches == 0) {
        return LLM_NOT_FOUND;
    }
    if (pinned && ((n_more > 0 && !may_pin(p, name.owner, n_more)) || n_branches == BRANCHES_COMPARED_MAX)) {
        return LLM_PINS;
    }
    while ((b = places_next(p, name, b)) != NULL) {
        b->record.is_pinned = pinned ? LLM_PIN_ANCHORED : LLM_PIN_NONE;
        branch_publish(b);
    }
    return LLM_OK;
}

bool places_is_pinned(places *p, session_name name)
{
    branch *b = NULL;
    while ((b = places_next(p, name, b)) != NULL) {
        if (b->record.is_pinned == LLM_PIN_ANCHORED) {
            return true;
        }
    }
    const loose_file *f = NULL;
    while ((f = places_next_loose(p, name, f)) != NULL) {
        if (f->is_pinned) {
            return true;
        }
    }
    return false;
}

void places_pin_with_others(places *p, branch *b)
{
    if (b->record.is_pinned == LLM_PIN_NONE && places_is_pinned(p, branch_session_name(b)) && may_pin(p, b->owner, 1)) {
        b->record.is_pinned = LLM_PIN_SESSION;
        branch_publish(b);
    }
}

void places_pin_follow(places *p, uint32_t owner, const char *name)
{
    branch *b = NULL;
    while ((b = places_next(p, session_name_from(owner, name), b)) != NULL) {
        if (b->record.is_pinned == LLM_PIN_SESSION) {
            b->record.is_pinned = LLM_PIN_NONE;
            branch_publish(b);
        }
    }
    while ((b = places_next(p, session_name_from(owner, name), b)) != NULL) {
        places_pin_with_others(p, b);
    }
}

void places_pin_later_branches(places *p)
{
    for (uint32_t i = 0; i < p->n_places; i++) {
        if (p->branches[i].is_open && p->branches[i].name[0] != '\0') {
            places_pin_with_others(p, &p->branches[i]);
        }
    }
}
