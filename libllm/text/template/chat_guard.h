/* chat_guard.h: makes every node of a compiled template pay for its work (chat_budget.h). Each node is replaced by a
 * subclass that pays and then runs llama.cpp's own code. */
#ifndef LLM_CHAT_GUARD_H
#define LLM_CHAT_GUARD_H

#include <common/jinja/runtime.h>

/* Replaces the nodes of the tree by guarded nodes. The program can then run only while the thread has a chat_budget. */
void chat_guard(jinja::program *program);

#endif
