"""Adds the token details that a request asks for to the parts of an answer. These are token ids, log probabilities, the
token usage so far, and the progress of prefill. The event loop owns all objects of this module.

The prompt's tokens, the prompt's text (echo) and the progress of prefill are separate parts. These parts come before
the text of the answer. Token ids, log probabilities and the token usage are details of the part that has the text of
the tokens. They are reported for all generated tokens, in order, even for tokens whose text is not part of the answer.
"""

from __future__ import annotations

import struct
import time

import msgspec

from ..core.generation_request import GenerationRequest
from ..core.parts import (
    ContentPart,
    Details,
    End,
    GeneratedToken,
    Part,
    Progress,
    PromptTokens,
    RunningUsage,
    TextPart,
    TokenProbability,
    UsedTokens,
)
from ..engine.generation import Generation
from ..engine.text import Pieces
from ..engine.wire import Text

_LIKELY = struct.Struct("<if")


def needs_token_details(request: GenerationRequest) -> bool:
    """Returns whether the request needs token details. Otherwise its answers have no TokenDetails."""
    return (
        request.n_logprobs is not None
        or request.n_tried > 0
        or request.echoes
        or request.returns_tokens
        or request.returns_progress
        or request.returns_counts
    )


class TokenDetails:
    def __init__(
        self, request: GenerationRequest, index: int, generation: Generation, pieces: Pieces, echo: str
    ) -> None:
        """`echo` is the prompt's text if the answer must begin with that text, otherwise ""."""
        self._request = request
        self._index = index
        self._generation = generation
        self._pieces = pieces
        self._n_chars = 0
        self._n_processed = -1
        self._log_probability, self._n_chosen = 0.0, 0
        self._opening: list[Part] = []
        if request.returns_tokens:
            self._opening.append(PromptTokens(index, memoryview(generation.work.prompt.tokens).cast("i").tolist()))
        if echo:
            self._opening.append(TextPart(index, echo))

    def with_details(self, parts: list[ContentPart], events: list[Text]) -> list[Part]:
        """Adds the details of new tokens to the last of `parts`. If `parts` is empty, adds them to a new part without
        text. `events` are the engine's events with the text from which `parts` were made. Some parts precede the
        answer's text: prompt tokens, echo, progress. Of these, returns the parts that were not returned before,
        followed by `parts`.
        """
        found, self._opening = self._opening, []
        if self._request.returns_progress:
            found += self._progress()
        if self._request.n_tried:
            self._add_log_probabilities(events)
        details = self._details(events)
        if details is not None:
            last = parts.pop() if parts else TextPart(self._index, "")
            parts.append(msgspec.structs.replace(last, details=details))
        return [*found, *parts]

    @property
    def likelihood(self) -> float:
        """The mean log probability of the answer's tokens."""
        return self._log_probability / self._n_chosen if self._n_chosen else 0.0

    def _add_log_probabilities(self, events: list[Text]) -> None:
        for event in events:
            logprobs = memoryview(event.logprobs).cast("f").tolist()
            self._log_probability += sum(logprobs)
            self._n_chosen += len(logprobs)

    # --- before the text ---------------------------------------------------------------------------------------------

    def _progress(self) -> list[Part]:
        """Returns the progress if it was not reported yet, or has changed since the last report. Otherwise returns
        nothing.
        """
        generation, found = self._generation, list[Part]()
        started, consumed = generation.started, generation.consumed
        if started is not None and self._n_processed < 0:
            found.append(self._progress_at(started.n_reused, 0.0))
        if consumed is not None and consumed.n_tokens > self._n_processed:
            found.append(self._progress_at(consumed.n_tokens, consumed.prefill_us / 1000))
        return found

    def _progress_at(self, n_processed: int, elapsed_ms: float) -> Progress:
        started = self._generation.started
        assert started is not None
        self._n_processed = n_processed
        return Progress(self._index, started.n_prompt, started.n_reused, n_processed, elapsed_ms)

    # --- with the text -----------------------------------------------------------------------------------------------

    def _details(self, events: list[Text]) -> Details | None:
        request, tokens = self._request, b"".join(event.tokens for event in events)
        details = Details(
            self._log_probabilities(events) if request.n_logprobs is not None else [],
            memoryview(tokens).cast("i").tolist() if request.returns_tokens else [],
            self._running_usage(events[-1].n_tokens) if request.returns_counts and events else None,
        )
        return details if details != Details() else None

    def _log_probabilities(self, events: list[Text]) -> list[GeneratedToken]:
        found: list[GeneratedToken] = []
        pieces = self._pieces
        for event in events:
            tokens = memoryview(event.tokens).cast("i").tolist()
            logprobs = memoryview(event.logprobs).cast("f").tolist()
            begins = [0, *memoryview(event.ends).cast("I").tolist()]
            likely = [TokenProbability(one, pieces[one], value) for one, value in _LIKELY.iter_unpack(event.likeliest)]
            n_likely = len(likely) // len(tokens) if tokens else 0
            for n, (token, logprob) in enumerate(zip(tokens, logprobs, strict=True)):
                others = likely[n * n_likely : (n + 1) * n_likely]
                found.append(GeneratedToken(token, pieces[token], logprob, others, self._n_chars + begins[n]))
            self._n_chars += len(event.text)
        return found

    def _running_usage(self, n_generated: int) -> RunningUsage:
        generation = self._generation
        started = generation.started
        assert started is not None
        return RunningUsage(
            UsedTokens(started.n_prompt, started.n_reused, n_generated),
            n_prefilled=started.n_prompt - started.n_reused,
            prefill_ms=(generation.first_text_s - generation.started_s) * 1000,
            decode_ms=(time.monotonic() - generation.first_text_s) * 1000,
        )


def likeliest(parts: list[Part], request: GenerationRequest, details: list[TokenDetails]) -> list[Part]:
    """Returns the parts of the most likely answers to each prompt (best_of). The parts of the other answers are left
    out. The answers get new numbers: for each prompt, the most likely answer comes first.
    """
    new_indexes: dict[int, int] = {}
    n_discarded: dict[int, int] = {}
    used = {part.index: part.usage.n_generated for part in parts if isinstance(part, End)}
    for first in range(0, len(details), request.n_tried):
        ranked = sorted(range(first, first + request.n_tried), key=lambda index: -details[index].likelihood)
        for index in ranked[: request.n_answers]:
            new_indexes[index] = len(new_indexes)
        n_discarded[ranked[0]] = sum(used[index] for index in ranked[request.n_answers :])
    found: list[Part] = []
    for part in parts:
        if part.index in new_indexes:
            if isinstance(part, End) and part.index in n_discarded:
                usage = msgspec.structs.replace(part.usage, n_discarded=n_discarded[part.index])
                part = msgspec.structs.replace(part, usage=usage)
            found.append(msgspec.structs.replace(part, index=new_indexes[part.index]))
    return found
