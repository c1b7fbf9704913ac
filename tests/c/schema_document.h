/* schema_document.h: what a JSON schema allows an answer to be, for tests in C. Schemas and texts are written with ' for
 * ". One simulated model serves all calls of a program. */
#ifndef SCHEMA_DOCUMENT_H
#define SCHEMA_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>

bool schema_model_open(void);
void schema_model_close(void);

/* Returns the constraint that the schema is compiled to, which the caller frees; NULL if it is refused: `error`, of 512
 * bytes, says why. */
char *schema_document(const char *schema, bool is_strict, char *error);

/* Returns whether an answer under this constraint can be the text, byte by byte. */
bool schema_accepts(const char *document, const char *text);

/* Appends a printed number. Returns how many bytes were written. */
size_t schema_append(char *to, const char *format, int i);

#endif
