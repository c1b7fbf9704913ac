#include "states/store_files.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "states/durable.h"

int store_files_open(store_files *f, const store_options *options)
{
    *f = (store_files){0};
    memcpy(f->identity, options->identity, sizeof f->identity);
    memcpy(f->geometry, options->geometry, sizeof f->geometry);
    f->can_truncate_states = options->can_truncate_states;
    pthread_mutex_init(&f->mutex, NULL);
    f->directory = strdup(options->directory);
    if (f->directory == NULL || asprintf(&f->saved_directory, "%s/saved", options->directory) < 0) {
        f->saved_directory = NULL;
        return LLM_NO_MEMORY;
    }
    return LLM_OK;
}

void store_files_close(store_files *f)
{
    pthread_mutex_destroy(&f->mutex);
    free(f->directory);
    free(f->saved_directory);
}

/* ---- complaints ---- */

void store_files_complain(store_files *f, const char *format, ...)
{
    char text[COMPLAINT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&f->mutex);
    if (f->n_complaints < COMPLAINTS_MAX) { /* the first complaints are kept, because they name the cause */
        memcpy(f->complaints[f->n_complaints++], text, sizeof text);
    } else {
        f->n_suppressed++;
    }
    pthread_mutex_unlock(&f->mutex);
}

bool store_files_complaint(store_files *f, char *out, size_t n_bytes)
{
    bool any = true;
    pthread_mutex_lock(&f->mutex);
    if (f->n_complaints > 0) {
        snprintf(out, n_bytes, "%s", f->complaints[0]);
        f->n_complaints--;
        memmove(f->complaints[0], f->complaints[1], f->n_complaints * sizeof f->complaints[0]);
    } else if (f->n_suppressed > 0) {
        snprintf(out, n_bytes, "and %u more of such messages about session files", f->n_suppressed);
        f->n_suppressed = 0;
    } else {
        any = false;
    }
    pthread_mutex_unlock(&f->mutex);
    return any;
}

void store_files_refuse(store_files *f, bool is_saved, uint64_t id, int status, const char *why)
{
    const char *directory = is_saved ? f->saved_directory : f->directory;
    const char *kind = is_saved ? "saved session" : "session";
    if (status == LLM_VERSION) {
        snapshot_set_branch_aside(directory, id);
        store_files_complain(f, "%s file %016llx was refused and set aside: %s", kind, (unsigned long long)id, why);
    } else {
        store_files_complain(f, "%s file %016llx cannot be read: %s", kind, (unsigned long long)id, why);
    }
}

static void complain_of_write(store_files *f, store_job *job, const char *what)
{
    job->os_error = errno;
    store_files_complain(f, "session \"%s\" cannot be written to %s: %s", what, f->directory, strerror(errno));
}

/* ---- changes of branch files ---- */

static bool is_written(const store_change *c)
{
    return c->verb == CHANGE_WRITE || c->verb == CHANGE_RESET;
}

/* Prepares all writes before any change is committed. Writing needs disk space and can fail, and removals that were
 * done before the failure could not be undone. */
static int prepare_all(store_files *f, store_job *job)
{
    for (uint32_t i = 0; i < job->n_changes; i++) {
        const store_change *c = &job->changes[i];
        if (is_written(c) && branch_file_prepare(f->directory, f->identity, &c->file) != LLM_OK) {
            complain_of_write(f, job, c->file.name);
            for (uint32_t j = 0; j < i; j++) {
                branch_file_abandon(f->directory, job->changes[j].file.id);
            }
            return LLM_IO;
        }
    }
    return LLM_OK;
}

static int commit(store_files *f, store_job *job, const store_change *c)
{
    if (is_written(c) && branch_file_commit(f->directory, c->file.id) != LLM_OK) {
        complain_of_write(f, job, c->file.name);
        branch_file_abandon(f->directory, c->file.id);
        return LLM_IO;
    }
    if (c->verb == CHANGE_REMOVE && snapshot_remove_branch(f->directory, c->file.id) != LLM_OK) {
        job->os_error = errno;
        store_files_complain(f, "session file %016llx cannot be removed from %s: %s", (unsigned long long)c->file.id,
                             f->directory, strerror(errno));
        return LLM_IO;
    }
    return LLM_OK;
}

/* Commits and syncs one kind of the job's changes. With `writes`, these are the changes that write files, else the
 * removals. Returns whether the job has changes of this kind. */
static bool commit_all(store_files *f, store_job *job, bool writes)
{
    bool any = false;
    for (uint32_t i = 0; i < job->n_changes; i++) {
        const store_change *c = &job->changes[i];
        if (is_written(c) == writes && c->verb != CHANGE_NONE) {
            any = true;
            if (commit(f, job, c) != LLM_OK) {
                job->status = LLM_IO;
            }
        }
    }
    if (any && !durable_sync(f->directory) && job->status == LLM_OK) {
        complain_of_write(f, job, job->name);
        job->status = LLM_IO;
    }
    return any;
}

static void write_all(store_files *f, store_job *job)
{
    job->status = (llm_status)prepare_all(f, job);
    if (job->status == LLM_OK) {
        (void)commit_all(f, job, true);
    }
}

/* Makes the writes durable before any file is removed. For example, a reset of a pinned session writes one empty branch
 * file with the pin. The reset also removes the session's other branch files, which contain the pin, too. A crash
 * between the write and the removals must not lose the pin.
 *
 * On a full disk, the removals are done although a write failed. They need no disk space. Then the writes are tried
 * again in the space that the removals freed. */
static void change(store_files *f, store_job *job)
{
    write_all(f, job);
    const bool is_written = job->status == LLM_OK;
    if (commit_all(f, job, false) && !is_written) {
        write_all(f, job);
    }
}

/* ---- states ---- */

static void learn_of_disk(store_files *f, bool is_written)
{
    if (!is_written && !f->is_refusing) {
        store_files_complain(f,
                             "states of sessions cannot be written to %s: %s; those for which there is no memory are "
                             "dropped, their tokens are kept; tried again every %d s",
                             f->directory, strerror(errno), STORE_PAUSE_S);
    } else if (is_written && f->is_refusing) {
        store_files_complain(f, "states of sessions are written to %s again", f->directory);
    }
    f->is_refusing = !is_written;
}

static void write_state(store_files *f, store_job *job)
{
    if (!durable_exists(f->directory, job->id, SNAPSHOT_BRANCH)) {
        /* the session was closed or reset after the job was pushed, or its branch file could not be written */
        job->status = LLM_NOT_FOUND;
        return;
    }
    if (job->linked_id != 0) {
        job->status = (llm_status)snapshot_link_state(f->directory, job->linked_id, f->directory, job->id);
        if (job->status != LLM_OK) {
            complain_of_write(f, job, job->name);
        }
        return;
    }
    job->status = (llm_status)state_file_write(f->directory, job->id, f->geometry, &job->state);
    learn_of_disk(f, job->status == LLM_OK);
}

static void refuse_state(store_files *f, const store_job *job, const char *why)
{
    if (job->status == LLM_VERSION) {
        snapshot_set_state_aside(f->directory, job->id);
        store_files_complain(f, "the state file %016llx was refused and set aside: %s; its tokens are prefilled again",
                             (unsigned long long)job->id, why);
    } else {
        store_files_complain(f, "the state file %016llx cannot be read: %s; its tokens are prefilled again",
                             (unsigned long long)job->id, why);
    }
}

static void read_state(store_files *f, store_job *job)
{
    const char *why = "";
    job->status = (llm_status)state_file_read(f->directory, job->id, f->geometry, job->n_bytes_max, &job->state, &why);
    if (job->status != LLM_OK) {
        refuse_state(f, job, why);
    }
}

static void sweep(store_files *f, const store_job *job)
{
    for (uint32_t i = 0; i < job->n_changes; i++) {
        if (job->changes[i].verb == CHANGE_REMOVE || job->changes[i].verb == CHANGE_RESET) {
            (void)snapshot_remove_state(f->directory, job->changes[i].file.id);
        }
    }
}

void store_files_work(store_files *f, store_job *job)
{
    job->status = LLM_OK;
    switch (job->verb) {
    case STORE_CHANGE: change(f, job); break;
    case STORE_WRITE: write_state(f, job); break;
    case STORE_READ: read_state(f, job); break;
    case STORE_SAVE: store_saved_save(f, job); break;
    case STORE_LOAD: store_saved_load(f, job); break;
    case STORE_UNSAVE: store_saved_remove(f, job); break;
    case STORE_SWEEP: sweep(f, job); break;
    }
}

/* ---- the scan when the store is opened ---- */

typedef struct scan {
    store_files *files;
    void (*found)(void *context, branch_file *file, const state_facts *state);
    void *context;
} scan;

static void scan_one(void *context, uint64_t id)
{
    const scan *c = context;
    store_files *f = c->files;
    branch_file file;
    state_facts state;
    const char *why = "";
    int status = branch_file_read(f->directory, id, f->identity, &file, &why);
    if (status != LLM_OK) {
        store_files_refuse(f, false, id, status, why);
        return;
    }
    status = state_file_look(f->directory, id, f->geometry, !f->can_truncate_states, &state, &why);
    if (status != LLM_OK) {
        refuse_state(f, &(store_job){.status = (llm_status)status, .id = id}, why);
        state = (state_facts){0};
    }
    c->found(c->context, &file, &state);
    branch_file_clear(&file);
}

void store_files_scan(store_files *f, void (*found)(void *context, branch_file *file, const state_facts *state),
                      void *context)
{
    scan c = {.files = f, .found = found, .context = context};
    if (snapshot_scan(f->directory, scan_one, &c) != LLM_OK) {
        store_files_complain(f, "state directory %s cannot be listed: %s", f->directory, strerror(errno));
    }
}
