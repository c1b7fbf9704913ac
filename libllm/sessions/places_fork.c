/* places_fork.c: a session becomes a copy of another one without the model. */
#include "sessions/places.h"

static bool is_seated(const session *s)
{
    return s->seat != SESSION_NO_SEAT;
}

void places_copy_state(places *p, session *from, session *to)
{
    blob *state = from->parked.state;
    if (from->record.state == LLM_STATE_TORN || session_n_tokens(from) == 0) {
        return;
    }
    if (is_seated(from)) {
        state = session_save_state(from, LEDGER_PARKED);
    } else if (state != NULL) {
        ledger_hold(p->ground.ledger, LEDGER_PARKED, state);
    }
    if (state == NULL) {
        return;
    }
    page_append(p->ground.page, to->place, session_tokens(from), session_n_tokens(from));
    to->parked = (parked){.where = PARKED_IN_MEMORY,
                          .state = state,
                          .k = is_seated(from) ? session_n_tokens(from) : from->parked.k,
                          .n_bytes = state->n_bytes};
    places_spill(p);
}
