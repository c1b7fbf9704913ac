/* grammar_walk.h: where in a grammar a text is that has come so far. One for each answer; owned by who samples it.
 *
 * A place is a set of stacks: rules that are open, the innermost last. Stacks share their lower parts, and each has a number
 * by which it is found again, and so have places: a step that was taken once is looked up. Characters that no set of a place
 * tells apart are one way on from it. What is kept so is bounded.
 *
 * Where a text may be anything, as in a JSON string, whole branches of the vocabulary go the same way: a run says which
 * characters lead to the place where a letter leads. */
#ifndef LLM_GRAMMAR_WALK_H
#define LLM_GRAMMAR_WALK_H

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "text/grammar/character.h"
#include "text/grammar/grammar.h"
#include "text/grammar/token_set.h"
#include "text/grammar/vocabulary_trie.h"

class grammar_walk {
  public:
    /* All throw grammar_fault when one step takes more than it may, and std::bad_alloc. */
    grammar_walk(std::shared_ptr<const grammar> rules, std::shared_ptr<const vocabulary_trie> vocabulary);

    /* Goes on by a token with this text; -1: by text that is no one token. False: the grammar has no such continuation, and the walk is over. */
    bool accept(int32_t token, const char *text, size_t n_bytes);
    bool allows(int32_t token, const char *text, size_t n_bytes);

    /* The text may end here. */
    bool is_complete() const;

    /* Every token of the vocabulary that may come next, ends excepted. */
    void find_allowed(uint32_t n_vocab, token_set &allowed);

  private:
    using place = uint32_t; /* index of places; NONE: nowhere */
    static constexpr uint32_t NONE = 0, UNKNOWN = UINT32_MAX, ASCII = 128;

    struct stack {
        uint32_t element; /* what comes next */
        uint32_t below;   /* the stack under it; NONE: there is none */
    };
    /* Characters from `low` up to the next one's. */
    struct way {
        uint32_t low;
        place to; /* UNKNOWN until it is gone */
    };
    struct run {
        place to = NONE; /* UNKNOWN: not looked up */
        uint64_t ascii[2] = {0, 0};
    };
    struct place_data {
        std::vector<uint32_t> stacks;    /* ascending, each at a character or token; 0: the text may end */
        std::vector<way> ways;           /* ascending, from 0 on; empty: none looked up yet */
        std::vector<place> ascii;        /* where each of these characters leads, or UNKNOWN; empty as `ways` is */
        run letters = {UNKNOWN, {0, 0}}; /* those that lead to where letters do */
        run nowhere = {UNKNOWN, {0, 0}};
    };
    struct point {
        place at;
        character begun; /* its bytes that have come */
    };
    /* Tokens of the tree, from `begin` up to `end`. */
    struct stretch {
        uint32_t begin, end;
    };

    std::shared_ptr<const grammar> read;
    const grammar &rules; /* of `read` */
    std::shared_ptr<const vocabulary_trie> trie;
    std::vector<stack> stacks;
    std::unordered_map<uint64_t, uint32_t> stack_of;
    std::vector<place_data> places;
    std::unordered_multimap<uint64_t, place> place_of; /* by hash */
    std::vector<uint32_t> seen;                        /* by stack: the last expansion that met it */
    uint32_t expansion = 0;
    size_t n_ways = 0; /* of all places */
    uint64_t work = 0; /* of the step in hand */
    point now;

    void spend(uint64_t n);
    uint32_t pushed(uint32_t element, uint32_t below);
    uint32_t advanced(uint32_t stack_id);
    void expand(std::vector<uint32_t> &todo, std::vector<uint32_t> &found);
    void expand_rule(uint32_t rule, uint32_t below, std::vector<uint32_t> &todo);
    place place_with(std::vector<uint32_t> &found);
    place start();
    void find_ways(place from);
    size_t way_of(place from, uint32_t value);
    place step(place from, uint32_t value);
    place step_by(place from, size_t number);
    place step_anew(place from, uint32_t value);
    bool all_lead(place from, uint32_t low, uint32_t high, place to);
    bool take_byte(point &p, uint8_t byte);
    bool may_go_on(const point &p);
    point after(int32_t token, const char *text, size_t n_bytes);
    void forget_others();

    /* grammar_mask.cpp */
    run run_to(place from, place to);
    place letters_lead(place from, const vocabulary_trie::branch &b);
    bool leads_nowhere(place from, const vocabulary_trie::branch &b);
    bool skip(place from, const vocabulary_trie::node &top, std::vector<stretch> &found);
    bool take(point &p, uint8_t byte);
    static void add(std::vector<stretch> &found, stretch next);
    void find_texts(std::vector<stretch> &found);
    void add_named(uint32_t n_vocab, token_set &allowed);
};

#endif
