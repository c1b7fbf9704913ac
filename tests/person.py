"""A user of llmctl at a real terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.fake_daemon import FakeDaemon

READ_DEADLINE_S = 20.0


class Person:
    """A user who types into llmctl on a pseudo-terminal, and waits for expected output."""

    def __init__(self, daemon: FakeDaemon, home: Path, *arguments: str, no_color: str = "") -> None:
        self._master, terminal = pty.openpty()
        command = [sys.executable, "-m", "llmd.ctl", "--socket", daemon.path, "chat", *arguments]
        environment = os.environ | {"TERM": "xterm", "XDG_STATE_HOME": str(home), "NO_COLOR": no_color}
        self.process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment, start_new_session=True,
            preexec_fn=lambda: _own_terminal(terminal),
        )  # fmt: skip
        os.close(terminal)
        self._deadline = threading.Timer(READ_DEADLINE_S, self.process.kill)
        self._deadline.start()
        self.seen = ""

    def type(self, text: str) -> None:
        self.type_bytes(text.encode())

    def type_bytes(self, typed: bytes) -> None:
        os.write(self._master, typed)

    def wait_for(self, text: str) -> str:
        """Returns the output up to the text. The rest of the output is kept for the next call."""
        while text not in self.seen:
            try:
                read = os.read(self._master, 4096)
            except OSError:
                read = b""
            assert read, f"llmctl ended before {text!r}: {self.seen!r}"
            self.seen += read.decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def wait_until_it_reads(self) -> None:
        """Waits until llmctl waits for keys. CPython's readline notices a signal that arrives before that only with the
        next key.
        """
        while Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            time.sleep(0.001)

    def leave(self) -> int:
        code = self.process.wait()
        self._deadline.cancel()
        os.close(self._master)
        return code

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.leave()


def _own_terminal(terminal: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
