/* checkpoint.h: saved states in host memory, with one byte budget for all. Owned by the decode thread.
 *
 * A checkpoint is the state after exactly k tokens. A checkpoint is valid for a prompt iff the prompt's first k tokens
 * are the checkpoint's tokens. Nothing invalidates a checkpoint; it is only evicted if the budget is exceeded. No
 * session owns a checkpoint: two sessions of one owner with the same prefix share it. (All checkpoints in a checkpoint
 * store are of the same model and context configuration, so they need no fingerprint of these. Files contain such a
 * fingerprint; see snapshot.h.)
 *
 * Eviction removes the entry (that is, checkpoint) of the least value. The value is:
 *
 *      tokens saved beyond the next shorter entry of the same history
 *      ---------------------------------------------------------------  x  1 / (1 + uses of others since its last use)
 *      bytes  x  (distance to the end of that history + ANCHOR)
 *
 * This value spaces the checkpoints of a long history logarithmically from its end, and evicts the least recently used
 * history first. A use of an entry counts as a use of all shorter entries of the same history. Pinned entries are never
 * evicted. */
#ifndef LLM_CHECKPOINT_H
#define LLM_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "states/ledger.h"
#include "states/token_hash.h"

typedef struct checkpoint {
    uint32_t k;
    /* owners share no checkpoint: a cache hit can be measured and would reveal another owner's prompt */
    uint32_t owner;
    token_hash hash; /* hash of the k tokens; finds candidates, whose tokens are then compared */
    int32_t *tokens;
    blob *held;           /* blob with the state, followed by the logits; can be written to disk without a copy */
    void *state;          /* in `held` */
    size_t n_state_bytes; /* 0 if there are only logits */
    /* contains the whole state (model.h: FULL, or a WHOLE checkpoint); otherwise the KV cache of the attention layers
     * is missing, and a branch must hold it when the checkpoint is restored */
    bool is_whole;
    float *logits; /* the logits after token k, in `held`; or NULL */
    uint32_t n_logits;
    uint32_t n_pins;           /* number of branches that pin this entry as their shared prefix */
    uint64_t used;             /* clock of the last use of this entry, or of a longer entry that continues it */
    struct checkpoint *parent; /* the longest entry that is a shorter prefix of this entry, or NULL */
    uint32_t longest;          /* k of the longest entry that begins with this entry's tokens; may be this entry */
    size_t n_bytes;            /* total, this struct included */
} checkpoint;

/* Returns the bytes of a checkpoint's blob: the state, followed by the logits. */
size_t checkpoint_blob_bytes(size_t n_state_bytes, uint32_t n_logits);

typedef struct checkpoint_store {
    ledger *ledger;
    checkpoint **entries; /* ascending by k */
    uint32_t n_entries;
    uint32_t capacity;
    uint64_t clock;
    size_t n_bytes;
    size_t n_bytes_max;
    size_t n_pinned_bytes; /* at most half of n_bytes_max */
    uint64_t n_evicted;
} checkpoint_store;

void checkpoint_store_open(checkpoint_store *store, ledger *l, size_t n_bytes_max);
void checkpoint_store_close(checkpoint_store *store);

/* Returns the entry for exactly these tokens, or NULL. */
checkpoint *checkpoint_find(const checkpoint_store *store, uint32_t owner, const int32_t *tokens, uint32_t k);

/* Finds entries whose tokens are the prompt's first k, k <= n_prompt: the longest first, at most n_out. `attention` is
 * the number of leading prompt tokens for which some branch holds the KV cache of the attention layers. An entry that
 * is not whole needs that KV cache, so it is found only if k <= attention. */
uint32_t checkpoint_match(const checkpoint_store *store, uint32_t owner, const int32_t *prompt, uint32_t n_prompt,
                          uint32_t attention, checkpoint **out, uint32_t n_out);

/* Adds an entry with space for n_state_bytes of state and for n_logits floats, and evicts other entries if needed. The
 * caller must fill both at once. Returns NULL and adds nothing if the entry is too large for the budget, or memory is
 * short. */
checkpoint *checkpoint_add(checkpoint_store *store, uint32_t owner, const int32_t *tokens, uint32_t k,
                           size_t n_state_bytes, uint32_t n_logits, bool is_whole);

/* The parts of a checkpoint's blob. */
typedef struct checkpoint_parts {
    size_t n_state_bytes;
    uint32_t n_logits; /* 0 if there are no logits */
    bool is_whole;
} checkpoint_parts;

/* Adds an entry for a blob that is already filled. The entry becomes one more holder of the blob. */
checkpoint *checkpoint_adopt(checkpoint_store *store, uint32_t owner, const int32_t *tokens, uint32_t k,
                             const checkpoint_parts *parts, blob *held);
void checkpoint_remove(checkpoint_store *store, checkpoint *c);

/* checkpoint_detach takes an unpinned entry out of the store while a more complete entry for the same tokens is saved.
 * The caller must then call checkpoint_replace, which frees the detached entry. But if saving failed (`by` is NULL),
 * checkpoint_replace puts the detached entry back, which still fits the budget. It returns the entry that is in the
 * store afterwards. */
void checkpoint_detach(checkpoint_store *store, checkpoint *c);
checkpoint *checkpoint_replace(checkpoint_store *store, checkpoint *detached, checkpoint *by);

/* An entry can be pinned several times. checkpoint_pin returns false and leaves c unchanged if the pinned entries would
 * take more than half of the budget. */
bool checkpoint_pin(checkpoint_store *store, checkpoint *c);
void checkpoint_unpin(checkpoint_store *store, checkpoint *c);

void checkpoint_use(checkpoint_store *store, checkpoint *c); /* called when the entry was restored, or saved again */

#endif
