/* chat_answer.h: the answer that a prompt asks for: its form, what of it the prompt already holds, and how it is read. Private
 * to the chat door. */
#ifndef LLM_CHAT_ANSWER_H
#define LLM_CHAT_ANSWER_H

#include <memory>
#include <string>

#include "text/chat/chat_form.h"
#include "text/chat/chat_request.h"

/* Throws std::invalid_argument where the wish needs a form and there is none, and chat_limit. */
std::shared_ptr<const chat_form> chat_answer_form(const model *m, const control_words &words,
                                                  const chat_program &program, const chat_wish &wish);

/* The message that is continued, behind the others: its text is a stranger's, and what is around it the template's. */
void chat_answer_begin(const chat_form &form, const chat_request &request, chat_text *out);

/* How the form begins where the prompt ends with `opening`. */
std::string chat_answer_opening(const chat_form &form, bool continues, const std::string &opening);

/* What the grammar has to accept before the answer. */
std::string chat_answer_prefill(const model *m, const chat_form &form, bool continues, const std::string &opening);

/* llm_prompt.syntax. `opening`: how the prompt ends. */
std::string chat_answer_syntax(const chat_form &form, bool continues, const std::string &opening);

#endif
