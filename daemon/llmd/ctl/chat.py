"""llmctl chat: a conversation in the terminal. The history lives here and is sent whole with every turn; the daemon
prefills only what is new in it, and each answer ends with what that was. A named session's history outlives this
program, but not the session."""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field

from llmd.ctl import advice, kept, text
from llmd.ctl.client import Client, DaemonAbsent, DaemonRefused, Json
from llmd.ctl.context import EXIT_OK, Context, Verbs

HISTORY_LINES_MAX = 1000

COMMANDS = """\
/reset          forget the conversation, here and in the daemon
/session        what the daemon knows about this session
/session ID     go on in another session
/help           this
/quit           leave, as Ctrl-D does
Ctrl-C stops an answer. A line that ends in \\ goes on in the next one."""

EPILOG = f"""\
Without --session the conversation gets a session of its own, which is closed in the end. A named one goes on where the
last chat under that id left it, until the session is reset or closed.
If standard input is not a terminal, each line is one turn.

In the chat:
{COMMANDS}

examples:
  llmctl chat
  llmctl chat --session work --system 'Answer in one sentence.'
  echo 'Why is the sky blue?' | llmctl chat --max-tokens 64
"""


def register(verbs: Verbs, shared: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "chat",
        help="talk to the model in the terminal",
        description="Talk to the model in the terminal.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[shared],
    )
    parser.add_argument("--session", metavar="ID", help="go on with this session's conversation, and leave it warm")
    parser.add_argument("--system", metavar="TEXT", help="system message")
    parser.add_argument("--max-tokens", metavar="N", type=int, help="longest answer")
    parser.add_argument("--temperature", metavar="T", type=float, help="0 always picks the likeliest token")
    parser.set_defaults(run=run)


@dataclass
class Turn:
    """What one answer turned out to be, as far as it got."""

    reply: str = ""
    finish_reason: str = ""
    usage: Json = field(default_factory=dict)
    session: Json = field(default_factory=dict)

    def take(self, chunk: Json) -> str:
        """The text that this chunk adds."""
        self.usage = chunk.get("usage") or self.usage
        self.session = chunk.get("session") or self.session
        added = ""
        for choice in chunk.get("choices") or []:
            added += choice.get("delta", {}).get("content") or ""
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.reply += added
        return added

    def summary(self) -> str:
        """ "3 new tokens, 412 reused (exact_prefix), 57 generated" """
        reused = self.session.get("reused_prompt_tokens", 0)
        new = self.session.get("prefilled_prompt_tokens", self.usage.get("prompt_tokens", 0) - reused)
        reason = self.session.get("session_reset_reason") or "unknown"
        plural = "" if new == 1 else "s"
        length = ", cut at its length" if self.finish_reason == "length" else ""
        generated = self.usage.get("completion_tokens", 0)
        return f"{new} new token{plural}, {reused} reused ({reason}), {generated} generated{length}"


class Conversation:
    """The histories of this program's sessions, and the one that is on. `own`: the one that ends with this program."""

    def __init__(self, client: Client, name: str, own: bool, system: str | None, options: Json) -> None:
        self.client = client
        self.name = name
        self._own = name if own else None
        self._system = system
        self._options = options
        self._histories: dict[str, list[Json]] = {}

    @property
    def history(self) -> list[Json]:
        if self.name not in self._histories:
            self._histories[self.name] = self._earlier()
        return self._histories[self.name]

    @property
    def n_turns(self) -> int:
        return sum(message["role"] == "user" for message in self.history)

    def _earlier(self) -> list[Json]:
        """What earlier chats left, if the session still knows it; the system message of this one replaces theirs."""
        messages = [] if self.name == self._own else kept.load(self.client.socket_path, self.name)
        if messages and not self._is_resident():
            kept.forget(self.client.socket_path, self.name)
            messages = []
        if self._system:
            said = [message for message in messages if message["role"] != "system"]
            messages = [{"role": "system", "content": self._system}, *said]
        return messages

    def _is_resident(self) -> bool:
        try:
            return int(self.client.session(self.name).get("tokens", 0)) > 0
        except DaemonRefused as error:
            if error.status != 404:
                raise
            return False

    def ask(self, question: str, show: Callable[[str], None]) -> Turn:
        """One turn. Interrupted, it keeps what was said so far: exactly that is resident in the session."""
        turn = Turn()
        messages = [*self.history, {"role": "user", "content": question}]
        request = self._options | {"messages": messages, "session_id": self.name}
        try:
            with closing(self.client.chat(request)) as chunks:
                for chunk in chunks:
                    show(turn.take(chunk))
        except KeyboardInterrupt:
            turn.finish_reason = "cancelled"
        if turn.reply:
            self._histories[self.name] = [*messages, {"role": "assistant", "content": turn.reply}]
            if self.name != self._own:
                kept.save(self.client.socket_path, self.name, self._histories[self.name])
        return turn

    def reset(self) -> None:
        with suppress(DaemonRefused):  # a session that has not begun has nothing to forget
            self.client.reset(self.name)
        kept.forget(self.client.socket_path, self.name)
        self._histories.pop(self.name, None)


class Terminal:
    """Reads turns and slash commands, writes answers."""

    def __init__(self, context: Context, conversation: Conversation) -> None:
        self._context = context
        self._conversation = conversation
        self._interactive = sys.stdin.isatty()

    def run(self) -> None:
        if self._interactive and not self._context.json:
            _note(f"{self._place()}; /help helps, Ctrl-D leaves")
        while (line := self._read()) is not None:
            if line == "/quit":
                return
            if line:
                self._answer(line)

    def _place(self) -> str:
        """The session that is on, and how far its conversation has come."""
        n = self._conversation.n_turns
        return f"session {self._conversation.name}" + (f", after {n} turn{'' if n == 1 else 's'}" if n else "")

    def _answer(self, line: str) -> None:
        try:
            if line.startswith("/"):
                self._command(line)
            else:
                self._turn(line)
        except KeyboardInterrupt:  # between an answer and the prompt
            if not self._interactive:
                raise
        except (DaemonAbsent, DaemonRefused) as error:
            if not self._interactive:
                raise
            print(f"llmctl: {advice.advice(error) if isinstance(error, DaemonAbsent) else error}", file=sys.stderr)

    def _read(self) -> str | None:
        """The next turn, continuation lines joined; None at the end of input. Ctrl-C drops the line."""
        lines: list[str] = []
        while True:
            prompt = ("... " if lines else "> ") if self._interactive else ""
            try:
                line = input(prompt)
            except EOFError:
                if self._interactive:
                    print()
                return "\n".join(lines) if lines else None
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                print()
                return ""
            lines.append(line.removesuffix("\\"))
            if not line.endswith("\\"):
                return "\n".join(lines).strip()

    def _turn(self, question: str) -> None:
        if self._context.json:
            turn = self._conversation.ask(question, lambda _: None)
            print(json.dumps(vars(turn), ensure_ascii=False), flush=True)
        else:
            shown = _Shown()
            try:
                turn = self._conversation.ask(question, shown.add)
            finally:
                shown.end()
            _note("cancelled" if turn.finish_reason == "cancelled" else turn.summary())
        if turn.finish_reason == "cancelled" and not self._interactive:
            raise KeyboardInterrupt  # a script is stopped, not its question

    def _command(self, line: str) -> None:
        verb, _, argument = line.partition(" ")
        if verb == "/reset":
            self._conversation.reset()
            _note("forgotten")
        elif verb == "/session" and argument.strip():
            self._conversation.name = argument.strip()
            _note(self._place())
        elif verb == "/session":
            from llmd.ctl import sessions

            print(sessions.details(self._conversation.client.session(self._conversation.name)))
        elif verb == "/help":
            print(COMMANDS)
        else:
            print(f"llmctl: no such command: {verb} (/help lists them)", file=sys.stderr)


def run(context: Context) -> int:
    options = context.options
    own = options.session is None
    name = f"chat-{secrets.token_hex(4)}" if own else options.session
    wanted = {"max_tokens": options.max_tokens, "temperature": options.temperature}
    settings = {key: value for key, value in wanted.items() if value is not None}
    conversation = Conversation(context.client, name, own, options.system, settings)
    remember = _history_file() if sys.stdin.isatty() else None
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the parent had it ignored
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # a closed window closes its session, too
    try:
        Terminal(context, conversation).run()
    finally:
        if remember:
            remember()
        if own:
            with suppress(DaemonAbsent, DaemonRefused):
                context.client.close(name)
    return EXIT_OK


class _Shown:
    """An answer on its way to standard output, which gets a last line end if there was any answer."""

    def __init__(self) -> None:
        self._any = False

    def add(self, added: str) -> None:
        sys.stdout.write(text.printable(added))
        sys.stdout.flush()
        self._any = self._any or bool(added)

    def end(self) -> None:
        if self._any:
            print(flush=True)


def _note(said: str) -> None:
    """About the answer, not part of it: on standard error, so that a pipe gets answers only."""
    print(text.dim(f"[{said}]", sys.stderr), file=sys.stderr, flush=True)


def _history_file() -> Callable[[], None]:
    """Switches line editing on and loads the lines of earlier chats; returns what saves them."""
    import readline

    path = kept.directory() / "chat_history"
    readline.set_history_length(HISTORY_LINES_MAX)
    with suppress(OSError):
        readline.read_history_file(path)

    def save() -> None:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            readline.write_history_file(path)

    return save
