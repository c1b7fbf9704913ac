"""Members that requests of several dialects have, with their documentation. Types only."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from ..core import limits
from ..http.parameters import note

Model = Annotated[str | None, note("Any name is accepted. The one model answers, under its own name.")]
Stream = Annotated[bool | None, note("true: server-sent events instead of one answer.")]
SessionId = Annotated[
    str | None,
    note("The session that this request continues.", minLength=1, maxLength=limits.SESSION_ID_CHARS_MAX),
]
PromptCacheKey = Annotated[
    str | None,
    note(
        "Names the session if neither session_id nor a header does. If too many requests wait for that session, this "
        "one is answered without a session."
    ),
]
Metadata = Annotated[Any, note("Its session_id names the session if nothing else does.")]
Stop = Annotated[
    str | list[str] | None,
    note(
        f"A text, or up to {limits.STOP_STRINGS_MAX}, that end the answer and are not part of it.",
        maxItems=limits.STOP_STRINGS_MAX,
    ),
]
IgnoreEos = Annotated[bool | None, note("true: the answer goes on until its length ends it.")]
CachePrompt = Annotated[bool | None, note("false: no resident tokens are reused.")]
ParallelToolCalls = Annotated[
    bool | None, note("false: at most one tool call in an answer. Default: as the template has it.")
]
EnableThinking = Annotated[bool | None, note("The template variable of that name.")]
TemplateVariables = Annotated[
    dict[str, Any] | None,
    note("Variables for the model's chat template. They win over all other parameters that set one."),
]
History = Annotated[
    Literal["resident", "template"] | None,
    note(
        "resident: past answers of the session keep the tokens they were generated with. template: they are tokenized "
        "again as the template writes them. The choice holds for the session until it is reset. Default: --history."
    ),
]
Grammar = Annotated[str | None, note("A grammar in GBNF for the answer.")]
JsonSchema = Annotated[dict[str, Any] | None, note("A JSON schema for the answer.")]
TopLogprobs = Annotated[
    int | None,
    note(
        f"0 to {limits.LIKELIEST_MAX} of the most likely tokens beside each token of the answer.",
        minimum=0,
        maximum=limits.LIKELIEST_MAX,
    ),
]
NProbs = Annotated[
    int | None,
    note(
        f"Log probabilities, with 0 to {limits.LIKELIEST_MAX} of the most likely tokens beside each token; 0: none.",
        minimum=0,
        maximum=limits.LIKELIEST_MAX,
    ),
]
Dimensions = Annotated[
    int | None,
    note("So many numbers of each vector, the first ones, scaled to length 1 again. At most what the model makes."),
]
NOT_SHOWN = "[image: not shown, this model reads text only]"
