/* parser_text.h: writes llama.cpp's parsers of answers as JSON and makes parsers from such JSON. The thread that
 * renders the prompt makes the parser, and the thread that parses the answer uses it. llama.cpp itself wrote such text
 * until 0.5; since 0.6 its parsers are only objects. Used only in libllm/text. Pure. */
#ifndef LLM_PARSER_TEXT_H
#define LLM_PARSER_TEXT_H

#include <common/peg-parser.h>

#include <string>

/* {"root": number, "rules": [{"name": ..., "id": number}], "parsers": [{"type": ..., members of this type}]}. All
 * numbers, including the numbers of children, are positions in "parsers". */
common_json parser_written(const common_peg_arena &arena);

/* Returns the parser in the text. The text has no schemas, so a grammar that is made from the parser accepts any value
 * for a schema. With `has_rules`, rules have names, which only a grammar needs. Throws std::exception if the text is
 * malformed. */
common_peg_arena parser_read(const common_json &text, bool has_rules = false);

#endif
