/* block.h: memory that goes back to the system when it is freed, if it is much: copies of states, and what is as large. In no
 * account. Any thread. */
#ifndef LLM_BLOCK_H
#define LLM_BLOCK_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* To be filled at once; some MiB and more lie in large pages where the system has them: 19 MiB are filled in a third of the
 * time. NULL: memory is short. */
void *block_new(size_t n_bytes);
void block_free(void *block, size_t n_bytes); /* NULL is allowed */

#ifdef __cplusplus
}
#endif

#endif
