/* answer_reading.h: one run of llama.cpp's parser over a text, and its result. Used only by the answer parser. */
#ifndef LLM_ANSWER_READING_H
#define LLM_ANSWER_READING_H

#include <common/chat.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/call_parser.h"

/* Everything that is needed to parse an answer. llm_prompt.syntax contains it as JSON. */
struct answer_syntax {
    common_chat_format format = COMMON_CHAT_FORMAT_PEG_NATIVE;
    std::string opening;   /* the end of the prompt. llama.cpp's parser expects this text before the answer */
    std::string reopening; /* `opening` without the delimiter that opens reasoning. `reopening` is used if parsing
                            * begins again in the middle of an answer */
    std::string thinking_end;
    bool calls_once = false;
    bool must_call = false; /* a grammar forces a tool call, so the answer has no text */
    std::string parser;     /* llama.cpp's parser, in the format of parser_text.h */

    std::string written() const;
    static answer_syntax read(const std::string &given); /* throws std::exception if the JSON is malformed */
};

struct answer_reading {
    enum part { NONE, TEXT, REASONING, CALL };

    bool fits = false;     /* whether an answer in this syntax can begin with the text */
    common_chat_msg said;  /* if `fits`, the message that the text contains so far */
    part last = NONE;      /* kind of the part in which the text ends. Further text can continue this part */
    size_t n_reported = 0; /* position after the last part whose content is in the message `said` */

    /* Positions in the text, set if `last` is CALL. They are the beginnings of the first call, of the last call, and of
     * the unfinished value in the last call's arguments. */
    size_t first_call = SIZE_MAX, last_call = 0, value = SIZE_MAX;
    size_t unnamed_call = SIZE_MAX; /* beginning of the last call if the call's name is not complete, otherwise
                                     * SIZE_MAX */
    bool is_value_verbatim = false; /* whether the unfinished value is plain text, without quotes and escapes, up to its
                                     * closing delimiter */
    struct list {
        size_t first, last; /* positions at which the first and the last element begin */
    };
    std::vector<list> lists; /* unfinished lists whose elements are each between delimiters; outer lists come first */
};

/* The delimiter with which a text begins. A delimiter opens or closes a part of an answer (reasoning, text, a call). */
struct answer_mark {
    enum kind { NONE, UNSURE, BEGIN, CLOSING, OPENING };

    kind what; /* UNSURE if the text is only the first bytes of a delimiter. BEGIN if calls begin with this delimiter.
                * Parsing can begin again at a BEGIN delimiter */
    size_t n_bytes;
};

/* The parser and its data for one syntax. Made once, shared by all answers with this syntax, and never changed. */
struct answer_grammar {
    answer_syntax syntax; /* the syntax, but its member `parser` is empty */
    common_peg_arena arena;
    bool begins_marker[256] = {};
    std::vector<std::string> markers; /* delimiters that end text, without their trailing blanks */
    call_marks marks;

    /* Reads llm_prompt.syntax. Reading takes 17 ms if there are 60 tools, so the grammars of the most recent documents
     * are kept (document_cache.h). Throws. */
    static std::shared_ptr<const answer_grammar> of(std::string_view document);
};

class answer_form {
  public:
    explicit answer_form(std::shared_ptr<const answer_grammar> grammar) : rules(std::move(grammar)) {}

    /* Runs the parser over the text. Throws only std::bad_alloc. In the result, `fits` is false for a text that nests
     * too deeply. It is also false for a text with a second call if only one call is allowed. */
    answer_reading read(const std::string &text) const;

    bool is_whole(const std::string &text) const; /* returns whether the text is a complete answer */
    /* Called if a limit has cut the answer off. `begun` is the unreported end of the answer. Returns whether `begun` is
     * reported as text. `begun` is not reported if it begins with at least three bytes of a delimiter ("<to"). One or
     * two such bytes are more often text than the beginning of a delimiter. */
    bool may_be_text(const std::string &begun, bool is_after_text) const;
    answer_mark mark_at(const std::string &text) const;
    bool has_closing_marks() const
    {
        return !rules->marks.closing.empty();
    }
    bool ends_with_closing_mark(const std::string &text) const; /* blanks at the end of the text are ignored */
    bool may_begin_marker(char c) const
    {
        return rules->begins_marker[static_cast<unsigned char>(c)];
    }

    mutable uint64_t n_bytes_read = 0;

  private:
    answer_reading parse(const std::string &text) const;

    std::shared_ptr<const answer_grammar> rules;
};

#endif
