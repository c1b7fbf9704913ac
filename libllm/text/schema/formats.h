/* formats.h: the values of `format` that are enforced. Any thread. */
#ifndef LLM_SCHEMA_FORMATS_H
#define LLM_SCHEMA_FORMATS_H

#include <memory>
#include <string>

#include "text/schema/automaton.h"

/* NULL: the format is not enforced. Each one is made once for the process: it takes milliseconds. */
std::shared_ptr<const automaton> format_automaton(const std::string &name);

#endif
