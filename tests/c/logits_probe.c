#include "logits_probe.h"

#include <string.h>

#include "engine/engine.h"

const float *probe_logits(const llm_engine *engine, const char *name, uint32_t n_tokens)
{
    for (uint32_t i = 0; i < engine->table.n_entries; i++) {
        const branch *b = &engine->table.branches[i];
        if (b->is_open && b->owner == 0 && strcmp(b->name, name) == 0 && b->logits_at == n_tokens) {
            return b->logits;
        }
    }
    return NULL;
}
