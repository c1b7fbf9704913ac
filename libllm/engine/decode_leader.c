/* decode_leader.c: lets a request wait for a running prefill, its leader, whose prompt begins with the same tokens
 * (leader.h). Only a running request whose prefill progresses can be a leader. So no request waits for a waiting one,
 * and requests cannot wait for each other. A request that has no slot takes no slot for the wait. */
#include "engine/decode.h"
#include "policy/leader.h"
#include "sessions/resuming.h"

/* Whether the request prefills and takes part in every step. A request is no leader if it is paused, if it has lost its
 * slot, or if its client does not read its events. The prefill of such a request could stop at any token. */
static bool is_prefilling(const request *r)
{
    return request_moves(r) && !r->is_decoding && !outbox_is_full(&r->out);
}

/* Whether both prompts may share more tokens than the leader has consumed. Compares only the next token, to be quick:
 * an agent's prompts can share a hundred thousand tokens, and many requests may look for a leader. */
static bool may_share_more(const request *r, const request *leader)
{
    const branch_prompt *own = &r->claim.prompt, *other = &leader->claim.prompt;
    const uint32_t n = branch_n_tokens(leader->branch);
    return n < own->n_tokens && n < other->n_tokens && own->tokens[n] == other->tokens[n];
}

/* Returns how many of the request's first tokens the leader will have consumed at the end of the wait. The request
 * prefills its last token itself, because it needs the logits after this token. Exception: the checkpoint at the end of
 * the leader's prompt includes the logits. */
static uint32_t n_shared_with(const request *r, const request *leader)
{
    const branch_prompt *own = &r->claim.prompt, *other = &leader->claim.prompt;
    const uint32_t n = resume_common_prefix(own->tokens, own->n_tokens, other->tokens, other->n_tokens);
    const bool has_logits = branch_takes_checkpoints(leader->branch) && n == other->n_tokens;
    return leader_shared(&leader->points, n < own->n_tokens || has_logits ? n : n - 1);
}

/* Returns how many tokens could be prefilled in the fixed time of a model call, which is about the time of a step that
 * only decodes. Returns 0 if these times were not measured yet. */
static uint32_t n_tokens_per_call(const decode *d)
{
    const schedule_pace *pace = &d->step.pace;
    const double n = pace->prefill_token_us > 0 ? pace->decode_us / pace->prefill_token_us : 0;
    return n < UINT32_MAX / 2 ? (uint32_t)n : UINT32_MAX / 2;
}

/* Collects the running prefills whose prompts begin with the same tokens, and which belong to the same owner. Owners
 * share no states, because a shorter wait can be measured and would reveal another owner's prompt. */
static uint32_t collect_leaders(const decode *d, const request *r, const request **leaders,
                                leader_candidate *candidates)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        const request *other = d->requests[i];
        if (other == r || other->owner != r->owner || !is_prefilling(other) || !may_share_more(r, other)) {
            continue;
        }
        const uint32_t n_shared = n_shared_with(r, other), n_consumed = branch_n_tokens(other->branch);
        if (n_shared > n_consumed) {
            leaders[n] = other;
            candidates[n++] = (leader_candidate){
                .n_shared = n_shared, .n_consumed = n_consumed, .n_cost = resuming_copy_cost(other->branch, n_shared)};
        }
    }
    return n;
}

bool decode_finds_leader(decode *d, request *r)
{
    const request *leaders[LLM_SEQUENCES_MAX];
    leader_candidate candidates[LLM_SEQUENCES_MAX];
    if (r->phase != REQUEST_WAITING || r->is_cold || r->fetching != 0) {
        return false;
    }
    const uint32_t n = collect_leaders(d, r, leaders, candidates);
    if (n == 0) {
        return false;
    }
    const uint32_t n_known = resuming_known(d->table, r->owner, r->branch, &r->claim.prompt);
    const int32_t chosen = leader_choose(candidates, n, n_known, n_tokens_per_call(d));
    if (chosen < 0) {
        return false;
    }
    r->leader = leaders[chosen]->id;
    r->n_leader_tokens = candidates[chosen].n_shared;
    r->claim.is_early = true;
    r->waits_for_slot = false; /* the request asks for a slot as soon as the wait is over */
    return true;
}

bool decode_waits_for_leader(const decode *d, request *r)
{
    const request *leader = r->leader != 0 ? decode_find(d, r->leader) : NULL;
    if (leader == NULL || !is_prefilling(leader) || branch_n_tokens(leader->branch) >= r->n_leader_tokens) {
        r->leader = 0;
    }
    return r->leader != 0;
}
