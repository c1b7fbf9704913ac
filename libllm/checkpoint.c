#include "checkpoint.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    ANCHOR = 256,
    ENTRIES_MAX = 4096, /* looking through them takes less than a millisecond */
};

void checkpoint_store_open(checkpoint_store *store, size_t n_bytes_max)
{
    *store = (checkpoint_store){.n_bytes_max = n_bytes_max};
}

static void free_entry(checkpoint *c)
{
    free(c->tokens);
    free(c->state);
    free(c->logits);
    free(c);
}

void checkpoint_store_close(checkpoint_store *store)
{
    for (uint32_t i = 0; i < store->n_entries; i++) {
        free_entry(store->entries[i]);
    }
    free(store->entries);
    *store = (checkpoint_store){0};
}

/* Two independent multiply-xor lanes (constants of splitmix64, Steele et al. 2014). */
static checkpoint_hash hash_begin(uint32_t owner)
{
    return (checkpoint_hash){{0x9e3779b97f4a7c15ull + owner, 0xd1b54a32d192ed03ull ^ owner}};
}

static void hash_token(checkpoint_hash *h, int32_t token)
{
    const uint64_t x = (uint32_t)token + 1u;
    h->lane[0] = (h->lane[0] ^ x) * 0xbf58476d1ce4e5b9ull;
    h->lane[0] ^= h->lane[0] >> 29;
    h->lane[1] = (h->lane[1] + x) * 0x94d049bb133111ebull;
    h->lane[1] ^= h->lane[1] >> 31;
}

static bool same_hash(checkpoint_hash a, checkpoint_hash b)
{
    return a.lane[0] == b.lane[0] && a.lane[1] == b.lane[1];
}

static bool same_tokens(const checkpoint *c, const int32_t *tokens)
{
    return memcmp(c->tokens, tokens, c->k * sizeof *tokens) == 0;
}

static checkpoint_hash hash_of(uint32_t owner, const int32_t *tokens, uint32_t k)
{
    checkpoint_hash h = hash_begin(owner);
    for (uint32_t i = 0; i < k; i++) {
        hash_token(&h, tokens[i]);
    }
    return h;
}

checkpoint *checkpoint_find(const checkpoint_store *store, uint32_t owner, const int32_t *tokens, uint32_t k)
{
    const checkpoint_hash h = hash_of(owner, tokens, k);
    for (uint32_t i = 0; i < store->n_entries; i++) {
        checkpoint *c = store->entries[i];
        if (c->k == k && c->owner == owner && same_hash(c->hash, h) && same_tokens(c, tokens)) {
            return c;
        }
    }
    return NULL;
}

uint32_t checkpoint_match(const checkpoint_store *store, uint32_t owner, const int32_t *prompt, uint32_t n_prompt,
                          uint32_t attention, checkpoint **out, uint32_t n_out)
{
    checkpoint_hash h = hash_begin(owner);
    uint32_t hashed = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < store->n_entries && store->entries[i]->k <= n_prompt; i++) {
        checkpoint *c = store->entries[i];
        while (hashed < c->k) {
            hash_token(&h, prompt[hashed++]);
        }
        const bool is_usable = c->is_whole || c->k <= attention;
        if (c->owner != owner || !is_usable || !same_hash(h, c->hash) || !same_tokens(c, prompt)) {
            continue;
        }
        if (n == n_out) {
            memmove(out, out + 1, (n - 1) * sizeof *out); /* the shortest goes */
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

static bool is_prefix_of(const checkpoint *a, const checkpoint *b)
{
    return a->owner == b->owner && a->k <= b->k && memcmp(a->tokens, b->tokens, a->k * sizeof *a->tokens) == 0;
}

static double value_of(const checkpoint_store *store, const checkpoint *c)
{
    const double saved = (double)(c->k - c->shorter);
    const double age = (double)(store->clock - c->used);
    return saved / ((double)c->n_bytes * (double)(c->longest - c->k + ANCHOR) * (1.0 + age));
}

/* c is in the store: it and its relatives learn of each other. */
static void relate(const checkpoint_store *store, checkpoint *c)
{
    c->shorter = 0;
    c->longest = c->k;
    for (uint32_t i = 0; i < store->n_entries; i++) {
        checkpoint *other = store->entries[i];
        if (other->k < c->k && is_prefix_of(other, c)) {
            c->shorter = other->k; /* entries ascend: the last one is the longest */
            other->longest = other->longest > c->k ? other->longest : c->k;
            other->used = c->used;
        } else if (other->k > c->k && is_prefix_of(c, other)) {
            c->longest = other->k;
            other->shorter = other->shorter > c->k ? other->shorter : c->k;
        }
    }
}

static uint32_t longest_over(const checkpoint_store *store, const checkpoint *c)
{
    for (uint32_t i = store->n_entries; i > 0 && store->entries[i - 1]->k > c->k; i--) {
        if (is_prefix_of(c, store->entries[i - 1])) {
            return store->entries[i - 1]->k;
        }
    }
    return c->k;
}

/* c has left the store. What was shorter than c and a prefix of one that continues c is a prefix of c, too. */
static void unrelate(const checkpoint_store *store, const checkpoint *c)
{
    for (uint32_t i = 0; i < store->n_entries; i++) {
        checkpoint *other = store->entries[i];
        if (other->shorter == c->k && is_prefix_of(c, other)) {
            other->shorter = c->shorter;
        } else if (other->longest == c->k && is_prefix_of(other, c)) {
            other->longest = longest_over(store, other);
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

void checkpoint_remove(checkpoint_store *store, checkpoint *c)
{
    uint32_t i = 0;
    while (store->entries[i] != c) {
        i++;
    }
    store->n_entries--;
    memmove(store->entries + i, store->entries + i + 1, (store->n_entries - i) * sizeof(checkpoint *));
    store->n_bytes -= c->n_bytes;
    unrelate(store, c);
    free_entry(c);
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
}

checkpoint *checkpoint_add(checkpoint_store *store, uint32_t owner, const int32_t *tokens, uint32_t k,
                           size_t n_state_bytes, uint32_t n_logits, bool is_whole)
{
    assert(k > 0);
    const size_t n_bytes = sizeof(checkpoint) + k * sizeof *tokens + n_state_bytes + n_logits * sizeof(float);
    if (n_bytes > store->n_bytes_max / 2 || !grow(store) || !make_room(store, n_bytes)) {
        return NULL;
    }
    checkpoint *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return NULL;
    }
    *c = (checkpoint){
        .k = k, .owner = owner, .hash = hash_of(owner, tokens, k), .is_whole = is_whole, .n_bytes = n_bytes};
    c->tokens = malloc(k * sizeof *tokens);
    c->state = n_state_bytes > 0 ? malloc(n_state_bytes) : NULL;
    c->logits = n_logits > 0 ? malloc(n_logits * sizeof *c->logits) : NULL;
    if (c->tokens == NULL || (n_state_bytes > 0 && c->state == NULL) || (n_logits > 0 && c->logits == NULL)) {
        free_entry(c);
        return NULL;
    }
    memcpy(c->tokens, tokens, k * sizeof *tokens);
    c->n_state_bytes = n_state_bytes;
    c->used = ++store->clock;
    insert(store, c);
    relate(store, c);
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

void checkpoint_use(checkpoint_store *store, checkpoint *c)
{
    c->used = ++store->clock;
    for (uint32_t i = 0; i < store->n_entries && store->entries[i]->k < c->k; i++) {
        if (is_prefix_of(store->entries[i], c)) {
            store->entries[i]->used = c->used;
        }
    }
}
