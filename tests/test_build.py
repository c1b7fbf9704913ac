"""build.sh, as far as it can be tried without building."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def evaluated(expression: str, path: str) -> str:
    """After build.sh has been read, which without a verb says how it is used."""
    program = f"set --; . {ROOT / 'build.sh'} >/dev/null; {expression}"
    environment = {**os.environ, "PATH": path}
    environment.pop("PYTHON", None)
    return subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, check=True, env=environment, cwd=ROOT
    ).stdout.strip()


def test_the_environment_is_not_made_from_itself() -> None:
    """README has its bin put on the PATH, by some twice."""
    own, system = str(ROOT / ".venv" / "bin"), os.environ["PATH"]
    assert not evaluated("find_python", f"{own}:{system}").startswith(own)
    for path in (
        f"{own}:/usr/bin:/bin", f"/usr/bin:{own}:/bin", f"/usr/bin:/bin:{own}", f"{own}:{own}:{own}:/usr/bin:/bin"
    ):  # fmt: skip
        assert evaluated('echo "$PATH"', path) == "/usr/bin:/bin"
