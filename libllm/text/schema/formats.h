/* formats.h: the enforced values of the JSON Schema keyword `format`. Any thread can call these functions. A lock
 * guards the cache of automata. */
#ifndef LLM_SCHEMA_FORMATS_H
#define LLM_SCHEMA_FORMATS_H

#include <memory>
#include <string>

#include "text/schema/automaton.h"

/* Returns the automaton of the strings that have this format. Returns NULL if llmd does not enforce the format. JSON
 * Schema permits ignoring a format. Building an automaton takes milliseconds, so each is built once and kept as long as
 * the process runs. */
std::shared_ptr<const automaton> format_automaton(const std::string &name);

/* Returns whether JSON Schema defines the format. Any other format was invented by the schema's author and is
 * ignored. */
bool format_is_standard(const std::string &name);

#endif
