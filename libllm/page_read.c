/* page_read.c: the reading side of the shared segment, for any thread and any process. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "page_layout.h"

/* ---- open ---- */

/* n items of `size` bytes at `at` lie inside `bytes`, aligned. */
static int range_is_inside(uint64_t at, uint64_t n, uint64_t size, uint64_t bytes, uint64_t alignment)
{
    return at % alignment == 0 && at <= bytes && n <= (bytes - at) / size;
}

static int sizes_agree(const page_header *h, uint64_t bytes)
{
    return h->header_bytes == sizeof *h && h->slot_bytes == sizeof(page_slot) && h->bytes == bytes && h->n_slots > 0 &&
           h->n_slots <= LLM_SEQUENCES_MAX + LLM_PARKED_MAX && h->n_ctx > 0 && h->n_ctx <= INT32_MAX &&
           h->n_counters == LLM_COUNTER_N &&
           range_is_inside(h->counters_at, h->n_counters, sizeof(uint64_t), bytes, alignof(uint64_t)) &&
           range_is_inside(h->slots_at, h->n_slots, sizeof(page_slot), bytes, alignof(page_slot)) &&
           range_is_inside(h->tokens_at, (uint64_t)h->n_slots * h->n_ctx, sizeof(int32_t), bytes, alignof(int32_t));
}

/* The rest of `out` stays as it is: callers pass zeroed structs. */
static void copy_text(char *out, size_t n_out, const char *text, size_t n_text)
{
    size_t n = strnlen(text, n_text);
    memcpy(out, text, n < n_out ? n : n_out - 1);
}

int page_layout_read(const void *base, uint64_t bytes, llm_page *out)
{
    const page_header *shared = base;
    /* Pairs with the release in page.c's header_write. */
    if (bytes < sizeof *shared || atomic_load_explicit(&shared->magic, memory_order_acquire) != PAGE_MAGIC) {
        return LLM_NOT_FOUND;
    }
    page_header h;
    memcpy(&h, shared, sizeof h);
    if (h.version != LLM_PAGE_VERSION || !sizes_agree(&h, bytes)) {
        return LLM_VERSION;
    }
    *out = (llm_page){.base = base,
                      .bytes = bytes,
                      .slots_at = h.slots_at,
                      .tokens_at = h.tokens_at,
                      .counters_at = h.counters_at,
                      .view = {.version = h.version,
                               .n_slots = h.n_slots,
                               .n_ctx = h.n_ctx,
                               .n_counters = h.n_counters,
                               .pid = h.pid,
                               .started_ms = h.started_ms,
                               .bytes = h.bytes}};
    copy_text(out->view.model, sizeof out->view.model, h.model, sizeof h.model);
    copy_text(out->view.fingerprint, sizeof out->view.fingerprint, h.fingerprint, sizeof h.fingerprint);
    return LLM_OK;
}

static int map_descriptor(int fd, llm_page *page)
{
    struct stat facts;
    if (fstat(fd, &facts) < 0) {
        return LLM_IO;
    }
    if (facts.st_size < (off_t)sizeof(page_header)) {
        return LLM_VERSION;
    }
    size_t bytes = (size_t)facts.st_size;
    void *base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        return LLM_IO;
    }
    int status = page_layout_read(base, bytes, page);
    if (status != LLM_OK) {
        munmap(base, bytes);
        return LLM_VERSION; /* it is there, but it is not ours */
    }
    return LLM_OK;
}

int llm_page_open(const char *name, llm_page **out)
{
    int fd = shm_open(name, O_RDONLY, 0);
    if (fd < 0) {
        return errno == ENOENT || errno == EINVAL || errno == ENAMETOOLONG ? LLM_NOT_FOUND : LLM_IO;
    }
    llm_page *page = malloc(sizeof *page);
    int status = page != NULL ? map_descriptor(fd, page) : LLM_NO_MEMORY;
    close(fd); /* the mapping holds the segment */
    if (status != LLM_OK) {
        free(page);
        return status;
    }
    *out = page;
    return LLM_OK;
}

void llm_page_close(llm_page *page)
{
    if (page != NULL) {
        munmap((void *)(uintptr_t)page->base, page->bytes);
        free(page);
    }
}

/* ---- read ---- */

static const page_slot *slot_at(const llm_page *page, uint32_t slot)
{
    return (const page_slot *)(const void *)(page->base + page->slots_at) + slot;
}

void llm_page_read(const llm_page *page, llm_page_view *out)
{
    *out = page->view;
}

uint64_t llm_page_counter(const llm_page *page, int counter)
{
    if (counter < 0 || (uint32_t)counter >= page->view.n_counters) {
        return 0;
    }
    const _Atomic uint64_t *counters = (const void *)(page->base + page->counters_at);
    return atomic_load_explicit(&counters[counter], memory_order_relaxed);
}

/* Every load acquires, so that the second look at the commit word cannot come before it (page_layout.h). */
#define LOAD(member) atomic_load_explicit(&s->member, memory_order_acquire)

static void record_copy(const page_slot *s, llm_session_view *out)
{
    out->owner = LOAD(owner);
    out->state = LOAD(state);
    out->reason = LOAD(reason);
    out->n_visible = LOAD(n_visible);
    out->n_waiting = LOAD(n_waiting);
    out->n_requests = LOAD(n_requests);
    out->is_pinned = LOAD(is_pinned);
    out->diverged_at = LOAD(diverged_at);
    out->n_last_prompt = LOAD(n_last_prompt);
    out->n_last_reused = LOAD(n_last_reused);
    out->n_prefilled_total = LOAD(n_prefilled_total);
    out->n_reused_total = LOAD(n_reused_total);
    out->n_generated_total = LOAD(n_generated_total);
    out->opened_ms = LOAD(opened_ms);
    out->used_ms = LOAD(used_ms);
    for (size_t i = 0; i < PAGE_NAME_WORDS; i++) {
        uint64_t word = LOAD(name[i]);
        memcpy(out->name + 8 * i, &word, sizeof word);
    }
    out->name[sizeof out->name - 1] = '\0';
}

/* The commit word of an open slot, or COMMIT_CLOSED. Pairs with the releases in page.c. A count beyond the array can
 * only come from a damaged segment: such a slot is not there. */
static uint64_t commit_load(const llm_page *page, uint32_t slot)
{
    uint64_t word = atomic_load_explicit(&slot_at(page, slot)->commit, memory_order_acquire);
    return (word & COMMIT_CLOSED) != 0 || commit_count(word) > page->view.n_ctx ? COMMIT_CLOSED : word;
}

static int same_generation(const llm_page *page, uint32_t slot, uint64_t word)
{
    uint64_t again = atomic_load_explicit(&slot_at(page, slot)->commit, memory_order_acquire);
    return commit_generation(again) == commit_generation(word);
}

int llm_page_session(const llm_page *page, uint32_t slot, llm_session_view *out)
{
    if (slot >= page->view.n_slots) {
        return LLM_NOT_FOUND;
    }
    llm_session_view view = {.slot = slot};
    uint64_t word;
    do {
        word = commit_load(page, slot);
        if (word == COMMIT_CLOSED) {
            return LLM_NOT_FOUND;
        }
        record_copy(slot_at(page, slot), &view);
    } while (!same_generation(page, slot, word));
    view.generation = commit_generation(word);
    view.n_tokens = commit_count(word);
    *out = view;
    return LLM_OK;
}

int64_t llm_page_tokens(const llm_page *page, uint32_t slot, int32_t *out, size_t n_out, uint32_t *generation)
{
    if (slot >= page->view.n_slots) {
        return -1;
    }
    const int32_t *tokens = (const int32_t *)(const void *)(page->base + page->tokens_at);
    tokens += (size_t)slot * page->view.n_ctx;
    uint64_t word;
    do {
        word = commit_load(page, slot);
        if (word == COMMIT_CLOSED) {
            return -1;
        }
        if (commit_count(word) > n_out) {
            return -(int64_t)commit_count(word) - 1;
        }
        for (uint32_t i = 0; i < commit_count(word); i++) {
            out[i] = __atomic_load_n(&tokens[i], __ATOMIC_ACQUIRE); /* pairs with page.c's tokens_store */
        }
    } while (!same_generation(page, slot, word));
    if (generation != NULL) {
        *generation = commit_generation(word);
    }
    return commit_count(word);
}
