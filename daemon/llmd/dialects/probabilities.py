"""Log probabilities in the form that several APIs have in common. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..core import limits
from ..core.errors import check_range, invalid_value
from ..core.parts import GeneratedToken, TokenProbability


def likely_of(param: str, value: int | None) -> int:
    """Returns the number of most likely tokens to report with each token. Raises ApiError if the number is out of
    range.
    """
    return check_range(param, value or 0, 0, limits.LIKELIEST_MAX)


def logprobs_of(logprobs: bool | None, top_logprobs: int | None) -> int | None:
    """Returns the number of most likely tokens to report with each chosen token, or None if the request asks for no log
    probabilities. Raises ApiError.
    """
    likely = likely_of("top_logprobs", top_logprobs)
    if likely and not logprobs:
        raise invalid_value("top_logprobs", f"{likely} requires logprobs: true")
    return likely if logprobs else None


class ProbableToken(msgspec.Struct, frozen=True, gc=False):
    token: str
    logprob: float
    bytes: list[int]
    """The bytes of the token. Clients need the bytes if the token is only a part of a character, because `token` is
    then a replacement character.
    """


class ChosenToken(ProbableToken, frozen=True, gc=False):
    top_logprobs: list[ProbableToken]


def chosen_tokens(tokens: Iterable[GeneratedToken]) -> list[ChosenToken]:
    return [
        ChosenToken(text_of(one), one.log_probability, list(one.text), [_probable(other) for other in one.likely])
        for one in tokens
    ]


def _probable(one: TokenProbability) -> ProbableToken:
    return ProbableToken(text_of(one), one.log_probability, list(one.text))


def text_of(one: TokenProbability) -> str:
    return one.text.decode("utf-8", "replace")
