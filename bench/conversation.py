"""A conversation of a client with a server. Computes the smallest number of tokens that the server must prefill for
each request.

The necessary tokens are those after the longest prefix of the prompt that the server has already consumed in any
conversation. Prefixes are compared as text. So the number is the same for all servers, however a server stores its
history.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import Any

from . import client
from .client import Messages

WORDS = (
    "river morning engine letter garden bridge winter number window silver market station thunder paper forest "
    "question island music harbour candle mirror shadow teacher village pencil ocean travel summer garden stone "
    "because under before about every through always never nobody second people water light sound road"
).split()
USER_WORDS = 60


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one request. `n_prefilled` is the number of prompt tokens that the server prefilled. `n_needed` is
    the number of prompt tokens that no earlier request had prefilled. `first_ms` is the time to the first token.
    `reason` is llmd's word for how the request started.
    """

    n_prefilled: int
    n_needed: int
    first_ms: float
    reason: str


def words(seed: str, n: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=n))


class Conversation:
    """A conversation with the server at `port`. Each method that returns a Cost changes the messages and sends the
    conversation.

    `consumed` contains the texts that the server has consumed. All conversations with one server share this list, and
    each conversation adds its own texts to the list. `n_system` is the number of words in the system prompt, which is
    the same for all conversations.
    """

    def __init__(self, port: int, name: str, consumed: list[str], n_system: int, **parameters: Any) -> None:
        self._port = port
        self._name = name
        self._parameters = {"session_id": name, **parameters}
        self._consumed = consumed
        self._left: Messages = []
        self.messages: Messages = [{"role": "system", "content": words("system", n_system)}]

    def say(self, turn: str) -> Cost:
        """Appends a message of the user, and the server's answer to it."""
        self.messages.append(self.user(turn))
        return self._answered()

    def user(self, turn: str) -> dict[str, str]:
        return {"role": "user", "content": words(f"{self._name} {turn}", USER_WORDS)}

    def regenerate(self) -> Cost:
        self.messages.pop()
        return self._answered()

    def edit_last(self) -> Cost:
        del self.messages[-2:]
        return self.say("edited")

    def strip(self) -> Cost:
        """Removes the first half of every answer, as a client does that drops reasoning. Then continues the
        conversation.
        """
        for message in self.messages:
            if message["role"] == "assistant":
                message["content"] = message["content"][len(message["content"]) // 2 :]
        return self.say("stripped")

    def branch(self, turn: int) -> Cost:
        """Removes all turns except the first `turn` ones, and continues from there with another message."""
        self._left = [*self.messages]
        del self.messages[1 + 2 * turn :]
        return self.say("branch")

    def back(self) -> Cost:
        """Restores the turns that `branch` has removed, and continues the conversation after them."""
        self.messages = self._left
        return self.say("back")

    def _answered(self) -> Cost:
        prompt = client.post(self._port, "/apply-template", {"messages": self.messages})["prompt"]
        n_needed = self._needed(prompt)
        answer = client.chat(self._port, self.messages, **self._parameters)
        # The last generated token is left out, because the server has not consumed it.
        self._consumed.append(prompt + "".join(answer.pieces[:-1]))
        self.messages.append({"role": "assistant", "content": answer.text})
        return Cost(answer.n_prefilled, n_needed, answer.first_ms, answer.reason)

    def _needed(self, prompt: str) -> int:
        known = max((len(os.path.commonprefix([prompt, state])) for state in self._consumed), default=0)
        body = {"content": prompt[known:], "parse_special": True}
        return len(client.post(self._port, "/tokenize", body)["tokens"])
