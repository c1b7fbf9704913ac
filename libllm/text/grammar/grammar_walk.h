/* grammar_walk.h: the position of an answer in its grammar, which decides which tokens can come next. One walk per
 * answer, owned by the thread that samples the answer.
 *
 * A grammar can have several derivations of a text, and only the rest of the text shows which derivation matches. The
 * walk therefore follows all derivations at once. A derivation is a stack of elements: the next element on top, and
 * below it the elements that follow when the open rules end. A *place* is the set of all stacks after some text.
 * Example:
 *
 *   root ::= "a" list | "ab"        after "a" there are two stacks: {"b"}, and {list's first character}
 *
 * A character removes the stacks that do not match it and advances the others. Rules on top are expanded until each
 * stack has a character, a token or nothing on top. An empty set means that the text is not allowed.
 *
 * The same steps recur, because 150,000 tokens of a vocabulary share a few hundred beginnings, and because a JSON
 * string returns to the same place after each letter. So stacks and places are numbered and never change. Stacks share
 * their lower parts, equal places have one number, and a step that was taken before is a table look-up. An automaton of
 * all places cannot be built in advance, since nested grammars have infinitely many places. Characters that no set of a
 * place distinguishes form one *way*: with [a-z] and [0-9a-f] the ways are 0-9, a-f, g-z and the rest.
 *
 * In a JSON string, nearly all characters lead to the same place. A *run* is the set of ASCII characters that lead to
 * one place, and shows at once that a whole branch of the vocabulary's tree is allowed (grammar_mask.cpp). When each
 * character of each token was a separate step, the slowest picks (99th percentile, 151,643 tokens) took 6 to 41 ms;
 * with runs they take 0.5 to 1.1 ms.
 *
 * A client can send a grammar that is designed to be slow, because ambiguous rules multiply the stacks. A step that
 * examines more than STEP_WORK_MAX stacks, or makes more than STACKS_MAX, ends the request with grammar_fault. Stacks,
 * places and ways that only make later steps faster are dropped if they are more than STACKS_KEPT, PLACES_KEPT and
 * WAYS_KEPT (forget_others). */
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
    /* All functions throw grammar_fault if one step takes too much work or memory, and std::bad_alloc. */
    grammar_walk(std::shared_ptr<const grammar> rules, std::shared_ptr<const vocabulary_trie> vocabulary);

    /* Advances by a token with this text; -1 stands for text that is not a single token. Returns false if the grammar
     * does not allow the token or text; the walk is then over. */
    bool accept(int32_t token, const char *text, size_t n_bytes);
    bool allows(int32_t token, const char *text, size_t n_bytes);

    /* Returns whether the text can end here. */
    bool is_complete() const;

    /* Finds every token of the vocabulary that can come next, except the tokens that end the answer. */
    void find_allowed(uint32_t n_vocab, token_set &allowed);

  private:
    using place = uint32_t; /* index of `places`; NONE if the text is not allowed */
    static constexpr uint32_t NONE = 0, UNKNOWN = UINT32_MAX, ASCII = 128;

    struct stack {
        uint32_t element; /* the element that comes next */
        uint32_t below;   /* the stack under this element; NONE if it is the bottom */
    };
    /* The characters from `low` up to the next way's `low`. */
    struct way {
        uint32_t low;
        place to; /* UNKNOWN until a text has gone this way */
    };
    /* The ASCII characters that lead to one place. */
    struct run {
        place to = NONE; /* UNKNOWN if not computed yet */
        uint64_t ascii[2] = {0, 0};
    };
    struct place_data {
        std::vector<uint32_t> stacks;    /* ascending, each with a character or token on top; 0 if the text can end */
        std::vector<way> ways;           /* ascending, from character 0 on; empty if not computed yet */
        std::vector<place> ascii;        /* place that each ASCII character leads to, or UNKNOWN; empty if `ways` is
                                          * empty */
        run letters = {UNKNOWN, {0, 0}}; /* the characters that lead to the same place as the letter e */
        run nowhere = {UNKNOWN, {0, 0}}; /* the characters that are not allowed */
    };
    struct point {
        place at;
        character begun; /* the bytes of an incomplete character */
    };
    /* Tokens [begin, end) of the tree. */
    struct stretch {
        uint32_t begin, end;
    };

    std::shared_ptr<const grammar> read;
    const grammar &rules; /* owned by `read` */
    std::shared_ptr<const vocabulary_trie> trie;
    std::vector<stack> stacks;
    std::unordered_map<uint64_t, uint32_t> stack_of;
    std::vector<place_data> places;
    std::unordered_multimap<uint64_t, place> place_of; /* places by the hash of their stacks */
    std::vector<uint32_t> seen;                        /* for each stack, the number of the last expansion that reached
                                                        * it */
    uint32_t expansion = 0;
    size_t n_ways = 0; /* ways of all places */
    uint64_t work = 0; /* stacks examined in the current call */
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
