/* store_saved.c: sessions saved under labels. Their files have random names, and an index finds the files of an owner
 * and label. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "boundary/clock.h"
#include "states/durable.h"
#include "states/store_files.h"

/* ---- the index ---- */

static saved_entry *find(store_files *f, uint32_t owner, const char *label)
{
    for (uint32_t i = 0; i < f->n_saved; i++) {
        if (f->saved[i].facts.owner == owner && strcmp(f->saved[i].facts.label, label) == 0) {
            return &f->saved[i];
        }
    }
    return NULL;
}

bool store_saved_find(store_files *f, uint32_t owner, const char *label, saved_entry *out)
{
    pthread_mutex_lock(&f->mutex);
    const saved_entry *found = find(f, owner, label);
    if (found != NULL) {
        *out = *found;
    }
    pthread_mutex_unlock(&f->mutex);
    return found != NULL;
}

static saved_entry entry_of(const branch_file *file, const state_facts *state)
{
    const uint64_t n_bytes = state->is_of_other_geometry ? 0 : state->n_bytes;
    saved_entry entry = {
        .id = file->id,
        .facts = {.owner = file->owner, .n_tokens = file->n_tokens, .n_bytes = n_bytes, .saved_ms = file->used_ms}};
    memcpy(entry.facts.label, file->name, sizeof file->name);
    return entry;
}

/* Whether the owner may add a new label. */
static bool has_room(store_files *f, uint32_t owner)
{
    uint32_t n_own = 0;
    for (uint32_t i = 0; i < f->n_saved; i++) {
        n_own += f->saved[i].facts.owner == owner;
    }
    return f->n_saved < LLM_SAVED_MAX && n_own < LLM_SAVED_PER_OWNER_MAX;
}

static void remove_files(store_files *f, uint64_t id)
{
    if (snapshot_remove_branch(f->saved_directory, id) != LLM_OK) {
        store_files_complain(f, "saved session file %016llx cannot be removed from %s: %s", (unsigned long long)id,
                             f->saved_directory, strerror(errno));
    }
    (void)snapshot_remove_state(f->saved_directory, id);
    (void)durable_sync(f->saved_directory);
}

/* ---- the scan when the store is opened ---- */

/* Adds a file to the index. If two files have the same label, keeps the newer one. A crash leaves two such files if it
 * comes after a new file was saved, but before the replaced file was removed. */
static void scan_one(void *context, uint64_t id)
{
    store_files *f = context;
    branch_file file;
    state_facts state;
    const char *why = "";
    const int status = branch_file_read(f->saved_directory, id, f->identity, &file, &why);
    if (status != LLM_OK) {
        store_files_refuse(f, true, id, status, why);
        return;
    }
    if (state_file_look(f->saved_directory, id, f->geometry, false, &state, &why) != LLM_OK) {
        state = (state_facts){0};
    }
    const saved_entry entry = entry_of(&file, &state);
    saved_entry *other = find(f, file.owner, file.name);
    branch_file_clear(&file);
    if (other != NULL) {
        const bool is_newer = entry.facts.saved_ms >= other->facts.saved_ms;
        remove_files(f, is_newer ? other->id : entry.id);
        *other = is_newer ? entry : *other;
    } else if (f->n_saved < LLM_SAVED_MAX) {
        f->saved[f->n_saved++] = entry;
    } else {
        store_files_complain(f, "saved session \"%s\" is ignored: only %d saved sessions can be used at a time",
                             entry.facts.label, LLM_SAVED_MAX);
    }
}

void store_saved_scan(store_files *f)
{
    if (snapshot_scan(f->saved_directory, scan_one, f) != LLM_OK) {
        store_files_complain(f, "state directory %s cannot be listed: %s", f->saved_directory, strerror(errno));
    }
}

/* ---- saving ---- */

/* Writes the state first, then the branch file, because the label exists as soon as its branch file exists. If the
 * state cannot be linked, only the tokens are saved. */
static int write_files(store_files *f, store_job *job)
{
    int status = LLM_OK;
    if (job->state.n_parts > 0) {
        status = state_file_write(f->saved_directory, job->file.id, f->geometry, &job->state);
    } else if (job->linked_id != 0) {
        (void)snapshot_link_state(f->directory, job->linked_id, f->saved_directory, job->file.id);
    }
    if (status == LLM_OK) {
        status = branch_file_write(f->saved_directory, f->identity, &job->file);
    }
    return status;
}

/* Adds or replaces the entry of this label. Returns the id of the replaced files; 0 if there were none. */
static uint64_t index_saved(store_files *f, const saved_entry *entry)
{
    uint64_t old_id = 0;
    pthread_mutex_lock(&f->mutex);
    saved_entry *old = find(f, entry->facts.owner, entry->facts.label);
    if (old != NULL) {
        old_id = old->id;
        *old = *entry;
    } else {
        f->saved[f->n_saved++] = *entry;
    }
    pthread_mutex_unlock(&f->mutex);
    return old_id;
}

/* Returns the time stamp of a new file. This time stamp is later than that of the replaced file, even if the clock was
 * set back. A scan that finds two files of one label keeps the newer. */
static uint64_t stamp_after(const saved_entry *old)
{
    const uint64_t now = clock_ms();
    return old != NULL && old->facts.saved_ms >= now ? old->facts.saved_ms + 1 : now;
}

void store_saved_save(store_files *f, store_job *job)
{
    pthread_mutex_lock(&f->mutex);
    const saved_entry *old = find(f, job->file.owner, job->file.name);
    const bool is_admitted = old != NULL || has_room(f, job->file.owner);
    job->file.used_ms = stamp_after(old);
    pthread_mutex_unlock(&f->mutex);
    if (!is_admitted) {
        job->status = LLM_SAVED_FULL;
        return;
    }
    job->file.id = durable_new_id();
    job->status = (llm_status)write_files(f, job);
    if (job->status != LLM_OK) {
        job->os_error = errno;
        store_files_complain(f, "session \"%s\" cannot be written to %s: %s", job->file.name, f->saved_directory,
                             strerror(errno));
        remove_files(f, job->file.id);
        return;
    }
    const char *why = "";
    state_facts state;
    (void)state_file_look(f->saved_directory, job->file.id, f->geometry, false, &state, &why);
    const saved_entry entry = entry_of(&job->file, &state);
    const uint64_t old_id = index_saved(f, &entry);
    if (old_id != 0) {
        remove_files(f, old_id);
    }
}

/* ---- loading, removing ---- */

static void forget(store_files *f, uint64_t id)
{
    pthread_mutex_lock(&f->mutex);
    for (uint32_t i = 0; i < f->n_saved; i++) {
        if (f->saved[i].id == id) {
            f->saved[i] = f->saved[--f->n_saved];
            break;
        }
    }
    pthread_mutex_unlock(&f->mutex);
}

/* Loads the state that belongs to the saved tokens. A state that this engine cannot use is not loaded, and the tokens
 * are prefilled. */
static void load_state(store_files *f, store_job *job, uint64_t id)
{
    const char *why = "";
    state_facts facts;
    const int status = state_file_look(f->saved_directory, id, f->geometry, false, &facts, &why);
    if (status != LLM_OK || !facts.is_there || facts.is_of_other_geometry || facts.n_bytes > job->n_bytes_max ||
        !state_matches(facts.k, facts.hash, job->file.tokens, job->file.n_tokens)) {
        return;
    }
    const int read = state_file_read(f->saved_directory, id, f->geometry, job->n_bytes_max, &job->state, &why);
    if (read == LLM_VERSION) {
        snapshot_set_state_aside(f->saved_directory, id);
    }
    if (read != LLM_OK) {
        store_files_complain(f, "the state of the saved session \"%s\" was refused: %s; its tokens are prefilled",
                             job->label, why);
    }
}

void store_saved_load(store_files *f, store_job *job)
{
    saved_entry entry;
    const char *why = "";
    if (!store_saved_find(f, job->owner, job->label, &entry)) {
        job->status = LLM_NOT_FOUND;
        return;
    }
    if (entry.facts.n_bytes > job->n_bytes_max) {
        job->status = LLM_BUSY; /* after the job was pushed, a larger session was saved under the label */
        return;
    }
    job->status = (llm_status)branch_file_read(f->saved_directory, entry.id, f->identity, &job->file, &why);
    if (job->status != LLM_OK) {
        job->os_error = job->status == LLM_IO ? errno : 0;
        store_files_refuse(f, true, entry.id, job->status, why);
        if (job->status == LLM_VERSION || job->status == LLM_NOT_FOUND) {
            forget(f, entry.id);
        }
        return;
    }
    load_state(f, job, entry.id);
}

void store_saved_remove(store_files *f, store_job *job)
{
    saved_entry entry;
    if (!store_saved_find(f, job->owner, job->label, &entry)) {
        job->status = LLM_NOT_FOUND;
        return;
    }
    if (snapshot_remove_branch(f->saved_directory, entry.id) != LLM_OK) {
        job->status = LLM_IO;
        job->os_error = errno;
        store_files_complain(f, "saved session \"%s\" cannot be removed from %s: %s", job->label, f->saved_directory,
                             strerror(errno));
        return;
    }
    forget(f, entry.id);
    (void)snapshot_remove_state(f->saved_directory, entry.id);
    if (!durable_sync(f->saved_directory)) {
        job->status = LLM_IO;
        job->os_error = errno;
    }
}
