"""The table of sampling parameters. From its rows, llmd makes the types RequestedSampling and SamplingDefaults, and the
checks of ranges. The sampling members of requests in all dialects, with their descriptions, also come from these rows.
This module does no I/O.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec

SEED_BITS = 64


@dataclasses.dataclass(frozen=True, slots=True)
class SamplingParameter:
    name: str
    """Name in LLM_SAMPLING_TABLE (llm.h)."""
    kind: type
    default: float | None
    """Value that applies if neither the request nor the model sets the parameter. None means that the engine chooses a
    random value in this case.
    """
    low: float
    high: float
    note: str = ""
    """Description in the documentation of requests."""
    spoken: str = ""
    """Name in requests, if it differs from `name`."""


_Row = SamplingParameter
SAMPLING = (
    _Row("temperature", float, 0.8, 0, 100, "Divide the logits by this number. 0: always pick the most likely token."),
    _Row("top_p", float, 0.95, 0, 1, "Keep the most likely tokens that together reach this probability. 1: off."),
    _Row("top_k", int, 40, -1, 1 << 30, "Keep this number of the most likely tokens. 0 or -1: off."),
    _Row("min_p", float, 0.05, 0, 1,
         "Keep tokens whose probability is at least this fraction of the largest probability. 0: off."),
    _Row("seed", int, None, -(1 << 63), (1 << SEED_BITS) - 1,
         "Seed of the random numbers. The same seed and prompt give the same tokens. -1: a random seed."),
    _Row("presence_penalty", float, 0.0, -100, 100,
         "Subtract this number from the logits of tokens that have occurred before. 0: off."),
    _Row("frequency_penalty", float, 0.0, -100, 100,
         "Subtract this number from a token's logit for each time that the token has occurred. 0: off."),
    _Row("repeat_penalty", float, 1.0, 0.001, 100,
         "Divide the logits of tokens that have occurred before by this number. 1: off."),
    _Row("penalty_last_n", int, 64, -1, 1 << 24,
         "Number of last tokens in which the penalties look for earlier occurrences. -1: all tokens.", "repeat_last_n"),
    _Row("typical_p", float, 1.0, 0, 1,
         "Locally typical sampling: keep the most typical tokens that together reach this probability. 1: off."),
    _Row("mirostat", int, 0, 0, 2, "1 or 2: mirostat and the temperature replace all other samplers. 0: off."),
    _Row("mirostat_tau", float, 5.0, 0, 100, "Target surprise of mirostat."),
    _Row("mirostat_eta", float, 0.1, 0, 1, "Learning rate of mirostat."),
    _Row("top_n_sigma", float, -1.0, -1, 1000,
         "Keep tokens whose logit is within this number of standard deviations of the largest logit. 0 or -1: off."),
    _Row("dynatemp_range", float, 0.0, 0, 100,
         "Change the temperature by up to this number, depending on the entropy. 0: off."),
    _Row("dynatemp_exponent", float, 1.0, 0, 100, "Exponent of the entropy's effect on the temperature."),
    _Row("xtc_probability", float, 0.0, 0, 1,
         "Probability that XTC acts on a token of the answer. XTC drops candidates whose probability is above "
         "xtc_threshold. The least likely of these is kept. 0: off."),
    _Row("xtc_threshold", float, 0.1, 0, 1, "Minimum probability of a candidate that XTC can drop. Above 0.5: off."),
    _Row("dry_multiplier", float, 0.0, 0, 100, "DRY's penalty for tokens that extend a repetition. 0: off."),
    _Row("dry_base", float, 1.75, 0, 100, "Factor by which DRY's penalty grows with each token of the repetition."),
    _Row("dry_allowed_length", int, 2, 0, 1 << 24, "Length of a repetition up to which DRY has no penalty."),
    _Row("dry_penalty_last_n", int, 64, -1, 1 << 24,
         "Number of last tokens in which DRY looks for repetitions. -1: all tokens."),
    _Row("adaptive_target", float, -1.0, -1, 1,
         "Average probability that the chosen tokens should have. Applies only if samplers names adaptive_p. "
         "Negative: off."),
    _Row("adaptive_decay", float, 0.9, 0, 0.99,
         "Decay of adaptive_p's average. The average covers about the last 1 / (1 - decay) tokens."),
    _Row("min_keep", int, 0, 0, 1 << 30, "Minimum number of candidates that each sampler keeps."),
    _Row("samplers", int, 0, 0, (1 << 64) - 1),  # see core.sampling.sampler_order. 0 means the default samplers
)  # fmt: skip
BY_NAME = {row.name: row for row in SAMPLING}

if TYPE_CHECKING:

    class RequestedSampling(msgspec.Struct, frozen=True, kw_only=True):
        """The sampling parameters of a request, within their ranges. A parameter that the request does not set is None.
        Its default in SamplingDefaults then applies.
        """

        def __init__(self, **parameters: float | None) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

    @dataclasses.dataclass(frozen=True, slots=True)
    class SamplingDefaults:
        """Values of the parameters that a request does not set. They are the model's own recommendations, or else the
        table's defaults.
        """

        def __init__(self, **parameters: float) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

else:
    RequestedSampling = msgspec.defstruct(
        "RequestedSampling",
        [(row.name, row.kind | None, None) for row in SAMPLING],
        module=__name__,
        frozen=True,
        kw_only=True,
    )
    SamplingDefaults = dataclasses.make_dataclass(
        "SamplingDefaults",
        [(row.name, row.kind, row.default) for row in SAMPLING if row.default is not None],
        frozen=True,
        slots=True,
    )
