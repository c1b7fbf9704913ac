"""llmd in the configuration whose arithmetic does not depend on how tokens are batched.

Only with it must the answers of a GGUF file equal those of a cold start bit for bit. Run with
LLMD_LIBLLM_VARIANT=exact and llmd's options.
"""

from __future__ import annotations

import dataclasses

from llmd import __main__ as llmd
from llmd.engine import loader
from llmd.engine.opening import EngineOptions
from llmd.process.config_table import Config

_engine_options = loader.engine_options


def _exact_options(config: Config) -> EngineOptions:
    return dataclasses.replace(_engine_options(config), exact=True)


if __name__ == "__main__":
    loader.engine_options = _exact_options
    llmd.main()
