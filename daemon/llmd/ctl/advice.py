"""Error messages for the case that no daemon answers, with advice for the user."""

from __future__ import annotations

import glob
import os
import stat

from llmd.ctl.client import DaemonAbsent

SENTENCES = {
    "missing": "{path} does not exist",
    "refused": "{path} exists, but no program listens on it: llmd has stopped",
    "starting": "llmd at {path} is starting and still loads its model",
    "no_socket": "{path} is not a socket",
    "unreachable": "cannot connect to {path}: {detail}",
    "forbidden": "this user has no permission to use {path}",
    "silent": "llmd at {path} did not answer in time",
    "gone": "llmd at {path} closed the connection in the middle of an answer",
    "foreign": "the program that answers at {path} is not llmd",
    "segment_missing": "the session table of llmd at {path} does not exist",
    "segment_version": "the session table of llmd at {path} has a version that this llmctl cannot read",
    "segment_forbidden": "this user has no permission to read the session table of llmd at {path}",
}

START = """\
check that llmd runs: systemctl status llmd    or, from a checkout:  ./build.sh serve
check this machine:   llmd doctor
use another socket:   llmctl --socket PATH, or LLMD_SOCKET=PATH"""
BUSY = """\
wait longer:          llmctl --timeout SECONDS
read shared memory:   llmctl sessions show ID --tokens"""
OTHER = "use another llmctl:   the llmctl that is installed next to this llmd"
ROOT = "run as llmd's user:   sudo llmctl"
CRASHED = "read its log:         llmctl logs"
WAIT = "see its progress:     llmctl logs -f"
HELP = {"silent": BUSY, "starting": WAIT, "gone": CRASHED, "segment_version": OTHER, "segment_forbidden": ROOT}
SOCKET_PATTERNS = ("/run/llmd/llmd.sock", "/run/llmd/*/llmd.sock", "{run}/llmd/llmd.sock", "/tmp/llmd-*/llmd.sock")


def advice(absent: DaemonAbsent) -> str:
    """Returns a sentence about why no daemon answered, and lines with things that the user can try."""
    lines = [sentence(absent)]
    if absent.reason == "forbidden":
        lines.append(f"its permissions:      {permissions(absent.socket_path)}; try sudo llmctl")
    elif absent.reason in HELP:
        lines.append(HELP[absent.reason])
    else:
        lines.append(START)
        lines += [f"existing socket:      {path}" for path in others(absent.socket_path)]
    return "\n  ".join("\n".join(lines).splitlines())


def sentence(absent: DaemonAbsent) -> str:
    """Returns why no daemon answered."""
    return SENTENCES[absent.reason].format(path=absent.socket_path, detail=absent.detail)


def permissions(path: str) -> str:
    """Returns the mode, owner and group of the socket. If this user has no permission to see the socket, returns the
    mode, owner and group of the nearest directory above it that the user can see.
    """
    for path_or_parent in (path, os.path.dirname(path), os.path.dirname(os.path.dirname(path))):
        try:
            found = os.stat(path_or_parent)
        except OSError:
            continue
        return f"{stat.filemode(found.st_mode)} uid {found.st_uid} gid {found.st_gid} {path_or_parent}"
    return "unknown"


def others(path: str) -> list[str]:
    """Returns the sockets that exist at the usual paths of llmd, except the one at `path`."""
    run = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")
    found = {path_or_parent for pattern in SOCKET_PATTERNS for path_or_parent in glob.glob(pattern.format(run=run))}
    return sorted(found - {path})
