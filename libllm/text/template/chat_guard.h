/* chat_guard.h: makes every node in the syntax tree of a compiled template pay for its work. Paying means that the work
 * is subtracted from the thread's budget (chat_budget.h). Each node is replaced by a node of a subclass, which pays and
 * then runs llama.cpp's own code. */
#ifndef LLM_CHAT_GUARD_H
#define LLM_CHAT_GUARD_H

#include <common/jinja/runtime.h>

/* Replaces the nodes of the program's syntax tree by nodes that pay. After that, the program can run only while the
 * thread has a chat_budget. */
void chat_guard(jinja::program *program);

#endif
