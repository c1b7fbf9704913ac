/* schema_steps.h: measures the work of compiling a JSON schema, for tests in C. */
#ifndef SCHEMA_STEPS_H
#define SCHEMA_STEPS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the number of steps that the work budget counts for the schema, even if the schema is refused. The schema is
 * written with ' instead of ". */
size_t schema_steps(const char *schema, bool is_strict);
size_t schema_steps_max(void);

#ifdef __cplusplus
}
#endif
#endif
