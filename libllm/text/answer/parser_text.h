/* parser_text.h: writes llama.cpp's parsers of answers as JSON and reads them. The thread that reads the request
 * makes the parser, and the thread that reads the answer uses it. llama.cpp wrote such text until 0.5; since 0.6 its
 * parsers are only objects. Private to the text folder. Pure. */
#ifndef LLM_PARSER_TEXT_H
#define LLM_PARSER_TEXT_H

#include <common/peg-parser.h>

#include <string>

/* {"root": number, "rules": [{"name": ..., "id": number}], "parsers": [{"type": ..., members of that type}]}. All
 * numbers, those of children included, are positions in "parsers". */
common_json parser_written(const common_peg_arena &arena);

/* Returns the parser in the text. The text has no schemas, so a grammar made from the parser accepts any value for
 * them. `has_rules`: the rules keep their names, which a grammar needs and parsing does not. Throws std::exception
 * if the text is malformed. */
common_peg_arena parser_read(const common_json &text, bool has_rules = false);

#endif
