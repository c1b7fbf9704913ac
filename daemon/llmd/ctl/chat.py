"""llmctl chat: a conversation with the model in the terminal.

llmctl keeps the conversation, and sends all of it with every message of the user. The daemon prefills only the part
that the session does not have yet. After each answer, llmctl shows how many tokens were prefilled and reused. If the
session was named with --session, later runs of llmctl continue the conversation, until the session is reset or closed.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from llmd.core import session_key
from llmd.ctl import advice, conversation_files, output
from llmd.ctl.chat_commands import HELP, Commands
from llmd.ctl.chat_turn import ChatTurn, Display
from llmd.ctl.client import DaemonAbsent, DaemonRefused
from llmd.ctl.context import EXIT_USAGE, Context, Verbs, add_verb
from llmd.ctl.conversation import Conversation

TYPED_LINES_MAX = 1000

EPILOG = f"""\
llmctl shows the model's reasoning dimmed, on standard error; reasoning is not part of the conversation.
Without --session, the chat opens a new session, and closes this session at the end. With --session, the chat continues
the earlier chat of that session, until you reset or close the session. If llmd has lost the state of the session, your
next message takes longer, because llmd processes the whole conversation again. With --session, llmctl also remembers
the lines that you type, and the arrow keys show them in later chats.
If standard input is not a terminal, each of its lines is one message.

In the chat:
{HELP}

examples:
  llmctl chat
  llmctl chat --session work --system 'Answer in one sentence.'
  echo 'Why is the sky blue?' | llmctl chat --max-tokens 64
"""


def register(verbs: Verbs, shared: argparse.ArgumentParser) -> None:
    parser = add_verb(verbs, shared, "chat", run, "chat with the model in the terminal", epilog=EPILOG)
    parser.add_argument("--session", metavar="ID", help="id of a session to continue, and to keep after the chat")
    parser.add_argument("--system", metavar="TEXT", help="system message")
    parser.add_argument("--max-tokens", metavar="N", type=int, help="maximum tokens of an answer")
    parser.add_argument(
        "--temperature", metavar="T", type=float, help="sampling temperature; 0 always picks the most likely token"
    )
    parser.add_argument("--hide-thinking", action="store_true", help="hide the reasoning of the model")


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


class Terminal:
    """Reads messages and slash commands from standard input, and writes the answers of the model."""

    def __init__(self, context: Context, conversation: Conversation) -> None:
        self._context = context
        self._conversation = conversation
        self._commands = Commands(context, conversation, self._show)
        self._interactive = is_terminal(sys.stdin)

    def run(self) -> None:
        if self._interactive and not self._context.json:
            self._context.note(f"{self._conversation.title()}; /help lists commands, Ctrl-D ends the chat")
        while not self._commands.is_over and (line := self._read()) is not None:
            if line:
                self._answer(line)

    def _answer(self, line: str) -> None:
        try:
            if line.startswith("/") and not line.startswith("//"):
                self._commands.run(line)
            else:
                question = line[1:] if line.startswith("//") else line
                self._show(lambda display: self._conversation.ask(question, display))
        except KeyboardInterrupt:  # Ctrl-C was pressed after an answer, before the next prompt
            if not self._interactive:
                raise
        except (DaemonAbsent, DaemonRefused) as error:
            if not self._interactive:
                raise
            self._context.warn(advice.advice(error) if isinstance(error, DaemonAbsent) else _refusal(error))

    def _read(self) -> str | None:
        """Returns the next message or command. A line that ends with a backslash continues in the next line. Returns
        None at the end of input, and "" if Ctrl-C was pressed.
        """
        lines: list[str] = []
        while True:
            prompt = ("... " if lines else "> ") if self._interactive else ""
            try:
                line = output.line(prompt)
            except EOFError:
                if self._interactive:
                    output.answer("")
                return "\n".join(lines) if lines else None
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                output.answer("")
                return ""
            lines.append(line.removesuffix("\\"))
            if not line.endswith("\\"):
                return "\n".join(lines).strip()

    def _show(self, generate: Callable[[Display | None], ChatTurn | None]) -> ChatTurn | None:
        display = None if self._context.json else Display(hides_thinking=self._context.options.hide_thinking)
        turn = generate(display)
        if turn is None:
            return None
        if display is None:
            output.answer(output.as_json(vars(turn)))
        else:
            self._context.note(turn.summary())
        if turn.finish_reason == "cancelled" and not self._interactive:
            raise KeyboardInterrupt  # if standard input is no terminal, Ctrl-C ends llmctl
        return turn


def run(context: Context) -> int | None:
    options = context.options
    own = options.session is None
    name = f"chat-{secrets.token_hex(4)}" if own else options.session
    # Checked before the first message, so that the user does not type a message in vain.
    if not session_key.is_valid(name):
        context.warn(session_key.invalid_id("--session", name).message)
        return EXIT_USAGE
    values = {"max_tokens": options.max_tokens, "temperature": options.temperature}
    settings = {key: value for key, value in values.items() if value is not None}
    conversation = Conversation(context.client, name, own, options.system, settings, context.note)
    remember = _typed_lines() if is_terminal(sys.stdin) else None
    signal.signal(signal.SIGINT, signal.default_int_handler)  # needed if llmctl's parent process ignores SIGINT
    for number in (signal.SIGHUP, signal.SIGTERM):
        # sys.exit runs the `finally` block below, which closes the session.
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        Terminal(context, conversation).run()
    finally:
        if remember and not own:
            remember()
        if own:
            with suppress(DaemonAbsent, DaemonRefused):
                context.client.close(name)
    return None


def _refusal(refused: DaemonRefused) -> str:
    """Returns the message of an error that the daemon has returned. If the context is full, adds what the user can do
    in the chat.
    """
    return f"{refused} /reset starts a new conversation." if refused.code == "context_length_exceeded" else str(refused)


def _typed_lines() -> Callable[[], None]:
    """Enables line editing, and loads the lines that the user typed in earlier chats. Returns a function that saves the
    lines of the earlier chats and of this chat.
    """
    import readline

    path = conversation_files.directory() / "chat_history"
    readline.set_history_length(TYPED_LINES_MAX)
    with suppress(OSError):
        readline.read_history_file(path)

    def save() -> None:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            readline.write_history_file(path)

    return save
