/* schema_refs.h: what the references of a JSON schema lead to, where they lead to definitions or to the whole. Any thread. */
#ifndef LLM_SCHEMA_REFS_H
#define LLM_SCHEMA_REFS_H

#include <string>

#include "text/schema_check.h"

const char *const SCHEMA_DEFINED[] = {"$defs", "definitions"};

/* Whether all references are such: the schemas between may then be written otherwise. */
bool schema_names_only(const schema_json &value);

/* Of a schema with such references alone. The converter tells the names apart, needs no escapes, and does not meet "#", which is
 * a definition, too. */
void schema_name_definitions(schema_json &root);

/* What such a reference leads to; NULL: nothing. */
const schema_json *schema_defined_as(const schema_json &root, const std::string &ref);

#endif
