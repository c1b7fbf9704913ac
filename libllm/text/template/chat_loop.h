/* chat_loop.h: runs a loop of a chat template, and skips iterations that a memo knows (chat_memo.h). Used only in this
 * folder. */
#ifndef LLM_CHAT_LOOP_H
#define LLM_CHAT_LOOP_H

#include <common/jinja/runtime.h>

/* Returns what the loop writes. Throws what its nodes throw. */
jinja::value chat_loop_run(const jinja::for_statement &loop, jinja::context &ctx);

#endif
