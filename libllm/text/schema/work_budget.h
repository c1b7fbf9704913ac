/* work_budget.h: limits the work of compiling a schema. A budget is owned by the thread that compiles.
 *
 * A client chooses the schema, and requests of other clients wait for the thread that compiles it. Limits on single
 * parts, such as the states of an automaton, were not enough. A schema with several patterns of hundreds of repetitions
 * took 2.2 s, although each part was below its limit. The budget counts steps and not time. So a schema that is
 * accepted once is accepted every time and on every machine. One step takes about 15 ns on a desktop's core, so
 * STEPS_MAX steps take about 100 ms. When the budget is spent, STRICT refuses the schema. LOOSE ignores the rest of the
 * schema. */
#ifndef LLM_SCHEMA_WORK_BUDGET_H
#define LLM_SCHEMA_WORK_BUDGET_H

#include <cstddef>
#include <string>

#include "text/grammar/grammar.h"

class work_budget {
  public:
    static constexpr size_t STEPS_MAX = 6'000'000; /* limit on the steps for all schemas of a request */

    /* The cost of each kind of work, in steps. */
    static constexpr size_t TRANSITION = 3; /* cost of one transition of an automaton */
    static constexpr size_t WRITTEN_BYTE = 4, VALIDATED_SCHEMA = 30, MERGED_STATE = 400, NODE = 200, COMPARED_PAIR = 20,
                            NAME = 8, COPIED_ITEM = 3, KEYWORD = 4;

    explicit work_budget(size_t n_steps = STEPS_MAX) : most(n_steps) {}

    /* Counts n_steps as done. Returns false if the budget is spent. */
    bool take(size_t n_steps)
    {
        used += n_steps;
        return used <= most;
    }

    /* Counts n_steps as done. Throws grammar_beyond if the budget is spent. */
    void spend(size_t n_steps)
    {
        if (!take(n_steps)) {
            throw grammar_beyond(beyond());
        }
    }

    bool is_spent() const
    {
        return used > most;
    }

    size_t steps() const
    {
        return used;
    }

    size_t left() const
    {
        return used < most ? most - used : 0;
    }

    static std::string beyond()
    {
        return "the schema takes more than " + std::to_string(STEPS_MAX) + " steps to compile";
    }

  private:
    size_t most, used = 0;
};

#endif
