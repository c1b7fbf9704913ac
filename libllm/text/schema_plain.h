/* schema_plain.h: a JSON schema in the words that llama.cpp's converter keeps to, with the same meaning:
 *
 *   several types            one schema for each
 *   allOf                    the one schema, or one object, that all of them are
 *   required                 has its properties, of any value where none is given
 *   bounds of an integer     minimum and maximum, both, of 64 bits
 *   items: false             prefixItems alone, of which it makes no more than there are
 *   true                     {}
 *   $ref: "#"                a definition
 *   names of definitions     such as the converter can tell apart
 *
 * Any thread. */
#ifndef LLM_SCHEMA_PLAIN_H
#define LLM_SCHEMA_PLAIN_H

#include "text/schema_check.h"

/* is_strict: as schema_check has it. What has no such words stays as it is, for schema_check; but of an allOf that is no object,
 * the first schema is left where it need not be kept to. Throws grammar_fault naming the keyword. */
void schema_plain(schema_json &schema, bool is_strict);

#endif
