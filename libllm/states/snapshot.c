#include "states/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "states/checkpoint.h"
#include "states/durable.h"

static const char BRANCH_MAGIC[8] = "LLMDSES1";
static const char STATE_MAGIC[8] = "LLMDSTA1";

enum {
    VERSION = 2,
    ORDER_MARK = 0x01020304,
};

/* The beginning of the header of a branch file and of a state file. */
typedef struct file_mark {
    char magic[8];
    uint32_t version;
    uint32_t order_mark;
    uint32_t head_bytes;
    uint32_t reserved;
    uint64_t file_bytes;
} file_mark;

typedef struct branch_head {
    file_mark mark;
    uint64_t id;
    uint64_t opened_ms;
    uint64_t used_ms;
    uint32_t owner;
    uint32_t is_pinned;
    uint32_t n_tokens;
    uint32_t reserved;
    uint8_t identity[16];
    char name[LLM_SESSION_NAME_BYTES_MAX + 8];
    uint64_t checksum; /* checksum of the header's bytes before this member */
} branch_head;

typedef struct state_head {
    file_mark mark;
    uint64_t hash[2];
    uint32_t k;
    uint32_t n_parts;
    uint64_t part_bytes;
    uint8_t geometry[16];
    uint64_t checksum; /* checksum of the header's bytes before this member */
} state_head;

typedef struct part_head {
    uint32_t k;
    uint32_t is_whole;
    uint32_t n_logits;
    uint32_t reserved;
    uint64_t n_state_bytes;
} part_head;

void branch_file_clear(branch_file *f)
{
    free(f->tokens);
    *f = (branch_file){0};
}

void state_file_clear(state_file *f)
{
    for (uint32_t i = 0; i < f->n_parts; i++) {
        blob_free(f->parts[i].held);
    }
    f->n_parts = 0;
}

uint64_t state_file_bytes(const state_file *f)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < f->n_parts; i++) {
        n += f->parts[i].held->n_bytes;
    }
    return n;
}

state_ends state_file_ends(const state_file *f)
{
    state_ends e = {.n = f->n_parts};
    for (uint32_t i = 0; i < f->n_parts; i++) {
        e.k[i] = f->parts[i].k;
    }
    return e;
}

uint32_t state_ends_within(const state_ends *e, uint32_t n_tokens)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < e->n; i++) {
        last = e->k[i] <= n_tokens && e->k[i] > last ? e->k[i] : last;
    }
    return last;
}

bool state_matches(uint32_t k, token_hash hash, const int32_t *tokens, uint32_t n_tokens)
{
    return k > 0 && k <= n_tokens && token_hash_equal(token_hash_of(0, tokens, k), hash);
}

/* ---- writing ---- */

static uint64_t sum_of(const void *bytes, size_t n)
{
    durable_sum s = durable_sum_begin();
    durable_sum_add(&s, bytes, n);
    return durable_sum_end(&s);
}

static file_mark mark_of(const char magic[8], uint32_t head_bytes, uint64_t file_bytes)
{
    file_mark mark = {.version = VERSION, .order_mark = ORDER_MARK, .head_bytes = head_bytes, .file_bytes = file_bytes};
    memcpy(mark.magic, magic, sizeof mark.magic);
    return mark;
}

static bool write_branch(int fd, const uint8_t identity[16], const branch_file *f)
{
    const size_t n_token_bytes = f->n_tokens * sizeof *f->tokens;
    branch_head head;
    memset(&head, 0, sizeof head);
    head.mark = mark_of(BRANCH_MAGIC, sizeof head, sizeof head + n_token_bytes + sizeof(uint64_t));
    head.id = f->id;
    head.opened_ms = f->opened_ms;
    head.used_ms = f->used_ms;
    head.owner = f->owner;
    head.is_pinned = f->is_pinned;
    head.n_tokens = f->n_tokens;
    memcpy(head.identity, identity, sizeof head.identity);
    memcpy(head.name, f->name, sizeof f->name);
    head.checksum = sum_of(&head, offsetof(branch_head, checksum));
    const uint64_t checksum = sum_of(f->tokens, n_token_bytes);
    return durable_write(fd, &head, sizeof head) && durable_write(fd, f->tokens, n_token_bytes) &&
           durable_write(fd, &checksum, sizeof checksum);
}

int branch_file_prepare(const char *directory, const uint8_t identity[16], const branch_file *f)
{
    const int fd = durable_create(directory, f->id, SNAPSHOT_BRANCH_WRITING);
    if (fd < 0) {
        return LLM_IO;
    }
    if (!durable_finish(fd, write_branch(fd, identity, f))) {
        const int error = errno;
        branch_file_abandon(directory, f->id);
        errno = error;
        return LLM_IO;
    }
    return LLM_OK;
}

int branch_file_commit(const char *directory, uint64_t id)
{
    return durable_rename(directory, id, SNAPSHOT_BRANCH_WRITING, SNAPSHOT_BRANCH) ? LLM_OK : LLM_IO;
}

void branch_file_abandon(const char *directory, uint64_t id)
{
    (void)durable_remove(directory, id, SNAPSHOT_BRANCH_WRITING);
}

int branch_file_write(const char *directory, const uint8_t identity[16], const branch_file *f)
{
    int status = branch_file_prepare(directory, identity, f);
    if (status == LLM_OK && branch_file_commit(directory, f->id) != LLM_OK) {
        const int error = errno;
        branch_file_abandon(directory, f->id);
        errno = error;
        status = LLM_IO;
    }
    return status == LLM_OK && durable_sync(directory) ? LLM_OK : LLM_IO;
}

static bool put(int fd, durable_sum *sum, const void *bytes, size_t n)
{
    durable_sum_add(sum, bytes, n);
    return durable_write(fd, bytes, n);
}

static bool write_parts(int fd, const state_file *f)
{
    durable_sum sum = durable_sum_begin();
    for (uint32_t i = 0; i < f->n_parts; i++) {
        const state_part *p = &f->parts[i];
        const part_head head = {
            .k = p->k, .is_whole = p->is_whole, .n_logits = p->n_logits, .n_state_bytes = p->n_state_bytes};
        if (!put(fd, &sum, &head, sizeof head) || !put(fd, &sum, p->held->bytes, p->held->n_bytes)) {
            return false;
        }
    }
    const uint64_t checksum = durable_sum_end(&sum);
    return durable_write(fd, &checksum, sizeof checksum);
}

static bool write_state(int fd, const uint8_t geometry[16], const state_file *f)
{
    state_head head;
    memset(&head, 0, sizeof head);
    head.part_bytes = state_file_bytes(f);
    head.mark = mark_of(STATE_MAGIC, sizeof head,
                        sizeof head + head.part_bytes + f->n_parts * sizeof(part_head) + sizeof(uint64_t));
    head.hash[0] = f->hash.lane[0];
    head.hash[1] = f->hash.lane[1];
    head.k = f->k;
    head.n_parts = f->n_parts;
    memcpy(head.geometry, geometry, sizeof head.geometry);
    head.checksum = sum_of(&head, offsetof(state_head, checksum));
    return durable_allocate(fd, head.mark.file_bytes) && durable_write(fd, &head, sizeof head) && write_parts(fd, f);
}

int state_file_write(const char *directory, uint64_t id, const uint8_t geometry[16], const state_file *f)
{
    const int fd = durable_create(directory, id, SNAPSHOT_STATE_WRITING);
    if (fd < 0) {
        return LLM_IO;
    }
    if (!durable_finish(fd, write_state(fd, geometry, f)) ||
        !durable_rename(directory, id, SNAPSHOT_STATE_WRITING, SNAPSHOT_STATE)) {
        const int error = errno;
        (void)durable_remove(directory, id, SNAPSHOT_STATE_WRITING);
        errno = error;
        return LLM_IO;
    }
    return durable_sync(directory) ? LLM_OK : LLM_IO;
}

/* ---- reading ---- */

typedef struct reading {
    int fd;
    uint64_t left;         /* bytes of the file not yet read */
    uint64_t n_bytes_left; /* bytes of the parts not yet read, according to the file's header */
    durable_sum sum;
    const char *why;
} reading;

static int refuse(reading *r, const char *why)
{
    r->why = why;
    return LLM_VERSION;
}

static int take(reading *r, void *bytes, uint64_t n)
{
    if (n > r->left) {
        return refuse(r, "it is cut short");
    }
    if (!durable_read(r->fd, bytes, n)) {
        r->why = errno != 0 ? strerror(errno) : "it is cut short";
        return errno != 0 ? LLM_IO : LLM_VERSION;
    }
    r->left -= n;
    durable_sum_add(&r->sum, bytes, n);
    return LLM_OK;
}

static bool skip(reading *r, uint64_t n)
{
    if (n > r->left || lseek(r->fd, (off_t)n, SEEK_CUR) < 0) {
        return false;
    }
    r->left -= n;
    return true;
}

static int no_memory(reading *r)
{
    r->why = "memory is short";
    return LLM_NO_MEMORY;
}

static int take_blob(reading *r, uint64_t n_bytes, blob **out)
{
    if (n_bytes > r->left) { /* checked first, so that a damaged file cannot make this allocate too much memory */
        return refuse(r, "it is cut short");
    }
    if (n_bytes > r->n_bytes_left) {
        return refuse(r, "it is larger than its header says");
    }
    r->n_bytes_left -= n_bytes;
    *out = blob_new(n_bytes);
    return *out != NULL ? take(r, (*out)->bytes, n_bytes) : no_memory(r);
}

static int take_checksum(reading *r)
{
    const uint64_t expected = durable_sum_end(&r->sum);
    uint64_t checksum = 0;
    if (r->left != sizeof checksum) {
        return refuse(r, "its header does not fit the file");
    }
    const int status = take(r, &checksum, sizeof checksum);
    return status == LLM_OK && checksum != expected ? refuse(r, "its contents are damaged") : status;
}

/* Opens the file, and checks that it is a regular file. */
static int open_file(reading *r, const char *directory, uint64_t id, const char *ending)
{
    char path[DURABLE_PATH_BYTES];
    struct stat info;
    durable_path(path, directory, id, ending);
    *r = (reading){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), .why = ""};
    if (r->fd < 0 || fstat(r->fd, &info) != 0) {
        r->why = strerror(errno);
        return errno == ENOENT ? LLM_NOT_FOUND : LLM_IO;
    }
    if (!S_ISREG(info.st_mode)) {
        return refuse(r, "it is not a regular file");
    }
    r->left = (uint64_t)info.st_size;
    return LLM_OK;
}

static int close_file(reading *r, int status, const char **why)
{
    if (r->fd >= 0) {
        close(r->fd);
    }
    *why = r->why;
    return status;
}

static int take_head(reading *r, void *head, size_t n_bytes, const char magic[8])
{
    const uint64_t file_bytes = r->left;
    file_mark mark;
    if (file_bytes < n_bytes + sizeof(uint64_t)) {
        return refuse(r, "it is too short");
    }
    const int status = take(r, head, n_bytes);
    if (status != LLM_OK) {
        return status;
    }
    memcpy(&mark, head, sizeof mark);
    if (memcmp(mark.magic, magic, sizeof mark.magic) != 0) {
        return refuse(r, "it is not a session file");
    }
    if (mark.version != VERSION || mark.order_mark != ORDER_MARK || mark.head_bytes != n_bytes) {
        return refuse(r, "it was written by another version or kind of machine");
    }
    uint64_t checksum;
    memcpy(&checksum, (const char *)head + n_bytes - sizeof checksum, sizeof checksum);
    if (checksum != sum_of(head, n_bytes - sizeof checksum)) {
        return refuse(r, "its header is damaged");
    }
    if (mark.file_bytes != file_bytes) {
        return refuse(r, "its header does not fit the file");
    }
    r->sum = durable_sum_begin();
    return LLM_OK;
}

static int read_branch(reading *r, uint64_t id, const uint8_t identity[16], branch_file *out)
{
    branch_head head;
    int status = take_head(r, &head, sizeof head, BRANCH_MAGIC);
    if (status != LLM_OK) {
        return status;
    }
    if (memcmp(head.identity, identity, sizeof head.identity) != 0) {
        return refuse(r, "it belongs to another model");
    }
    const uint64_t n_token_bytes = (uint64_t)head.n_tokens * sizeof *out->tokens;
    const bool is_named = memchr(head.name, '\0', LLM_SESSION_NAME_BYTES_MAX + 1) != NULL;
    if (head.id != id || !is_named || r->left != n_token_bytes + sizeof(uint64_t)) {
        return refuse(r, "its header does not fit the file");
    }
    *out = (branch_file){.id = id,
                         .owner = head.owner,
                         .is_pinned = head.is_pinned != 0,
                         .opened_ms = head.opened_ms,
                         .used_ms = head.used_ms,
                         .n_tokens = head.n_tokens};
    memcpy(out->name, head.name, sizeof out->name);
    out->tokens = malloc(n_token_bytes > 0 ? n_token_bytes : 1);
    status = out->tokens != NULL ? take(r, out->tokens, n_token_bytes) : no_memory(r);
    return status == LLM_OK ? take_checksum(r) : status;
}

int branch_file_read(const char *directory, uint64_t id, const uint8_t identity[16], branch_file *out, const char **why)
{
    reading r;
    *out = (branch_file){0};
    int status = open_file(&r, directory, id, SNAPSHOT_BRANCH);
    if (status == LLM_OK) {
        status = read_branch(&r, id, identity, out);
    }
    if (status != LLM_OK) {
        branch_file_clear(out);
    }
    return close_file(&r, status, why);
}

static int take_state_head(reading *r, const uint8_t geometry[16], state_head *head, state_facts *out)
{
    const int status = take_head(r, head, sizeof *head, STATE_MAGIC);
    if (status != LLM_OK) {
        return status;
    }
    const uint64_t n_heads = (uint64_t)head->n_parts * sizeof(part_head) + sizeof(uint64_t);
    if (head->k == 0 || head->n_parts == 0 || head->n_parts > SNAPSHOT_PARTS_MAX || r->left < n_heads ||
        head->part_bytes != r->left - n_heads) {
        return refuse(r, "its header does not fit the file");
    }
    *out = (state_facts){.is_there = true,
                         .is_of_other_geometry = memcmp(head->geometry, geometry, sizeof head->geometry) != 0,
                         .k = head->k,
                         .hash = {{head->hash[0], head->hash[1]}},
                         .n_bytes = head->part_bytes};
    return LLM_OK;
}

static int take_part_head(reading *r, uint32_t k_max, part_head *head)
{
    const int status = take(r, head, sizeof *head);
    if (status != LLM_OK) {
        return status;
    }
    const bool makes_sense = head->k > 0 && head->k <= k_max && head->is_whole <= 1 && head->n_state_bytes <= r->left;
    return makes_sense ? LLM_OK : refuse(r, "a state in it is invalid");
}

static state_ends look_at_parts(reading *r, const state_head *head)
{
    state_ends e = {0};
    part_head part;
    while (e.n < head->n_parts) {
        if (take_part_head(r, head->k, &part) != LLM_OK ||
            !skip(r, checkpoint_blob_bytes(part.n_state_bytes, part.n_logits))) {
            return (state_ends){0};
        }
        e.k[e.n++] = part.k;
    }
    return e;
}

int state_file_look(const char *directory, uint64_t id, const uint8_t geometry[16], bool looks_at_parts,
                    state_facts *out, const char **why)
{
    reading r;
    state_head head;
    *out = (state_facts){0};
    int status = open_file(&r, directory, id, SNAPSHOT_STATE);
    if (status == LLM_OK) {
        status = take_state_head(&r, geometry, &head, out);
    }
    if (status == LLM_OK && looks_at_parts && !out->is_of_other_geometry) {
        out->ends = look_at_parts(&r, &head);
    }
    return close_file(&r, status == LLM_NOT_FOUND ? LLM_OK : status, why);
}

static int read_part(reading *r, uint32_t k_max, state_part *p)
{
    part_head head;
    const int status = take_part_head(r, k_max, &head);
    if (status != LLM_OK) {
        return status;
    }
    p->k = head.k;
    p->is_whole = head.is_whole == 1;
    p->n_state_bytes = head.n_state_bytes;
    p->n_logits = head.n_logits;
    return take_blob(r, checkpoint_blob_bytes(p->n_state_bytes, p->n_logits), &p->held);
}

static int read_state(reading *r, const uint8_t geometry[16], uint64_t n_bytes_max, state_file *out)
{
    state_head head;
    state_facts facts;
    int status = take_state_head(r, geometry, &head, &facts);
    if (status != LLM_OK) {
        return status;
    }
    if (facts.is_of_other_geometry) {
        return refuse(r, "it was saved under another memory layout");
    }
    if (facts.n_bytes > n_bytes_max) { /* the file is good, but larger than the caller allows */
        r->why = "it is larger than the available memory";
        return LLM_NO_MEMORY;
    }
    out->k = facts.k;
    out->hash = facts.hash;
    r->n_bytes_left = facts.n_bytes;
    for (uint32_t i = 0; status == LLM_OK && i < head.n_parts; i++) {
        out->n_parts = i + 1;
        status = read_part(r, out->k, &out->parts[i]);
    }
    if (status == LLM_OK && (out->parts[0].k != out->k || !out->parts[0].is_whole)) {
        status = refuse(r, "a state in it is invalid");
    }
    return status == LLM_OK ? take_checksum(r) : status;
}

int state_file_read(const char *directory, uint64_t id, const uint8_t geometry[16], uint64_t n_bytes_max,
                    state_file *out, const char **why)
{
    reading r;
    *out = (state_file){0};
    int status = open_file(&r, directory, id, SNAPSHOT_STATE);
    if (status == LLM_OK) {
        status = read_state(&r, geometry, n_bytes_max, out);
    }
    if (status != LLM_OK) {
        state_file_clear(out);
    }
    return close_file(&r, status, why);
}
