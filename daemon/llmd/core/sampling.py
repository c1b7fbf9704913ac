"""Checks a request's sampling parameters, limits on the answer's length, stop strings and stop tokens. All functions
are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from . import limits
from .context_limits import utf8_bytes
from .errors import check_count, check_range, invalid_value, quoted
from .sampling_table import BY_NAME, RequestedSampling

LOGIT_BIAS_RANGE = (-100.0, 100.0)
USUAL_SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
"""The default samplers, in their default order. libllm numbers the samplers in this order, from 1."""
SAMPLERS = (*USUAL_SAMPLERS, "infill", "adaptive_p")
"""All samplers. Those that are not default samplers run only if a request names them."""
LETTERS = dict(zip("edskypmxtia", SAMPLERS, strict=True))
_OTHER_NAMES = {
    **{name.replace("_", sign): name for name in SAMPLERS for sign in ("-", "")},
    "nucleus": "top_p", "temp": "temperature", "typ": "typ_p",
    "typical": "typ_p", "typical_p": "typ_p", "typical-p": "typ_p",
}  # fmt: skip
_ORDER_BITS, _ORDER_MAX = 4, 16
_NO_SAMPLERS = 15


def requested_sampling(fields: Iterable[tuple[str, str, float | None]]) -> RequestedSampling:
    """Returns the sampling parameters of a request. Each of `fields` has the client's name of a parameter, llmd's name,
    and the value. If several fields set the same parameter, the first one that has a value counts. Raises an ApiError
    that names the client's field, its value and its range.
    """
    found: dict[str, float] = {}
    for param, name, value in fields:
        if value is None:
            continue
        row = BY_NAME[name]
        found.setdefault(name, check_range(param, value, row.low, row.high))
    return RequestedSampling(**found)


def sampler_order(param: str, names: list[str] | str) -> int:
    """Returns a number that stands for the samplers to run and their order. `names` is a list of names, a text with
    names joined by ";", or a text of llama.cpp's one-letter codes. If `names` is empty, no sampler runs.
    """
    if not names:
        return _NO_SAMPLERS
    if isinstance(names, str):
        names = names.split(";") if ";" in names or names in SAMPLERS else [LETTERS.get(one, one) for one in names]
    check_count(param, len(names), _ORDER_MAX, "samplers")
    order = 0
    for position, spelling in enumerate(names):
        name = _OTHER_NAMES.get(spelling.lower(), spelling.lower())
        if name not in SAMPLERS:
            known = ", ".join(SAMPLERS)
            raise invalid_value(param, f"{quoted(spelling)} is not one of {known}")
        order |= SAMPLERS.index(name) + 1 << _ORDER_BITS * position
    return order


def sampler_names(order: int) -> list[str]:
    """Returns the names of the samplers, in their order, for a number that `sampler_order` returned."""
    if order == _NO_SAMPLERS:
        return []
    found = []
    while order:
        found.append(SAMPLERS[order % (1 << _ORDER_BITS) - 1])
        order >>= _ORDER_BITS
    return found or list(USUAL_SAMPLERS)


def breakers_of(param: str, texts: list[str] | None) -> list[str] | None:
    if texts is None:
        return None
    check_count(param, len(texts), limits.DRY_BREAKERS_MAX, "texts")
    for text in texts:
        n_bytes, most = utf8_bytes(text), limits.STOP_STRING_BYTES_MAX
        if not 0 < n_bytes <= most:
            raise invalid_value(param, f"one of the texts has {n_bytes} bytes, but 1 to {most} are allowed")
    return texts


def check_stop_tokens(tokens: list[int], n_vocab: int, param: str = "stop_token_ids") -> None:
    """Checks the token ids that end an answer. Every dialect with this parameter calls it stop_token_ids."""
    check_count(param, len(tokens), limits.STOP_TOKENS_MAX, "tokens")
    for token in tokens:
        if not 0 <= token < n_vocab:
            raise invalid_value(param, f"{quoted(token)} is not a token id: the model has the ids 0 to {n_vocab - 1}")


def max_tokens_of(name: str, value: int) -> int:
    """Returns the maximum tokens of an answer, or 0 if only the context limits the answer."""
    if value == -1:
        return 0
    if value < 1:
        raise invalid_value(name, f"{quoted(value)} is less than 1; -1 means no limit")
    return value


def min_tokens_of(value: int | None, max_tokens: int, param: str = "min_tokens") -> int:
    """Returns the minimum tokens of an answer. `max_tokens` is the maximum, or 0 if there is none."""
    if value is None:
        return 0
    if value < 0 or (max_tokens and value > max_tokens):
        most = f"not between 0 and {max_tokens}, which is max_tokens" if max_tokens else "less than 0"
        raise invalid_value(param, f"{quoted(value)} is {most}")
    return value


def stops_of(stop: str | list[str] | None, param: str = "stop") -> list[str]:
    stops = [stop] if isinstance(stop, str) else list(stop or ())
    check_count(param, len(stops), limits.STOP_STRINGS_MAX, "texts")
    for text in stops:
        n_bytes, most = utf8_bytes(text), limits.STOP_STRING_BYTES_MAX
        if n_bytes > most:
            raise invalid_value(param, f"one of the texts has {n_bytes} bytes, but at most {most} are allowed")
    return [text for text in stops if text]


def check_logit_bias(biases: Mapping[int, float], n_vocab: int) -> None:
    """Checks the parameter logit_bias, which has this name in every dialect."""
    check_count("logit_bias", len(biases), limits.LOGIT_BIASES_MAX, "tokens")
    for token, bias in biases.items():
        param = f"logit_bias.{token}"
        if not 0 <= token < n_vocab:
            raise invalid_value(param, f"{quoted(token)} is not a token id: the model has the ids 0 to {n_vocab - 1}")
        check_range(param, bias, *LOGIT_BIAS_RANGE)
