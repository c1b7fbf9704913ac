/* chat_memo.h: keeps what iterations of a template's loops have written. A client sends the whole conversation in every
 * turn, so a loop over the messages does again what it did in the last rendering, for nearly all of them. An iteration
 * reads its item, and a few values from outside: for example whether its message is the last one. If all these values
 * are the same as before, the iteration writes the same text and sets the same variables. So it need not run again.
 *
 * A recorder sees every value that the nodes of an iteration read (chat_guard.cpp), so nothing is assumed about the
 * template. It keeps the largest expressions that read only values from outside, with their results. For example, the
 * iteration of a message reads `loop.index0 > ns.last_query_index`, which stays true or false while both numbers
 * grow. Before an iteration is skipped, these expressions are evaluated again, and their results have to be equal.
 * An iteration that does anything else than to read, to write text, and to set variables is not kept.
 *
 * Only loops over items from the request are kept: these never change, and the same item is the same object. A memo
 * belongs to the values of one conversation (chat_given), and one thread uses it at a time. */
#ifndef LLM_CHAT_MEMO_H
#define LLM_CHAT_MEMO_H

#include <common/jinja/runtime.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/template/chat_budget.h"

class chat_memo {
  public:
    /* Returns the memo of the rendering that this thread runs, or NULL if the rendering has none. */
    static chat_memo *&current();

    static inline bool is_off = false; /* true only in tests, which compare renderings with and without a memo */

    /* An expression that an iteration has read before it changed anything, with its result. */
    struct read {
        const jinja::statement *node;
        jinja::value result;
        const jinja::statement *macro; /* the macro that the result is, or NULL */
    };
    /* A variable of the loop's scope, or a member of an object from outside of the loop. */
    struct write {
        std::string variable, member; /* "" for a variable itself */
        jinja::value item;
    };
    struct outcome {
        std::vector<read> reads;
        std::vector<write> writes;
        jinja::value text;
        chat_cost cost; /* what the iteration has paid to the budget. It is paid again when the iteration is skipped */
        uint64_t n_asks, n_changes; /* what the iteration has added to the counts of chat_trace */
    };
    /* All that is known about the iterations of a loop over one item. */
    struct known {
        jinja::value item; /* as long as this reference exists, no other item has the same address */
        std::vector<outcome> outcomes;
        bool is_refused = false; /* these iterations cannot be kept */
    };

    /* Called before each rendering. */
    void begin_rendering();

    /* Drops what is known about items to which nothing else refers. */
    void drop_unused();

    /* Called when a template changes a value of the request. Nothing of this memo is used any more. */
    void spoil()
    {
        is_spoiled = true;
    }
    bool is_usable() const
    {
        return !is_spoiled;
    }

    /* Returns NULL if the memo is full. */
    known *of(const jinja::statement &loop, const jinja::value &item);

    /* Returns whether the iteration would read the same values. `scope` has the loop's variables. */
    bool fits(const outcome &one, jinja::context &scope) const;

    /* Sets the variables that the iteration has set. */
    static void repeat(const outcome &one, jinja::context &scope);

    /* Adds an outcome, and drops an old one of the same item if there are too many. */
    void keep(known &item, outcome &&one);

    /* Remembers which macro a value is. */
    void define(const jinja::value &function, const jinja::statement *macro);
    const jinja::statement *macro_of(const jinja::value &function) const;

    /* Returns whether a value never changes, and can be compared with another one. */
    bool is_fixed(const jinja::value &one) const;

    size_t bytes() const
    {
        return n_bytes;
    }

  private:
    using place = std::pair<const jinja::statement *, const jinja::value_t *>;
    struct hash {
        size_t operator()(const place &one) const
        {
            return reinterpret_cast<size_t>(one.first) / 16 * 31 + reinterpret_cast<size_t>(one.second) / 16;
        }
    };
    std::unordered_map<place, known, hash> items;
    std::unordered_map<const jinja::value_t *, std::pair<jinja::value, const jinja::statement *>> macros;
    size_t n_bytes = 0;
    bool is_spoiled = false;
};

/* Records one iteration, and is the thread's recorder as long as it exists, or until the iteration does something that
 * cannot be kept. */
class chat_recorder {
  public:
    /* Returns the thread's recorder, or NULL if no iteration is being recorded. */
    static chat_recorder *&current();

    /* Stops recording. */
    static void refuse()
    {
        current() = nullptr;
    }

    /* `scope` has the loop's variables. `item_name` is the variable of the item. */
    chat_recorder(chat_memo &memo, const std::string &item_name, jinja::context &scope);
    ~chat_recorder();
    chat_recorder(const chat_recorder &) = delete;
    chat_recorder &operator=(const chat_recorder &) = delete;

    bool is_recording() const
    {
        return current() == this;
    }

    /* How much was recorded before an expression. */
    struct point {
        size_t n_reads = 0, n_writes = 0, n_inner = 0;
    };
    point now() const
    {
        return {reads.size(), writes.size(), n_inner};
    }

    void read(const jinja::identifier &node, const jinja::value &found, const jinja::context &ctx);
    void call_macro()
    {
        n_inner++;
    }
    /* Called after an expression. If it has read only values from outside, its result replaces these values. */
    void finish(const jinja::statement &node, const jinja::value &result, const point &before);
    void set_variable(const std::string &name, const jinja::context &ctx);
    void set_member(const jinja::statement_ptr &object, const jinja::value &target, const std::string &member,
                    const jinja::value &item, const point &before);

    /* Returns whether a list or object from outside was read since `before`, other than for a member of it. */
    bool has_unfixed(const point &before) const;

    /* Returns the outcome without text and cost. Returns false if it cannot be kept. */
    bool take(chat_memo::outcome *out);

  private:
    chat_memo &memo;
    const std::string &item_name;
    const jinja::context &scope;
    const jinja::context start; /* the variables before the iteration */
    std::vector<chat_memo::read> reads;
    std::vector<chat_memo::write> writes;
    size_t n_inner = 0;       /* how often the iteration has read values that it has made itself, or called a macro */
    bool has_changed = false; /* whether it has changed an object from outside */
};

#endif
