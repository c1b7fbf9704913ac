/* checkpoint.h: saved states in host memory, with one byte budget for all. Owned by the decode thread.
 *
 * A checkpoint is the state after exactly k tokens. A checkpoint is valid for a prompt iff the prompt's first k tokens
 * are the checkpoint's tokens. Nothing invalidates a checkpoint. A checkpoint is evicted only if the budget is
 * exceeded. No session owns a checkpoint: two sessions of one owner with the same prefix share it. All checkpoints in a
 * checkpoint store are of the same model and context configuration. So a checkpoint, unlike a file (snapshot.h), needs
 * no fingerprint of model and configuration.
 *
 * Eviction removes the checkpoint of the least value. The value is:
 *
 *      tokens saved beyond the next shorter checkpoint of the history
 *      ------------------------------------------------------------  x  1 / (1 + uses of others since its last use)
 *      bytes  x  (distance to the end of that history + ANCHOR)
 *
 * With this value, the checkpoints of a long history end up spaced logarithmically from its end, and the least recently
 * used history is evicted first. A use of a checkpoint counts as a use of all shorter checkpoints of the same history.
 * Pinned checkpoints are never evicted. */
#ifndef LLM_CHECKPOINT_H
#define LLM_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "states/checkpoint_marks.h"
#include "states/ledger.h"
#include "states/token_hash.h"

typedef struct checkpoint {
    uint32_t k;
    /* owners share no checkpoint: a cache hit can be measured and would reveal another owner's prompt */
    uint32_t owner;
    token_hash hash; /* hash of the k tokens. If it equals the hash of a prompt's tokens, the tokens are compared */
    int32_t *tokens;
    blob *held;           /* blob with the state, followed by the logits; can be written to disk without a copy */
    void *state;          /* the state, in `held` */
    size_t n_state_bytes; /* 0 if there are only logits */
    /* `state` is a whole state: MODEL_STATE_FULL, or a checkpoint of kind MODEL_CHECKPOINT_WHOLE (model.h). Any other
     * state lacks the KV cache of the attention layers. A branch must hold this KV cache when the checkpoint is
     * restored */
    bool is_whole;
    float *logits; /* the logits after token k, in `held`; or NULL */
    uint32_t n_logits;
    uint32_t n_pins; /* number of branches that pin this checkpoint as their shared prefix */
    /* the store's `clock` at the last use of this checkpoint, or of a longer checkpoint that begins with its tokens */
    uint64_t used;
    struct checkpoint *parent; /* the longest checkpoint that is a proper prefix of this one, or NULL */
    /* k of the longest checkpoint that begins with the tokens of this one. If no other checkpoint does, this
     * checkpoint's own k */
    uint32_t longest;
    size_t n_bytes; /* bytes of the checkpoint, this struct included */
    uint32_t mark;  /* index of the checkpoint's mark (checkpoint_marks.h) */
    /* entry and number of the branch that saved or restored this checkpoint last. That branch may be closed, and its
     * entry may have another branch */
    uint32_t user_entry;
    uint64_t user_id;
} checkpoint;

/* Returns the bytes of a checkpoint's blob: the state, followed by the logits. */
size_t checkpoint_blob_bytes(size_t n_state_bytes, uint32_t n_logits);

typedef struct checkpoint_store {
    ledger *ledger;
    checkpoint **entries; /* ascending by k */
    uint32_t n_entries;
    uint32_t capacity;
    uint64_t clock; /* counts the uses of all checkpoints, which puts the uses in order */
    size_t n_bytes;
    size_t n_bytes_max;
    size_t n_pinned_bytes; /* at most half of n_bytes_max */
    uint64_t n_evicted;
    checkpoint_marks marks; /* the marks of all checkpoints in `entries`, for other threads */
} checkpoint_store;

void checkpoint_store_open(checkpoint_store *store, ledger *l, size_t n_bytes_max);
void checkpoint_store_close(checkpoint_store *store);

/* Returns the checkpoint of exactly these tokens, or NULL. */
checkpoint *checkpoint_find(const checkpoint_store *store, uint32_t owner, const int32_t *tokens, uint32_t k);

/* Finds checkpoints whose tokens are the first k tokens of the prompt. Returns at most n_out of them, the longest
 * first. `attention` is the number of prompt tokens for which some branch holds the KV cache of the attention layers. A
 * checkpoint that is not whole needs that KV cache. So such a checkpoint is found only if k <= attention. */
uint32_t checkpoint_match(const checkpoint_store *store, uint32_t owner, const int32_t *prompt, uint32_t n_prompt,
                          uint32_t attention, checkpoint **out, uint32_t n_out);

/* Adds a checkpoint with space for n_state_bytes of state and for n_logits floats, and evicts other checkpoints if
 * needed. The caller must fill both spaces before any other call. Returns NULL and adds nothing if the checkpoint is
 * too large for the budget, or memory is short. */
checkpoint *checkpoint_add(checkpoint_store *store, uint32_t owner, const int32_t *tokens, uint32_t k,
                           size_t n_state_bytes, uint32_t n_logits, bool is_whole);

/* The parts of a checkpoint's blob. */
typedef struct checkpoint_parts {
    size_t n_state_bytes;
    uint32_t n_logits; /* 0 if there are no logits */
    bool is_whole;
} checkpoint_parts;

/* Adds a checkpoint for a blob that is already filled. The checkpoint becomes one more holder of the blob. */
checkpoint *checkpoint_adopt(checkpoint_store *store, uint32_t owner, const int32_t *tokens, uint32_t k,
                             const checkpoint_parts *parts, blob *held);
void checkpoint_remove(checkpoint_store *store, checkpoint *c);

/* checkpoint_detach takes an unpinned checkpoint out of the store while a more complete one for the same tokens is
 * saved. The caller must then call checkpoint_replace with the new checkpoint as `by`, which frees the detached
 * checkpoint. If saving failed, `by` is NULL, and checkpoint_replace puts the detached checkpoint back. It still fits
 * the budget. checkpoint_replace returns the checkpoint that is in the store afterwards. */
void checkpoint_detach(checkpoint_store *store, checkpoint *c);
checkpoint *checkpoint_replace(checkpoint_store *store, checkpoint *detached, checkpoint *by);

/* A checkpoint can be pinned several times. Pinned checkpoints can take at most half of the budget. Beyond that,
 * checkpoint_pin returns false and leaves c unchanged. */
bool checkpoint_pin(checkpoint_store *store, checkpoint *c);
void checkpoint_unpin(checkpoint_store *store, checkpoint *c);

/* called when a branch restored the checkpoint, or saved it, or saved it again */
void checkpoint_use(checkpoint_store *store, checkpoint *c, uint32_t user_entry, uint64_t user_id);

#endif
