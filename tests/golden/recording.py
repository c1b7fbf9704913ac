"""Runs a scenario with its own daemons."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.golden.scenarios import SCENARIOS
from tests.golden.transcript import Transcript
from tests.serving import Daemon, config_of, serving

RECORDED = Path(__file__).parent / "recorded"


async def transcript_of(name: str, directory: Path) -> bytes:
    transcript = Transcript()
    n_served = 0
    async with AsyncExitStack() as stack:

        async def serve(**overrides: Any) -> Daemon:
            nonlocal n_served
            own = directory / str(n_served)
            own.mkdir()
            n_served += 1
            return await stack.enter_async_context(
                serving(config_of(own, log_level="error", speculate="off", **overrides))
            )

        await SCENARIOS[name](transcript, serve, directory)
    return transcript.file()
