"""One conversation with a served daemon; after each turn the answer must equal that of a cold start."""

from __future__ import annotations

from typing import Any

import msgspec

from llmd.answers import memory
from llmd.core.generation_request import PlainMessage
from llmd.dialects.openai import wire
from llmd.dialects.openai.messages import message_of
from tests.serving import Daemon, Json, chat

GREEDY: Json = {"temperature": 0}


def read(message: Json) -> PlainMessage:
    """Reads messages as the reader of a chat does."""
    return message_of("", msgspec.convert(message, wire.Message))


def digests_of(messages: list[Json]) -> list[bytes]:
    return memory.digests_of([read(message) for message in messages])


async def cold(daemon: Daemon, messages: list[Json]) -> str:
    answer = await daemon.chat(messages=messages, cache_prompt=False, **GREEDY)
    return str(answer["choices"][0]["message"]["content"])


class Conversation:
    def __init__(self, daemon: Daemon, session: str, system: str | None = None) -> None:
        self.daemon = daemon
        self.session = session
        self.messages: list[Json] = [{"role": "system", "content": system}] if system else []
        self.report: Json = {}
        self.n_prompt = 0

    async def ask(self, text: str, headers: dict[str, str] | None = None) -> str:
        """One more turn."""
        self.messages.append({"role": "user", "content": text})
        return await self.again(headers)

    async def again(self, headers: dict[str, str] | None = None) -> str:
        """The history as it is, answered; the answer becomes part of it."""
        body: dict[str, Any] = chat(messages=self.messages, session_id=self.session, **GREEDY)
        answer = await self.daemon.ask("POST", "/v1/chat/completions", body, headers=headers or {})
        assert answer.status == 200, answer.body
        said = str(answer.json["choices"][0]["message"]["content"])
        self.report, self.n_prompt = answer.json["session"], answer.json["usage"]["prompt_tokens"]
        self.daemon.state.answers.copy(0, self.session, "")  # the same prompt, without a session
        assert said == await cold(self.daemon, self.messages), self.report
        self.messages.append({"role": "assistant", "content": said})
        return said

    @property
    def n_prefilled(self) -> int:
        return int(self.report["prefilled_prompt_tokens"])

    def continued_as(self, session: str, n_messages: int | None = None) -> Conversation:
        """The same history, or its first messages, under another id."""
        other = Conversation(self.daemon, session)
        other.messages = list(self.messages[:n_messages])
        return other
