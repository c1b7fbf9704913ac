/* answer_reading.h: one run of llama.cpp's parser over a text, and its result. Used only by the answer parser. */
#ifndef LLM_ANSWER_READING_H
#define LLM_ANSWER_READING_H

#include <common/chat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "text/answer/call_parser.h"

/* The facts that are needed to parse an answer. llm_prompt.syntax is their serialized form. */
struct answer_syntax {
    common_chat_format format = COMMON_CHAT_FORMAT_PEG_NATIVE;
    std::string opening;   /* end of the prompt, with which the form begins */
    std::string reopening; /* the opening without reasoning, with which parsing begins again in the middle of an
                            * answer */
    std::string thinking_end;
    bool calls_once = false;
    bool must_call = false; /* a call is enforced, so the answer has no text */
    std::string parser;     /* llama.cpp's parser, in the format of parser_text.h */

    std::string written() const;
    static answer_syntax read(const std::string &given); /* throws */
};

struct answer_reading {
    enum part { NONE, TEXT, REASONING, CALL };

    bool fits = false;     /* whether the text can be the beginning of an answer of this form */
    common_chat_msg said;  /* the message so far, if `fits` */
    part last = NONE;      /* the part that continues to the last byte */
    size_t n_reported = 0; /* number of bytes up to the end of the last part that is in `said` */

    /* Positions if `last` is CALL: the beginning of the first call, of the last call, and of the value in the last
     * call's arguments that contains the last byte. */
    size_t first_call = SIZE_MAX, last_call = 0, value = SIZE_MAX;
    size_t unnamed_call = SIZE_MAX; /* beginning of the last call if its name is not complete, otherwise SIZE_MAX */
    bool is_value_verbatim = false; /* whether the value is plain text up to its closing mark */
    struct list {
        size_t first, last; /* positions of the first and of the last element */
    };
    std::vector<list> lists; /* lists that have a mark for each element and reach to the last byte; outer lists come
                              * first */
};

/* The mark with which a text begins. A mark is a piece of text that opens or closes a part of an answer. */
struct answer_mark {
    enum kind { NONE, UNSURE, BEGIN, CLOSING, OPENING };

    kind what; /* UNSURE if the text is the beginning of a mark; BEGIN if calls begin here, so that parsing can begin
                * again */
    size_t n_bytes;
};

class answer_form {
  public:
    explicit answer_form(const answer_syntax &syntax); /* throws */

    /* Throws only std::bad_alloc. The form does not fit a text that nests too deeply, nor a second call if only one
     * call is allowed. */
    answer_reading read(const std::string &text) const;

    bool is_whole(const std::string &text) const; /* returns whether the text is a complete answer */
    /* Returns whether `begun`, the end of an answer that a limit cut off, is reported as text. Three bytes of a marker
     * ("<to") are dropped as the beginning of the marker; one or two bytes are more often text. */
    bool may_be_text(const std::string &begun, bool is_after_text) const;
    answer_mark mark_at(const std::string &text) const;
    bool ends_with_closing_mark(const std::string &text) const; /* ignores blanks at the end */
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
    std::vector<std::string> markers; /* markers at which text ends, without their leading and trailing blanks */
    call_marks marks;
};

#endif
