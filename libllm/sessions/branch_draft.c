/* branch_draft.c: draft tokens in the sequence of a branch. A model call verifies them, and the caller then accepts
 * them one after the other, or rejects the rest. */
#include <assert.h>

#include "sessions/branch.h"

void branch_drafted(branch *b, uint32_t n)
{
    assert(b->n_drafts == 0 && branch_has_slot(b) && (n == 0 || b->shared->model->info.n_drafting > 0));
    b->n_drafts = n;
}

void branch_accept_draft(branch *b, int32_t token)
{
    assert(b->n_drafts > 0);
    b->n_drafts--;
    branch_consumed(b, &token, 1);
}

model_result branch_reject_drafts(branch *b)
{
    assert(b->n_drafts > 0);
    b->n_drafts = 0;
    const model *m = b->shared->model;
    const model_result result = m->ops->remove_drafts((model *)m, (uint16_t)b->slot, branch_n_tokens(b));
    if (result != MODEL_OK) {
        branch_invalidate(b);
    }
    return result;
}
