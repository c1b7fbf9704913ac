"""The parameters of OpenAI's chat and text completions, and what else their clients send."""

from __future__ import annotations

from ...core import limits
from ..parameters import STAYS, Table, accepted, honoured, refused
from ..sampling import EVERY_NOTES

_CHAT = (
    honoured({
        "messages": "the conversation; roles system, developer, user, assistant, tool, function; text only, "
            "another part of a tool's result, and what a user attached to an earlier message than the newest, is told "
            "as [image: not shown, this model reads text only]; of each "
            "message the template reads role, content, name, tool_calls, function_call, tool_call_id and what was "
            "thought (reasoning_content, reasoning, reasoning_text, thinking: the first that is a text); several of "
            "the user in a row are joined where the template refuses them",
        "logprobs": "true: the log probability of each token of the answer, as it was generated, the model's own "
            "distribution before sampling",
        "top_logprobs": "0 to 20: so many of the likeliest tokens beside each; with logprobs",
        "max_completion_tokens": "the same as max_tokens, and wins over it",
        "chat_template_kwargs": "variables for the model's chat template",
        "enable_thinking": "the template variable of that name",
        "reasoning_effort": "the template variable of that name; none sets enable_thinking to false, too",
        "thinking": "type disabled or enabled: the template variable enable_thinking; budget_tokens: as "
            "thinking_budget_tokens; other members are not read",
        "reasoning": "enabled: the template variable enable_thinking; effort: as reasoning_effort; max_tokens: as "
            "thinking_budget_tokens; other members are not read; chat_template_kwargs win over all of these",
        "reasoning_format": "auto, deepseek (default): what the model thinks is told as reasoning_content; none: in "
            "the text, as the model wrote it",
        "thinking_budget_tokens": "after so many tokens the model is made to end its thinking; -1: no limit",
        "thinking_budget": "the same as thinking_budget_tokens, which wins over it",
        "tool_choice": "auto: the model decides; none; required: at least one call; {type: function, function: "
            "{name}} or {type: custom, custom: {name}}: this one; {type: allowed_tools, allowed_tools: {mode: auto or "
            "required, tools}}: some of these",
        "parallel_tool_calls": "false: at most one call in an answer; default: as the template has it",
        "function_call": "beside functions: auto, none, or {name} of the one to call",
        "add_generation_prompt": "false: the prompt ends with the last message",
        "continue_final_message": "true: the answer goes on with the last message, which is the assistant's, and tells "
            "only what is new; default: a last message of the assistant is a turn of the past",
        "history": "resident: past answers of the session keep the tokens they were generated with; template: they are "
            "tokenized again as the template writes them; holds for the session until it is reset; default: --history",
    }),
    honoured({
        "tools": "functions that the answer may call: name, description, parameters as JSON schema; custom ones take "
            "a text: name, description, format (text, or grammar: syntax lark or regex, definition); tools of other "
            "types are not read",
        "functions": "the same as tools in their first form: the answer calls one at most, as its function_call",
    }, bytes_max=limits.TOOLS_BYTES_MAX),
    accepted({
        "verbosity": "", "parse_tool_calls": "calls are always told apart from the text",
        "prediction": "a hint for speed only", "parallel_tool_call": "",
    }),
    refused({
        "modalities": ("anything but text", (["text"],)),
        "audio": ("audio", ()),
        "web_search_options": ("web search", ()),
        "moderation": ("moderation", ()),
        "chat_template": ("templates from requests; use --chat-template-file", ()),
        "documents": ("documents", ([],)),
        "echo": ("the prompt in the answer", (False,)),
        "add_special_tokens": ("what the template decides", (True,)),
        "include_reasoning": ("answers without what the model thinks; enable_thinking has it think or not", (True,)),
    }),
)  # fmt: skip

_COMPLETIONS = (
    honoured({
        "prompt": "text or token ids, or a list of up to 16 of these: each is answered n times, numbered in the order "
            "of the prompts",
        "logprobs": "0 to 20: the log probability of each token, with so many of the likeliest; false: none",
        "echo": "true: the answer begins with the prompt's text; not with log probabilities",
        "add_special_tokens": "false: a text is not given the tokens that the model wants around one",
        "parse_special": "false: control words in the prompt's text are plain text; default: they are control tokens",
    }),
    honoured({
        "suffix": "text behind the answer: the model fills in the middle; control words are plain text then",
    }, bytes_max=limits.JSON_TEXT_BYTES_MAX),
)  # fmt: skip

_BOTH = (
    honoured({
        "model": "any name is accepted and this daemon's model answers, under its own name",
        "stream": "server-sent events instead of one answer",
        "stream_options": "include_usage: a last chunk with usage and session; with continuous_usage_stats, too: usage "
            "so far in every chunk from the first text on",
        "n": "1 to 16 answers; the first one goes on with the session, but any of them may be sent back",
        "best_of": "1 to 16: so many are generated, and the n with the highest mean log probability answered; not with "
            "stream",
        "n_probs": "as logprobs with so many of the likeliest tokens",
        "return_token_ids": "prompt_token_ids, and token_ids with each choice",
        "return_tokens": "the same as return_token_ids",
        "return_progress": "while a stream's prompt is read: prompt_progress with total, cache, processed, time_ms",
        "timings_per_token": "timings, as llama.cpp has them: in a whole, and in every chunk of a stream from "
            "the first text on",
        "include_stop_str_in_output": "true: the text of stop that ended the answer is a part of it",
        "session_id": "the session that this request continues",
        "prompt_cache_key": "names the session when neither session_id nor a header does; where too many wait for "
            "it, the request is answered without one",
        "metadata": "session_id in it names the session when nothing else does",
        "max_tokens": "longest answer; cut to the room left in the context; -1: no limit",
        "n_predict": "the same as max_tokens, but 0: the prompt is read, and nothing is answered",
        **EVERY_NOTES,
        "stop": "text or up to 16 texts that end the answer and are not part of it",
        "stop_token_ids": "up to 128 tokens that end the answer as the model's own end does",
        "min_tokens": "before so many neither the model nor a text of stop ends the answer; at most max_tokens",
        "repetition_penalty": "the same as repeat_penalty",
        "typ_p": "the same as typical_p",
        "logit_bias": "token id to bias, -100 to 100",
        "ignore_eos": "true: the answer goes on until its length",
        "cache_prompt": "false: nothing that is resident is reused",
        "response_format": "{type: json_object}: the answer is a JSON object; {type: json_schema, json_schema: "
            "{schema, strict}}: one that the schema allows; strict: what of the schema cannot be kept to is refused, "
            "else it is left out; {type, schema}: with either type, as if strict; of this and the seven below one at "
            "most",
        "json_schema": "a schema for the answer",
        "grammar": "in GBNF, for the answer",
        "structured_outputs": "one of json (a schema), json_object, regex, choice (a list of texts), grammar",
        "guided_json": "the same as structured_outputs.json",
        "guided_regex": "the same as structured_outputs.regex",
        "guided_choice": "the same as structured_outputs.choice",
        "guided_grammar": "the same as structured_outputs.grammar",
    }),
    accepted({
        "user": "", "store": "", "service_tier": "", "safety_identifier": "", "prompt_cache_retention": "",
        "prompt_cache_options": "", "client_metadata": "", "include": "", "request_id": "", "priority": "",
        "cache_salt": "", "id_slot": "sessions are named by session_id or a header", "t_max_prompt_ms": "no limit",
        "t_max_predict_ms": "no limit; --request-timeout is one", "response_fields": "of /completion alone",
        "stream_interval": "", "sse_ping_interval": "set for all streams by --keepalive-interval",
        "usage": "in every whole; in a stream by stream_options", "backend_sampling": "where tokens are picked",
        **STAYS,
    }),
    refused({
        "use_beam_search": ("beam search", (False,)),
        "length_penalty": ("beam search", (1,)),
        "early_stopping": ("beam search", (False,)),
        "grammar_lazy": ("grammars", (False,)),
        "post_sampling_probs": ("probabilities as the samplers leave them; those told are the model's own", (False,)),
        "tfs_z": ("this sampler", (1,)),
        "top_a": ("this sampler", (0,)),
        "prompt_logprobs": ("log probabilities of the prompt", (0,)),
        "allowed_token_ids": ("token sets; use logit_bias", ([],)),
        "bad_words": ("forbidden words", ([],)),
        "skip_special_tokens": ("control tokens in answers", (True,)),
        "truncate_prompt_tokens": ("cutting the prompt", (-1,)),
        "n_keep": ("context shifting", (0, -1)),
        "n_discard": ("context shifting", (0,)),
        "lora": ("adapters", ([],)),
        "speculative": ("speculation", ({},)),
        "mm_processor_kwargs": ("anything but text", ({},)),
    }),
)  # fmt: skip

_STRUCTURED = honoured({
    "json": "a schema for the answer",
    "json_object": "true: the answer is a JSON object",
    "regex": "an expression that the whole answer matches",
    "choice": "a list of texts, one of which is the answer",
    "grammar": "in GBNF, for the answer",
})  # fmt: skip

_EMBEDDINGS = (
    honoured({
        "input": "a text, token ids, or a list of either",
        "model": "any name is accepted and this daemon's model answers, under its own name",
        "encoding_format": "float, or base64 of float32 in little-endian order",
        "dimensions": "so many numbers of each vector, the first ones, made length 1 again; at most the model's",
    }),
    accepted({"user": "", "service_tier": "", "metadata": "", **STAYS}),
    refused({
        "truncate_prompt_tokens": ("cutting the text", (-1,)),
        "task": ("tasks", ()),
        "input_type": ("tasks", ()),
    }),
)  # fmt: skip

STRUCTURED = Table("structured_outputs", "", _STRUCTURED, within="structured_outputs")
CHAT = Table("chat", "messages", *_CHAT, *_BOTH, inner=STRUCTURED)
COMPLETIONS = Table("completions", "prompt", *_COMPLETIONS, *_BOTH, inner=STRUCTURED)
EMBEDDINGS = Table("embeddings", "input", *_EMBEDDINGS)
TABLES = (CHAT, COMPLETIONS, STRUCTURED, EMBEDDINGS)
