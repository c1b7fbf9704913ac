#include "engine/engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "machine/cgroup.h"
#include "sessions/adoption.h"

enum {
    N_BATCH_DEFAULT = 512,
    N_BATCH_MIN = 32, /* n_batch is at least this number plus one token for each slot */
    GAP_MS_DEFAULT = 100,
    EVENT_RING_BYTES = 1 << 20,
    COMMAND_RING_BYTES = 1 << 20,
    COMMAND_BYTES_OTHER = 65536, /* limit on the other members of a GENERATE: stops, biases, name */
    ARRAY32_BYTES = 5,
    N_PARKED_DEFAULT = 64,
    BRANCHES_DEFAULT = 3,
    CHECKPOINT_EVERY = 256,
    DEAD_SEGMENTS_MAX = 4,
    /* minimum of the limit on the bytes of states in transfer to or from disk. It applies if parked_bytes_max is
     * small */
    IN_FLIGHT_BYTES_MIN = 1 << 28,
    MEMORY_SHARE = 10, /* a tenth of free memory for checkpoints, another tenth for parked sessions */
};

static int fail(char *error, size_t error_bytes, int status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static int fail(char *error, size_t error_bytes, int status, const char *format, ...)
{
    if (error != NULL && error_bytes > 0) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error, error_bytes, format, arguments);
        va_end(arguments);
    }
    return status;
}

static int check_options(const llm_engine_options *o, char *error, size_t error_bytes)
{
    if (o->model == NULL || o->model[0] == '\0') {
        return fail(error, error_bytes, LLM_INVALID, "model: a path or sim:... is needed");
    }
    if (o->n_sessions < 1 || o->n_scratch < 1 || o->n_sessions > LLM_SEQUENCES_MAX ||
        o->n_scratch > LLM_SEQUENCES_MAX || o->n_sessions + o->n_scratch > LLM_SEQUENCES_MAX) {
        return fail(error, error_bytes, LLM_INVALID,
                    "n_sessions + n_scratch: %u + %u given; each at least 1, together at most %d", o->n_sessions,
                    o->n_scratch, LLM_SEQUENCES_MAX);
    }
    if (o->n_parked_max > LLM_PARKED_MAX) {
        return fail(error, error_bytes, LLM_INVALID, "n_parked_max: %u given; at most %d", o->n_parked_max,
                    LLM_PARKED_MAX);
    }
    if (o->capacity_policy >= LLM_POLICY_N) {
        return fail(error, error_bytes, LLM_INVALID, "capacity_policy: %u is not a policy", o->capacity_policy);
    }
    if (o->kv_type >= LLM_KV_TYPE_N) {
        return fail(error, error_bytes, LLM_INVALID, "kv_type: %u is not a type of keys and values", o->kv_type);
    }
    if (o->n_batch != 0 && (o->n_batch < N_BATCH_MIN || o->n_batch > 65536)) {
        return fail(error, error_bytes, LLM_INVALID, "n_batch: %u given; %d to 65536 allowed", o->n_batch, N_BATCH_MIN);
    }
    return LLM_OK;
}

static int open_model(llm_engine *e, const llm_engine_options *o, char *error, size_t error_bytes)
{
    const uint32_t n_seq = o->n_sessions + o->n_scratch;
    uint32_t n_batch = o->n_batch != 0 ? o->n_batch : N_BATCH_DEFAULT;
    if (n_batch < n_seq + N_BATCH_MIN) {
        n_batch = n_seq + N_BATCH_MIN;
    }
    const model_options options = {
        .path = o->model,
        .chat_template = o->chat_template,
        .n_ctx = o->n_ctx,
        .n_seq = n_seq,
        .n_batch = n_batch,
        .kv_bytes_max = o->kv_bytes_max,
        .kv_type = (llm_kv_type)o->kv_type,
        .n_threads = o->n_threads,
        .n_gpu_layers = o->n_gpu_layers,
        .exact = o->exact != 0,
        .allow_oversize = o->allow_oversize != 0,
        .crash_notice = o->crash_notice,
    };
    const bool has_draft_model = o->draft_model != NULL && o->draft_model[0] != '\0' && o->no_drafts == 0;
    int status = LLM_OK;
    if (has_draft_model) {
        status = draft_model_open(&e->draft_model, o->draft_model, &options, error, error_bytes);
    }
    if (status == LLM_OK) {
        status = model_open(o->model, &options, &e->model, error, error_bytes);
    }
    if (status == LLM_OK && has_draft_model) {
        status = draft_model_match(&e->draft_model, e->model, error, error_bytes);
    }
    return status != LLM_OK ? status : chat_open(e->model, &e->chat, error, error_bytes);
}

static void identity_hex(const model_info *info, char out[33])
{
    for (size_t i = 0; i < sizeof info->identity; i++) {
        snprintf(out + 2 * i, 3, "%02x", info->identity[i]);
    }
}

/* Returns 1/MEMORY_SHARE of the memory that is free now, on the machine or in the cgroup of this service, whichever is
 * less. */
static uint64_t memory_share(void)
{
    const long n_pages = sysconf(_SC_AVPHYS_PAGES);
    const long page_bytes = sysconf(_SC_PAGESIZE);
    const uint64_t allowed = cgroup_memory_free(CGROUP_MOUNT, CGROUP_SELF);
    if (n_pages <= 0 || page_bytes <= 0) {
        return (uint64_t)1 << 28;
    }
    const uint64_t free_bytes = (uint64_t)n_pages * (uint64_t)page_bytes;
    return (allowed < free_bytes ? allowed : free_bytes) / MEMORY_SHARE;
}

static branch_table_options options_of(const llm_engine_options *o)
{
    const bool parks = o->capacity_policy == LLM_POLICY_PARK;
    const uint32_t n_parked = o->n_parked_max != 0 ? o->n_parked_max : N_PARKED_DEFAULT;
    return (branch_table_options){
        .policy = (llm_policy)o->capacity_policy,
        .n_named = o->n_sessions,
        .n_scratch = o->n_scratch,
        .n_parked_max = parks ? n_parked : 0,
        .n_parked_entries = parks ? n_parked : 0,
        .n_owners = o->n_owners,
        .branches_max = o->branches_max != 0 ? o->branches_max : BRANCHES_DEFAULT,
        .parked_bytes_max = o->parked_bytes_max != 0 ? o->parked_bytes_max : memory_share(),
        .parked_disk_bytes_max = o->parked_disk_bytes_max,
    };
}

/* Opens the store. Each model has a directory of its own, because no other model can use the model's sessions. */
static int open_store(llm_engine *e, const llm_engine_options *o, char *error, size_t error_bytes)
{
    if (o->state_dir == NULL || o->state_dir[0] == '\0') {
        return LLM_OK;
    }
    const model_info *info = &e->model->info;
    char hex[33];
    char *directory = NULL;
    identity_hex(info, hex);
    if (asprintf(&directory, "%s/%.16s", o->state_dir, hex) < 0) {
        return LLM_NO_MEMORY;
    }
    const store_options options = {.directory = directory,
                                   .model = info->name,
                                   .identity = info->identity,
                                   .geometry = info->geometry,
                                   .can_truncate_states = info->memory == LLM_MEMORY_DENSE};
    const int status = store_open(&options, e->command_notifier, &e->store, error, error_bytes);
    free(directory);
    return status;
}

/* Opens the session table that a dead daemon of this model left in the shared-memory segment `name`. Returns NULL if
 * there is none. Segments of other models are left for daemons of those models. */
static llm_session_table *dead_session_table(const char *name, const char *fingerprint)
{
    llm_session_table *dead = NULL;
    if (llm_session_table_open(name, -1, &dead) != LLM_OK) {
        return NULL;
    }
    llm_session_table_view view;
    llm_session_table_read(dead, &view);
    if (strcmp(view.fingerprint, fingerprint) != 0 || !session_table_is_abandoned(dead)) {
        llm_session_table_close(dead);
        return NULL;
    }
    return dead;
}

/* Shared-memory segments with the session tables of dead daemons of this model, newest first. */
typedef struct dead_segments {
    char *names; /* owned */
    uint32_t n;
    const char *name[DEAD_SEGMENTS_MAX];
    llm_session_table *left[DEAD_SEGMENTS_MAX];
} dead_segments;

static int find_dead(const char *names, const char *fingerprint, dead_segments *out)
{
    char *rest = NULL;
    *out = (dead_segments){.names = strdup(names != NULL ? names : "")};
    if (out->names == NULL) {
        return LLM_NO_MEMORY;
    }
    for (char *name = strtok_r(out->names, " ", &rest); name != NULL; name = strtok_r(NULL, " ", &rest)) {
        llm_session_table *left = out->n < DEAD_SEGMENTS_MAX ? dead_session_table(name, fingerprint) : NULL;
        if (left != NULL) {
            out->name[out->n] = name;
            out->left[out->n++] = left;
        }
    }
    return LLM_OK;
}

static void end_dead(dead_segments *dead, bool taken_over)
{
    for (uint32_t i = 0; i < dead->n; i++) {
        if (taken_over) {
            shm_unlink(dead->name[i]);
        }
        llm_session_table_close(dead->left[i]);
    }
    free(dead->names);
}

static int open_session_table(llm_engine *e, const char *table_name, uint32_t n_entries, const char *fingerprint,
                              char *error, size_t error_bytes)
{
    const model_info *info = &e->model->info;
    char *opening = NULL;
    if (table_name != NULL && asprintf(&opening, "%s%s", table_name, SESSION_TABLE_OPENING) < 0) {
        return LLM_NO_MEMORY;
    }
    const int status = session_table_open(opening, n_entries, info->n_ctx, info->name, fingerprint, &e->session_table,
                                          error, error_bytes);
    free(opening);
    return status;
}

/* Opens the session table with an entry for each adopted session. Shared memory may be too small for so many entries.
 * Then opens it with only the entries that the options request. */
static int open_session_table_for(llm_engine *e, const llm_engine_options *o, branch_table_options *sizes,
                                  const char *fingerprint, char *error, size_t error_bytes)
{
    const uint32_t n_slots = e->model->info.n_seq;
    const branch_table_options requested = options_of(o);
    int status =
        open_session_table(e, o->table_name, n_slots + sizes->n_parked_entries, fingerprint, error, error_bytes);
    if (status != LLM_OK && sizes->n_parked_entries > requested.n_parked_entries) {
        *sizes = requested;
        status =
            open_session_table(e, o->table_name, n_slots + requested.n_parked_entries, fingerprint, error, error_bytes);
    }
    return status;
}

static int open_table(llm_engine *e, const llm_engine_options *o, const adoption *adopted, const char *fingerprint,
                      char *error, size_t error_bytes)
{
    branch_table_options sizes = options_of(o);
    adoption_size(adopted, &sizes);
    const int status = open_session_table_for(e, o, &sizes, fingerprint, error, error_bytes);
    if (status != LLM_OK) {
        return status;
    }
    const size_t n_moving = sizes.parked_bytes_max / TABLE_MOVING_SHARE;
    ledger_open(&e->ledger, n_moving > IN_FLIGHT_BYTES_MIN ? n_moving : IN_FLIGHT_BYTES_MIN);
    checkpoint_store_open(&e->checkpoints, &e->ledger,
                          o->checkpoint_bytes_max != 0 ? o->checkpoint_bytes_max : memory_share());
    const branch_shared shared = {
        .model = e->model, .session_table = e->session_table, .checkpoints = &e->checkpoints, .ledger = &e->ledger};
    return table_open(&e->table, &shared, &sizes, e->store);
}

/* Adopts the sessions that dead daemons left in their session tables (shared-memory segments). The new segment gets its
 * name only when it holds all sessions of the old segment. Only then the old segment is removed. The daemon may be
 * killed while it starts. Even then, one of the two segments is complete. Of several dead segments only the newest is
 * adopted, because its daemon had already adopted the others. */
static int open_memory(llm_engine *e, const llm_engine_options *o, char *error, size_t error_bytes)
{
    char fingerprint[33];
    dead_segments dead;
    identity_hex(&e->model->info, fingerprint);
    int status = find_dead(o->dead_table_names, fingerprint, &dead);
    if (status != LLM_OK) {
        return status;
    }
    adoption *adopted = adoption_gather(&e->model->info, e->store, dead.n > 0 ? dead.left[0] : NULL);
    status = adopted != NULL ? open_table(e, o, adopted, fingerprint, error, error_bytes) : LLM_NO_MEMORY;
    if (status == LLM_OK) {
        adoption_open(adopted, &e->table);
        table_settle(&e->table);
        table_publish(&e->table); /* readers may read before the decode thread's first loop */
        status = session_table_publish(e->session_table);
    }
    end_dead(&dead, status == LLM_OK);
    adoption_free(adopted);
    return status;
}

static int open_rings(llm_engine *e, const llm_engine_options *o)
{
    /* The largest record of a ring is a little under half the ring (ring.h). */
    const size_t largest = e->model->info.n_ctx * sizeof(int32_t) + LLM_CONSTRAINT_BYTES_MAX + COMMAND_BYTES_OTHER;
    size_t command_bytes = o->command_ring_bytes != 0 ? o->command_ring_bytes : COMMAND_RING_BYTES;
    if (command_bytes < 4 * largest) {
        command_bytes = 4 * largest;
    }
    const size_t event_bytes = o->event_ring_bytes != 0 ? o->event_ring_bytes : EVENT_RING_BYTES;
    int status = ring_open(command_bytes, &e->commands);
    if (status == LLM_OK) {
        status = ring_open(event_bytes < 4 * LLM_OUTBOX_BYTES_MAX ? 4 * LLM_OUTBOX_BYTES_MAX : event_bytes, &e->events);
    }
    if (status == LLM_OK) {
        status = notifier_open(&e->command_notifier);
    }
    if (status == LLM_OK) {
        status = notifier_open(&e->event_notifier);
    }
    return status;
}

static int open_decode(llm_engine *e, const llm_engine_options *o)
{
    e->decode.model = e->model;
    e->decode.session_table = e->session_table;
    e->decode.table = &e->table;
    e->decode.step = (step){
        .model = e->model,
        .session_table = e->session_table,
        .table = &e->table,
        .gap_ms_target = o->gap_ms_target != 0 ? o->gap_ms_target : GAP_MS_DEFAULT,
        .has_drafts = o->no_drafts == 0,
        .draft_model = e->draft_model.model != NULL ? &e->draft_model : NULL,
        .checkpoint_every = o->checkpoint_every != 0 ? o->checkpoint_every : CHECKPOINT_EVERY,
    };
    e->decode.idle_ms_max = (uint64_t)o->idle_s_max * 1000;
    e->decode.commands = e->commands;
    e->decode.events = e->events;
    e->decode.command_notifier = e->command_notifier;
    e->decode.event_notifier = e->event_notifier;
    return decode_open(&e->decode);
}

int llm_engine_open(const llm_engine_options *options, llm_engine **out, char *error, size_t error_bytes)
{
    *out = NULL;
    (void)fail(error, error_bytes, LLM_OK, "%s", ""); /* no error so far */
    int status = check_options(options, error, error_bytes);
    if (status != LLM_OK) {
        return status;
    }
    llm_engine *e = calloc(1, sizeof *e);
    if (e == NULL) {
        return fail(error, error_bytes, LLM_NO_MEMORY, "%s", llm_sentence(LLM_STATUSES, LLM_NO_MEMORY));
    }
    status = open_model(e, options, error, error_bytes);
    if (status == LLM_OK) {
        status = open_rings(e, options);
    }
    if (status == LLM_OK) {
        status = open_store(e, options, error, error_bytes);
    }
    if (status == LLM_OK) {
        status = open_memory(e, options, error, error_bytes);
    }
    if (status == LLM_OK) {
        status = open_decode(e, options);
    }
    if (status != LLM_OK) {
        if (error != NULL && error_bytes > 0 && error[0] == '\0') {
            fail(error, error_bytes, status, "%s", llm_sentence(LLM_STATUSES, status));
        }
        llm_engine_close(e);
        return status;
    }
    *out = e;
    return LLM_OK;
}

const char *llm_gpu_trouble(void)
{
    return model_llama_gpu_trouble();
}

uint32_t llm_loading_progress(void)
{
    return model_llama_progress();
}

int llm_engine_start(llm_engine *engine)
{
    return atomic_load(&engine->decode.life) == DECODE_NEW ? decode_start(&engine->decode) : LLM_MISUSE;
}

int llm_engine_stop(llm_engine *engine)
{
    decode_stop(&engine->decode);
    return LLM_OK;
}

void llm_engine_close(llm_engine *e)
{
    if (e == NULL) {
        return;
    }
    llm_engine_stop(e);
    decode_close(&e->decode);
    table_settle(&e->table);
    if (table_is_unsaved(&e->table)) { /* keeps the segment, from which the next start adopts the unsaved sessions */
        session_table_leave(e->session_table);
    }
    store_close(e->store);
    table_close(&e->table);
    checkpoint_store_close(&e->checkpoints);
    session_table_close(e->session_table);
    chat_close(e->chat);
    if (e->model != NULL) {
        e->model->ops->close(e->model);
    }
    draft_model_close(&e->draft_model);
    ring_close(e->commands);
    ring_close(e->events);
    notifier_close(e->command_notifier);
    notifier_close(e->event_notifier);
    free(e);
}

void llm_engine_set_owners(llm_engine *engine, uint32_t n_owners)
{
    atomic_store(&engine->table.n_owners, n_owners);
    notifier_wake(engine->command_notifier);
}

void llm_engine_info(const llm_engine *engine, llm_info *out)
{
    const model_info *m = &engine->model->info;
    const bool has_sessions = m->memory != LLM_MEMORY_NONE;
    *out = (llm_info){
        .memory = m->memory,
        .kv_type = m->kv_type,
        .has_chat_template = chat_has_template(engine->chat) != 0,
        .n_sessions = has_sessions ? engine->table.options.n_named : 0,
        .n_scratch = has_sessions ? engine->table.options.n_scratch : 0,
        .n_entries = has_sessions ? engine->table.n_entries : 0,
        .n_pins_max = has_sessions ? table_pins_max(&engine->table) : 0,
        .parked_bytes_max = engine->table.options.parked_bytes_max,
        .parked_disk_bytes_max = engine->table.options.parked_disk_bytes_max,
        .checkpoint_bytes_max = engine->checkpoints.n_bytes_max,
    };
#define TELL(type, member, text) out->member = m->member;
    LLM_MODEL_FACT_TABLE(TELL)
#undef TELL
#define TELL(member, bytes, text) memcpy(out->member, m->member, bytes);
    LLM_MODEL_TEXT_TABLE(TELL)
#undef TELL
    identity_hex(m, out->fingerprint);
}

uint64_t llm_engine_heartbeat(const llm_engine *engine, uint32_t *busy)
{
    if (busy != NULL) {
        *busy = session_table_counter(engine->session_table, LLM_COUNTER_IN_STEP) != 0;
    }
    return session_table_counter(engine->session_table, LLM_COUNTER_HEARTBEAT);
}

size_t llm_engine_checkpoints(const llm_engine *engine, uint32_t owner, const int32_t *tokens, size_t n_tokens,
                              uint32_t *out, size_t n_out)
{
    return checkpoint_marks_match(&engine->checkpoints.marks, owner, tokens, n_tokens, out, n_out);
}

const llm_session_table *llm_engine_session_table(const llm_engine *engine)
{
    return session_table_reader(engine->session_table);
}

int llm_engine_complaint(llm_engine *engine, char *out, size_t n_bytes)
{
    return engine->store != NULL && store_complaint(engine->store, out, n_bytes) ? LLM_OK : LLM_NOT_FOUND;
}

int64_t llm_engine_saved(llm_engine *engine, llm_saved *out, size_t n_out)
{
    const uint32_t n_max = n_out < LLM_SAVED_MAX ? (uint32_t)n_out : LLM_SAVED_MAX;
    return engine->store != NULL ? store_list_saved(engine->store, out, n_max) : 0;
}

/* ---- serving: commands and events ---- */

int llm_command_push(llm_engine *engine, const void *message, size_t n_bytes)
{
    if (atomic_load(&engine->decode.life) != DECODE_SERVING) {
        return LLM_SHUTDOWN;
    }
    engine->refused = (wire_refusal){""};
    if (n_bytes > ring_record_max(engine->commands) - sizeof(wire_command)) {
        return LLM_INVALID;
    }
    /* Pushes one record: the command struct, followed by the message into which the struct points. The message is
     * parsed once, and the decode thread reads the struct and the message in place. */
    wire_command *command = ring_reserve(engine->commands, sizeof *command + n_bytes);
    if (command == NULL) {
        return LLM_FULL;
    }
    memcpy(command + 1, message, n_bytes);
    if (wire_command_read(command + 1, n_bytes, command, &engine->refused) != LLM_OK) {
        return LLM_INVALID; /* nothing was committed to the ring */
    }
    ring_commit(engine->commands, sizeof *command + n_bytes);
    decode_was_pushed(&engine->decode, command);
    notifier_wake(engine->command_notifier);
    return LLM_OK;
}

const char *llm_command_refused(const llm_engine *engine)
{
    return engine->refused.field;
}

int llm_events_fd(const llm_engine *engine)
{
    return notifier_fd(engine->event_notifier);
}

/* Moves records of the event ring to `out`, from offset *at on, and advances *at. Returns how many records were
 * moved. */
static uint32_t move_events(llm_engine *engine, uint8_t *out, size_t n_bytes, size_t *at)
{
    uint32_t count = 0;
    size_t n = 0;
    const void *record;
    while ((record = ring_peek(engine->events, &n)) != NULL && n <= n_bytes - *at) {
        memcpy(out + *at, record, n);
        *at += n;
        count++;
        ring_release(engine->events);
    }
    return count;
}

/* Wakes the decode thread if it waits for room in the event ring (decode_deliver). */
static void announce_room(llm_engine *engine)
{
    if (atomic_exchange(&engine->decode.events_blocked, false)) {
        notifier_wake(engine->command_notifier);
    }
}

int64_t llm_events_drain(llm_engine *engine, void *out, size_t n_bytes)
{
    if (n_bytes < ARRAY32_BYTES) {
        return 0;
    }
    uint8_t *bytes = out;
    size_t at = ARRAY32_BYTES;
    notifier_clear(engine->event_notifier);
    uint32_t count = move_events(engine, bytes, n_bytes, &at);
    if (atomic_load(&engine->decode.life) == DECODE_JOINED) {
        decode_finish(&engine->decode);
    }
    notifier_arm(engine->event_notifier);
    count += move_events(engine, bytes, n_bytes, &at);
    /* announce_room comes last. It clears the flag events_blocked, and room that is made after that would not be
     * announced */
    announce_room(engine);
    if (!ring_is_empty(engine->events)) {
        /* some events did not fit into `out`, so the descriptor stays readable */
        notifier_wake(engine->event_notifier);
    }
    if (count == 0) {
        return 0;
    }
    bytes[0] = 0xdd; /* array 32 */
    for (int i = 0; i < 4; i++) {
        bytes[1 + i] = (uint8_t)(count >> (24 - 8 * i));
    }
    return (int64_t)at;
}
