"""The slash commands of llmctl chat: what each does, and its help."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from llmd.core import session_key
from llmd.ctl import chat_settings, conversation_export, explain, output, sessions, text
from llmd.ctl.chat_turn import ChatTurn, Display
from llmd.ctl.client import DaemonRefused
from llmd.ctl.context import Context
from llmd.ctl.conversation import Conversation
from llmd.ctl.conversation_files import DiskFailed
from llmd.process.help_text import nearest

QUESTION_CELLS_MAX = 60
FORK_REFUSALS = {
    "session_exists": "a session {new} exists already: choose another name, or continue it with /session {new}",
    "session_not_found": "llmd does not hold the session {old}; send a message first, and fork the session then",
}
"""Advice to the user about an error of the daemon, by the code of the error."""
NO_PROMPT = '""'
Show = Callable[[Callable[[Display | None], ChatTurn | None]], ChatTurn | None]
"""Passes a display to a function that generates an answer, and shows the result. Returns the function's result."""


class Commands:
    """Executes the lines that begin with a slash."""

    def __init__(self, context: Context, conversation: Conversation, show: Show) -> None:
        self._context = context
        self._show = show
        self._conversation = conversation
        self.is_over = False
        """True after /quit."""

    def run(self, line: str) -> None:
        """Executes a command. If its name is unknown, or an argument is missing or not expected, only says so."""
        name, *rest = line.split(maxsplit=1)
        argument = rest[0] if rest else ""
        command = COMMANDS.get(name)
        if command is None:
            self._context.warn(
                f"{name} is not a command{nearest(name, COMMANDS)}; /help lists all commands. To send a message that "
                "begins with a slash, type two slashes"
            )
        elif command.takes(argument):
            command.run(self, argument)
        else:
            self._context.warn(f"usage: {command.usage(name)}")

    def explain(self, _: str) -> None:
        raw = self._conversation.client.explain(self._conversation.name)
        self._context.say(raw, lambda: explain.story(raw, only_last=True))

    def retry(self, _: str) -> None:
        has_answer = self._conversation.has_answer
        turn = self._show(self._conversation.retry)
        if turn is None:
            self._context.warn("there is no question to answer again")
        elif has_answer and (not turn.has_answer or turn.finish_reason == "cancelled"):
            self._context.note("the earlier answer stays in the conversation")

    def undo(self, _: str) -> None:
        question = self._conversation.undo()
        if question is None:
            self._context.warn("there is no question to remove")
        else:
            self._context.note(f"removed: {text.shortened(text.one_line(question), QUESTION_CELLS_MAX)}")

    def fork(self, name: str) -> None:
        if not session_key.is_valid(name):
            self._context.warn(session_key.invalid_id("/fork", name).message)
            return
        try:
            self._conversation.fork(name)
        except DaemonRefused as refused:
            if refused.code not in FORK_REFUSALS:
                raise
            self._context.warn(FORK_REFUSALS[refused.code].format(old=self._conversation.name, new=name))
        else:
            self._context.note(self._conversation.title())

    def system(self, prompt: str) -> None:
        if prompt:
            self._conversation.set_system("" if prompt == NO_PROMPT else prompt)
            done = "removed" if prompt == NO_PROMPT else "set"
            again = "; the next answer prefills the conversation again" if self._conversation.n_turns else ""
            self._context.note(f"system prompt {done}{again}")
        elif self._conversation.system:
            output.answer(text.printable(self._conversation.system))
        else:
            self._context.note("this conversation has no system prompt")

    def set(self, argument: str) -> None:
        name, *value = argument.split(maxsplit=1) or [""]
        settings = self._conversation.settings
        try:
            if value:
                self._set(name, chat_settings.parse(name, value[0]))
            else:
                output.answer(chat_settings.describe(name, settings) if name else chat_settings.overview(settings))
        except chat_settings.SettingRefused as refused:
            self._context.warn(str(refused))

    def _set(self, name: str, value: float | None) -> None:
        if value is None:
            self._conversation.settings.pop(name, None)
        else:
            self._conversation.settings[name] = value
        self._context.note(chat_settings.state(name, self._conversation.settings))

    def save(self, name: str) -> None:
        conversation, path = self._conversation, Path(os.path.expanduser(name))
        if not conversation.n_turns:
            self._context.warn("the conversation is empty, so there is nothing to save")
            return
        try:
            conversation_export.write(path, conversation.name, conversation.messages, conversation.settings)
        except DiskFailed as error:
            self._context.warn(str(error))
        else:
            self._context.note(f"{text.counted(conversation.n_turns, 'turn')} saved to {path}")

    def load(self, name: str) -> None:
        conversation, path = self._conversation, Path(os.path.expanduser(name))
        if conversation.n_turns:
            turns = text.counted(conversation.n_turns, "turn")
            self._context.warn(f"this conversation has {turns}; begin another one with /session ID or /reset first")
            return
        try:
            messages, settings = conversation_export.read(path)
        except DiskFailed as error:
            self._context.warn(str(error))
            return
        conversation.load(messages)
        conversation.settings.update(chat_settings.usable(settings))
        self._context.note(f"{text.counted(conversation.n_turns, 'turn')} loaded from {path}")

    def session(self, name: str) -> None:
        if not name:
            raw = self._conversation.client.session(self._conversation.name)
            self._context.say(raw, lambda: sessions.details(raw))
        elif session_key.is_valid(name):
            self._conversation.switch(name)
            self._context.note(self._conversation.title())
        else:
            self._context.warn(session_key.invalid_id("/session", name).message)

    def reset(self, _: str) -> None:
        self._conversation.reset()
        self._context.note(f"session {self._conversation.name} reset")

    def help(self, _: str) -> None:
        output.answer(HELP)

    def quit(self, _: str) -> None:
        self.is_over = True


@dataclass(frozen=True)
class Command:
    run: Callable[[Commands, str], None]
    argument: str
    """The argument of the command: empty, or a word in capitals. Brackets mean that it can be left out."""
    help: str

    def takes(self, argument: str) -> bool:
        return bool(self.argument) if argument else not self.argument or self.argument.startswith("[")

    def usage(self, name: str) -> str:
        return f"{name} {self.argument}".rstrip()


COMMANDS = {
    "/explain": Command(Commands.explain, "", "say why the last answer was warm or cold"),
    "/retry": Command(Commands.retry, "", "generate the last answer again"),
    "/undo": Command(Commands.undo, "", "remove the last question and its answer"),
    "/fork": Command(Commands.fork, "NAME", "copy this session to a new one, and continue there"),
    "/system": Command(Commands.system, "[TEXT]", f"show or set the system prompt; {NO_PROMPT} removes it"),
    "/set": Command(Commands.set, "[NAME [VALUE]]", "show or set sampling parameters, such as temperature"),
    "/save": Command(Commands.save, "FILE", "write the conversation to a file that llmd's page imports"),
    "/load": Command(Commands.load, "FILE", "continue a conversation that /save or the page has written"),
    "/session": Command(Commands.session, "[ID]", "show this session, or continue another one"),
    "/reset": Command(Commands.reset, "", "reset the session and start a new conversation"),
    "/help": Command(Commands.help, "", "list these commands"),
    "/quit": Command(Commands.quit, "", "end the chat, as Ctrl-D does"),
}
_WIDTH = max(len(command.usage(name)) for name, command in COMMANDS.items())
HELP = "\n".join(
    [f"{command.usage(name).ljust(_WIDTH)}  {command.help}" for name, command in COMMANDS.items()]
    + [
        "A message that begins with // is sent with one slash. Ctrl-C stops an answer.",
        "End a line with \\ to continue your message in the next line.",
    ]
)
