"""A parser of answers with a simple syntax, for tests of the code that uses parsers. Reasoning is <think>…</think>, and
a call is <call NAME>ARGUMENTS</call>. The parser holds back text that may be the beginning of a marker.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from llmd.engine.answer_parser import Diff
from llmd.engine.text import Prompt
from tests.serving import Daemon, Json

OPENS = {"text": ("<think>", "<call "), "reasoning": ("</think>",), "call": ("</call>",), "name": (">",)}


class FakeParser:
    def __init__(self) -> None:
        self._state = "text"
        self._held = ""
        self._n_calls = 0

    @property
    def n_reread(self) -> int:
        return len(self._held)

    def feed(self, text: str, is_final: bool, is_cut: bool = False) -> list[Diff]:
        self._held += text
        found: list[Diff] = []
        while (at := self._next_marker()) is not None:
            start, marker = at
            self._tell(found, self._held[:start])
            self._held = self._held[start + len(marker) :]
            self._state = {"<think>": "reasoning", "<call ": "name", ">": "call"}.get(marker, "text")
        if self._state != "name":
            n_sure = len(self._held) if is_final else len(self._held) - self._n_unsure()
            self._tell(found, self._held[:n_sure])
            self._held = self._held[n_sure:]
        elif is_final and not is_cut:
            found.append(Diff("text", "<call " + self._held))  # malformed: visible
        return found

    def _next_marker(self) -> tuple[int, str] | None:
        found = [(self._held.find(marker), marker) for marker in OPENS[self._state]]
        return min(((start, marker) for start, marker in found if start >= 0), default=None)

    def _n_unsure(self) -> int:
        """Returns the number of characters at the end that may be the beginning of a marker."""
        markers = OPENS[self._state]
        lengths = range(max(map(len, markers)) - 1, 0, -1)
        return next(
            (n for n in lengths if any(m.startswith(self._held[-n:]) for m in markers) and n <= len(self._held)), 0
        )

    def _tell(self, found: list[Diff], text: str) -> None:
        if self._state == "name":
            self._n_calls += 1
            found.append(Diff("call", "", self._n_calls - 1, text))
        elif text and self._state == "call":
            found.append(Diff("call", text, self._n_calls - 1))
        elif text:
            found.append(Diff("reasoning" if self._state == "reasoning" else "text", text))


def parsed_by(
    monkeypatch: pytest.MonkeyPatch, daemon: Daemon, parser: Callable[[], Any] = FakeParser, **facts: Any
) -> list[Json]:
    """Makes the daemon parse the answers of chats with this parser. Returns a list to which every request to the
    renderer is added. `facts` are fields to set in the rendered prompts.
    """
    engine, asked = daemon.state.engine, []
    render = engine.render_chat

    async def rendered(owner: int, n_bytes: int, request: Callable[[], bytes]) -> Prompt:
        document = json.loads(request())
        asked.append(document)
        known = {"messages", "after", "add_generation_prompt", "chat_template_kwargs"}
        bare = json.dumps({name: document[name] for name in known & document.keys()}).encode()
        told = {"syntax": b"fake", "constraint": b"", **facts}
        return dataclasses.replace(await render(owner, n_bytes, lambda: bare), **told)

    async def parsers(owner: int, syntax: bytes, n: int) -> list[Any]:
        return [parser() for _ in range(n)]

    monkeypatch.setattr(engine, "render_chat", rendered)
    monkeypatch.setattr(engine, "parsers", parsers)
    return asked
