"""Helpers for tests of the Responses API: requests, and parsing of event streams."""

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
    """Returns a request for exactly eight tokens. `fields` are other members, which can change the length."""
    return {"input": text, "max_output_tokens": 8, "ignore_eos": True, "temperature": 0, **fields}


def events_of(stream: bytes) -> list[Json]:
    """Returns the events of a stream. Checks that every event has its name, and that the sequence numbers increase by
    1.
    """
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
    """Returns the names of the events, without "response.". Successive deltas are returned as one name."""
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
