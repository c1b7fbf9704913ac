"""The client of corpus_driver.cpp and of oracle.py. Both read the path of a file and judge its schemas."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FILE_S_MAX = 120.0
"""Timeout for one file. Files of the JSON-Schema-Test-Suite have dozens of schemas."""


def program() -> Path:
    """Returns the path of the driver in the newest build."""
    builds = [ROOT / "build" / name / "tests/corpus_driver" for name in ("native", "portable")]
    found = [path for path in builds if path.exists()]
    if not found:
        raise FileNotFoundError("build/native/tests/corpus_driver is missing; ./build.sh schemas builds it")
    return max(found, key=lambda path: path.stat().st_mtime)


class Judge:
    """A process that judges one file after another. It is started again after a crash or a timeout."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.process: subprocess.Popen[bytes] | None = None
        self.buffer = b""

    def judge(self, path: Path, masks: bool = False) -> Iterator[dict[str, Any]]:
        """Yields one record for each schema of the file. If the process ended while it judged a schema, the last record
        has `crashed`.
        """
        process = self._running()
        assert process.stdin is not None
        process.stdin.write(json.dumps({"path": str(path), "masks": masks}).encode() + b"\n")
        process.stdin.flush()
        n = 0
        while True:
            line = self._line(process)
            if line is None:
                yield {"file": str(path), "group": n, "crashed": self._ended(process)}
                return
            record: dict[str, Any] = json.loads(line)
            if "end" in record:
                return
            n += 1
            yield record

    def close(self) -> None:
        if self.process is not None:
            self._ended(self.process)

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            self.buffer = b""
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr
            )
        return self.process

    def _line(self, process: subprocess.Popen[bytes]) -> bytes | None:
        """Returns the next line, or None if the process has ended or has written nothing for too long."""
        assert process.stdout is not None
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([process.stdout], [], [], FILE_S_MAX)
            more = process.stdout.read1(1 << 16) if ready else b""  # type: ignore[attr-defined]
            if not more:
                return None
            self.buffer += more
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line

    def _ended(self, process: subprocess.Popen[bytes]) -> str:
        self.process = None
        try:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.close()
            status = process.wait(2)
            process.stdout.close()
            return f"status {status}"
        except (subprocess.TimeoutExpired, BrokenPipeError):
            process.kill()
            process.wait()
            return f"nothing for {FILE_S_MAX:.0f} s"
