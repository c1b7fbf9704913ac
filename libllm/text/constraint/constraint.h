/* constraint.h: enforces the constraint of one answer, token by token. A constraint has these parts:
 * - a grammar
 * - triggers, which are words, tokens or patterns at which a lazy grammar begins
 * - the control tokens whose text belongs to the answer
 * - the limit on reasoning
 * A constraint is made from the document `constraint` of a GENERATE (llm_wire.h). One constraint per answer, owned by
 * the thread that samples the answer. All functions can throw grammar_fault and std::bad_alloc.
 *
 *   free ------(a trigger: "lazy" grammars)-----> begun --(the grammar accepts the trigger)--> the grammar is active
 *    ^                                              |
 *    `----(the grammar rejects it: not a trigger)---'
 *
 * A grammar that is not lazy is active from the first token on. Triggers are not searched for in reasoning, because the
 * model may mention a tool call there without making the call. Passing the trigger's tokens to the grammar is slow, so
 * the next pick does this. Until then, the state is `begun`, and is_slow() returns true. So the next pick does not run
 * on the decode thread. While the grammar is active, most picks are quick. be_quick limits the time of slow picks,
 * which are then repeated in another thread. */
#ifndef LLM_CONSTRAINT_H
#define LLM_CONSTRAINT_H

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/model.h"
#include "text/constraint/thinking.h"
#include "text/constraint/trigger.h"
#include "text/grammar/grammar_walk.h"

class constraint {
  public:
    /* Throws grammar_fault if `document` is malformed or exceeds a limit. Reading a document with many tools takes
     * milliseconds. So the most recent constraints are kept (document_cache.h), and each answer gets a copy. */
    static std::unique_ptr<constraint> read(const model *m, const std::string &document);

    /* Returns whether the next pick can take long even after be_quick. */
    bool is_slow() const
    {
        return !begun.empty() || (is_waiting && triggers.has_patterns()) ||
               (walk && (walk->names_tokens() || walk->is_full()));
    }
    /* Frees memory of earlier steps that has become large. Can take milliseconds. */
    void forget()
    {
        if (walk) {
            walk->forget();
        }
    }
    /* Limits the time of later calls, see grammar_walk.h. A call that exceeds the limit throws grammar_fault and
     * changes nothing. */
    void be_quick(bool is_quick)
    {
        if (walk) {
            walk->be_quick(is_quick);
        }
    }
    /* Called if `guess` will not be called for this answer. */
    void never_guess();
    /* Writes the next tokens, as far as the grammar allows only one continuation. Returns the number of these
     * tokens. */
    size_t guess(int32_t *tokens, size_t n_max);

    /* Returns whether the grammar is active. If a trigger has been found (state `begun`), first passes the trigger's
     * tokens to the grammar. */
    bool holds();
    bool allows(int32_t token);
    void find_allowed(token_set &allowed);
    bool may_end() const
    {
        return walk->is_complete();
    }

    /* If the reasoning budget is used up, returns the token that must come next, whatever the model predicts. Returns
     * -1 if the model decides. */
    int32_t forced();

    void accept(int32_t token);

    bool is_before_answer() const /* explained in thinking.h */
    {
        return thought.is_before_answer();
    }

    /* Returns whether the text of this control token is part of the answer's text. */
    bool shows(int32_t token) const
    {
        return preserved.count(token) > 0;
    }

  private:
    const model *m;
    std::shared_ptr<const grammar> rules; /* NULL if the answer has no grammar */
    std::shared_ptr<const vocabulary_trie> vocabulary;
    std::optional<grammar_walk> walk; /* the walk through the grammar, which exists while the grammar is active */
    bool is_guessed = true;           /* whether `guess` may be called */
    bool is_waiting = false;          /* the grammar is lazy, and no trigger has been found yet */
    trigger triggers;
    std::vector<trigger::piece> begun; /* tokens from the trigger on. Only used in the state `begun`, before the grammar
                                        * has received them */
    std::unordered_map<int32_t, std::string> preserved; /* the control tokens that shows() reports, and their texts */
    thinking thought;
    uint8_t n_missing = 0; /* number of bytes that are still missing to complete the answer's last character */

    explicit constraint(const model *of) : m(of) {}
    std::string text_of(int32_t token) const;
    int32_t longest(const char *text, size_t n, size_t *n_bytes) const;
    int32_t likely(const char *text, size_t n, size_t *n_bytes) const;
    void begin_walk();
    void follow_characters(const std::string &text);
    void accept_ending();

    friend class constraint_reader;
};

#endif
