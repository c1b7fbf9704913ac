"""Log probabilities in the form that several APIs have in common. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..core import limits
from ..core.errors import check_range, invalid_value
from ..core.parts import LogProbabilities, TokenProbability


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
    """The bytes of the token. Clients need them if the token is only a part of a character: `token` is then a
    replacement character.
    """


class ChosenToken(ProbableToken, frozen=True, gc=False):
    top_logprobs: list[ProbableToken]


def chosen_tokens(parts: Iterable[LogProbabilities]) -> list[ChosenToken]:
    return [_chosen(*one) for part in parts for one in zip(part.chosen, part.likely, strict=True)]


def _chosen(one: TokenProbability, likely: list[TokenProbability]) -> ChosenToken:
    others = [ProbableToken(text_of(other), other.log_probability, list(other.text)) for other in likely]
    return ChosenToken(text_of(one), one.log_probability, list(one.text), others)


def text_of(one: TokenProbability) -> str:
    return one.text.decode("utf-8", "replace")
