/* engine.h: the members of the engine, for the implementation of llm.h (engine*.c). Owned by the thread that opened the
 * engine. While the decode thread runs, it owns the parts that decode.h names. */
#ifndef LLM_ENGINE_H
#define LLM_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "text/chat/chat.h"
#include "engine/decode.h"
#include "engine/draft_model.h"
#include "boundary/notifier.h"
#include "llm.h"
#include "model/model.h"
#include "boundary/session_table.h"
#include "sessions/branch_table.h"
#include "boundary/ring.h"

struct llm_engine {
    model *model;
    draft_model draft_model; /* used by the decode thread only */
    session_table *session_table;
    chat *chat;
    ledger ledger;
    checkpoint_store checkpoints;
    branch_table table;
    store *store; /* NULL without a state directory */
    ring *commands;
    ring *events;
    notifier *command_notifier;
    notifier *event_notifier;
    decode decode;
    wire_refusal refused; /* refusal of the latest command; owned by the loop thread */
};

#endif
