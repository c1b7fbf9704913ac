/* grammar_walk.h: where in a grammar a text is that has come so far. One for each answer; owned by who samples it.
 *
 * A place is a set of stacks: rules that are open, the innermost last. Stacks share their lower parts, and each has a number
 * by which it is found again, and so have places: a step that was taken once is looked up. What is kept so is bounded. */
#ifndef LLM_GRAMMAR_WALK_H
#define LLM_GRAMMAR_WALK_H

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "text/grammar.h"
#include "text/vocabulary_trie.h"

class grammar_walk {
  public:
    /* All throw grammar_fault when one step takes more than it may, and std::bad_alloc. */
    grammar_walk(std::shared_ptr<const grammar> rules, std::shared_ptr<const vocabulary_trie> vocabulary);

    /* Goes on by a token with this text; -1: by text that is no one token. False: the grammar has no such continuation, and the walk is over. */
    bool accept(int32_t token, const char *text, size_t n_bytes);
    bool allows(int32_t token, const char *text, size_t n_bytes);

    /* The text may end here. */
    bool is_complete() const;

    /* Sets allowed[token] for every token of the vocabulary that may come next, ends excepted. */
    void mark_allowed(std::vector<bool> &allowed);

  private:
    using place = uint32_t; /* index of places; 0: nowhere */

    struct stack {
        uint32_t element; /* what comes next */
        uint32_t below;   /* the stack under it; 0: none */
    };
    struct place_data {
        std::vector<uint32_t> stacks; /* ascending, each at a character or token; 0: the text may end */
        std::vector<place> ascii;     /* by character; UNKNOWN; empty: none looked up yet */
    };
    /* A place, and a character of which some bytes have come. */
    struct point {
        place at;
        uint32_t character;
        uint8_t n_missing;
    };

    std::shared_ptr<const grammar> read;
    const grammar &rules; /* of `read` */
    std::shared_ptr<const vocabulary_trie> trie;
    std::vector<stack> stacks;
    std::unordered_map<uint64_t, uint32_t> stack_of;
    std::vector<place_data> places;
    std::unordered_multimap<uint64_t, place> place_of; /* by hash */
    std::unordered_map<uint64_t, place> steps;         /* by place and character */
    std::vector<uint32_t> seen;                        /* by stack: the last expansion that met it */
    uint32_t expansion = 0;
    uint64_t work = 0; /* of the step in hand */
    point now;

    void spend(uint64_t n);
    uint32_t pushed(uint32_t element, uint32_t below);
    uint32_t advanced(uint32_t stack_id);
    void expand(std::vector<uint32_t> &todo, std::vector<uint32_t> &found);
    void expand_rule(uint32_t rule, uint32_t below, std::vector<uint32_t> &todo);
    place place_with(std::vector<uint32_t> &found);
    place start();
    place step(place from, uint32_t character);
    place step_anew(place from, uint32_t character);
    bool take_byte(point &p, uint8_t byte);
    bool may_go_on(const point &p);
    point after(int32_t token, const char *text, size_t n_bytes);
    void mark_tokens(std::vector<bool> &allowed);
    void forget_others();
};

#endif
