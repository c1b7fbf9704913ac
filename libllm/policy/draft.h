/* draft.h: decides how many draft tokens the requests of a step verify. A draft token is a guess. The model computes
 * the logits after it in the same call as the logits after the token before it. If the sampler picks the guessed token,
 * the step has generated one more token. If not, the work for this token and the rest of the draft was in vain.
 *
 * The decision compares expected tokens per time. It needs the probability that a draft token is right, the time that
 * draft tokens add to a step, and the time to remove wrong ones. All are measured. The probability is measured also
 * while no draft is verified: the guess is compared with the next token all the same. Pure. */
#ifndef LLM_DRAFT_H
#define LLM_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    DRAFT_TOKENS_MAX = 16, /* draft tokens of all requests of a step together */
    /* with more requests, the rows of the step leave nothing idle that drafts could use */
    DRAFT_REQUESTS_MAX = 16,
    DRAFT_CLASSES = 4,                    /* classes of draft tokens: in a higher class, tokens are right more often */
    DRAFT_CLASS_SURE = DRAFT_CLASSES - 1, /* class of a draft from a grammar, which is usually right */
    DRAFT_SIZES = 5,                      /* sizes of drafts whose cost is measured: 1, 2, 4, 8 and 16 tokens */
};

/* Returns the class of a draft token that follows a match of this length (lookup.h). */
uint8_t draft_class_of_match(uint32_t n_matched);
/* Returns the class of a token of a draft model, whose logit exceeds the logits of all other tokens by `lead`. */
uint8_t draft_class_of_lead(float lead);

/* How often draft tokens of one source were right in one request, by class. */
typedef struct draft_rates {
    double n_right[DRAFT_CLASSES], n_tried[DRAFT_CLASSES]; /* older tries weigh less */
} draft_rates;

void draft_learn_rate(draft_rates *rates, uint8_t class, bool is_right);
double draft_rate(const draft_rates *rates, uint8_t class);
/* Returns how many of the n tokens of a draft are expected to be accepted. `classes` has the class of each token. */
double draft_expected(const draft_rates *rates, const uint8_t *classes, uint32_t n);

/* The cost of draft tokens: the time of a step with drafts, divided by the time of a step without. */
typedef struct draft_costs {
    double plain_us;           /* time of a step without drafts; 0 if not known */
    uint32_t n_decoding;       /* number of requests in these steps */
    uint32_t n_since;          /* steps with drafts since the last one without */
    double ratio[DRAFT_SIZES]; /* 0 if not known */
    double removal;            /* time to remove the rest of a draft, divided by the time of a step without drafts */
} draft_costs;

/* Learns from a step that only decoded: n_decoding requests with n_drafts draft tokens took `us`. */
void draft_learn_cost(draft_costs *costs, uint32_t n_decoding, uint32_t n_drafts, double us);
/* Learns that the removal of the rest of a draft, which was wrong, took `us` after the step. */
void draft_learn_removal(draft_costs *costs, double us);
/* Returns whether the time of a step without drafts is known for n_decoding requests. If it is not, or must be measured
 * again, draft_plan verifies nothing. */
bool draft_has_costs(const draft_costs *costs, uint32_t n_decoding);
/* Returns the expected ratio of a step with n_drafts draft tokens to a step without. */
double draft_cost(const draft_costs *costs, uint32_t n_drafts);

typedef struct draft_candidate {
    uint32_t n_max;         /* tokens of the request's draft; 0 if it has no draft */
    const uint8_t *classes; /* class of each token of the draft */
    const draft_rates *rates;
} draft_candidate;

/* Sets n_drafts[i], the number of draft tokens that request i verifies in this step. The requests are all that decode
 * in the step. The sum is at most n_max and DRAFT_TOKENS_MAX. All are 0 if drafts are not expected to pay. All are 0,
 * too, if the time of a step without drafts must be measured (again), because the costs are ratios to this time. No
 * request is expected to generate its tokens at less than 0.98 of its speed without drafts. */
void draft_plan(const draft_candidate *candidates, uint32_t n, uint32_t n_max, const draft_costs *costs,
                uint32_t *n_drafts);

/* The time that guesses of a draft model may cost. Its unit is the time of one step without drafts. A guess takes time
 * before it is known to be right. The credit pays for this time. The steps that a right guess saves are added, and each
 * step without a guess adds 0.01. So guesses that are never right take about one percent of the time, after the credit
 * of the beginning is spent. */
enum { DRAFT_CREDIT_MAX = 8 };

typedef struct draft_credit {
    double steps;
} draft_credit;

void draft_credit_open(draft_credit *credit);
/* Returns whether the credit suffices for a guess. cost_steps is the time of its first call. */
bool draft_credit_allows(const draft_credit *credit, double cost_steps);
/* Adds n_steps, which is negative if a guess took longer than what it saved. */
void draft_credit_add(draft_credit *credit, double n_steps);
void draft_credit_rest(draft_credit *credit); /* called after a step without a guess */

/* Returns whether a draft model guesses one more token. p_right is the probability that all its tokens so far are
 * right. cost_steps is the time of the token. */
bool draft_goes_on(double p_right, double cost_steps);

#endif
