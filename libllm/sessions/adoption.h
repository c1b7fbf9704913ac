/* adoption.h: opens, at a start, the sessions that an earlier daemon left in files and, if that daemon was killed, in
 * its session table. Used by the opener, before the decode thread exists.
 *
 *   gather   reads all files and the dead daemon's session table, and writes nothing. An entry and a file with the
 *            same id belong to the same branch; the entry is used, because it is newer.
 *   open     gives each branch an entry, parked, in the order of last use.
 *
 * Between the two calls the new session table is created, with as many entries as branches were found. A branch that
 * gets no entry stays on the disk unchanged: it is one of more than LLM_PARKED_MAX branches, or of more than the shared
 * memory has room for, or is longer than the context. Pinned and then recently used branches get entries first. */
#ifndef LLM_ADOPTION_H
#define LLM_ADOPTION_H

#include "sessions/branch_table.h"

typedef struct adoption adoption;

/* `disk` is NULL without a state directory, and `dead` is NULL if no session table was left. Returns NULL if memory is
 * short. */
adoption *adoption_gather(const model_info *info, store *disk, const llm_session_table *dead);
void adoption_free(adoption *a); /* NULL is allowed */

/* Enlarges the requested sizes so that each adopted session that fits the context gets an entry. With the policy park,
 * pinned sessions do not reduce the number of entries for unpinned sessions. */
void adoption_size(const adoption *a, branch_table_options *sizes);
void adoption_open(adoption *a, branch_table *table);

#endif
