/* adoption.h: when the daemon starts, opens the sessions that an earlier daemon left in files and, if that daemon was
 * killed, in its session table. Called by the thread that opens the engine, before the decode thread exists.
 *
 *   gather   reads all files and the dead daemon's session table, and writes nothing. An entry and a file with the
 *            same id belong to the same branch; the entry is used, because it is newer.
 *   open     gives each branch an entry, parked, in the order of last use.
 *
 * Between the two calls the new session table is created, with as many entries as branches were found. A branch gets no
 * entry if it is longer than the context, or if there are too many branches: more than LLM_PARKED_MAX allows, or more
 * than fit the shared memory. A branch without an entry stays on the disk for a later start. Pinned branches get
 * entries first, then the most recently used ones. */
#ifndef LLM_ADOPTION_H
#define LLM_ADOPTION_H

#include "sessions/branch_table.h"

typedef struct adoption adoption;

/* `disk` is NULL if there is no state directory, and `dead` is NULL if no earlier daemon left a session table. Returns
 * NULL if memory is short. */
adoption *adoption_gather(const model_info *info, store *disk, const llm_session_table *dead);
void adoption_free(adoption *a); /* NULL is allowed */

/* Enlarges the requested sizes so that each adopted session that fits the context gets an entry. With policy park, also
 * raises the limit on named branches if the adopted pinned sessions would otherwise take entries that are reserved for
 * unpinned sessions. */
void adoption_size(const adoption *a, branch_table_options *sizes);
void adoption_open(adoption *a, branch_table *table);

#endif
