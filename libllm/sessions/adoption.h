/* adoption.h: a start: the sessions that an earlier daemon left, in files and, if it was killed, in its segment. Used
 * by the opener, before the decode thread exists.
 *
 *   gather   reads all files, and the dead segment. A branch is the same in both if its id is: then the segment wins,
 *            which is the newer one. Nothing is written.
 *   open     gives each an entry, parked, in the order of their last use.
 *
 * Between the two the segment is made, with as many entries as sessions were found. Those that it has none for (more
 * than LLM_PARKED_MAX, more than the shared memory has room for, or longer than the context) stay on the disk as they
 * are: the pinned and the newest are not among them. */
#ifndef LLM_ADOPTION_H
#define LLM_ADOPTION_H

#include "sessions/branch_table.h"

typedef struct adoption adoption;

/* `disk` or `dead` is NULL if there is none. Returns NULL if memory is short. */
adoption *adoption_gather(const model_info *info, store *disk, const llm_session_table *dead);
void adoption_free(adoption *a); /* NULL is allowed */

/* Enlarges the requested sizes so that each adopted session that fits the context gets an entry. With the policy park,
 * pinned sessions do not reduce the entries that are left for unpinned ones. */
void adoption_size(const adoption *a, branch_table_options *sizes);
void adoption_open(adoption *a, branch_table *table);

#endif
