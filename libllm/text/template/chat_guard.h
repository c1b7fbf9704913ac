/* chat_guard.h: a compiled template whose every node pays for what it does (chat_budget.h). */
#ifndef LLM_CHAT_GUARD_H
#define LLM_CHAT_GUARD_H

#include <common/jinja/runtime.h>

/* Replaces the nodes of the tree by their guarded kind. Afterwards it only runs where a chat_budget lives. */
void chat_guard(jinja::program *program);

#endif
