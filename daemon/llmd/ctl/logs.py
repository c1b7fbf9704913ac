"""llmctl logs: shows the log of llmd if systemd's journal has it. Otherwise says where the log is.

llmd writes its log to standard error, so the program that has started llmd decides where the log is.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from llmd.ctl import advice, text
from llmd.ctl.client import DaemonAbsent
from llmd.ctl.context import EXIT_ABSENT, EXIT_OK, EXIT_REFUSED, Context, Verbs, add_verb

EPILOG = """\
If llmd is a systemd service, llmctl runs journalctl for its unit. Without systemd, llmd writes its log to standard
error, and llmctl says which terminal, file or program that is.

examples:
  llmctl logs                     show the last 100 lines
  llmctl logs -f                  show new lines, too, until you press Ctrl-C
  llmctl logs -n all              show all lines
  llmctl --json logs              show journald's fields of each line as JSON

To log more, start llmd with --log-level debug, or set LLMD_LOG_LEVEL=debug in /etc/llmd/llmd.env.
"""
N_LINES_DEFAULT = "100"
PROC, SYSTEMD = Path("/proc"), Path("/run/systemd/system")
"""SYSTEMD exists if systemd is the system's service manager. See sd_booted(3)."""
SYSTEM_SOCKET = re.compile(r"/run/llmd/(?:([^/]+)/)?llmd\.sock")
"""The sockets of the units in systemd/: of llmd.service, and of llmd@NAME.service."""
USER_SOCKET = re.compile(r"/run/user/\d+/llmd/llmd\.sock")
_ANSWER_S_MAX = 10.0


@dataclass(frozen=True)
class Unit:
    name: str
    is_user: bool
    """True for a unit of the user's service manager, false for a unit of the system's service manager."""


@dataclass(frozen=True)
class Place:
    """Where the log of a running daemon is."""

    unit: Unit | None
    target: str | None
    """The file behind standard error, as in /proc. None if this user has no permission to see it."""

    @property
    def may_be_journal(self) -> bool:
        """True if standard error can be a socket of the journal. A service can also write its log elsewhere."""
        return self.target is None or self.target.startswith("socket:")


def register(verbs: Verbs, shared: argparse.ArgumentParser) -> None:
    parser = add_verb(verbs, shared, "logs", run, "show the log of llmd, or say where it is", epilog=EPILOG)
    parser.add_argument("-f", "--follow", action="store_true", help="go on with new lines, until Ctrl-C")
    parser.add_argument(
        "-n",
        "--lines",
        metavar="N",
        type=n_lines,
        default=N_LINES_DEFAULT,
        help=f"number of lines to show, or all (default: {N_LINES_DEFAULT})",
    )


def n_lines(word: str) -> str:
    if word != "all" and not (word.isascii() and word.isdigit()):
        raise argparse.ArgumentTypeError("must be a number or all")
    return word


def run(context: Context) -> int:
    path = os.path.abspath(context.client.socket_path)
    try:
        pid = context.client.live().get("pid")
    except DaemonAbsent as absent:
        unit = unit_of_socket(path)
        if unit is not None:
            return read_journal(context, unit)
        sentences = where_absent(absent)
        context.say({"pid": None, "log": None}, lambda: sentences)
        return EXIT_ABSENT
    place = place_of(pid) if isinstance(pid, int) else None
    if place is not None and place.unit is not None and place.may_be_journal:
        return read_journal(context, place.unit)
    context.say({"pid": pid, "log": place and place.target}, lambda: where(pid, place))
    return EXIT_OK


def read_journal(context: Context, unit: Unit) -> int:
    """Replaces this process by journalctl. Returns an exit status only if this fails."""
    options = context.options
    command = ["journalctl", "--no-pager", f"--{'user-' if unit.is_user else ''}unit={unit.name}"]
    command += [f"--lines={options.lines}", *(["--follow"] if options.follow else [])]
    command += ["--output=json"] if context.json else []
    try:
        os.execvp(command[0], command)
    except OSError as error:
        context.warn(f"the log is in systemd's journal, but journalctl cannot be run: {error.strerror or error}")
        return EXIT_REFUSED


# --- a daemon that runs ----------------------------------------------------------------------------------------------


def place_of(pid: int) -> Place | None:
    """Returns None if the process with this pid is missing on this machine, or is not llmd. llmd then runs in a
    container.
    """
    process = PROC / str(pid)
    try:
        if b"llmd" not in (process / "cmdline").read_bytes():
            return None
        groups = (process / "cgroup").read_text(errors="replace")
    except OSError:
        return None
    try:
        target = os.readlink(process / "fd" / "2")
    except OSError:
        target = None
    return Place(unit_of_groups(groups), target)


def unit_of_groups(groups: str) -> Unit | None:
    """Returns the unit of a process whose control groups are `groups`, as in /proc/PID/cgroup. Returns None if it is
    not a service, for example a login session or a container.
    """
    for line in groups.splitlines():
        _, _, place = line.partition(":")
        controllers, _, path = place.partition(":")
        if controllers in ("", "name=systemd") and path.endswith(".service"):
            return Unit(path.rpartition("/")[2], "/user@" in path)
    return None


def where(pid: object, place: Place | None) -> str:
    llmd = f"llmd (pid {text.printable(str(pid))})"
    if place is None:
        return (
            f"{llmd} is not a process that this user can see, so it probably runs in a container. "
            "Its log is the container's: podman logs NAME or docker logs NAME"
        )
    target = text.printable(place.target or "")
    if target == "/dev/null":
        return f"{llmd} discards its log: its standard error is /dev/null. To keep a log, start llmd with 2> FILE"
    if target.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
        return f"{llmd} writes its log to the terminal {target}. To keep a log, start llmd with 2> FILE"
    if target.startswith("/"):
        return f"{llmd} writes its log to the file {target}. To follow it: tail -f '{target}'"
    reader = "the program that has started llmd reads it" if target else "this user may not see where that leads"
    return f"{llmd} is no systemd service and writes its log to standard error; {reader}"


# --- no daemon answers -----------------------------------------------------------------------------------------------


def unit_of_socket(path: str) -> Unit | None:
    """Returns the unit whose daemon has this socket, or None if there is no such unit on this machine."""
    if not SYSTEMD.is_dir():
        return None
    if found := SYSTEM_SOCKET.fullmatch(path):
        unit = Unit(f"llmd@{found[1]}.service" if found[1] else "llmd.service", False)
    elif USER_SOCKET.fullmatch(path):
        unit = Unit("llmd.service", True)
    else:
        return None
    return unit if is_loaded(unit) else None


def is_loaded(unit: Unit) -> bool:
    command = ["systemctl", *(["--user"] if unit.is_user else []), "show", "--property=LoadState", unit.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S_MAX, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.stdout.strip() == "LoadState=loaded"


def where_absent(absent: DaemonAbsent) -> str:
    return (
        f"{advice.sentence(absent)}, and no systemd unit has this socket. llmd writes its log to standard error, so "
        "look at the terminal, file or container in which it was started."
    )
