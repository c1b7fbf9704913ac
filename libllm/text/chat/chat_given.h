/* chat_given.h: keeps the messages and tools of a conversation as values of jinja, with what loops over these values have
 * written (chat_memo.h). The next request of the conversation has nearly the same messages. It gets the same values for
 * them, so that the template need not run again for most of them. Used only in this folder. */
#ifndef LLM_CHAT_GIVEN_H
#define LLM_CHAT_GIVEN_H

#include <common/jinja/value.h>
#include <common/json.h>

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "text/template/chat_memo.h"

/* The values of one conversation. All renderings of a request share them, until a template changes one of them. One
 * thread uses an object at a time. */
class chat_given {
  public:
    /* Makes the values of these messages and tools, unless this was done since the last call of `renew`. Values that are
     * the same as before are kept. */
    void make(const common_json &messages_, const common_json &tools_);

    /* Called before the values of another request, or of a changed request, are made. */
    void renew()
    {
        is_made = is_matched = false;
    }

    /* Called if a template has changed a value. */
    void clear();

    /* Returns how many of the first messages have values here. */
    size_t match(const common_json &messages_);

    const std::vector<jinja::value> &messages() const
    {
        return of_messages.values;
    }
    jinja::value tools() const /* NULL if there are no tools */
    {
        return all_tools;
    }
    size_t bytes() const
    {
        return of_messages.bytes() + of_tools.bytes() + memo.bytes();
    }

    chat_memo memo;

  private:
    struct list {
        std::vector<jinja::value> values;
        std::vector<size_t> weights; /* the bytes of each value */

        void add(jinja::value one);
        size_t bytes() const;
    };
    list of_messages, of_tools;
    jinja::value all_tools;
    bool is_made = false, is_matched = false;
    /* the result of match: the messages from new_begin on have the n_same values from old_begin on. The system messages
     * are not rendered after an answer whose tokens are known (chat_after.h) */
    size_t new_begin = 0, old_begin = 0, n_same = 0;
};

/* The conversations of the last requests to a template. Conversations of different owners are never shared, because a
 * client can measure how long rendering takes. Any thread can use it. */
class chat_conversations {
  public:
    /* Returns the values of the conversation that has the most in common with these messages, and removes it. Returns
     * new values if no conversation has at least half of its messages in common with them. */
    std::unique_ptr<chat_given> take(int64_t owner, const common_json &messages);

    void give(int64_t owner, std::unique_ptr<chat_given> given);

  private:
    struct entry {
        int64_t owner;
        size_t n_bytes;
        std::unique_ptr<chat_given> given;
    };
    std::mutex lock;
    std::list<entry> entries; /* most recently used first */
    size_t n_bytes = 0;
};

#endif
