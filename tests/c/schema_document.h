/* schema_document.h: tests which answers a JSON schema allows, for tests in C. Schemas and texts are written with '
 * instead of ". All calls in a program use the same simulated model. */
#ifndef SCHEMA_DOCUMENT_H
#define SCHEMA_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>

bool schema_model_open(void);
void schema_model_close(void);

/* Compiles the schema to a constraint, which the caller frees. Returns NULL if the schema is refused. Then `error`,
 * which has 512 bytes, has the reason. */
char *schema_document(const char *schema, bool is_strict, char *error);

/* Returns whether an answer under this constraint can be the text, byte by byte. */
bool schema_accepts(const char *document, const char *text);

/* Appends a printed number. Returns how many bytes were written. */
size_t schema_append(char *to, const char *format, int i);

#endif
