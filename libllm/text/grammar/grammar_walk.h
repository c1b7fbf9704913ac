/* grammar_walk.h: how far the text so far is in a grammar, and which tokens may come next. One for each answer; owned
 * by the thread that samples it.
 *
 * A grammar may have several ways to read the same text, and it is not known yet which one will match. The walk follows
 * all of them at once. Each is a stack of elements: the next one on top, below it those that follow when the open rules
 * end. A *place* is the set of all stacks after some text. Example:
 *
 *   root ::= "a" list | "ab"        after "a" there are two stacks: {"b"}, and {list's first character}
 *
 * A character removes the stacks that do not match it, and moves the others on; rules on top are opened (expand) until
 * each stack has a character, a token or nothing on top. An empty set means that the text is not allowed.
 *
 * The same work comes again and again: a vocabulary of 150,000 tokens shares a few hundred beginnings, and a JSON
 * string comes back to the same place after each letter. So stacks and places are numbered and never change: stacks
 * share their lower parts (a number and what is below it), equal places have one number, and a step that was taken once
 * is a table look-up. An automaton of all places cannot be made beforehand, since nested grammars have endlessly many.
 * Characters that no set of a place tells apart are one *way*: with [a-z] and [0-9a-f] the ways are 0-9, a-f, g-z and
 * the rest.
 *
 * In a JSON string, whole branches of the vocabulary's tree go the same way: a *run* says which characters lead to
 * where a letter leads (grammar_mask.cpp). A pick in the worst case took 6 to 41 ms when each character of each token
 * was a step of its own, now 0.5 to 1.1 (99 of 100, 151,643 tokens).
 *
 * A client's grammar may be made to be slow: ambiguous rules multiply the stacks. A step that looks at more than
 * STEP_WORK_MAX stacks, or more than STACKS_MAX of them, ends the request with grammar_fault; what was kept for speed
 * is dropped beyond STACKS_KEPT, PLACES_KEPT and WAYS_KEPT (forget_others). */
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
    /* All functions throw grammar_fault if one step takes more work or memory than is allowed, and std::bad_alloc. */
    grammar_walk(std::shared_ptr<const grammar> rules, std::shared_ptr<const vocabulary_trie> vocabulary);

    /* Moves on by a token with this text; -1: by text that is not one token. False: the grammar does not allow it, and
     * the walk is over. */
    bool accept(int32_t token, const char *text, size_t n_bytes);
    bool allows(int32_t token, const char *text, size_t n_bytes);

    /* Returns whether the text may end here. */
    bool is_complete() const;

    /* Every token of the vocabulary that may come next, without those that end the answer. */
    void find_allowed(uint32_t n_vocab, token_set &allowed);

  private:
    using place = uint32_t; /* index of places; NONE: the text is not allowed */
    static constexpr uint32_t NONE = 0, UNKNOWN = UINT32_MAX, ASCII = 128;

    struct stack {
        uint32_t element; /* the element that comes next */
        uint32_t below;   /* the stack under it; NONE: there is none */
    };
    /* The characters from `low` up to the next way's. */
    struct way {
        uint32_t low;
        place to; /* UNKNOWN until a text takes it */
    };
    /* The ASCII characters that lead to one place. */
    struct run {
        place to = NONE; /* UNKNOWN: not looked up */
        uint64_t ascii[2] = {0, 0};
    };
    struct place_data {
        std::vector<uint32_t> stacks;    /* ascending, each at a character or token; 0: the text may end */
        std::vector<way> ways;           /* ascending, from 0 on; empty: none looked up yet */
        std::vector<place> ascii;        /* where each of these characters leads, or UNKNOWN; empty if `ways` is */
        run letters = {UNKNOWN, {0, 0}}; /* the characters that lead to the same place as the letter e */
        run nowhere = {UNKNOWN, {0, 0}}; /* the characters that are not allowed */
    };
    struct point {
        place at;
        character begun; /* the bytes of a character that is not complete */
    };
    /* Tokens [begin, end) of the tree. */
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
    uint64_t work = 0; /* stacks looked at in the present call */
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
