"""A conversation with a served daemon. After each turn, the answer must equal the answer to the same prompt without
reuse.
"""

from __future__ import annotations

from typing import Any

import msgspec

from llmd.answers import digest
from llmd.core.generation_request import PlainMessage
from llmd.dialects.openai import wire
from llmd.dialects.openai.messages import message_of
from tests.serving import Daemon, Json, chat

GREEDY: Json = {"temperature": 0}


def read(message: Json) -> PlainMessage:
    """Converts a message as the reader of chats does."""
    return message_of("", msgspec.convert(message, wire.Message))


def digests_of(messages: list[Json]) -> list[bytes]:
    return digest.digests_of([read(message) for message in messages])


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
        """Sends another user message, and returns the answer."""
        self.messages.append({"role": "user", "content": text})
        return await self.again(headers)

    async def again(self, headers: dict[str, str] | None = None) -> str:
        """Sends the history unchanged, appends the answer to the history, and returns the answer."""
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
        """Returns a conversation in another session with the same history, or with the first messages of the
        history.
        """
        other = Conversation(self.daemon, session)
        other.messages = list(self.messages[:n_messages])
        return other
