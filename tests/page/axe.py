"""axe-core, whose rules find what people with a screen reader or without a mouse cannot use. `python -m tests.page.axe`
installs it from npm.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.clients.installing import Npm, installed

AXE = Npm("axe-core", "4.14.1")


def axe() -> Path:
    """Returns the script, after it has been installed into the cache."""
    cache = Path(os.environ.get("LLMD_CACHE_DIR") or Path.home() / ".cache" / "llmd") / "clients"
    return installed(AXE, cache)[0].parent / "axe-core" / "axe.min.js"


if __name__ == "__main__":
    print(axe())
