/* call_repairs.h: parts of answers that some models write and llama.cpp's forms lack. Pure. Private to the chat
 * door. */
#ifndef LLM_CALL_REPAIRS_H
#define LLM_CALL_REPAIRS_H

#include <common/chat-auto-parser.h>
#include <common/chat.h>

#include <string>

/* If a call's id precedes the name of the tool, llama.cpp's analysis takes the id of its own example for a part of the
 * form. Removes it, and returns the mark between id and name; "": there is no id. */
std::string split_id_from_name(autoparser::autoparser *analysis);

/* Adds an optional id before that mark to the parser and the grammar of a form. */
void allow_ids(const std::string &id_end, common_chat_params *form);

/* Returns whether a form already has ids of calls, like Mistral Nemo's. A second one would let a call have two ids. */
bool reads_ids(const common_peg_arena &parser);

/* Solar Open's reasoning, text and calls are messages of their own, and its template takes reasoning by another name than
 * llama.cpp's analysis gives it. Notes the marks of reasoning, and returns whether the template is such a one. */
bool find_messages(const std::string &source, autoparser::autoparser *found);

/* Lets the text beside calls be a message: llama.cpp reads the frame of a text only where no tools are offered. `continued`:
 * the text that the answer continues, which is a message, too; "": none. */
void allow_messages(const autoparser::autoparser &found, const std::string &continued, common_chat_params *form);

/* Returns llama.cpp's parser, in the format of parser_text, changed so that an answer can state its format. */
common_json with_named_format(common_json parser);

#endif
