/* parser_text.h: llama.cpp's parsers of answers as JSON text, by which they reach the answer parser. Private to the
 * text. */
#ifndef LLM_PARSER_TEXT_H
#define LLM_PARSER_TEXT_H

#include <common/peg-parser.h>

#include <string>

/* {"root": number, "rules": {name: number}, "parsers": [{"type": ..., what that type holds}]}; numbers are places in
 * that list, children too. */
std::string parser_written(const common_peg_arena &arena);

/* The parser that was written. It parses; no grammar can be made of it: the schemas are left out. Throws. */
common_peg_arena parser_read(const common_json &text, bool has_rules = false);

#endif
