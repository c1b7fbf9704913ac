"""The conversations of `llmctl chat`, one for each session. Each message of the user is sent together with all earlier
messages of the conversation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

from llmd.ctl import conversation_files, text
from llmd.ctl.chat_turn import ChatTurn, Display
from llmd.ctl.client import Client, DaemonAbsent, DaemonRefused, Json

T = TypeVar("T")
PROGRAM = "llmctl"
_LOOK_S = 0.5
"""Time between two attempts to get a session while llmd loads its model."""
OWN = 0
"""The owner number of requests over the unix socket."""


class Conversation:
    """The conversation of each session that this run of llmctl chat has used, and the name of the current session.

    If `own` is true, only this run uses the session `name`. The conversation of such a session is not stored. `note` is
    called with a sentence for the user, for example if a session was reset.
    """

    def __init__(
        self, client: Client, name: str, own: bool, system: str | None, settings: Json, note: Callable[[str], None]
    ) -> None:
        self.client = client
        self.name = name
        self._own = name if own else None
        self._system = system
        self.settings = settings
        """The sampling parameters of all requests, by their names in requests."""
        self._note = note
        self._noted: set[str] = set()
        self._messages: dict[str, list[Json]] = {}
        self._failed_question = ""
        """The last question, if its answer did not begin. It is not among the messages, but /retry asks it again."""

    @property
    def messages(self) -> list[Json]:
        if self.name not in self._messages:
            self._messages[self.name] = self._earlier()
        return self._messages[self.name]

    @property
    def n_turns(self) -> int:
        return conversation_files.n_turns(self.messages)

    @property
    def has_answer(self) -> bool:
        """True if the last question has an answer."""
        return not self._failed_question and bool(self.messages) and self.messages[-1]["role"] == "assistant"

    def title(self) -> str:
        """Returns a text with the name of the session, and the number of turns in its conversation."""
        n = self.n_turns
        return f"session {self.name}" + (f", after {text.counted(n, 'turn')}" if n else "")

    def ask(self, question: str, display: Display | None = None) -> ChatTurn:
        """Sends one message of the user and returns the turn."""
        self._failed_question = question
        turn, messages = self._answer([*self.messages, {"role": "user", "content": question}], display)
        if turn.keeps_question:
            self._failed_question = ""
            self._replace(messages)
        return turn

    def retry(self, display: Display | None = None) -> ChatTurn | None:
        """Generates the last answer again. If the last question has no answer, asks that question. The earlier answer
        is replaced only by an answer that has text and that the user has not cancelled. Returns None if the
        conversation has no question.
        """
        if self._failed_question:
            return self.ask(self._failed_question, display)
        if not self.n_turns:
            return None
        has_earlier = self.has_answer
        turn, messages = self._answer(self.messages[: self._last_question() + 1], display)
        if turn.has_answer and not (has_earlier and turn.finish_reason == "cancelled"):
            self._replace(messages)
        return turn

    def undo(self) -> str | None:
        """Removes the last question with its answer. The tokens of the session that belong to them are dropped with the
        next message. Returns the question, or None if the conversation has none.
        """
        question, self._failed_question = self._failed_question, ""
        if not question and self.n_turns:
            index = self._last_question()
            question = self.messages[index]["content"]
            self._replace(self.messages[:index])
        return question or None

    def _last_question(self) -> int:
        return max(index for index, message in enumerate(self.messages) if message["role"] == "user")

    def _answer(self, messages: list[Json], display: Display | None) -> tuple[ChatTurn, list[Json]]:
        """Requests the answer to these messages. Returns the turn, and the messages with the answer.

        After Ctrl-C, the conversation keeps the part of the answer that has arrived. The session holds this part, too.
        If the answer ends before it has text, for example during the reasoning, the conversation keeps only the
        question.
        """
        turn = ChatTurn()
        request = self.settings | {"messages": messages, "session_id": self.name}
        if display is not None:
            request["return_progress"] = True
        try:
            with closing(self.client.chat(request)) as chunks:
                for chunk in chunks:
                    self._take(turn, chunk, display)
        except KeyboardInterrupt:
            turn.finish_reason = "cancelled"
        finally:
            if display is not None:
                display.end()
        return turn, [*messages, {"role": "assistant", "content": turn.reply}] if turn.has_answer else messages

    def _take(self, turn: ChatTurn, chunk: Json, display: Display | None) -> None:
        try:
            turn.take(chunk, display)
        except (TypeError, AttributeError) as error:
            raise DaemonAbsent(self.client.socket_path, "foreign", f"unexpected answer: {error}") from error

    def reset(self) -> None:
        """Resets the session, and begins a new conversation with the same system prompt."""
        system = [one for one in self.messages if one["role"] == "system"]
        self.client.reset(self.name)
        self._on_disk(lambda: conversation_files.forget(self.client.socket_path, self.name))
        self._messages[self.name] = system
        self._failed_question = ""

    @property
    def system(self) -> str:
        return "\n".join(one["content"] for one in self.messages if one["role"] == "system")

    def set_system(self, prompt: str) -> None:
        """Replaces the system prompt of this conversation. If `prompt` is empty, removes it."""
        others = [one for one in self.messages if one["role"] != "system"]
        self._replace([{"role": "system", "content": prompt}, *others] if prompt else others)

    def load(self, messages: list[Json]) -> None:
        """Replaces this conversation by another one."""
        self._failed_question = ""
        self._replace(messages)

    def fork(self, name: str) -> None:
        """Copies the session and its conversation to the new session `name`, and continues there."""
        messages = self.messages
        self.client.fork(self.name, name, None)
        self.name = name
        self._messages[name] = list(messages)
        path, has_turns = self.client.socket_path, conversation_files.n_turns(messages) > 0
        aside = self._on_disk(
            lambda: (
                conversation_files.save(path, name, messages) if has_turns else conversation_files.set_aside(path, name)
            )
        )
        if aside is not None:
            self._note(f"the earlier conversation of session {name} was moved to {aside}")

    def switch(self, name: str) -> None:
        """Continues the conversation of another session."""
        self.name = name
        self._failed_question = ""

    # --- conversations of earlier runs -------------------------------------------------------------------------------

    def _earlier(self) -> list[Json]:
        """Returns the messages of earlier chats in this session. If --system is set, its text replaces the earlier
        system message.
        """
        messages: list[Json] = []
        if self.name != self._own:
            messages = self._on_disk(lambda: conversation_files.load(self.client.socket_path, self.name)) or []
        if messages:
            messages = self._unless_reset(messages)
        elif self.name != self._own:
            self._note_foreign()
        if self._system:
            others = [message for message in messages if message["role"] != "system"]
            messages = [{"role": "system", "content": self._system}, *others]
        return messages

    def _unless_reset(self, messages: list[Json]) -> list[Json]:
        """Returns the messages of earlier chats, or an empty list if the session was reset meanwhile. If the daemon has
        only lost the session's tokens, returns the messages and tells the user that the next turn prefills them again.
        """
        session = self._session()
        if session is not None and _was_reset(session):
            aside = self._on_disk(lambda: conversation_files.set_aside(self.client.socket_path, self.name))
            where = f"; its earlier conversation was moved to {aside}" if aside is not None else ""
            self._note(f"session {self.name} was reset{where}")
            return []
        if session is None or not session.get("tokens"):
            turns = text.counted(conversation_files.n_turns(messages), "turn")
            self._note(f"llmd no longer holds session {self.name} and prefills {turns} again")
        return messages

    def _note_foreign(self) -> None:
        """Tells the user if another client uses the session. This chat then starts a second conversation in that
        session. The second conversation occupies one of the session's few branches.
        """
        session = self._session() or {}
        client, n_tokens = text.scalar(session.get("client") or "another client"), session.get("tokens")
        if isinstance(n_tokens, int) and n_tokens and session.get("owner", OWN) == OWN and client != PROGRAM:
            held = text.counted(n_tokens, "token")
            self._note(
                f"session {self.name} has {held} from {client}. This chat starts a new branch of the session. To copy "
                f"the session instead: llmctl sessions fork {self.name} NEW"
            )

    def _session(self) -> Json | None:
        """Returns the session, or None if it does not exist. While llmd loads its model, waits."""
        while True:
            try:
                return self.client.session(self.name)
            except DaemonRefused as error:
                if error.status == 404:
                    return None
                if error.status == 409:  # several owners have a session with this id
                    return {"tokens": 1}
                raise
            except DaemonAbsent as absent:
                if absent.reason != "starting":
                    raise
                self._note_once("llmd still loads its model; the chat goes on when it is loaded")
                time.sleep(_LOOK_S)

    def _replace(self, messages: list[Json]) -> None:
        """Replaces the messages of the current session, also in its file."""
        replaced, self._messages[self.name] = self.messages, messages
        is_empty = not conversation_files.n_turns(messages)  # a system message alone is no conversation
        if self.name == self._own or (is_empty and not conversation_files.n_turns(replaced)):
            return
        stored = [] if is_empty else messages
        aside = self._on_disk(lambda: conversation_files.save(self.client.socket_path, self.name, stored, replaced))
        if aside is not None:
            self._note_once(
                f"another chat uses session {self.name}, too; the other conversation was moved to {aside.parent}"
            )

    def _on_disk(self, act: Callable[[], T]) -> T | None:
        """Calls `act`, which reads or writes a file, and returns its result. If `act` fails, tells the user and returns
        None, so that the chat continues.
        """
        try:
            return act()
        except conversation_files.DiskFailed as error:
            self._note_once(str(error))
            return None

    def _note_once(self, note: str) -> None:
        if note not in self._noted:
            self._noted.add(note)
            self._note(note)


def _was_reset(session: Json) -> bool:
    """Returns whether a client has reset the session. Such a session has had requests, but has no tokens now. A session
    that has only lost its state still has tokens.
    """
    return session.get("owner", OWN) == OWN and session.get("state") == "empty" and bool(session.get("requests"))
