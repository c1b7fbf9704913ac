/* chat_guard.h: makes every node of a compiled template pay for what it does (chat_budget.h). The nodes are replaced by
 * subclasses that pay and then run llama.cpp's own code. */
#ifndef LLM_CHAT_GUARD_H
#define LLM_CHAT_GUARD_H

#include <common/jinja/runtime.h>

/* Replaces the nodes of the tree by their guarded kind. Afterwards it may only run while the thread has a
 * chat_budget. */
void chat_guard(jinja::program *program);

#endif
