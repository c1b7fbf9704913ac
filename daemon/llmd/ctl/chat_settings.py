"""The sampling parameters that /set changes in llmctl chat: their names, ranges and descriptions. All functions are
pure.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping

from llmd.core.sampling_table import SAMPLING, SamplingParameter
from llmd.ctl import text
from llmd.process.help_text import nearest

MAX_TOKENS = SamplingParameter("max_tokens", int, None, 1, (1 << 31) - 1, "Maximum number of tokens of an answer.")
PARAMETERS = {MAX_TOKENS.name: MAX_TOKENS} | {row.spoken or row.name: row for row in SAMPLING if row.note}
"""The parameters by their names in requests."""
DEFAULT = "default"
"""The value that removes a setting, so that the default of llmd or of the model applies."""


class SettingRefused(Exception):
    """Raised if a parameter cannot have a value. The message is a sentence for the user."""


def checked_name(name: str) -> str:
    if name not in PARAMETERS:
        raise SettingRefused(f"there is no parameter {name}{nearest(name, PARAMETERS)}; /set lists all parameters")
    return name


def parse(name: str, word: str) -> float | None:
    """Returns the value that the user has typed for a parameter, or None for the word "default"."""
    row = PARAMETERS[checked_name(name)]
    if word == DEFAULT:
        return None
    try:
        value: float = row.kind(word)
    except ValueError:
        value = math.nan
    if not _allows(row, value):
        raise SettingRefused(f"{name} cannot be {word}: it must be {_range(row)}, or {DEFAULT}")
    return value


def usable(settings: Mapping[str, object]) -> dict[str, float]:
    """Returns those settings of a stored conversation that /set would accept."""
    return {
        name: value
        for name, value in settings.items()
        if name in PARAMETERS
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and _allows(PARAMETERS[name], value)
    }


def _allows(row: SamplingParameter, value: float) -> bool:
    return row.low <= value <= row.high and (row.kind is float or isinstance(value, int))  # NaN is in no range


def describe(name: str, settings: Mapping[str, float]) -> str:
    row = PARAMETERS[checked_name(name)]
    return f"{state(name, settings)}; possible: {_range(row)}\n{row.note}"


def state(name: str, settings: Mapping[str, float]) -> str:
    return f"{name} is {_value(settings[name])}" if name in settings else f"{name} is not set, so its default applies"


def overview(settings: Mapping[str, float]) -> str:
    """Returns the parameters that are set, and the names of all others."""
    lines = [f"{name} {_value(settings[name])}" for name in PARAMETERS if name in settings] or ["no parameter is set"]
    others = ", ".join(name for name in PARAMETERS if name not in settings)
    return "\n".join([*lines, *textwrap.wrap(f"not set: {others}", 80), "/set NAME describes a parameter."])


def _range(row: SamplingParameter) -> str:
    kind = "a whole number" if row.kind is int else "a number"
    return f"{kind} from {_number(row.low)} to {_number(row.high)}"


def _value(value: float) -> str:
    return str(value).removesuffix(".0")


def _number(value: float) -> str:
    return text.count(value) if isinstance(value, int) else f"{value:g}"
