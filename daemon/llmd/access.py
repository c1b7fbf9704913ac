"""Who may ask: API keys, and the Host and Origin headers that tell a program from a hijacked browser. No I/O but the
key file's."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .errors import ApiError, shown

ADMIN_WORD = "admin"
EVERYBODY = "*"


class KeyFileError(Exception):
    """The key file cannot be used; the message names the line and what is wrong."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request it is. Sessions of different owners never meet."""

    owner: int
    name: str
    is_admin: bool


LOCAL = Caller(owner=0, name="local", is_admin=True)
"""The unix socket: its permissions are the access control."""
ANYBODY = Caller(owner=0, name="anybody", is_admin=False)
"""The TCP port of a daemon without keys."""


@dataclass(frozen=True, slots=True)
class Key:
    digest: bytes
    caller: Caller


def owner_of(key: str) -> int:
    """A stable number above 0: the key's own, without telling the key."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "little") or 1


class KeyRing:
    """The keys that may use the TCP port. Without any, everybody may."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys = tuple(keys)

    @property
    def is_open(self) -> bool:
        return not self._keys

    def caller(self, authorization: str | None, x_api_key: str | None) -> Caller:
        """Raises ApiError. Looks at every key, so that the time taken tells nothing."""
        if self.is_open:
            return ANYBODY
        scheme, _, token = (authorization or "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else (x_api_key or "").strip()
        digest = hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest()
        found: Caller | None = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key.caller
        if found is None:
            raise ApiError("invalid_api_key")
        return found


def read_keys(path: Path) -> KeyRing:
    """Lines of `KEY [NAME] [admin]`; # begins a comment. Raises KeyFileError."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KeyFileError(f"--api-key-file: cannot read {path}: {error}") from None
    if mode & 0o007:
        raise KeyFileError(f"--api-key-file: {path} has mode {mode:04o}, open to others; use: chmod 600 {path}")
    keys: dict[bytes, Key] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if words:
            key = _key(path, number, words)
            if key.digest in keys:
                raise KeyFileError(f"--api-key-file: {path} line {number}: this key is there twice")
            keys[key.digest] = key
    if not keys:
        raise KeyFileError(f"--api-key-file: {path} holds no key")
    return KeyRing(keys.values())


def _key(path: Path, number: int, words: list[str]) -> Key:
    secret, *rest = words
    is_admin = ADMIN_WORD in rest
    names = [word for word in rest if word != ADMIN_WORD]
    if len(names) > 1:
        raise KeyFileError(f"--api-key-file: {path} line {number}: expected KEY [NAME] [admin]")
    caller = Caller(owner_of(secret), names[0] if names else f"key-{number}", is_admin)
    return Key(hashlib.sha256(secret.encode()).digest(), caller)


# --- browsers --------------------------------------------------------------------------------------------------------


def check_host(host: str | None, allowed: tuple[str, ...]) -> None:
    """A web page whose name was rebound to this machine sends that name: only names of our own are answered."""
    name = host_name(host or "")
    if EVERYBODY in allowed or name in allowed or _is_own_name(name):
        return
    raise ApiError("forbidden_host", f"Host {shown(host)} is no name of this server; --allowed-hosts can allow it.")


def host_name(host: str) -> str:
    """The name of a Host header, without port and brackets, in lower case."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def _is_own_name(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def check_origin(origin: str | None, host: str | None, allowed: tuple[str, ...]) -> bool:
    """True when the page is another site's that was allowed, and needs CORS headers; raises ApiError for others."""
    if origin is None:
        return False
    if origin.partition("://")[2].lower() == (host or "").lower() and origin != "null":
        return False
    if EVERYBODY in allowed or origin.rstrip("/") in allowed:
        return True
    raise ApiError(
        "forbidden_origin", f"Pages of {shown(origin)} may not call this server; --allowed-origins can allow them."
    )
