"""Helpers of the tests of responses: they take events apart."""

from __future__ import annotations

import json
from typing import Any

from tests.serving import Daemon, Json

PATH = "/v1/responses"
MESSAGE_NAMES = [
    "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
    "output_item.done",
]  # fmt: skip


def asking(text: Any = "hello", **fields: Any) -> Json:
    """A request for exactly eight tokens, unless `fields` say otherwise."""
    return {"input": text, "max_output_tokens": 8, "ignore_eos": True, "temperature": 0, **fields}


def events_of(stream: bytes) -> list[Json]:
    """Strict about the form: each has its name, and the number that follows the one before."""
    assert stream.endswith(b"\n\n")
    found: list[Json] = []
    for block in stream.decode().removesuffix("\n\n").split("\n\n"):
        if block.startswith(":"):
            continue
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}" and event["sequence_number"] == len(found)
        found.append(event)
    return found


def names(events: list[Json]) -> list[str]:
    """Returns the names of events without their common beginning; a run of deltas counts once."""
    found: list[str] = []
    for event in events:
        name = event["type"].removeprefix("response.")
        if not (name.endswith(".delta") and found[-1:] == [name]):
            found.append(name)
    return found


def deltas(events: list[Json], item: str) -> str:
    return "".join(event["delta"] for event in events if "delta" in event and event["item_id"] == item)


async def respond(daemon: Daemon, text: Any = "hello", **fields: Any) -> Json:
    answer = await daemon.ask("POST", PATH, asking(text, **fields))
    assert answer.status == 200, answer.body
    return answer.json


async def stream(daemon: Daemon, text: Any = "hello", **fields: Any) -> list[Json]:
    answer = await daemon.ask("POST", PATH, asking(text, stream=True, **fields))
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/event-stream", answer.body
    return events_of(answer.body)


def text_of(response: Json) -> str:
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(part["text"] for part in parts)
