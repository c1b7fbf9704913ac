/* chat_constraint.h: makes the JSON document with which the sampler constrains an answer (llm_prompt.constraint).
 * constraint/constraint.h parses the document. Used only in this folder. Pure functions. */
#ifndef LLM_CHAT_CONSTRAINT_H
#define LLM_CHAT_CONSTRAINT_H

#include <string>

#include "model/model.h"
#include "text/chat/chat_control.h"
#include "text/chat/chat_form.h"
#include "text/chat/chat_request.h"

/* Returns the parts of the document that depend only on the form of the answer (chat_form.h). These parts are:
 * - the tokens of the texts that begin and end reasoning
 * - the triggers
 * - the preserved tokens, which are control tokens whose text belongs to the answer
 * Each tool can add a text that ends reasoning, and each of these texts must be tokenized. So these parts are made once
 * per form and not once per request. */
common_json chat_constraint_marks(const model *m, const control_words &words, const chat_form &form);

/* Returns the document, or "" if the sampler needs no document. `opening` is the end of the prompt. */
std::string chat_constraint(const chat_form &form, const std::string &opening, const chat_request &request);

#endif
