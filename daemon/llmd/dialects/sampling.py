"""How to pick tokens, in the words of llama.cpp that several dialects took over: their fields, what they mean, and what
of it each request asks for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from ..core import limits
from ..core.asked import SamplingAsked

Names = tuple[tuple[str, str], ...]
"""What clients call it, and what we do."""


class UsualSamplers(msgspec.Struct, frozen=True, kw_only=True):
    temperature: float | None = None
    top_p: float | None = None
    min_p: float | None = None
    top_k: int | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    typical_p: float | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None


class EverySampler(UsualSamplers, frozen=True, kw_only=True):
    top_n_sigma: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: Annotated[
        list[str] | None, msgspec.Meta(extra_json_schema={"maxItems": limits.DRY_BREAKERS_MAX})
    ] = None
    adaptive_target: float | None = None
    adaptive_decay: float | None = None
    min_keep: int | None = None
    samplers: list[str] | str | None = None


USUAL_NOTES = {
    "temperature": "0 to 100; 0 is greedy",
    "top_p": "0 to 1",
    "top_k": "0 or -1: off",
    "min_p": "0 to 1",
    "seed": "the same seed and prompt draw the same tokens; -1: random",
    "presence_penalty": "-2 to 2",
    "frequency_penalty": "-2 to 2",
    "repeat_penalty": "0.01 to 2; 1 is off",
    "repeat_last_n": "tokens that the penalties look back over; -1: all",
    "typical_p": "0 to 1; 1 is off",
    "mirostat": "1 or 2: this and the temperature pick the tokens, instead of all other samplers; 0: off",
    "mirostat_tau": "the surprise that mirostat aims at",
    "mirostat_eta": "how fast mirostat learns",
}
EVERY_NOTES = USUAL_NOTES | {
    "top_n_sigma": "keeps logits within so many standard deviations of the largest; 0 or -1: off",
    "dynatemp_range": "how far the temperature moves with the entropy; 0: off",
    "dynatemp_exponent": "how the entropy moves it",
    "xtc_probability": "how often all likely tokens but the least of them go; 0: off",
    "xtc_threshold": "from which probability on a token counts as likely; above 0.5: off",
    "dry_multiplier": "how much tokens lose that would prolong a repetition; 0: off",
    "dry_base": "how that grows with the length of the repetition",
    "dry_allowed_length": "so many tokens may repeat",
    "dry_penalty_last_n": "tokens that DRY looks back over; -1: all",
    "dry_sequence_breakers": "up to 16 texts that end a repetition; default: newline, colon, quote, asterisk",
    "adaptive_target": "the average probability of chosen tokens, with adaptive_p in samplers; negative: off",
    "adaptive_decay": "0 to 0.99: adaptive_p averages about 1 / (1 - this) tokens",
    "min_keep": "candidates that no sampler goes below",
    "samplers": "the samplers in their order, by llama.cpp's names or letters; default: penalties, dry, top_n_sigma, "
    "top_k, typ_p, top_p, min_p, xtc, temperature; infill and adaptive_p, too; one that is not named is off, with [] "
    "all are",
}
_OTHER_NAMES = {"repeat_last_n": "penalty_last_n"}


def names_in(kind: type[msgspec.Struct], other_names: Mapping[str, str] | None = None) -> Names:
    """Of a request's type. `other_names`: of what it has under a second name, too; the first one wins."""
    fields, known = kind.__struct_fields__, SamplingAsked.__struct_fields__
    first = [(field, _OTHER_NAMES.get(field, field)) for field in fields]
    return tuple((field, name) for field, name in [*first, *(other_names or {}).items()] if name in known)
