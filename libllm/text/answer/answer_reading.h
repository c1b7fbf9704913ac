/* answer_reading.h: one run of llama.cpp's parser over one text, and what came out. Private to the answer parser. */
#ifndef LLM_ANSWER_READING_H
#define LLM_ANSWER_READING_H

#include <common/chat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "text/answer/call_parser.h"

/* What libllm has to know to read an answer; as bytes it is llm_prompt.syntax. */
struct answer_syntax {
    common_chat_format format = COMMON_CHAT_FORMAT_PEG_NATIVE;
    std::string opening;   /* how the prompt ends: the form begins with it */
    std::string reopening; /* the same without thinking: where reading begins anew */
    std::string thinking_end;
    bool calls_once = false;
    bool must_call = false; /* the answer is kept to that: there is no text in it */
    std::string parser;     /* llama.cpp's */

    std::string written() const;
    static answer_syntax read(const std::string &given); /* throws */
};

struct answer_reading {
    enum part { NONE, TEXT, REASONING, CALL };

    bool fits = false;    /* so far: more may be missing */
    common_chat_msg said; /* when it fits */
    part last = NONE;     /* what goes on to the last byte */
    size_t n_told = 0;    /* bytes up to the end of the last thing that is in `said` */

    /* When `last` is CALL: where the first and the last call open, and the value in the latter's arguments that goes on
     * to the last byte. */
    size_t first_call = SIZE_MAX, last_call = 0, value = SIZE_MAX;
    bool is_value_verbatim = false; /* it is a text up to what closes it */
    struct list {
        size_t first, last; /* where these elements begin */
    };
    std::vector<list> lists; /* that are marked element by element and go on to the last byte; outer ones first */
};

/* What a text begins with. */
struct answer_mark {
    enum kind { NONE, UNSURE, BEGIN, CLOSING, OPENING };

    kind what; /* UNSURE: it may become a mark; BEGIN: calls begin with it, of which reading can begin anew */
    size_t n_bytes;
};

class answer_form {
  public:
    explicit answer_form(const answer_syntax &syntax); /* throws */

    /* Throws std::bad_alloc only. Texts nested too deeply do not fit, nor does a second call where one is the most. */
    answer_reading read(const std::string &text) const;

    bool is_whole(const std::string &text) const; /* nothing is missing */
    /* Whether an answer that a limit cut may end with `begun` as text. A sign or two of a marker are more often text. */
    bool may_be_text(const std::string &begun, bool is_behind_text) const;
    answer_mark mark_at(const std::string &text) const;
    bool ends_with_closing_mark(const std::string &text) const; /* but for blanks */
    bool may_begin_marker(char c) const
    {
        return begins_marker[static_cast<unsigned char>(c)];
    }

    mutable uint64_t n_bytes_read = 0;

  private:
    answer_reading parse(const std::string &text) const;

    common_chat_format format;
    bool calls_once;
    common_peg_arena arena;
    bool begins_marker[256] = {};
    std::vector<std::string> markers; /* that end text; without blanks behind them */
    call_marks marks;
};

#endif
