"""The context of a verb of llmctl. It has a client of the daemon, the options of the command line, and functions for
printing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from llmd.ctl import output, text
from llmd.ctl.client import Client, DaemonAbsent, DaemonRefused, Json

EXIT_OK = 0
EXIT_REFUSED = 1
EXIT_USAGE = 2  # the status that argparse uses
EXIT_ABSENT = 3
EXIT_NOT_FOUND = 4
EXIT_STREAM = 5
EXIT_INTERRUPTED = 130  # the status that a shell reports for SIGINT
EXIT_PIPE_CLOSED = 141  # the status that a shell reports for SIGPIPE

T = TypeVar("T")
Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


@dataclass(frozen=True)
class Context:
    client: Client
    options: argparse.Namespace
    json: bool

    def say(self, raw: Json, render: Callable[[], str]) -> None:
        """Prints an answer of the daemon. With --json this is `raw` as JSON, otherwise the result of `render`."""
        output.answer(output.as_json(raw) if self.json else self.rendered(render))

    def rendered(self, render: Callable[[], T]) -> T:
        """Returns the result of `render`. `render` fails if the answer does not have the form of llmd's answers.
        Another server must have sent such an answer, so this method raises DaemonAbsent.
        """
        try:
            return render()
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            raise DaemonAbsent(self.client.socket_path, "foreign", f"unexpected answer: {error}") from error

    def warn(self, warning: str) -> None:
        output.remark(text.printable(f"llmctl: {warning}"))

    def note(self, note: str) -> None:
        """Writes a dimmed note to standard error, so that standard output contains only answers."""
        output.remark(text.dim(f"[{text.printable(note)}]", sys.stderr))


def of_session(context: Context, act: Callable[[str], Json]) -> Json:
    """Calls `act` with the session id from the command line. This id can be the beginning of a session's id. If no
    session has exactly this id, and only one session's id begins with it, calls `act` with the complete id.
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
    """Adds a verb to the command line, and returns its parser. `help` describes the verb in lists of verbs. The verb's
    own --help shows `help`, `more` and `epilog`. `run` executes the verb and returns the exit status, or None for
    EXIT_OK.
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
    """Adds the arguments ID and --owner, which name the session on which a verb works."""
    parser.add_argument("id", metavar="ID", help="id of the session")
    parser.add_argument(
        "--owner",
        metavar="NAME",
        help="name or number of the session's owner, if several owners have a session with this id",
    )
