"""Adds the sampling parameters of core/sampling_table.py to the types of requests, and reads them from requests. All
functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from ..core import limits
from ..core.sampling import requested_sampling, sampler_order
from ..core.sampling_table import BY_NAME, SAMPLING, RequestedSampling, SamplingParameter
from ..http.parameters import has, note

T = TypeVar("T")

OF_ANTHROPIC = ("temperature", "top_p", "top_k")
OF_RESPONSES = (*OF_ANTHROPIC, "min_p", "seed", "presence_penalty", "frequency_penalty", "repeat_penalty")
OF_OLLAMA = (*OF_RESPONSES, "penalty_last_n", "typical_p", "mirostat", "mirostat_tau", "mirostat_eta")
_EVERY = tuple(row.name for row in SAMPLING if row.note)


def samples(names: Iterable[str]) -> Callable[[type[T]], type[T]]:
    """Returns a decorator that adds sampling parameters to the type of a request. `names` are their names in
    core/sampling_table.py.
    """
    rows = [BY_NAME[name] for name in names]
    return has((row.spoken or row.name, Annotated[row.kind | None, _note(row)], None) for row in rows)


def _note(row: SamplingParameter) -> msgspec.Meta:
    return note(row.note, minimum=row.low, maximum=row.high)


@samples(_EVERY)
class EverySampling(msgspec.Struct, frozen=True, kw_only=True):
    """All sampling parameters of llama.cpp. llmd also accepts them in OpenAI's chat and text completions."""

    samplers: Annotated[
        list[str] | str | None,
        note(
            "The samplers to run, in this order, by llama.cpp's names or one-letter codes. Default: penalties, dry, "
            "top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature. infill and adaptive_p run only if the list "
            "names them. A sampler that the list does not name is off. [] turns all samplers off."
        ),
    ] = None
    dry_sequence_breakers: Annotated[
        list[str] | None,
        note(
            f"Up to {limits.DRY_BREAKERS_MAX} texts across which the DRY sampler does not look for repetitions. "
            "Default: newline, colon, quote, asterisk.",
            maxItems=limits.DRY_BREAKERS_MAX,
        ),
    ] = None


_NAMES = {row.spoken or row.name: row.name for row in SAMPLING} | {
    "repetition_penalty": "repeat_penalty", "typ_p": "typical_p",
}  # fmt: skip
"""Maps the names of parameters in requests to their names in the table. If a request sets one parameter under two
names, the name that comes first here counts.
"""


def sampling_of(request: msgspec.Struct, prefix: str = "") -> RequestedSampling:
    """Returns the sampling parameters of a request. Raises an ApiError that names the invalid member, with `prefix`
    before the name.
    """
    return requested_sampling(_values(request, prefix))


def _values(request: msgspec.Struct, prefix: str) -> Iterator[tuple[str, str, Any]]:
    for member, name in spoken_in(type(request)):
        value = getattr(request, member)
        yield prefix + member, name, sampler_order(member, value) if isinstance(value, list | str) else value


@cache
def spoken_in(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Returns the members of a request's type that set sampling parameters, each with the parameter's name in the
    table.
    """
    return tuple((member, name) for member, name in _NAMES.items() if member in kind.__struct_fields__)
