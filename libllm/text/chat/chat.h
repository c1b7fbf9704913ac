/* chat.h: the interface to chat templates. Renders messages to tokens. Only the template's own text can become control
 * tokens. For example, a message that contains "<|im_end|>" must not end the user's turn. A `chat` never changes after
 * chat_open, so any thread can render with it. */
#ifndef LLM_CHAT_H
#define LLM_CHAT_H

#include <stddef.h>

#include "llm.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct chat chat;

/* Compiles the model's template (m->ops->chat_template). chat_open returns LLM_OK even if the model has no template or
 * the template does not compile, because the model can still serve plain completions. In this case, chat_render returns
 * LLM_TEMPLATE with a message. */
int chat_open(const model *m, chat **out, char *error, size_t error_bytes);
void chat_close(chat *c); /* NULL is allowed */

int chat_has_template(const chat *c);

/* Implements llm_chat_render (llm.h). */
int chat_render(const chat *c, const char *request, size_t n_bytes, llm_prompt *out, char *error, size_t error_bytes);

#ifdef __cplusplus
}
#endif
#endif
