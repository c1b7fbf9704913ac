/* parser_text.h: llama.cpp's parsers of answers as JSON, by which they reach the answer parser: the thread that
 * reads the request makes the parser, and the thread that reads the answer uses it. llama.cpp wrote such text until
 * 0.5; since 0.6 its parsers are objects only. Private to the folder text. Pure. */
#ifndef LLM_PARSER_TEXT_H
#define LLM_PARSER_TEXT_H

#include <common/peg-parser.h>

#include <string>

/* {"root": number, "rules": [{"name": ..., "id": number}], "parsers": [{"type": ..., what that type holds}]}; numbers are places
 * in that list, children too. */
common_json parser_written(const common_peg_arena &arena);

/* Returns the parser that was written. Schemas are not in the text, so that a grammar made of it takes any value for
 * them. `has_rules`: the rules keep their names, which a grammar needs and reading does not. Throws std::exception if
 * the text is no parser. */
common_peg_arena parser_read(const common_json &text, bool has_rules = false);

#endif
