/* formats.h: the values of `format` that are enforced. Any thread. */
#ifndef LLM_SCHEMA_FORMATS_H
#define LLM_SCHEMA_FORMATS_H

#include <memory>
#include <string>

#include "text/schema/automaton.h"

/* Returns NULL for a format that is not enforced. Making one takes milliseconds, so the process keeps each. */
std::shared_ptr<const automaton> format_automaton(const std::string &name);

#endif
