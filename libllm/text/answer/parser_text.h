/* parser_text.h: writes llama.cpp's parsers of answers as JSON, and makes parsers from such JSON. The thread that
 * renders the prompt makes the parser, and passes it as JSON to the thread that parses the answer. llama.cpp up to
 * version 0.5 could write its parsers as JSON itself. Since version 0.6 a parser is only a C++ object. The functions
 * are pure, and are used only in libllm/text. */
#ifndef LLM_PARSER_TEXT_H
#define LLM_PARSER_TEXT_H

#include <common/peg-parser.h>

#include <string>

/* Returns a parser as JSON: {"root": number, "rules": [{"name": ..., "id": number}], "parsers": [{"type": ...}]}.
 * Each entry of "parsers" also has the members of its type. A parser is known by its position in "parsers". So each
 * number above is such a position, and so are the numbers with which a parser names its children. */
common_json parser_written(const common_peg_arena &arena);

/* Makes a parser from its JSON. The JSON has no schemas. So a grammar that is made from this parser accepts any value
 * where the original parser had a schema. If `has_rules` is true, the parser's rules have names, which are needed only
 * to make a grammar. Throws std::exception if the JSON is malformed. */
common_peg_arena parser_read(const common_json &text, bool has_rules = false);

#endif
