/* grammar_walk.h: follows an answer through its grammar, and finds the tokens that can come next. There is one walk per
 * answer, owned by the thread that samples the answer.
 *
 * A grammar can have several derivations of the text so far. Only the following text shows which derivation matches.
 * The walk therefore follows all derivations at once. A derivation is a stack of grammar elements. The element that
 * comes next is on top. Below it are the elements that come after the end of each unfinished rule. A *place* is the set
 * of all stacks that are possible after some text. Example:
 *
 *   root ::= "a" list | "ab"        after "a" there are two stacks: {"b"}, and {list's first character}
 *
 * A character removes the stacks that do not match it and advances the others. Rules on top are expanded until each
 * stack has a character, a token or nothing on top. If no stack is left, the grammar does not allow the text.
 *
 * A step is the transition from one place to the next by a character. Most steps recur. The 150,000 tokens of a
 * vocabulary share a few hundred beginnings. Each letter of a JSON string leads back to the same place. So stacks and
 * places are numbered and never change. Stacks share their lower parts, and equal places have one number. If a step
 * recurs, its result is looked up in a table. An automaton of all places cannot be built in advance, because a nested
 * grammar has infinitely many places. A *way* is a range of characters that all lead from a place to the same next
 * place. For example, let the stacks have the sets [a-z] and [0-9a-f] on top. The ways are then 0-9, a-f, g-z and the
 * ranges between them.
 *
 * In a JSON string, nearly all characters lead to the same place. A *run* is the set of ASCII characters that lead to
 * one place. One comparison with a run shows whether a whole branch of the vocabulary's prefix tree is allowed. Without
 * runs, each character of each token was a separate step. In the slowest cases, picking a token took 6 to 41 ms (99th
 * percentile, vocabulary of 151,643 tokens). With runs, picking a token takes 0.5 to 1.1 ms.
 *
 * A client can send a grammar that is designed to be slow. For example, ambiguous rules multiply the stacks. If one
 * call examines more than STEP_WORK_MAX stacks, or if there are more than STACKS_MAX stacks, grammar_fault ends the
 * request. Earlier stacks, places and ways are kept only to make later steps faster. `forget` drops them if there are
 * more than STACKS_KEPT stacks, PLACES_KEPT places or WAYS_KEPT ways.
 *
 * A caller for which other requests wait calls be_quick. Then a call ends with grammar_fault after a small part of this
 * work, and the walk stays unchanged. The caller repeats the call without this limit in a thread for which no request
 * waits. */
#ifndef LLM_GRAMMAR_WALK_H
#define LLM_GRAMMAR_WALK_H

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/grammar/blank_style.h"
#include "text/grammar/character.h"
#include "text/grammar/grammar.h"
#include "text/grammar/token_set.h"
#include "text/grammar/vocabulary_trie.h"

class grammar_walk {
  public:
    /* All functions can throw std::bad_alloc. They throw grammar_fault if one call takes too much work or memory. */
    grammar_walk(std::shared_ptr<const grammar> rules, std::shared_ptr<const vocabulary_trie> vocabulary);

    /* Advances the walk by a token and its text. For a text that is not a single token, `token` is -1. If the grammar
     * does not allow the token or text, returns false, and the walk cannot be continued. */
    bool accept(int32_t token, const char *text, size_t n_bytes);
    bool allows(int32_t token, const char *text, size_t n_bytes);

    /* `forget` frees the memory of earlier steps if `is_full` returns true, that is, if it is large. This can take
     * milliseconds, so it is not a part of `accept`. */
    bool is_full() const;
    void forget();

    /* Returns whether the answer can end here. */
    bool is_complete() const;

    /* Finds every token of the vocabulary that can come next. Tokens that end the answer are not included. */
    void find_allowed(uint32_t n_vocab, token_set &allowed);

    /* Limits the later calls of `allows`, `find_allowed` and `guess` to a fraction of a millisecond, all together,
     * until the limit is removed. A call that exceeds the limit throws grammar_fault. */
    void be_quick(bool is_quick);
    /* Returns whether the grammar names tokens. The work of accepting such a token is not limited by be_quick. */
    bool names_tokens() const
    {
        return has_named;
    }

    /* Called if `guess` will not be called. Then `accept` does not record the style of blanks. */
    void never_guess()
    {
        style.reset();
    }
    /* Returns the text that comes next, as far as the grammar allows only one continuation. Blanks that the grammar
     * allows but does not require are guessed from the answer's own style (blank_style.h). The text has at most about
     * n_bytes_max bytes. */
    std::string guess(size_t n_bytes_max);

  private:
    using place = uint32_t; /* number of a place, the set of all possible stacks: an index in `places`. NONE if the text
                             * is not allowed */
    static constexpr uint32_t NONE = 0, UNKNOWN = UINT32_MAX, ASCII = 128;

    struct stack {
        uint32_t element; /* the element that comes next */
        uint32_t below;   /* number of the stack under this element. NONE if the element is at the bottom */
    };
    /* A range of characters that all lead to the same place, a set of possible stacks. The range ends before the `low`
     * of the next way. */
    struct way {
        uint32_t low;
        place to; /* UNKNOWN until this place was computed */
    };
    /* The ASCII characters that lead from one place (a set of possible stacks) to the place `to`. */
    struct run {
        place to = NONE; /* UNKNOWN if not computed yet */
        uint64_t ascii[2] = {0, 0};
    };
    /* The only character that can follow a place, possibly after blanks. */
    struct way_on {
        uint32_t character = NONE; /* NONE if several characters can follow, or none. UNKNOWN if not computed yet */
        bool has_blanks = false;   /* whether blanks can precede the character */
    };
    struct place_data {
        std::vector<uint32_t> stacks;    /* ascending numbers of stacks that have a character or token on top. Includes
                                          * 0, the empty stack, if the text can end */
        std::vector<way> ways;           /* ways from this place, ascending, from character 0 on. Empty if not computed
                                          * yet */
        std::vector<place> ascii;        /* place that each ASCII character leads to, or UNKNOWN. Empty if `ways` is
                                          * empty */
        run letters = {UNKNOWN, {0, 0}}; /* the ASCII characters that lead to the same place as the letter e */
        run nowhere = {UNKNOWN, {0, 0}}; /* the ASCII characters that are not allowed */
        way_on only = {UNKNOWN, false};
    };
    struct point {
        place at;
        character begun; /* the bytes of an incomplete character */
    };
    /* A range of tokens in the vocabulary's prefix tree: [begin, end). */
    struct stretch {
        uint32_t begin, end;
    };

    std::shared_ptr<const grammar> read;
    const grammar &rules; /* the grammar to which `read` points */
    std::shared_ptr<const vocabulary_trie> trie;
    std::vector<stack> stacks;
    std::unordered_map<uint64_t, uint32_t> stack_of;
    std::vector<place_data> places;
    std::unordered_multimap<uint64_t, place> place_of; /* places by the hash of their stacks */
    std::vector<uint32_t> seen;                        /* for each stack, the number of the last call of expand() that
                                                        * reached it */
    uint32_t expansion = 0;
    size_t n_ways = 0; /* total number of ways in `places` */
    uint64_t work = 0; /* number of stacks examined in the current call, or since be_quick */
    bool is_quick = false;
    bool has_named; /* whether an element of the grammar names a token */
    point now;
    std::optional<blank_style> style =
        blank_style(); /* the style of the blanks in the answer so far. No value if `guess` will not be called */

    void begin_call();
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

    /* grammar_guess.cpp */
    way_on find_way_on(place from);
    way_on way_on_from(place from);
    void add_blanks(const char *text, size_t n_bytes);
    void learn_blanks(const char *text, size_t n_bytes);
    bool add_blank(std::string &out, place &at, blank_style::position &written, way_on next);
};

#endif
