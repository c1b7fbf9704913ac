/* snapshot_directory.c: links, removes, renames and lists branch files and state files, without reading their
 * contents. */
#include <dirent.h>
#include <unistd.h>

#include "states/durable.h"
#include "states/snapshot.h"

int snapshot_remove_branch(const char *directory, uint64_t id)
{
    return durable_remove(directory, id, SNAPSHOT_BRANCH) ? LLM_OK : LLM_IO;
}

int snapshot_remove_state(const char *directory, uint64_t id)
{
    return durable_remove(directory, id, SNAPSHOT_STATE) ? LLM_OK : LLM_IO;
}

int snapshot_link_state(const char *from_directory, uint64_t from, const char *to_directory, uint64_t to)
{
    char path_from[DURABLE_PATH_BYTES];
    char path_to[DURABLE_PATH_BYTES];
    durable_path(path_from, from_directory, from, SNAPSHOT_STATE);
    durable_path(path_to, to_directory, to, SNAPSHOT_STATE);
    return link(path_from, path_to) == 0 ? LLM_OK : LLM_IO;
}

void snapshot_set_branch_aside(const char *directory, uint64_t id)
{
    (void)durable_rename(directory, id, SNAPSHOT_BRANCH, "refused");
}

void snapshot_set_state_aside(const char *directory, uint64_t id)
{
    (void)durable_rename(directory, id, SNAPSHOT_STATE, "refused-state");
}

int snapshot_scan(const char *directory, void (*found)(void *context, uint64_t id), void *context)
{
    DIR *d = opendir(directory);
    if (d == NULL) {
        return LLM_IO;
    }
    const struct dirent *entry;
    uint64_t id = 0;
    while ((entry = readdir(d)) != NULL) {
        if (durable_parse(entry->d_name, SNAPSHOT_BRANCH, &id)) {
            found(context, id);
        }
    }
    /* a state file without a branch file is removed. State files are checked after all branch files, because `found`
     * may have renamed some branch files that cannot be used */
    rewinddir(d);
    while ((entry = readdir(d)) != NULL) {
        if (durable_parse(entry->d_name, SNAPSHOT_BRANCH_WRITING, &id)) {
            (void)durable_remove(directory, id, SNAPSHOT_BRANCH_WRITING);
        } else if (durable_parse(entry->d_name, SNAPSHOT_STATE_WRITING, &id)) {
            (void)durable_remove(directory, id, SNAPSHOT_STATE_WRITING);
        } else if (durable_parse(entry->d_name, SNAPSHOT_STATE, &id) &&
                   !durable_exists(directory, id, SNAPSHOT_BRANCH)) {
            (void)durable_remove(directory, id, SNAPSHOT_STATE);
        }
    }
    closedir(d);
    return LLM_OK;
}
