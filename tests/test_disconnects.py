# ruff: noqa: ASYNC110 - conditions here have no event of their own
"""A client disconnects in the middle of a tool call, of reasoning, or of a character, in every dialect: its session
keeps exactly the tokens that were generated, and its next turns equal those of a session whose client stayed.

The simulated model takes a millisecond per token, and what the client leaves has thousands of tokens, so that the exact
moment of the disconnect does not matter."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.calling import READ, calling
from tests.conftest import Serve
from tests.serving import SETTLE_S, Daemon, Json

LONG = "one two three, " * 2000
REPLIES = {
    "use a tool": f'I do.\n<tool_call>\n{{"name": "read", "arguments": {{"path": "{LONG}"}}}}\n</tool_call>',
    "ponder": f"<think>\n{LONG}\n</think>\n\nDone.",
    "laugh": "Well. " + "\N{GRINNING FACE}" * 8000,
    "plain": "Just text.",
}
BEFORE = {"use a tool": "I do.", "ponder": "", "laugh": "Well."}
"""Text that the client must have received before it disconnects."""
LEFT_AFTER = 100
"""Number of generated tokens after which the client disconnects. All replies except the last are then incomplete."""
MANY = 20_000
SIGN = tuple("\N{GRINNING FACE}".encode())


@dataclass(frozen=True)
class Dialect:
    path: str
    body: Callable[[list[Json], int], Json]
    """Returns a request for a stream of at most n tokens."""
    text: Callable[[Json], str]
    """Returns the text in one event."""


def chat_body(messages: list[Json], n: int) -> Json:
    return {"messages": messages, "tools": [READ], "max_tokens": n, "stream": True}


def responses_body(messages: list[Json], n: int) -> Json:
    tool = {"type": "function", **READ["function"]}
    return {"input": messages, "tools": [tool], "max_output_tokens": n, "stream": True}


def messages_body(messages: list[Json], n: int) -> Json:
    tool = {"name": "read", "input_schema": READ["function"]["parameters"]}
    return {"model": "any", "messages": messages, "tools": [tool], "max_tokens": n, "stream": True}


def ollama_body(messages: list[Json], n: int) -> Json:
    return {"model": "any", "messages": messages, "tools": [READ], "options": {"num_predict": n}}


def chat_text(event: Json) -> str:
    return "".join(str(choice["delta"].get("content", "")) for choice in event["choices"])


def responses_text(event: Json) -> str:
    return str(event["delta"]) if event["type"] == "response.output_text.delta" else ""


def messages_text(event: Json) -> str:
    return str(event["delta"].get("text", "")) if event["type"] == "content_block_delta" else ""


def ollama_text(event: Json) -> str:
    return str(event["message"]["content"])


DIALECTS = {
    "chat": Dialect("/v1/chat/completions", chat_body, chat_text),
    "responses": Dialect("/v1/responses", responses_body, responses_text),
    "messages": Dialect("/v1/messages", messages_body, messages_text),
    "ollama": Dialect("/api/chat", ollama_body, ollama_text),
}
EACH = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)


class Client:
    """A client with one conversation in one session."""

    def __init__(self, daemon: Daemon, dialect: Dialect, session: str) -> None:
        self.daemon, self.dialect = daemon, dialect
        self.session, self.headers = session, {"X-LLM-Session-Id": session}

    def text_of(self, stream: bytes) -> str:
        """Returns the text in the complete lines of a stream."""
        lines = (line.removeprefix(b"data: ") for line in stream.split(b"\n")[:-1])
        return "".join(self.dialect.text(json.loads(line)) for line in lines if line.startswith(b"{"))

    async def turn(self, messages: list[Json], n: int = 200) -> str:
        answer = await self.daemon.ask("POST", self.dialect.path, self.dialect.body(messages, n), headers=self.headers)
        assert answer.status == 200, answer.body
        return self.text_of(answer.body)

    async def disconnect(self, place: str) -> str:
        """Disconnects after LEFT_AFTER tokens. Returns the text that was received, which can have fewer tokens."""
        came: list[bytes] = []
        async with asyncio.timeout(SETTLE_S):
            reading = asyncio.create_task(self._read(self.dialect.body([user(place)], MANY), came))
            while self._n_generated() < LEFT_AFTER or BEFORE[place] not in self.text_of(b"".join(came)):
                await asyncio.sleep(0.001)
        reading.cancel()
        await asyncio.wait([reading])
        await self.daemon.idle()
        return self.text_of(b"".join(came))

    async def _read(self, body: Json, came: list[bytes]) -> None:
        url = self.daemon.url + self.dialect.path
        async with self.daemon.http.post(url, data=json.dumps(body), headers=self.headers) as response:
            assert response.status == 200, await response.text()
            async for some in response.content.iter_any():
                came.append(some)

    def _n_generated(self) -> int:
        views = self.daemon.state.engine.session_table.sessions_named(self.session)
        return max((view.n_tokens - view.n_last_prompt for view in views if view.n_last_prompt), default=0)

    def tokens(self) -> list[list[int]]:
        """Returns the resident tokens of each branch of the session."""
        table = self.daemon.state.engine.session_table
        found = [table.tokens(view.entry) for view in table.sessions_named(self.session)]
        return [list(tokens) for tokens in found if tokens]

    async def holds_what_it_says(self) -> None:
        """Checks that the model's state belongs to the session's tokens: a continuation must equal the continuation of
        the same prompt without reuse.
        """
        for tokens in self.tokens():
            body = {"prompt": [*tokens, ord("x")], "max_tokens": 4, "logprobs": 5, "temperature": 0}
            own, cold = {"session_id": self.session}, {"cache_prompt": False}
            warm, fresh = [await self.daemon.ask("POST", "/v1/completions", {**body, **kind}) for kind in (own, cold)]
            assert warm.json["choices"] == fresh.json["choices"]
            assert warm.json["usage"]["prompt_tokens_details"]["cached_tokens"] == len(tokens)


@pytest.fixture
async def paced(serve: Serve, tmp_path: Path) -> Daemon:
    options = calling(tmp_path, REPLIES)
    return await serve(**{**options, "model": f"{options['model']},ctx=65536,step_us=1000"}, ctx_size=65536)


def user(text: str) -> Json:
    return {"role": "user", "content": text}


@EACH
@pytest.mark.parametrize("place", BEFORE)
async def test_the_next_turn_after_a_disconnect(paced: Daemon, dialect: Dialect, place: str) -> None:
    client, other = Client(paced, dialect, "left"), Client(paced, dialect, "whole")
    came = await client.disconnect(place)
    assert paced.counter("finished_cancelled_total") == 1
    assert came.rstrip("\N{GRINNING FACE}").rstrip() == BEFORE[place]
    assert await client.turn([user(place)], n=30) == await other.turn([user(place)], n=30)
    await client.holds_what_it_says()
    answered = [{"role": "assistant", "content": came}] if came else []
    assert await client.turn([user(place), *answered, user("plain")]) == REPLIES["plain"]
    await client.holds_what_it_says()


@EACH
async def test_a_disconnect_within_a_character(paced: Daemon, dialect: Dialect) -> None:
    """Each byte of the character is a token, so that after a few attempts a disconnect comes between two bytes."""
    for number in range(1000):
        client = Client(paced, dialect, f"left {number}".replace(" ", "-"))
        came = await client.disconnect("laugh")
        [tokens] = client.tokens()
        if tokens[-1] in SIGN[:-1]:
            break
        await paced.ask("DELETE", f"/v1/sessions/{client.session}")
    assert tokens[-1] in SIGN[:-1]
    await client.holds_what_it_says()
    assert await client.turn([user("laugh"), {"role": "assistant", "content": came}, user("plain")]) == "Just text."
    await client.holds_what_it_says()
