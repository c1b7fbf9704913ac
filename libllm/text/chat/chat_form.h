/* chat_form.h: the form that a template's answers have, as llama.cpp knows it: how calls and reasoning look, the grammar that
 * keeps a model to it, what begins it. Made from a template and what a request wants, not from its messages. Private to
 * the chat door. */
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

/* The text that is an argument of a tool, as a JSON string. */
struct chat_argument {
    std::string tool, name, grammar;
};

/* What decides the form, besides the template. Text of a stranger, not marked. */
struct chat_wish {
    common_json tools; /* array in OpenAI's form, or null */
    common_chat_tool_choice choice = COMMON_CHAT_TOOL_CHOICE_AUTO;
    std::vector<std::string> names;       /* only these tools may be called; none: all */
    int parallel = -1;                    /* whether one answer may call several; -1: as the template has it */
    std::string grammar;                  /* GBNF that an answer without calls must keep to; "": any text */
    std::vector<chat_argument> arguments; /* those that have a form of their own */
    bool is_reasoning_apart = true;
    bool continues_reasoning = false; /* the answer goes on with the last message, which has reasoning... */
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

/* Stand for the content and the reasoning of the message that is continued. */
extern const char *const CHAT_FORM_CONTENT, *const CHAT_FORM_REASONING;

struct chat_form {
    common_chat_format format = COMMON_CHAT_FORMAT_PEG_NATIVE;
    std::string parser;    /* "": answers are plain text */
    std::string opening;   /* how the prompt ends; continued: with CHAT_FORM_CONTENT and _REASONING in it */
    std::string reopening; /* the same without thinking */
    std::string grammar;
    bool calls_once = false, must_call = false;
    bool is_lazy = false; /* the grammar holds from a trigger on */
    std::vector<common_grammar_trigger> triggers;
    std::vector<std::string> preserved, stops;
    std::string thinking_start;
    std::vector<std::string>
        thinking_ends;           /* any of these, some of which open a call; empty: the models do not think */
    std::string thinking_forced; /* what ends it at the budget */
    common_json marks;           /* chat_constraint.h */
};

/* What the template itself says about the form, found out once. Where it has no form for calls, they have ours. */
struct chat_analysis {
    bool is_special = false;      /* llama.cpp has a parser for just this family */
    bool knows_calls = false;     /* the template writes calls and their results */
    bool describes_tools = false; /* and tells the model which there are */
    call_head head;               /* of calls as the template writes them */
    autoparser::autoparser found;
};

/* Throws std::bad_alloc. Needs a chat_budget. */
chat_analysis chat_analyse(const common_chat_template &tmpl);

/* Throws std::invalid_argument where llama.cpp has no form for this; and what else it throws. Needs a chat_budget. */
chat_form chat_form_of(const model *m, const common_chat_template &tmpl, const chat_analysis &analysis,
                       const chat_wish &wish);

/* The form's grammar is valid, and unless it is lazy, an answer may begin with this end of the prompt. Throws
 * std::bad_alloc. */
bool chat_form_begins(const model *m, const chat_form &form, const std::string &opening);

/* The latest forms, by all they were made from: agents send the same tools at every turn. Any thread. */
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
