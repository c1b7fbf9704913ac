"""The parameters of OpenAI's responses, and what else their clients send."""

from __future__ import annotations

from ...core import limits
from ..parameters import STAYS, Table, accepted, honoured, refused

RESPONSES = Table(
    "responses",
    "input",
    honoured({"instructions": "a system message before all others"}, limits.JSON_TEXT_BYTES_MAX),
    honoured({
        "tools": "functions; custom ones take a text; those of a namespace are called NAMESPACE__NAME in the prompt; "
            "others (web_search, ...) are the maker's own: the model is not told of them, and where no other is "
            "offered they are refused; local_shell, shell, apply_patch and computer, which clients run, are refused",
    }, limits.TOOLS_BYTES_MAX),
    honoured({
        "text": "format: json_object, or json_schema, which the answer then has; verbosity is not read",
    }, limits.TOOLS_BYTES_MAX),
    honoured({
        "input": "text, or items: messages, calls of tools and their outputs (what is no text in these is told as "
            "[image: not shown, this model reads text only], and likewise what a user attached to an earlier message "
            "than the newest), reasoning, references to items of stored responses; "
            "those of other types are not read",
        "previous_response_id": "the conversation up to and including that response is put before the input; without "
            "another name, its session is continued",
        "store": "false: the response cannot be asked for again; default: true",
        "tool_choice": "auto, none, required, a function or a custom tool, or allowed_tools",
        "parallel_tool_calls": "false: at most one call in an answer; default: as the template has it",
        "reasoning": "effort: the template variable reasoning_effort, none sets enable_thinking to false, too; "
            "summary: what the model thinks comes as a summary, whole; without, as reasoning_text",
        "include": "reasoning.encrypted_content: reasoning in a form that comes back with the item; "
            "message.output_text.logprobs: log probabilities; others name what is never there",
        "truncation": "auto: what does not fit the context is left out from the conversation's beginning on, except "
            "system messages; default: disabled",
        "max_output_tokens": "longest answer; cut to the room left in the context",
        "top_logprobs": "0 to 20: the likeliest tokens beside each one",
    }),
    honoured({
        "model": "any name is accepted and this daemon's model answers, under its own name",
        "stream": "server-sent events instead of one answer",
        "session_id": "the session that this request continues",
        "prompt_cache_key": "names the session when neither session_id nor a header does; where too many wait for "
            "it, the request is answered without one",
        "metadata": "session_id in it names the session when nothing else does; all of it is in the response",
        "temperature": "0 to 100; 0 is greedy",
        "top_p": "0 to 1",
        "top_k": "0 or -1: off",
        "min_p": "0 to 1",
        "seed": "the same seed and prompt draw the same tokens; -1: random",
        "stop": "text or up to 16 texts that end the answer and are not part of it",
        "presence_penalty": "-2 to 2",
        "frequency_penalty": "-2 to 2",
        "repeat_penalty": "0.01 to 2; 1 is off",
        "ignore_eos": "true: the answer goes on until its length",
        "cache_prompt": "false: nothing that is resident is reused",
        "enable_thinking": "the template variable of that name",
        "chat_template_kwargs": "variables for the model's chat template; they win over reasoning and enable_thinking",
        "history": "as for chat completions",
    }),
    accepted({
        "stream_options": "usage is in every response", "user": "", "service_tier": "", "safety_identifier": "",
        "prompt_cache_retention": "", "prompt_cache_options": "", "client_metadata": "", "access_programs": "",
        "personality": "of /responses/input_tokens alone", "background_options": "of background alone",
        "max_tool_calls": "of the maker's own tools", "image": "", "request_id": "", "priority": "", **STAYS,
    }),
    refused({
        "background": ("answers that nobody waits for", (False,)),
        "conversation": ("conversations that are kept under a name; use previous_response_id or session_id", ()),
        "prompt": ("stored prompts", ()),
        "context_management": ("compaction by the server", ([],)),
        "moderation": ("moderation", ()),
    }),
)  # fmt: skip
TABLES = (RESPONSES,)
