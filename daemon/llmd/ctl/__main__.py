"""The program `llmctl`. Parses the command line, and runs its verb, such as `status`. Turns every failure into a
sentence and an exit status.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import llmd.process.socket_trust
from llmd.ctl import advice, chat, logs, manual, models, output, resident, sessions, status, top
from llmd.ctl.client import Client, DaemonAbsent, DaemonRefused
from llmd.ctl.context import (
    EXIT_ABSENT,
    EXIT_INTERRUPTED,
    EXIT_NOT_FOUND,
    EXIT_OK,
    EXIT_PIPE_CLOSED,
    EXIT_REFUSED,
    EXIT_STREAM,
    Context,
)
from llmd.ctl.text import printable
from llmd.models.errors import ModelError
from llmd.process.help_text import format_sections, nearest, unrecognized

VERB_GROUPS = (status, top, logs, models, sessions, chat)
TIMEOUT_S_DEFAULT = 10.0
ALIASES: dict[str, tuple[str, ...]] = {
    "ps": ("sessions", "list"), "run": ("chat",), "ls": ("models", "list"),
    "list": ("models", "list"), "show": ("models", "show"), "pull": ("models", "pull"), "rm": ("models", "remove"),
}  # fmt: skip
"""Maps verbs of Ollama and Docker to the verbs of llmctl that do the same."""
ELSEWHERE = {
    "serve": "llmctl does not start llmd: run llmd MODEL, or systemctl start llmd",
    "stop": "llmctl does not stop llmd: press Ctrl-C in its terminal, or run systemctl stop llmd; "
    "to end a session, run llmctl sessions close ID",
}
"""Verbs of Ollama and Docker for which llmctl has no verb. Each is mapped to a sentence that tells the user what to do
instead.
"""
OTHER_MODEL = "llmctl run starts a chat with the model that llmd serves; to serve another model, run llmd {}"
VALUED = ("--socket", "--timeout")
"""Options that have a value and can come before the verb."""


class VerbParser(argparse.ArgumentParser):
    """A parser with better errors about unknown options. The error names the unknown option and the most similar known
    option. argparse alone would skip the unknown option. It would then take the option's value for another argument,
    such as the verb, and report a wrong error.
    """

    _words: Sequence[str] = ()

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        self._words = sys.argv[1:] if args is None else list(args)
        options, strange = super().parse_known_args(self._words, namespace)
        if strange:
            super().error(self._about(strange))
        return options, strange

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Reports an error if the verb is unknown. The error suggests the most similar verb. argparse's own error would
        list all verbs.
        """
        choices = list(action.choices or ())
        if isinstance(action, argparse._SubParsersAction) and value not in choices:
            if self.prog == manual.PROGRAM and value in ELSEWHERE:
                self.error(ELSEWHERE[value])
            self.error(f"there is no verb {value}{nearest(value, choices)}; {self.prog} --help lists all verbs")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        strange = self._strange()
        super().error(self._about([strange]) if strange else message)

    def _strange(self) -> str | None:
        """Returns the first unknown option on the command line. Returns None if no option is unknown, or if a verb or
        another argument comes before the unknown option.
        """
        is_value = False
        for word in self._words:
            if is_value:
                is_value = False
                continue
            if word == "--" or not word.startswith("--"):
                return None
            flag, has_value, _ = word.partition("=")
            actions = [action for name, action in self._option_string_actions.items() if name.startswith(flag)]
            if not actions:
                return word
            is_value = not has_value and actions[0].nargs != 0
        return None

    def _about(self, strange: Sequence[str]) -> str:
        return f"{unrecognized(strange, self._option_string_actions)}; {self.prog} --help lists all options"


def shared_options(defaults: bool) -> argparse.ArgumentParser:
    """Returns a parser with the options that can come before or after the verb. `defaults` says whether the parser sets
    defaults for these options. Only the parser of the whole command line sets them. If the parser of the verb set
    defaults, too, these defaults would overwrite an option that comes before the verb.
    """
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("everywhere")

    def default(value: object) -> object:
        return value if defaults else argparse.SUPPRESS

    group.add_argument(
        "--socket",
        metavar="PATH",
        default=default(None),
        help="unix socket of llmd (default: LLMD_SOCKET, else the socket of this user's llmd)",
    )
    group.add_argument("--json", action="store_true", default=default(False), help="print the answer of llmd as JSON")
    group.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        default=default(None),
        help="maximum time to wait for output of llmd (default: 10; without limit for chat, save, load, park and fork)",
    )
    return parser


def seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def parser() -> argparse.ArgumentParser:
    program: argparse.ArgumentParser = VerbParser(
        prog=manual.PROGRAM,
        description=manual.DESCRIPTION,
        epilog=format_sections(manual.EXAMPLES, manual.EXIT_STATUSES, manual.READ_ON),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[shared_options(defaults=True)],
    )
    program.add_argument("--version", action="version", version=f"llmctl {llmd.__version__}")
    verbs = program.add_subparsers(title="verbs", metavar="VERB", required=True)
    for group in VERB_GROUPS:
        group.register(verbs, shared_options(defaults=False))
    help_parser = verbs.add_parser(
        "help", help="show the help of a verb", description="Show the help of a verb, as VERB --help does."
    )
    help_parser.add_argument(
        "words", metavar="VERB", nargs="*", help="a verb, such as sessions fork (default: llmctl itself)"
    )
    return program


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        output.prepare()
        return run(parsed(arguments))
    except BrokenPipeError:  # the program that reads the output has closed the pipe
        return EXIT_PIPE_CLOSED
    except output.StreamFailed as error:
        output.remark(f"llmctl: {error}")
        return EXIT_STREAM
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def without_aliases(arguments: Sequence[str], program: argparse.ArgumentParser) -> list[str]:
    """Returns the arguments. If the verb is an alias, such as `ps`, it is replaced by llmctl's own verb, such as
    `sessions list`.
    """
    words, at = list(arguments), 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in VALUED else 1
    alias, rest = words[at : at + 1], words[at + 1 :]
    if not alias or alias[0] not in ALIASES:
        return words
    if alias == ["run"] and rest and not rest[0].startswith("-"):
        program.error(OTHER_MODEL.format(rest[0]))
    return [*words[:at], *ALIASES[alias[0]], *rest]


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    try:
        program = parser()
        words = without_aliases(sys.argv[1:] if arguments is None else arguments, program)
        options = program.parse_args(words)
        if "words" not in options:
            return options
        return program.parse_args([*without_aliases(options.words, program), "--help"])
    except SystemExit:
        output.finish()
        raise


def run(options: argparse.Namespace) -> int:
    socket_path = options.socket or default_socket()
    client = Client(socket_path, options.timeout or TIMEOUT_S_DEFAULT, options.timeout)
    try:
        if getattr(options, "needs_daemon", True):
            llmd.process.socket_trust.check_socket(Path(socket_path))
        code: int | None = options.run(Context(client, options, options.json))
    except llmd.process.socket_trust.UntrustedSocketError as error:
        complain(options.json, {"code": "socket_untrusted", "message": str(error)}, str(error))
        return EXIT_ABSENT
    except DaemonAbsent as absent:
        complain(options.json, {"code": f"daemon_{absent.reason}", "message": str(absent)}, advice.advice(absent))
        return EXIT_ABSENT
    except DaemonRefused as refused:
        complain(options.json, refused.error, refusal(refused))
        return EXIT_NOT_FOUND if refused.status == 404 else EXIT_REFUSED
    except ModelError as error:
        complain(options.json, {"code": "model_unavailable", "message": str(error)}, str(error))
        return EXIT_REFUSED
    except resident.Unreadable as error:
        complain(options.json, {"code": "native_library_missing", "message": str(error)}, str(error))
        return EXIT_REFUSED
    return EXIT_OK if code is None else code


def default_socket() -> str:
    return os.environ.get("LLMD_SOCKET") or str(llmd.process.socket_trust.default_socket())


def refusal(refused: DaemonRefused) -> str:
    code = f" ({refused.code})" if refused.code else ""
    later = f"; try again in {refused.retry_after} s" if refused.retry_after else ""
    return f"{refused}{code}{later}"


def complain(as_json: bool, error: dict[str, object], text: str) -> None:
    output.remark(json.dumps({"error": error}) if as_json else printable(f"llmctl: {text}"))


if __name__ == "__main__":
    sys.exit(main())
