/* chat_answer.h: what is known about an answer before the model generates it. This is the answer's form (chat_form.h),
 * the answer's beginning, and the syntax for parsing the answer. The beginning of the answer is part of the prompt, at
 * its end. Used only in this folder. */
#ifndef LLM_CHAT_ANSWER_H
#define LLM_CHAT_ANSWER_H

#include <memory>
#include <string>

#include "text/chat/chat_form.h"
#include "text/chat/chat_request.h"

/* Returns the form of the answer. Throws std::invalid_argument if the request needs a form, but the template has none.
 * Requests with tools or structured output need a form. Throws chat_limit (text/template/chat_budget.h). */
std::shared_ptr<const chat_form> chat_answer_form(const model *m, const control_words &words,
                                                  const chat_program &program, const chat_wish &wish);

/* Appends to the prompt the message that the answer continues. The text of this message came from the client and must
 * not become control tokens. The text around this message comes from the template. */
void chat_answer_begin(const chat_form &form, const chat_request &request, chat_text *out);

/* Returns llm_prompt.syntax and llm_prompt.constraint. `opening` is the end of the prompt. `form` comes from
 * chat_answer_form. */
std::shared_ptr<const chat_documents> chat_answer_documents(const model *m, const chat_form &form,
                                                            const chat_request &request, const std::string &opening);

#endif
