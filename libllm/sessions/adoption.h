/* adoption.h: opens the sessions of an earlier daemon when the daemon starts. These sessions are in files. If the
 * earlier daemon was killed, they are also in its session table. Called by the thread that opens the engine, before the
 * decode thread exists.
 *
 *   gather   reads all files and the dead daemon's session table, and writes nothing. If an entry and a file have the
 *            same id, both belong to the same branch. The entry is newer and is used.
 *   open     gives each branch an entry, parked, in the order of last use.
 *
 * Between the two calls the new session table is created, with as many entries as branches were found. A branch that is
 * longer than the context gets no entry. There is also a limit on entries, set by LLM_PARKED_MAX and by the size of the
 * shared memory. Pinned branches get entries first, then the most recently used ones. A branch without an entry stays
 * on the disk for a later start. */
#ifndef LLM_ADOPTION_H
#define LLM_ADOPTION_H

#include "sessions/branch_table.h"

typedef struct adoption adoption;

/* `disk` is NULL if there is no state directory. `dead` is NULL if no earlier daemon left a session table. Returns NULL
 * if memory is short. */
adoption *adoption_gather(const model_info *info, store *disk, const llm_session_table *dead);
void adoption_free(adoption *a); /* NULL is allowed */

/* Enlarges the requested sizes so that each adopted session that fits the context gets an entry. With policy park,
 * adopted pinned sessions could take the entries that are reserved for unpinned sessions. To prevent this, also raises
 * the limit on named branches. */
void adoption_size(const adoption *a, branch_table_options *sizes);
void adoption_open(adoption *a, branch_table *table);

#endif
