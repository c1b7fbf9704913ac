/* chat_form.h: the form of a template's answers, as llama.cpp knows it: how calls and reasoning are written, the
 * grammar that enforces it, and the triggers that begin it. Made from a template and the wishes of a request, not from
 * its messages, so that it can be kept for the next turn (chat_forms). Private to the chat folder. */
#ifndef LLM_CHAT_FORM_H
#define LLM_CHAT_FORM_H

#include <common/chat-auto-parser.h>
#include <common/chat.h>

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "model/model.h"
#include "text/answer/call_head.h"

/* A grammar for the text of one argument of a tool (a JSON string), from the client. */
struct chat_argument {
    std::string tool, name, grammar;
};

/* The wishes of a request that decide the form, in addition to the template. Client text without markers. */
struct chat_wish {
    common_json tools; /* array in OpenAI's form, or null */
    common_chat_tool_choice choice = COMMON_CHAT_TOOL_CHOICE_AUTO;
    std::vector<std::string> names;       /* only these tools may be called; none: all */
    int parallel = -1;                    /* whether one answer may have several calls; -1: as in the template */
    std::string grammar;                  /* GBNF for an answer without calls; "": any text */
    std::vector<chat_argument> arguments; /* arguments with a grammar of their own */
    bool is_reasoning_apart = true;
    bool continues_reasoning = false; /* the answer continues the last message, which has reasoning... */
    bool continues_content = false;   /* ...and content */
    common_json kwargs;               /* object: variables of the template */

    bool has_tools() const
    {
        return tools.is_array() && !tools.empty();
    }
    bool has_calls() const
    {
        return has_tools() && choice != COMMON_CHAT_TOOL_CHOICE_NONE;
    }
    bool calls_once() const
    {
        return has_calls() && parallel == 0;
    }
    bool needs_form() const
    {
        return has_calls() || !grammar.empty() || continues_reasoning || continues_content;
    }
    std::string key() const;
};

/* Placeholders for the content and the reasoning of the message that is continued. */
extern const char *const CHAT_FORM_CONTENT, *const CHAT_FORM_REASONING;

struct chat_form {
    common_chat_format format = COMMON_CHAT_FORMAT_PEG_NATIVE;
    std::string parser;    /* "": answers are plain text */
    std::string opening;   /* the end of the prompt; for a continued message with CHAT_FORM_CONTENT and _REASONING */
    std::string reopening; /* the same without reasoning */
    std::string grammar;
    bool calls_once = false, must_call = false;
    bool is_lazy = false; /* the grammar holds only from a trigger on */
    std::vector<common_grammar_trigger> triggers;
    std::vector<std::string> preserved, stops;
    std::string thinking_start;
    std::vector<std::string> thinking_ends; /* any of these ends it, some open a call; empty: no reasoning */
    std::string thinking_forced;            /* the text that ends it when the budget is used up */
    common_json marks;                      /* chat_constraint.h */
};

/* Facts of the template about the form, found out once. If it has no form for calls, llmd's own is used. */
struct chat_analysis {
    bool is_special = false;       /* llama.cpp has a parser for this family alone */
    bool knows_calls = false;      /* the template writes calls and their results */
    bool describes_tools = false;  /* the template lists the tools for the model */
    std::string id_end;            /* the mark between a call's id and the name after it; "": there is no id */
    bool has_gemma_values = false; /* arguments are objects in Gemma 4's own syntax */
    call_head head;                /* the beginning of a call as the template writes it */
    autoparser::autoparser found;
};

/* Throws std::bad_alloc. Needs a chat_budget. */
chat_analysis chat_analyse(const common_chat_template &tmpl);

/* Throws std::invalid_argument if llama.cpp has no form for this, and whatever llama.cpp throws. Needs a
 * chat_budget. */
chat_form chat_form_of(const model *m, const common_chat_template &tmpl, const chat_analysis &analysis,
                       const chat_wish &wish);

/* Returns whether the form's grammar is valid and, unless it is lazy, allows an answer to begin with this end of the
 * prompt. Throws std::bad_alloc. */
bool chat_form_begins(const model *m, const chat_form &form, const std::string &opening);

/* A cache of the latest forms, by everything that they were made from: agents send the same tools in every turn, and
 * making a form takes long. Any thread. */
class chat_forms {
  public:
    std::shared_ptr<const chat_form> find(const std::string &key);
    void keep(const std::string &key, std::shared_ptr<const chat_form> form);

  private:
    struct entry {
        std::string key;
        std::shared_ptr<const chat_form> form;
        size_t n_bytes;
    };
    std::mutex lock;
    std::list<entry> entries; /* the latest first */
    size_t n_bytes = 0;
};

#endif
