/* chat_form.h: the form of an answer. The form says how a model with this chat template writes reasoning, text and tool
 * calls. llama.cpp derives the form from the template. A form contains the parser of answers, the grammar that enforces
 * their syntax, and the triggers. A trigger is a text at which the grammar begins to apply. The form depends on the
 * template and on chat_wish, which has some members of the request. The form does not depend on the messages, so it is
 * kept for the next turn (document_cache.h). Used only in this folder. */
#ifndef LLM_CHAT_FORM_H
#define LLM_CHAT_FORM_H

#include <common/chat-auto-parser.h>
#include <common/chat.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "model/model.h"
#include "text/answer/call_head.h"
#include "text/grammar/document_cache.h"

/* A client's grammar for one argument of a tool. The argument's value is a JSON string. */
struct chat_argument {
    std::string tool, name, grammar;
};

/* The tools of a request. They never change, so requests with the same tools share them. Texts of the client have no
 * markers (chat_control.h) here. */
struct chat_offer {
    std::string text;   /* the client's JSON */
    common_json forms;  /* the client's tools that have a grammar for an argument (chat_argument) */
    common_json tools;  /* array of tools as in OpenAI's API, or null */
    common_json listed; /* the tools that the template lists. Tools that a message describes are left out */
};

/* The members of a request that determine the form of its answer, together with the template. Texts of the client have
 * no markers (chat_control.h) here. */
struct chat_wish {
    std::shared_ptr<const chat_offer> offer;
    common_chat_tool_choice choice = COMMON_CHAT_TOOL_CHOICE_AUTO;
    std::vector<std::string> names;       /* the tools that the answer may call. Empty means all tools */
    int parallel = -1;                    /* whether an answer may have several tool calls (1 or 0). If -1, the template
                                           * decides */
    std::string grammar;                  /* GBNF grammar of an answer without tool calls. "" allows any text */
    std::vector<chat_argument> arguments; /* arguments for which the client has given a grammar */
    bool is_reasoning_apart = true;
    bool continues_reasoning = false; /* the answer continues the last message, which has reasoning */
    bool continues_content = false;   /* the answer continues the last message, which has content */
    common_json kwargs;               /* object: variables of the template */

    bool has_tools() const
    {
        return offer->tools.is_array() && !offer->tools.empty();
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

/* Placeholders in chat_form::opening. They stand for the content and the reasoning of the message that the answer
 * continues. */
extern const char *const CHAT_FORM_CONTENT, *const CHAT_FORM_REASONING;

/* The most recent documents for an answer of a form, and their inputs other than the form. They are kept, because
 * making them in each turn takes 2 ms with 60 tools. The documents of an answer that continues a message are not kept.
 * Their `opening` has the whole text of this message, which can be long, and hardly ever comes again. */
struct chat_documents {
    std::string opening; /* the end of the prompt */
    bool follows_thinking = false;
    int64_t thinking_tokens_max = -1;
    std::string syntax, constraint; /* llm_prompt.syntax and llm_prompt.constraint */
};
struct chat_last_documents {
    std::mutex lock;
    std::shared_ptr<const chat_documents> last; /* NULL before the first answer */
};

struct chat_form {
    common_chat_format format = COMMON_CHAT_FORMAT_PEG_NATIVE;
    std::string parser; /* "" if answers are plain text */
    /* the text that begins the answer. The template writes it at the end of the prompt. If the answer continues a
     * message, CHAT_FORM_CONTENT and CHAT_FORM_REASONING stand for the message's text */
    std::string opening;
    std::string reopening; /* `opening` without the text that opens reasoning */
    std::string grammar;
    bool calls_once = false, must_call = false;
    bool is_lazy = false; /* the grammar applies only after a trigger */
    std::vector<common_grammar_trigger> triggers;
    std::vector<std::string> preserved, stops;
    std::string thinking_start;
    /* texts that end reasoning. Some of them begin a tool call. Empty if answers have no reasoning */
    std::vector<std::string> thinking_ends;
    std::string thinking_forced; /* text that is forced when the limit of reasoning tokens is reached */
    common_json marks;           /* result of chat_constraint_marks */
    std::shared_ptr<chat_last_documents> documents;
};

/* What is known about a template after its analysis, which is made once. If the template cannot write tool calls,
 * libllm's own syntax of tool calls is used. */
struct chat_analysis {
    bool is_special = false;       /* llama.cpp has a special parser for this family */
    bool knows_calls = false;      /* the template writes tool calls and their results */
    bool describes_tools = false;  /* the template lists the tools for the model */
    std::string id_end;            /* delimiter between a tool call's id and the tool's name; "" if no id precedes the
                                    * name */
    bool has_messages = false;     /* an answer has separate messages for reasoning, text and tool calls */
    bool has_gemma_values = false; /* arguments are objects in Gemma 4's own syntax */
    call_head head;                /* the text with which a tool call begins (call_head.h) */
    autoparser::autoparser found;
};

/* Analyzes the template. Throws std::bad_alloc. The thread must have a chat_budget (text/template/chat_budget.h). */
chat_analysis chat_analyse(const common_chat_template &tmpl);

/* Makes the form of the answer to a request. Throws std::invalid_argument if llama.cpp has no form for this answer.
 * Also throws llama.cpp's exceptions. The thread must have a chat_budget (text/template/chat_budget.h). */
chat_form chat_form_of(const model *m, const common_chat_template &tmpl, const chat_analysis &analysis,
                       const chat_wish &wish);

/* Returns whether the form's grammar is valid. A grammar that is not lazy must also accept `opening`, the end of the
 * prompt, as the beginning of an answer. Throws std::bad_alloc. */
bool chat_form_begins(const model *m, const chat_form &form, const std::string &opening);

/* Making a form takes long, and agents send the same tools in every turn. So the most recent forms are kept, with
 * chat_wish::key as their key. The key contains everything that decides the form, except the template. */
using chat_forms = document_cache<chat_form>;

#endif
