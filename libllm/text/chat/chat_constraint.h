/* chat_constraint.h: makes the JSON document that tells the sampler about an answer (llm_prompt.constraint, read by
 * constraint/constraint.h). Private to the chat folder. Pure. */
#ifndef LLM_CHAT_CONSTRAINT_H
#define LLM_CHAT_CONSTRAINT_H

#include <string>

#include "model/model.h"
#include "text/chat/chat_control.h"
#include "text/chat/chat_form.h"
#include "text/chat/chat_request.h"

/* Returns the tokens of the form's marks. Made once per form, since a form can have a mark for each tool. */
common_json chat_constraint_marks(const model *m, const control_words &words, const chat_form &form);

/* `opening` is the end of the prompt. Returns "" if the sampler needs no document. */
std::string chat_constraint(const chat_form &form, const std::string &opening, const chat_request &request);

#endif
