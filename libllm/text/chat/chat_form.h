/* chat_form.h: the form of a template's answers, as llama.cpp derives it. A form contains the syntax of calls and
 * reasoning, the grammar that enforces this syntax, and the triggers at which the grammar begins. The form depends on
 * the template and the wishes of a request (chat_wish), but not on the messages, so that it can be kept for the next
 * turn (chat_forms). Used only in this folder. */
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

/* A client's grammar for the text of one argument of a tool (a JSON string). */
struct chat_argument {
    std::string tool, name, grammar;
};

/* The wishes of a request: the members of the request that determine the form, together with the template. Texts of the
 * client have no markers here. */
struct chat_wish {
    common_json tools; /* array of tools as in OpenAI's API, or null */
    common_chat_tool_choice choice = COMMON_CHAT_TOOL_CHOICE_AUTO;
    std::vector<std::string> names;       /* the only tools that can be called; empty if all can be called */
    int parallel = -1;                    /* whether one answer can have several calls; -1 if the template decides */
    std::string grammar;                  /* GBNF for an answer without calls; "" for any text */
    std::vector<chat_argument> arguments; /* arguments for which the client has given a grammar */
    bool is_reasoning_apart = true;
    bool continues_reasoning = false; /* the answer continues the last message, which has reasoning */
    bool continues_content = false;   /* the answer continues the last message, which has content */
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

/* Placeholders for the content and the reasoning of the message to be continued. */
extern const char *const CHAT_FORM_CONTENT, *const CHAT_FORM_REASONING;

struct chat_form {
    common_chat_format format = COMMON_CHAT_FORMAT_PEG_NATIVE;
    std::string parser; /* "" if answers are plain text */
    /* end of the prompt; if a message is continued, CHAT_FORM_CONTENT and CHAT_FORM_REASONING stand for its text */
    std::string opening;
    std::string reopening; /* the opening without reasoning */
    std::string grammar;
    bool calls_once = false, must_call = false;
    bool is_lazy = false; /* the grammar begins with a trigger */
    std::vector<common_grammar_trigger> triggers;
    std::vector<std::string> preserved, stops;
    std::string thinking_start;
    /* texts that end reasoning, some of which open a call; empty if the form has no reasoning */
    std::vector<std::string> thinking_ends;
    std::string thinking_forced; /* text that ends reasoning when the budget is used up */
    common_json marks;           /* see chat_constraint.h */
};

/* Facts about the template's form, which are determined once. If the template has no form for calls, libllm's form is
 * used. */
struct chat_analysis {
    bool is_special = false;       /* llama.cpp has a special parser for this family */
    bool knows_calls = false;      /* the template writes calls and their results */
    bool describes_tools = false;  /* the template lists the tools for the model */
    std::string id_end;            /* mark between a call's id and the following name; "" if no id precedes the name */
    bool has_messages = false;     /* reasoning, text and calls are separate messages */
    bool has_gemma_values = false; /* arguments are objects in Gemma 4's own syntax */
    call_head head;                /* the beginning of a call as the template writes it */
    autoparser::autoparser found;
};

/* Analyzes the template. Throws std::bad_alloc. The thread must have a chat_budget. */
chat_analysis chat_analyse(const common_chat_template &tmpl);

/* Makes the form. Throws std::invalid_argument if llama.cpp has no form for these wishes, and llama.cpp's exceptions.
 * The thread must have a chat_budget. */
chat_form chat_form_of(const model *m, const common_chat_template &tmpl, const chat_analysis &analysis,
                       const chat_wish &wish);

/* Returns whether the form's grammar is valid and, unless it is lazy, allows an answer after a prompt that ends with
 * `opening`. Throws std::bad_alloc. */
bool chat_form_begins(const model *m, const chat_form &form, const std::string &opening);

/* A cache of recently used forms, because agents send the same tools in every turn and making a form takes long. The
 * key contains everything from which the form is made. Any thread. */
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
    std::list<entry> entries; /* most recently used first */
    size_t n_bytes = 0;
};

#endif
