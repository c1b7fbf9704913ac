/* call_repairs.h: adds parts of answers that some models write, but llama.cpp's forms lack. Pure. Used only in
 * libllm/text. */
#ifndef LLM_CALL_REPAIRS_H
#define LLM_CALL_REPAIRS_H

#include <common/chat-auto-parser.h>
#include <common/chat.h>

#include <string>

/* If a call's id precedes the name of the tool, llama.cpp's analysis of the template mistakes the id in its example for
 * a part of the form. Removes this id, and returns the mark between id and name, or "" if there is no id. */
std::string split_id_from_name(autoparser::autoparser *analysis);

/* Adds an optional id before the mark `id_end` to the parser and the grammar of a form. */
void allow_ids(const std::string &id_end, common_chat_params *form);

/* Returns whether a form already has ids of calls, as Mistral Nemo's has. Otherwise a call could have two ids. */
bool reads_ids(const common_peg_arena &parser);

/* Solar Open writes reasoning, text and calls as separate messages, and its template expects reasoning under another
 * name than llama.cpp's analysis uses. If `source` is such a template, stores the marks of its reasoning in `found` and
 * returns true. */
bool find_messages(const std::string &source, autoparser::autoparser *found);

/* Allows text next to calls as a message, because llama.cpp expects the frame of such a message only if no tools are
 * offered. `continued` is the text that the answer continues, which is a message, too, or "". */
void allow_messages(const autoparser::autoparser &found, const std::string &continued, common_chat_params *form);

/* Returns llama.cpp's parser, in the format of parser_text.h, changed so that an answer can state its format. */
common_json with_named_format(common_json parser);

#endif
