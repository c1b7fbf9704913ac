"""What no single option can know: whether several of them agree."""

from __future__ import annotations

from .config_table import PLACES_MAX, Config


class ConfigError(Exception):
    """An option with a bad value, or a file that cannot be read; the message names it."""


def check(config: Config) -> None:
    """Raises ConfigError."""
    if config.max_sessions + config.scratch_sessions > PLACES_MAX:
        raise ConfigError(
            f"--max-sessions: {config.max_sessions} and --scratch-sessions: {config.scratch_sessions} "
            f"are more than {PLACES_MAX} together"
        )
