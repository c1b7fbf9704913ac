"""Requests and their answers, byte by byte, without what differs between runs.

Ids, times, fingerprints, numbers of events and content lengths are replaced by words. Logarithms and vectors are cut to
the precision that every machine computes. How a stream's text is divided into events, and how many comments precede it,
depends on the machine. Successive events of text are therefore joined into one here, and so are comments. Everything
else stays as it is.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.serving import SETTLE_S, Daemon

_VOLATILE_HEADERS = (b"date:", b"server:")
_NORMAL = (
    (re.compile(rb"(?im)^(< content-length: )\d+"), rb"\1N"),
    (re.compile(rb"(?im)^(< (?:x-)?request-id: )req_[0-9a-f]{24}"), rb"\1ID"),
    (re.compile(rb'"id":"(chatcmpl-|cmpl-|msg_)[0-9a-f]{24}"'), rb'"id":"\1ID"'),
    (re.compile(rb'"id":"(?:[A-Za-z0-9]{9}|call_[0-9a-f]{24})","type":"function"'), rb'"id":"ID","type":"function"'),
    (re.compile(rb'"call_id":"(?:[A-Za-z0-9]{9}|call_[0-9a-f]{24})"'), rb'"call_id":"ID"'),
    (re.compile(rb'"(created|created_at|completed_at)":\d+'), rb'"\1":TIME'),
    (re.compile(rb'"(created_at|modified_at)":"[0-9T:.Z-]+"'), rb'"\1":"TIME"'),
    (re.compile(rb'"(total|load|prompt_eval|eval)_duration":\d+'), rb'"\1_duration":NS'),
    (re.compile(rb'"(prompt|predicted)_(ms|per_token_ms|per_second)":[0-9.e+-]+'), rb'"\1_\2":TIME'),
    (re.compile(rb'"size":\d+'), rb'"size":BYTES'),
    (re.compile(rb'"digest":"[0-9a-f]{32}"'), rb'"digest":"FINGERPRINT"'),
    (re.compile(rb'"system_fingerprint":"llmd-[0-9a-f]{12}"'), rb'"system_fingerprint":"FINGERPRINT"'),
    (re.compile(rb'"(\w+_ms|\w+_per_second)":[0-9.e+-]+'), rb'"\1":TIME'),
    (re.compile(rb"(-?\d+\.\d{3})\d{7,}"), rb"\1"),
)
_ITEM_ID = re.compile(rb"\b(resp|msg|fc|fco|rs|ctc|ctco|item)_[0-9a-f]{24}\b")
_NUMBER = re.compile(rb'"sequence_number":\d+')
_TEXT = rb'((?:[^"\\]|\\.)+)("(?:[^"]*"(?:finish_reason":null}\]|logprobs":\[\]))?}}?|","tokens":\[\],"stop":false,.*})'
_TEXT_EVENT = re.compile(rb'((?:event: .*\n)?data: .*"(?:content|reasoning_content|text|delta)":")' + _TEXT)
_CALL_EVENT = re.compile(rb'(data: .*"arguments":")' + _TEXT.replace(b"+", b"*", 1))
_CALL_BEGINS = re.compile(rb'"id":"\w+","type":"function",|"name":"\w+",')
_TEXT_LINE = re.compile(rb'( *{.*"(?:content|response)":")((?:[^"\\]|\\.)+)("}*,"done":false})')
_COMMENT = b": keep-alive"
_REQUEST_SHOWN_CHARS = 400
CUT = b"(the connection was cut)"


@dataclass
class Transcript:
    """The requests and answers of one scenario."""

    lines: list[bytes] = field(default_factory=list)

    async def ask(
        self,
        daemon: Daemon,
        path: str,
        body: dict[str, Any] | bytes | None = None,
        *,
        method: str = "POST",
        headers: dict[str, str] | None = None,
        is_endless: bool = False,
    ) -> bytes:
        """Sends a request over TCP and returns the body of the answer. With `is_endless`, the length of the text
        depends on when the generation was stopped.
        """
        sent = json.dumps(body).encode() if isinstance(body, dict) else body or b""
        head = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
        head += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if method == "POST" and "Content-Length" not in (headers or {}):
            head.append(f"Content-Length: {len(sent)}")
        self.note_request([head[0], *head[2:]], sent)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(daemon.url.rpartition(":")[2]))
        try:
            writer.write("\r\n".join([*head, "", ""]).encode() + sent)
            async with asyncio.timeout(SETTLE_S):
                answer_head, answer = await received(reader)
        finally:
            writer.transport.abort()
        self.note_answer(answer_head, answer, is_endless)
        return answer

    def note(self, text: str) -> None:
        self.lines += [b"# " + text.encode(), b""]

    def note_request(self, head: list[str], body: bytes) -> None:
        shown = body if len(body) <= _REQUEST_SHOWN_CHARS else body[:_REQUEST_SHOWN_CHARS] + b"... %d bytes" % len(body)
        lines = [line for line in head if not line.startswith("Content-Length")]
        said = [b"> " + line.encode() for line in lines] + ([b"> " + shown] if shown else [])
        self.lines += [_ITEM_ID.sub(rb"\1_ID", line) for line in said]

    def note_answer(self, head: bytes, body: bytes, is_endless: bool = False) -> None:
        kept = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(_VOLATILE_HEADERS)]
        body = _NUMBER.sub(b'"sequence_number":N', _ITEM_ID.sub(rb"\1_ID", body))
        shown = joined(body, is_endless) if b"text/event-stream" in head else body
        shown = joined_lines(body) if b"application/x-ndjson" in head else shown
        whole = b"\n".join(b"< " + line for line in kept) + b"\n" + shown
        for pattern, word in _NORMAL:
            whole = pattern.sub(word, whole)
        self.lines += [whole, b"", b""]

    def file(self) -> bytes:
        return b"\n".join(self.lines)


async def received(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Returns head and body of one answer. CUT is added to a body that is incomplete."""
    head = await reader.readuntil(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 100"):
        head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    try:
        if length is not None:
            return head, await reader.readexactly(int(length[1]))
        return head, await _chunks(reader)
    except _CutError as error:
        return head, error.args[0] + CUT


class _CutError(Exception):
    """A body is incomplete. The exception contains the part that was received."""


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    try:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        assert await reader.readexactly(2) == b"\r\n"
    except (asyncio.IncompleteReadError, ConnectionError):
        raise _CutError(body) from None
    return body


def joined_lines(stream: bytes) -> bytes:
    """Joins successive lines of text into one line, and successive blank lines into one."""
    lines: list[bytes] = []
    for line in stream.split(b"\n"):
        text = _TEXT_LINE.fullmatch(line)
        before = _TEXT_LINE.fullmatch(lines[-1]) if lines else None
        if text and before:
            lines[-1] = before[1] + before[2] + text[2] + text[3]
        else:
            lines.append(re.sub(rb"^ +", b" ", line))
    return b"\n".join(lines)


def joined(stream: bytes, is_endless: bool) -> bytes:
    """Joins successive events of text into one event, and successive comments into one."""
    parts = stream.split(b"\n\n")
    if parts[-1].endswith(CUT):
        parts[-1] = CUT  # within an event
    events: list[bytes] = []
    has_text = False
    for event in parts:
        text = _TEXT_EVENT.fullmatch(event)
        before = _TEXT_EVENT.fullmatch(events[-1]) if events else None
        more = _continued(events[-1], event) if events else None
        if text and before and (text[1], text[3]) == (before[1], before[3]):
            events[-1] = before[1] + before[2] + text[2] + before[3]
        elif more is not None:
            events[-1] = more
        elif event != _COMMENT or not (has_text or (events and events[-1] == _COMMENT)):
            events.append(event)
        has_text = has_text or text is not None
    return b"\n\n".join(_TEXT_EVENT.sub(rb"\1(text)\3", event) if is_endless else event for event in events)


def _continued(before: bytes, event: bytes) -> bytes | None:
    """Returns both events as one, if the second continues the arguments of the same call."""
    begun, more = _CALL_EVENT.fullmatch(before), _CALL_EVENT.fullmatch(event)
    if begun is None or more is None or _CALL_BEGINS.sub(b"", begun[1]) != more[1]:
        return None
    return begun[1] + begun[2] + more[2] + begun[3]
