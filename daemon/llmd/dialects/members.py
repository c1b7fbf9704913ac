"""Types of the members that requests of several APIs have in common, with their documentation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ..core import limits
from ..http.parameters import note

Model = Annotated[str | None, note("Any name. llmd serves one model, and the answer has that model's name.")]
Stream = Annotated[bool | None, note("true: stream the answer as server-sent events.")]
SessionId = Annotated[
    str | None,
    note("Id of the session that this request continues.", minLength=1, maxLength=limits.SESSION_ID_CHARS_MAX),
]
PromptCacheKey = Annotated[
    str | None,
    note(
        "Names the session if neither session_id nor a header does. If the queue of the session that this "
        "parameter names is full, the request is answered without a session."
    ),
]
Metadata = Annotated[Any, note("metadata.session_id names the session if no other field or header does.")]
ReturnProgress = Annotated[
    bool | None,
    note("true: a stream reports prompt_progress (total, cache, processed, time_ms) while llmd processes the prompt."),
]
Speculate = Annotated[
    Literal["auto", "off"] | None,
    note("off: no drafts for this answer. The answer stays the same. auto: as the option --speculate says."),
]
Stop = Annotated[
    str | list[str] | None,
    note(
        f"A text, or up to {limits.STOP_STRINGS_MAX} texts. The answer ends before the first of these texts that the "
        "model generates.",
        maxItems=limits.STOP_STRINGS_MAX,
    ),
]
IgnoreEos = Annotated[
    bool | None,
    note("true: the model never ends the answer. The answer ends at its maximum length, or at a stop text."),
]
CachePrompt = Annotated[bool | None, note("false: prefill the whole prompt, without reuse of the session's state.")]
ParallelToolCalls = Annotated[
    bool | None, note("false: at most one tool call in an answer. Default: the template decides.")
]
EnableThinking = Annotated[
    bool | None,
    note("Sets the template variable enable_thinking. false turns reasoning off, if the template supports that."),
]
TemplateVariables = Annotated[
    dict[str, Any] | None,
    note(
        "Variables for the model's chat template. These variables override all other "
        "parameters that set a template variable."
    ),
]
History = Annotated[
    Literal["resident", "template"] | None,
    note(
        "`resident`: the session's past answers keep their generated tokens. `template`: llmd renders and tokenizes "
        "past answers again. The value applies to the session until a reset. Default: --history."
    ),
]
Grammar = Annotated[str | None, note("A grammar for the answer, in GBNF.")]
JsonSchema = Annotated[dict[str, Any] | None, note("A JSON schema for the answer.")]
TopLogprobs = Annotated[
    int | None,
    note(
        f"Number of most likely tokens to report for each token of the answer, 0 to {limits.LIKELIEST_MAX}.",
        minimum=0,
        maximum=limits.LIKELIEST_MAX,
    ),
]
NProbs = Annotated[
    int | None,
    note(
        "Number of most likely tokens to report, with log probabilities, for each token of the answer, up to "
        f"{limits.LIKELIEST_MAX}. 0: no log probabilities.",
        minimum=0,
        maximum=limits.LIKELIEST_MAX,
    ),
]
Dimensions = Annotated[
    int | None,
    note(
        "Number of dimensions to return, at most those of the model. llmd keeps the first numbers of each vector "
        "and scales the vector to length 1."
    ),
]


class InputContent(msgspec.Struct, frozen=True):
    """A part of a message's content, or of a tool's output. Only text reaches the model."""

    type: str
    text: str | None = None
    refusal: str | None = None


NOT_SHOWN = "[image: not shown, this model reads text only]"
