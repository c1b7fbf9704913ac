#include "states/checkpoint.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    ANCHOR = 256,
    /* limit on checkpoints, so that one pass over all of them takes less than a millisecond */
    ENTRIES_MAX = CHECKPOINT_MARKS_MAX,
};

void checkpoint_store_open(checkpoint_store *store, ledger *l, size_t n_bytes_max)
{
    *store = (checkpoint_store){.ledger = l, .n_bytes_max = n_bytes_max};
}

static void free_entry(const checkpoint_store *store, checkpoint *c)
{
    ledger_drop(store->ledger, LEDGER_CHECKPOINT, c->held);
    free(c->tokens);
    free(c);
}

void checkpoint_store_close(checkpoint_store *store)
{
    for (uint32_t i = 0; i < store->n_entries; i++) {
        free_entry(store, store->entries[i]);
    }
    free(store->entries);
    *store = (checkpoint_store){0};
}

static bool same_tokens(const checkpoint *c, const int32_t *tokens)
{
    return memcmp(c->tokens, tokens, c->k * sizeof *tokens) == 0;
}

checkpoint *checkpoint_find(const checkpoint_store *store, uint32_t owner, const int32_t *tokens, uint32_t k)
{
    const token_hash h = token_hash_of(owner, tokens, k);
    for (uint32_t i = 0; i < store->n_entries; i++) {
        checkpoint *c = store->entries[i];
        if (c->k == k && c->owner == owner && token_hash_equal(c->hash, h) && same_tokens(c, tokens)) {
            return c;
        }
    }
    return NULL;
}

uint32_t checkpoint_match(const checkpoint_store *store, uint32_t owner, const int32_t *prompt, uint32_t n_prompt,
                          uint32_t attention, checkpoint **out, uint32_t n_out)
{
    token_hash h = token_hash_begin(owner);
    uint32_t hashed = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < store->n_entries && store->entries[i]->k <= n_prompt; i++) {
        checkpoint *c = store->entries[i];
        while (hashed < c->k) {
            token_hash_add(&h, prompt[hashed++]);
        }
        const bool is_usable = c->is_whole || c->k <= attention;
        if (c->owner != owner || !is_usable || !token_hash_equal(h, c->hash) || !same_tokens(c, prompt)) {
            continue;
        }
        if (n == n_out) {
            memmove(out, out + 1, (n - 1) * sizeof *out); /* the shortest is dropped */
            n--;
        }
        out[n++] = c;
    }
    for (uint32_t i = 0; i < n / 2; i++) {
        checkpoint *c = out[i];
        out[i] = out[n - 1 - i];
        out[n - 1 - i] = c;
    }
    return n;
}

/* ---- eviction ---- */

/* Each checkpoint points to its parent. The parent is the longest of the owner's other checkpoints whose tokens are a
 * prefix of the checkpoint's tokens. The chain of parents contains all checkpoints that are prefixes of a checkpoint.
 * So no operation has to compare a checkpoint with all others. Such comparisons take long if checkpoints have many
 * tokens in common. An example is a system prompt of 20,000 tokens in thousands of checkpoints.
 *
 * Parents are used for eviction only, so tokens with equal hashes count as equal here. But before a checkpoint is
 * restored, its tokens are compared (checkpoint_find, checkpoint_match). */

enum { TAIL = 64 }; /* number of tokens at the end of c that `continues` compares first */

/* Returns the parent of c. One pass over the tokens of c finds all checkpoints that are prefixes of c. */
static checkpoint *find_parent(const checkpoint_store *store, const checkpoint *c)
{
    token_hash h = token_hash_begin(c->owner);
    checkpoint *parent = NULL;
    uint32_t hashed = 0;
    for (uint32_t i = 0; i < store->n_entries && store->entries[i]->k < c->k; i++) {
        checkpoint *other = store->entries[i];
        while (hashed < other->k) {
            token_hash_add(&h, c->tokens[hashed++]);
        }
        if (other->owner == c->owner && token_hash_equal(other->hash, h)) {
            parent = other; /* checkpoints are sorted by k, so the last match is the longest */
        }
    }
    return parent;
}

/* Whether the tokens of `other` begin with those of c. Both checkpoints must have the same parent. The last tokens of c
 * are compared first. If the histories diverge, these tokens nearly always differ. */
static bool continues(const checkpoint *other, const checkpoint *c)
{
    const uint32_t known = c->parent != NULL ? c->parent->k : 0;
    const uint32_t tail = c->k - known > TAIL ? c->k - TAIL : known;
    return other->k > c->k && memcmp(other->tokens + tail, c->tokens + tail, (c->k - tail) * sizeof *c->tokens) == 0 &&
           memcmp(other->tokens + known, c->tokens + known, (tail - known) * sizeof *c->tokens) == 0;
}

/* Returns the value of c, by the formula of checkpoint.h. Dividing by the distance to the end of the history (plus
 * ANCHOR) spaces the checkpoints of a long history logarithmically. With the saved tokens alone, checkpoints would be
 * spaced evenly, with too few near the end, where most prompts diverge. */
static double value_of(const checkpoint_store *store, const checkpoint *c)
{
    const double saved = (double)(c->k - (c->parent != NULL ? c->parent->k : 0));
    const double age = (double)(store->clock - c->used);
    return saved / ((double)c->n_bytes * (double)(c->longest - c->k + ANCHOR) * (1.0 + age));
}

/* Links c, which was just added, between its parent and the checkpoints that continue c. Updates all checkpoints that
 * are prefixes of c. */
static void relate(const checkpoint_store *store, checkpoint *c)
{
    c->parent = find_parent(store, c);
    c->longest = c->k;
    for (uint32_t i = 0; i < store->n_entries; i++) {
        checkpoint *other = store->entries[i];
        if (other != c && other->owner == c->owner && other->parent == c->parent && continues(other, c)) {
            other->parent = c;
            c->longest = other->longest > c->longest ? other->longest : c->longest;
        }
    }
    for (checkpoint *prefix = c->parent; prefix != NULL; prefix = prefix->parent) {
        prefix->longest = c->longest > prefix->longest ? c->longest : prefix->longest;
        prefix->used = c->used;
    }
}

/* Updates the members `parent` and `longest` of the other checkpoints after c was removed. */
static void unrelate(const checkpoint_store *store, const checkpoint *c)
{
    for (uint32_t i = 0; i < store->n_entries; i++) {
        checkpoint *other = store->entries[i];
        other->parent = other->parent == c ? c->parent : other->parent;
        other->longest = other->k;
    }
    /* this loop goes from the longest checkpoint to the shortest, so each checkpoint is updated before its parent */
    for (uint32_t i = store->n_entries; i > 0; i--) {
        const checkpoint *other = store->entries[i - 1];
        if (other->parent != NULL && other->parent->longest < other->longest) {
            other->parent->longest = other->longest;
        }
    }
}

static checkpoint *least_valuable(const checkpoint_store *store)
{
    checkpoint *worst = NULL;
    double worst_value = 0;
    for (uint32_t i = 0; i < store->n_entries; i++) {
        checkpoint *c = store->entries[i];
        if (c->n_pins > 0) {
            continue;
        }
        const double value = value_of(store, c);
        if (worst == NULL || value < worst_value) {
            worst = c;
            worst_value = value;
        }
    }
    return worst;
}

void checkpoint_detach(checkpoint_store *store, checkpoint *c)
{
    assert(c->n_pins == 0);
    uint32_t i = 0;
    while (store->entries[i] != c) {
        i++;
    }
    store->n_entries--;
    memmove(store->entries + i, store->entries + i + 1, (store->n_entries - i) * sizeof(checkpoint *));
    store->n_bytes -= c->n_bytes;
    checkpoint_marks_remove(&store->marks, c->mark);
    unrelate(store, c);
}

void checkpoint_remove(checkpoint_store *store, checkpoint *c)
{
    checkpoint_detach(store, c);
    free_entry(store, c);
}

static bool make_room(checkpoint_store *store, size_t n_bytes)
{
    while (store->n_bytes + n_bytes > store->n_bytes_max || store->n_entries >= ENTRIES_MAX) {
        checkpoint *worst = least_valuable(store);
        if (worst == NULL) {
            return false;
        }
        checkpoint_remove(store, worst);
        store->n_evicted++;
    }
    return true;
}

/* ---- adding ---- */

static bool grow(checkpoint_store *store)
{
    if (store->n_entries < store->capacity) {
        return true;
    }
    const uint32_t capacity = store->capacity == 0 ? 64 : 2 * store->capacity;
    checkpoint **entries = realloc(store->entries, capacity * sizeof(checkpoint *));
    if (entries == NULL) {
        return false;
    }
    store->entries = entries;
    store->capacity = capacity;
    return true;
}

static void insert(checkpoint_store *store, checkpoint *c)
{
    uint32_t i = store->n_entries++;
    while (i > 0 && store->entries[i - 1]->k > c->k) {
        store->entries[i] = store->entries[i - 1];
        i--;
    }
    store->entries[i] = c;
    store->n_bytes += c->n_bytes;
    c->mark = checkpoint_marks_add(&store->marks, c->owner, c->k, c->hash);
}

static void attach(checkpoint_store *store, checkpoint *c)
{
    insert(store, c);
    relate(store, c);
}

checkpoint *checkpoint_replace(checkpoint_store *store, checkpoint *detached, checkpoint *by)
{
    if (by == NULL) {
        attach(store, detached);
        return detached;
    }
    free_entry(store, detached);
    return by;
}

/* Returns the offset of the logits in a blob: they follow the state, aligned for floats. */
static size_t logits_at(size_t n_state_bytes)
{
    return (n_state_bytes + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}

size_t checkpoint_blob_bytes(size_t n_state_bytes, uint32_t n_logits)
{
    return n_logits > 0 ? logits_at(n_state_bytes) + n_logits * sizeof(float) : n_state_bytes;
}

checkpoint *checkpoint_adopt(checkpoint_store *store, uint32_t owner, const int32_t *tokens, uint32_t k,
                             const checkpoint_parts *parts, blob *held)
{
    assert(k > 0 && held->n_bytes >= checkpoint_blob_bytes(parts->n_state_bytes, parts->n_logits));
    const size_t n_bytes = sizeof(checkpoint) + k * sizeof *tokens + held->n_bytes;
    if (n_bytes > store->n_bytes_max / 2 || !grow(store)) {
        return NULL;
    }
    checkpoint *c = calloc(1, sizeof *c);
    int32_t *own_tokens = malloc(k * sizeof *tokens);
    /* make_room comes last, because it evicts checkpoints. If a later allocation failed, these checkpoints would be
     * lost in vain */
    if (c == NULL || own_tokens == NULL || !make_room(store, n_bytes)) {
        free(c);
        free(own_tokens);
        return NULL;
    }
    memcpy(own_tokens, tokens, k * sizeof *tokens);
    *c = (checkpoint){
        .k = k,
        .owner = owner,
        .hash = token_hash_of(owner, tokens, k),
        .tokens = own_tokens,
        .held = held,
        .state = held->bytes,
        .n_state_bytes = parts->n_state_bytes,
        .is_whole = parts->is_whole,
        .logits = parts->n_logits > 0 ? (float *)(void *)(held->bytes + logits_at(parts->n_state_bytes)) : NULL,
        .n_logits = parts->n_logits,
        .n_bytes = n_bytes,
        .used = ++store->clock,
    };
    ledger_hold(store->ledger, LEDGER_CHECKPOINT, held);
    attach(store, c);
    return c;
}

checkpoint *checkpoint_add(checkpoint_store *store, uint32_t owner, const int32_t *tokens, uint32_t k,
                           size_t n_state_bytes, uint32_t n_logits, bool is_whole)
{
    const size_t n_blob_bytes = checkpoint_blob_bytes(n_state_bytes, n_logits);
    /* The blob is allocated before other checkpoints are evicted for it. Its pages take memory only when they are
     * filled, after the evictions. */
    blob *held =
        n_blob_bytes <= store->n_bytes_max / 2 ? ledger_new(store->ledger, LEDGER_CHECKPOINT, n_blob_bytes) : NULL;
    if (held == NULL) {
        return NULL;
    }
    const checkpoint_parts parts = {.n_state_bytes = n_state_bytes, .n_logits = n_logits, .is_whole = is_whole};
    checkpoint *c = checkpoint_adopt(store, owner, tokens, k, &parts, held);
    ledger_drop(store->ledger, LEDGER_CHECKPOINT, held); /* frees the blob unless the checkpoint holds it */
    return c;
}

bool checkpoint_pin(checkpoint_store *store, checkpoint *c)
{
    if (c->n_pins == 0) {
        if (store->n_pinned_bytes + c->n_bytes > store->n_bytes_max / 2) {
            return false;
        }
        store->n_pinned_bytes += c->n_bytes;
    }
    c->n_pins++;
    return true;
}

void checkpoint_unpin(checkpoint_store *store, checkpoint *c)
{
    assert(c->n_pins > 0);
    if (--c->n_pins == 0) {
        store->n_pinned_bytes -= c->n_bytes;
    }
}

void checkpoint_use(checkpoint_store *store, checkpoint *c, uint32_t user_entry, uint64_t user_id)
{
    c->user_entry = user_entry;
    c->user_id = user_id;
    c->used = ++store->clock;
    for (checkpoint *prefix = c->parent; prefix != NULL; prefix = prefix->parent) {
        prefix->used = c->used;
    }
}
