/* schema_steps.h: how much work compiling a JSON schema takes, for tests in C. */
#ifndef SCHEMA_STEPS_H
#define SCHEMA_STEPS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the steps that the work budget counts for a schema written with ' for ", also if the schema is refused. */
size_t schema_steps(const char *schema, bool is_strict);
size_t schema_steps_max(void);

#ifdef __cplusplus
}
#endif
#endif
