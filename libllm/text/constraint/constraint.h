/* constraint.h: the form that one answer must have, and where in it the answer is: its grammar, what begins it, the tokens
 * whose text belongs to it, and how long it may think. Made from the document that llm_wire.h's `constraint` carries. One for
 * each answer; owned by who samples it. All but read throw grammar_fault and std::bad_alloc. */
#ifndef LLM_CONSTRAINT_H
#define LLM_CONSTRAINT_H

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "model/model.h"
#include "text/constraint/thinking.h"
#include "text/constraint/trigger.h"
#include "text/grammar/grammar_walk.h"

class constraint {
  public:
    /* Throws grammar_fault for what is no such document, or is beyond the bounds. */
    static std::unique_ptr<constraint> read(const model *m, const std::string &document);

    /* Its work is not for a thread that others wait for. */
    bool is_slow() const
    {
        return walk.has_value() || !begun.empty() || (is_waiting && triggers.has_patterns());
    }

    /* The grammar holds now: what has triggered it is told to it first. */
    bool holds();
    bool allows(int32_t token);
    void find_allowed(token_set &allowed);
    bool may_end() const
    {
        return walk->is_complete();
    }

    /* What comes next, whatever the model says; -1: what the model says. */
    int32_t forced();

    void accept(int32_t token);

    bool is_before_answer() const /* thinking.h */
    {
        return thought.is_before_answer();
    }

    /* The text of this control token is a part of the answer's. */
    bool shows(int32_t token) const
    {
        return preserved.count(token) > 0;
    }

  private:
    const model *m;
    std::shared_ptr<const grammar> rules; /* none: the answer is free */
    std::shared_ptr<const vocabulary_trie> vocabulary;
    std::optional<grammar_walk> walk; /* while the grammar holds */
    bool is_waiting = false;          /* it will hold from a trigger on */
    trigger triggers;
    std::vector<trigger::piece> begun; /* triggered, and not yet told to the grammar */
    std::unordered_set<int32_t> preserved;
    thinking thought;
    uint8_t n_missing = 0; /* bytes of the answer's last character */

    explicit constraint(const model *of) : m(of) {}
    std::string text_of(int32_t token) const;
    void begin_walk();
    void follow_characters(const std::string &text);
    void accept_ending();

    friend class constraint_reader;
};

#endif
