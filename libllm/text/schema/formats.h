/* formats.h: the values of `format` that are enforced. Any thread may call it; a lock guards what is kept. */
#ifndef LLM_SCHEMA_FORMATS_H
#define LLM_SCHEMA_FORMATS_H

#include <memory>
#include <string>

#include "text/schema/automaton.h"

/* Returns NULL for a format that is not enforced, which JSON schema lets validators ignore. Making an automaton takes
 * milliseconds, so the process keeps each one. */
std::shared_ptr<const automaton> format_automaton(const std::string &name);

/* JSON Schema defines the format; false: the schema's author does, so that it constrains nothing here. */
bool format_is_standard(const std::string &name);

#endif
