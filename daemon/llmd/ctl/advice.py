"""Advice for the user when no daemon answers."""

from __future__ import annotations

import glob
import os
import stat

from llmd.ctl.client import DaemonAbsent

SENTENCES = {
    "missing": "there is no socket at {path}",
    "refused": "{path} is there, but nobody listens on it: llmd has stopped",
    "starting": "llmd at {path} is starting: it still loads its model",
    "no_socket": "{path} is not a socket",
    "unreachable": "{path} cannot be connected to: {detail}",
    "forbidden": "{path} may not be used by this user",
    "silent": "llmd at {path} did not answer in time",
    "gone": "llmd at {path} broke off in the middle of its answer",
    "foreign": "what answers at {path} is not llmd",
    "segment_missing": "there is no shared segment of a daemon at {path}",
    "segment_version": "the daemon at {path} writes its shared segment in another version",
    "segment_forbidden": "the shared segment of the daemon at {path} may not be read by this user",
}

START = """\
is llmd running?      systemctl status llmd    or, from a checkout:  ./build.sh serve
is it another socket? llmctl --socket PATH, or LLMD_SOCKET=PATH"""
BUSY = """\
give it more time:    llmctl --timeout SECONDS
look past its loop:   llmctl sessions show ID --tokens"""
OTHER = "use its own llmctl:   the one installed beside llmd"
ROOT = "be its owner:         sudo llmctl"
CRASHED = "what it said last:    journalctl -u llmd -e"
WAIT = "how far it is:        journalctl -u llmd -e, or the terminal in which it was started"
HELP = {"silent": BUSY, "starting": WAIT, "gone": CRASHED, "segment_version": OTHER, "segment_forbidden": ROOT}
PLACES = ("/run/llmd/llmd.sock", "/run/llmd/*/llmd.sock", "{run}/llmd/llmd.sock", "/tmp/llmd-*/llmd.sock")


def advice(absent: DaemonAbsent) -> str:
    """The error in a sentence, then what a person can try."""
    lines = [SENTENCES[absent.reason].format(path=absent.socket_path, detail=absent.detail)]
    if absent.reason == "forbidden":
        lines.append(f"its permissions:      {permissions(absent.socket_path)}; try sudo llmctl")
    elif absent.reason in HELP:
        lines.append(HELP[absent.reason])
    else:
        lines.append(START)
        lines += [f"there is a socket at  {path}" for path in others(absent.socket_path)]
    return "\n  ".join("\n".join(lines).splitlines())


def permissions(path: str) -> str:
    """Returns the mode and owner of the socket, or of the first directory that hides it."""
    for place in (path, os.path.dirname(path), os.path.dirname(os.path.dirname(path))):
        try:
            found = os.stat(place)
        except OSError:
            continue
        return f"{stat.filemode(found.st_mode)} uid {found.st_uid} gid {found.st_gid} {place}"
    return "unknown"


def others(path: str) -> list[str]:
    """Sockets in the usual places, the one that failed left out."""
    run = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")
    found = {place for pattern in PLACES for place in glob.glob(pattern.format(run=run))}
    return sorted(found - {path})
