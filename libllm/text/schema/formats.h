/* formats.h: the values of `format` that are enforced. Any thread can call these functions; a lock guards the automata
 * that the process keeps. */
#ifndef LLM_SCHEMA_FORMATS_H
#define LLM_SCHEMA_FORMATS_H

#include <memory>
#include <string>

#include "text/schema/automaton.h"

/* Returns NULL for a format that is not enforced, because JSON schema does not require enforcing formats. Building an
 * automaton takes milliseconds, so the process keeps each automaton. */
std::shared_ptr<const automaton> format_automaton(const std::string &name);

/* Returns whether JSON schema defines the format. Other formats are the author's own and are ignored. */
bool format_is_standard(const std::string &name);

#endif
