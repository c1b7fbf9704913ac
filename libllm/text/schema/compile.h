/* compile.h: compiles a JSON schema to a grammar. Other folders call schema_grammar, which calls everything else here.
 *
 *   references   what each $ref refers to
 *   shape        the values that all of several conditions allow (expand, negate, nothing, valid)
 *   automaton    sets of texts, from expressions and formats
 *   writer       shapes as rules of GBNF (scalars, number, rules)
 *
 * llama.cpp's converter, used before, accepted 79.7 % of 5,038 real schemas strictly, and 92.3 % of the resulting
 * grammars were right: the converter silently forbade undeclared members and, of several keywords, enforced only one.
 * schema_grammar first merges the conditions that hold at once (allOf, $ref, siblings, not, if, dependencies) and
 * writes GBNF from the result. It accepts 95.8 % of 400 schemas of MaskBench strictly, and 99.7 % of the resulting
 * grammars are right (tests/schemas/corpus_driver). As in JSON schema, an object can have undeclared members unless its
 * schema forbids them ("open" and "closed" objects).
 *
 * Every quantity has a limit: the levels of the document, the conditions of a value, its shapes, the states of
 * automata, the bytes of the grammar, and the total work (work_budget). Beyond a limit the schema is refused
 * (STRICT) or the value is left unconstrained (LOOSE). The functions are pure. Any thread can call them, but on a
 * separate large stack (chat_call_with_stack). */
#ifndef LLM_SCHEMA_COMPILE_H
#define LLM_SCHEMA_COMPILE_H

#include <string>

#include "text/schema/shape.h"

/* Returns GBNF that grammar::read accepts, of at most `most_bytes` bytes as written in JSON. Throws grammar_fault,
 * which names the keyword that cannot be enforced and where the schema has it, or std::bad_alloc. The document must
 * nest at most 128 levels; the caller checks the depth before parsing (json_size.h). */
std::string schema_grammar(const schema_json &document, schema_policy policy, size_t most_bytes, work_budget &budget);

#endif
