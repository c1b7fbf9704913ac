"""The man pages llmd(1), llmctl(1) and llmd.toml(5)."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator

import llmd
from llmd.ctl import __main__ as ctl
from llmd.ctl import manual as llmctl
from llmd.ctl.context import add_id
from llmd.process import manual as daemon
from llmd.process.config_table import OPTIONS
from llmd.process.help_text import Section
from llmd.process.option import Option
from tools.manual import roff
from tools.verbs import Verb, flag, verbs

# Defaults that depend on the user who starts the daemon.
DEFAULTS = {
    "socket": "/run/llmd/llmd.sock for root, else $XDG_RUNTIME_DIR/llmd/llmd.sock, without that variable "
    "/tmp/llmd-UID/llmd.sock",
    "state_dir": "/var/lib/llmd for root, else ~/.local/state/llmd",
}


def default(option: Option) -> str:
    """Returns the default in a form that is right for all users, or "" if the option has no default or its help
    contains it.
    """
    return "" if "(default:" in option.help else DEFAULTS.get(option.name) or option.default_text()


def pages() -> dict[str, str]:
    """Returns the pages, by their paths below share/."""
    return {
        "man/man1/llmd.1": _llmd(),
        "man/man1/llmctl.1": _llmctl(),
        "man/man5/llmd.toml.5": _toml(),
    }


def _header(name: str, chapter: int) -> str:
    stamp = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    return roff.header(name, chapter, time.strftime("%Y-%m-%d", stamp), f"llmd {llmd.__version__}")


def _name(name: str, purpose: str) -> str:
    return roff.section("name", f"{roff.escaped(name)} \\- {roff.escaped(purpose)}")


def _list(section: Section) -> str:
    return roff.section(section.title, roff.listed(section.rows))


def _see_also(*names: str) -> str:
    references = (f".BR {roff.escaped(name)} ({chapter})" for name, _, chapter in (n.partition("/") for n in names))
    return roff.section("see also", " ,\n".join(references))


# --- llmd(1) ---------------------------------------------------------------------------------------------------------


def _llmd() -> str:
    groups = dict.fromkeys(option.group for option in OPTIONS)
    options = (
        roff.subsection(group, *(_option(option) for option in OPTIONS if option.group == group)) for group in groups
    )
    other = roff.subsection(
        "other", roff.item("--version", "Print the version."), roff.item("-h, --help", "Print a summary.")
    )
    return roff.page(
        _header("llmd", 1),
        _name(daemon.PROGRAM, daemon.PURPOSE),
        roff.section("synopsis", "\\fBllmd\\fR [\\fIoptions\\fR] [\\fIMODEL\\fR]"),
        roff.section("description", roff.paragraph(daemon.DESCRIPTION), roff.paragraph(daemon.PRECEDENCE)),
        roff.section("options", roff.paragraph("MODEL is the same as --model MODEL."), *options, other),
        _list(daemon.SIGNALS),
        _list(daemon.EXIT_STATUSES),
        _list(daemon.ENVIRONMENT),
        _list(daemon.FILES),
        roff.section(daemon.EXAMPLES.title, roff.listed(daemon.EXAMPLES.rows), roff.literal(daemon.REQUEST)),
        _see_also("llmctl/1", "llmd.toml/5"),
    )


def _option(option: Option) -> str:
    return roff.item(f"{option.flag} {option.metavar}", _sentence(option.help), _value(option))


def _value(option: Option) -> str:
    """Returns a text about the values that an option accepts, and about its default."""
    shown = default(option)
    return f"Takes {option.kind.expects}." + (f" Default: {shown}." if shown else "")


def _sentence(help: str) -> str:
    return f"{help[0].upper()}{help[1:]}."


# --- llmctl(1) -------------------------------------------------------------------------------------------------------


def _llmctl() -> str:
    shared = ctl.shared_options(defaults=True)._actions
    return roff.page(
        _header("llmctl", 1),
        _name(llmctl.PROGRAM, llmctl.PURPOSE),
        roff.section("synopsis", "\\fBllmctl\\fR [\\fIoptions\\fR] \\fIVERB\\fR ..."),
        roff.section("description", roff.paragraph(llmctl.DESCRIPTION)),
        roff.section(
            "options",
            roff.paragraph("These go before or after the verb; -h after a verb tells about that verb."),
            *map(_argument, shared),
            roff.item("--version", "Print the version."),
        ),
        roff.section(
            "verbs",
            roff.paragraph("Of every verb that is about one session:"),
            *map(_argument, _OF_A_SESSION),
            *(part for verb in verbs() for part in _verb(verb)),
        ),
        *map(_list, (llmctl.EXIT_STATUSES, llmctl.ENVIRONMENT, llmctl.FILES, llmctl.EXAMPLES)),
        _see_also("llmd/1", "llmd.toml/5"),
    )


def _verb(verb: Verb) -> Iterator[str]:
    yield roff.subsection(verb.usage.removeprefix("llmctl "), roff.paragraph(verb.parser.description or ""))
    told = {action.help for action in _OF_A_SESSION}
    yield from (_argument(action) for action in verb.arguments if action.help not in told)
    for block in filter(None, (verb.parser.epilog or "").split("\n\n")):
        yield roff.literal(block) if "  " in block else roff.paragraph(block)


def _argument(action: argparse.Action) -> str:
    return roff.item(flag(action) if action.option_strings else str(action.metavar), _sentence(str(action.help)))


def _of_a_session() -> list[argparse.Action]:
    parser = argparse.ArgumentParser(add_help=False)
    add_id(parser)
    return parser._actions


_OF_A_SESSION = _of_a_session()


# --- llmd.toml(5) ----------------------------------------------------------------------------------------------------


def _toml() -> str:
    keys = (
        roff.item(f"{option.name} = {option.metavar}", _sentence(option.help), _value(option))
        for option in OPTIONS
        if option.name != "config"
    )
    return roff.page(
        _header("llmd.toml", 5),
        _name("llmd.toml", "options of llmd in a file"),
        roff.section("synopsis", "\\fBllmd \\-\\-config\\fR \\fIFILE\\fR"),
        roff.section("description", *map(roff.paragraph, daemon.TOML)),
        roff.section("keys", *keys),
        roff.section("examples", roff.literal(daemon.TOML_EXAMPLE)),
        _list(Section("files", daemon.FILES.rows[-1:])),
        _see_also("llmd/1", "llmctl/1"),
    )
