"""The parameters of llama.cpp's completions, infill and embeddings."""

from __future__ import annotations

from ...core import limits
from ..parameters import Table, accepted, honoured, refused
from ..sampling import EVERY_NOTES

_COMPLETION = (honoured({"prompt": "text, whose control words are control tokens, or token ids"}),)
_INFILL = (
    honoured({
        "input_prefix": "text before what is filled in",
        "input_suffix": "text behind it",
        "input_extra": "texts nearby, the most important last; those in front are left out where they are too many",
        "prompt": "what has been filled in already",
    }, bytes_max=limits.JSON_TEXT_BYTES_MAX),
    accepted({"n_indent": "lines that are indented less do not end the answer"}),
)  # fmt: skip

_BOTH = (
    honoured({
        "model": "any name is accepted and this daemon's model answers, under its own name",
        "stream": "server-sent events instead of one answer",
        "session_id": "the session that this request continues",
        "n_predict": "longest answer; 0: the prompt is read, and nothing is answered; less: no limit",
        **EVERY_NOTES,
        "stop": "text or up to 16 texts that end the answer and are not part of it",
        "logit_bias": "token id to bias, -100 to 100, as an object or as pairs",
        "ignore_eos": "true: the answer goes on until its length",
        "cache_prompt": "false: nothing that is resident is reused",
        "grammar": "in GBNF, for the answer",
        "json_schema": "a schema for the answer",
        "n_probs": "0 to 20 of the likeliest tokens beside each one in completion_probabilities; 0: none are told",
        "return_tokens": "true: the ids of the answer's tokens",
        "response_fields": "paths (timings/prompt_n) of what the answer has; default: all",
    }),
    accepted({
        "id_slot": "sessions are named by session_id or a header", "n_cache_reuse": "", "n_keep": "", "n_discard": "",
        "t_max_prompt_ms": "no limit", "t_max_predict_ms": "no limit; --request-timeout is one",
        "timings_per_token": "timings come at the end", "return_progress": "", "penalize_nl": "",
        "backend_sampling": "where tokens are picked",
    }),
    refused({
        "post_sampling_probs": ("probabilities as the samplers leave them; those told are the model's own", (False,)),
        "n_cmpl": ("several answers", (1,)),
        "image_data": ("images", ([],)),
        "lora": ("adapters", ([],)),
    }),
)  # fmt: skip

_EMBEDDING = (
    honoured({
        "content": "a text, token ids, or a list of either",
        "input": "the same as content",
    }, bytes_max=limits.JSON_TEXT_BYTES_MAX),
    refused({"embd_normalize": ("another norm than the Euclidean", (2,))}),
)  # fmt: skip

COMPLETION = Table("completion", "prompt", *_COMPLETION, *_BOTH)
INFILL = Table("infill", "", *_INFILL, *_BOTH)
EMBEDDING = Table("embedding", "", *_EMBEDDING)
TABLES = (COMPLETION, INFILL, EMBEDDING)
