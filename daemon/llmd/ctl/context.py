"""The context of a verb: the client of the daemon, the options, and functions that print."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from llmd.ctl import output
from llmd.ctl.client import Client, DaemonAbsent, DaemonRefused, Json
from llmd.ctl.text import printable

EXIT_OK = 0
EXIT_REFUSED = 1
EXIT_USAGE = 2  # argparse uses this status
EXIT_ABSENT = 3
EXIT_NOT_FOUND = 4
EXIT_STREAM = 5
EXIT_INTERRUPTED = 130  # the status that a shell reports for SIGINT
EXIT_PIPE_CLOSED = 141  # the status that a shell reports for SIGPIPE

Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


@dataclass(frozen=True)
class Context:
    client: Client
    options: argparse.Namespace
    json: bool

    def say(self, raw: Json, text: Callable[[], str]) -> None:
        """Prints the answer as JSON if --json is set, otherwise the text that `text` returns."""
        output.answer(output.as_json(raw) if self.json else self._rendered(text))

    def _rendered(self, text: Callable[[], str]) -> str:
        """Returns the text. Raises DaemonAbsent if the answer does not have the form of llmd's answers, because it then
        comes from another server.
        """
        try:
            return text()
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            raise DaemonAbsent(self.client.socket_path, "foreign", f"unexpected answer: {error}") from error

    def warn(self, text: str) -> None:
        output.remark(printable(f"llmctl: {text}"))


def of_session(context: Context, act: Callable[[str], Json]) -> Json:
    """Runs `act` on the session whose id is the verb's argument. If there is no such session, runs `act` on the only
    session whose id begins with the argument.
    """
    id_or_prefix: str = context.options.id
    try:
        return act(id_or_prefix)
    except DaemonRefused as refused:
        if refused.code != "session_not_found":
            raise
        context.options.id = _complete_id(context.client, id_or_prefix, refused)
        return act(context.options.id)


def _complete_id(client: Client, prefix: str, refused: DaemonRefused) -> str:
    listed = client.sessions()
    ids = {str(one.get("id")) for one in [*(listed.get("data") or []), *(listed.get("scratch") or [])]}
    matches = sorted(id for id in ids if id.startswith((prefix, f"({prefix}")))
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise refused
    message = f"There is no session {prefix!r}, and several ids begin with these characters: {', '.join(matches)}."
    raise DaemonRefused(refused.status, {**refused.error, "message": message})


def add_verb(
    verbs: Verbs,
    shared: argparse.ArgumentParser,
    name: str,
    run: Callable[[Context], int | None],
    help: str,
    more: str = "",
    epilog: str = "",
) -> argparse.ArgumentParser:
    """Adds a verb. `help` is the verb's line in lists of verbs; the verb's description is `help` followed by `more`.
    `run` returns the exit status, or None for EXIT_OK.
    """
    parser = verbs.add_parser(
        name,
        help=help,
        description=f"{help[0].upper()}{help[1:]}. {more}".rstrip(),
        epilog=epilog or None,
        formatter_class=argparse.RawDescriptionHelpFormatter if epilog else argparse.HelpFormatter,
        parents=[shared],
    )
    parser.set_defaults(run=run)
    return parser


def add_id(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that name the session on which a verb works."""
    parser.add_argument("id", metavar="ID", help="id of the session")
    parser.add_argument(
        "--owner", metavar="NAME", help="owner of the session, if several owners have this id: a name or a number"
    )
