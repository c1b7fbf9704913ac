"""Decides which clients can use the server. API keys identify owners. The Host and Origin headers reveal requests that
a web page makes in a browser.

The only I/O of this module is reading the key file, and reading or creating the salt. The salt is a random number that
is hashed together with each key that has no name.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..core import limits
from ..core.errors import ApiError, quoted

ADMIN_WORD = "admin"
EVERYBODY = "*"


class KeyFileError(Exception):
    """Raised if the key file or the salt cannot be used. The message says what is wrong, and in which line."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request. `owner` is the number of the owner of the sessions that the request uses. No owner can
    see or reuse the sessions of another owner. Only an administrator can list and change the sessions of all owners.
    """

    owner: int
    name: str
    is_admin: bool


LOCAL = Caller(owner=0, name="local", is_admin=True)
"""The caller of every request over the unix socket. The permissions of the socket's file decide who can connect."""
OWN_USER = Caller(LOCAL.owner, LOCAL.name, is_admin=False)
"""If no keys are set, the caller of a TCP connection from the user that runs the daemon. This caller has the same
sessions as a client of the unix socket, but no rights over the sessions of other owners. Otherwise a proxy that runs as
this user would pass these rights on to the proxy's own clients.
"""
ANYBODY = Caller(owner=limits.UINT32_MAX, name="anybody", is_admin=False)
"""If no keys are set, the caller of a TCP connection whose user the kernel does not know. An example is a client on
another machine.
"""
_ROOT_OWNER = limits.UINT32_MAX - 1
"""The owner number of root. It is not root's user id, 0, because 0 is the owner number of LOCAL."""
_USER_PREFIX = "uid-"


def caller_of(user: int | None) -> Caller:
    """Returns the caller of a TCP connection if no keys are set. `user` is the user id of the client's program, or None
    if the kernel does not know the user. Each user of this machine is an owner. The owner's number is the user id,
    except for root and for the user that runs the daemon.
    """
    if user == os.geteuid():
        return OWN_USER
    if user is None or user >= _ROOT_OWNER:
        return ANYBODY
    return Caller(user or _ROOT_OWNER, f"{_USER_PREFIX}{user}", is_admin=False)


def _owner_of_user(name: str) -> int | None:
    digits = name.removeprefix(_USER_PREFIX)
    if digits == name or not digits.isascii() or not digits.isdigit() or len(digits) > len(str(limits.UINT32_MAX)):
        return None
    return caller_of(int(digits)).owner


@dataclass(frozen=True, slots=True)
class Key:
    digest: bytes
    caller: Caller
    n_chars: int


class KeyRing:
    """The API keys with which clients can use the TCP port. If no keys are set, everybody can use the port (see
    `caller_of`).
    """

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys = tuple(keys)
        known = (LOCAL, *((key.caller for key in self._keys) if self._keys else (ANYBODY,)))
        self._owners = {caller.name: caller.owner for caller in known}
        self._names = {owner: name for name, owner in self._owners.items()}

    @property
    def is_open(self) -> bool:
        return not self._keys

    @property
    def n_owners(self) -> int:
        """Number of owners that have keys. LOCAL, the owner of the unix socket, does not count, because the socket is
        for administration.
        """
        return max(1, len({key.caller.owner for key in self._keys}))

    def __len__(self) -> int:
        return len(self._keys)

    def guessable(self) -> list[str]:
        """Returns the names of the owners with short keys. An attacker could guess such a key."""
        return [key.caller.name for key in self._keys if key.n_chars < limits.KEY_CHARS_MIN_ADVISED]

    def name_of(self, owner: int) -> str | None:
        """Returns the owner's name, or None if the keys of this owner were removed from the key file."""
        user = f"{_USER_PREFIX}{0 if owner == _ROOT_OWNER else owner}" if self.is_open else None
        return self._names.get(owner) or user

    def owner_by_name(self, name: str) -> int | None:
        owner = self._owners.get(name)
        return _owner_of_user(name) if owner is None and self.is_open else owner

    def caller(self, authorization: str | None, x_api_key: str | None) -> Caller:
        """Returns the caller whose API key one of these headers contains. Raises ApiError if neither header contains a
        known key. Compares the header's key with every known key, even after a match. So the time of the comparison
        reveals nothing about the known keys.
        """
        scheme, _, token = (authorization or "").partition(" ")
        secret = token.strip() if scheme.lower() == "bearer" else (x_api_key or "").strip()
        digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
        found: Caller | None = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key.caller
        if found is None:
            raise ApiError("invalid_api_key")
        return found


# --- the key file ----------------------------------------------------------------------------------------------------

_SPACE = re.compile(r"[ \t]+")
_KEY = re.compile(r"[!-~]+")  # clients differ in how they encode other characters
_RESERVED_NAMES = (LOCAL.name, ANYBODY.name)


_SALT_FILE = "key-salt"
_SALT_BYTES = 32
_SALT_OF_PROCESS = secrets.token_bytes(_SALT_BYTES)


Salt = Callable[[], bytes]
"""Type of a function that returns the salt, and raises KeyFileError if it cannot. Called only if a key has no name."""


def owner_of(name: str | None, key: str, salt: Salt = bytes) -> int:
    """Returns the owner's number, which is above 0 and the same after every start. The number is a hash of the name. So
    an owner with a new key of the same name keeps all sessions. If the key has no name, the number is a hash of the key
    and the salt. Listings and file names show the number. Without the salt, a guessed key could be checked against the
    number.
    """
    if name is not None:
        digest = hashlib.sha256(f"name {name}".encode()).digest()
    else:
        digest = hmac.digest(salt(), key.encode(), "sha256")
    return int.from_bytes(digest[:4], "little") or 1


def salt_of(state_dir: Path | None) -> bytes:
    """Returns the salt, a random number that is stored in the state directory. Without a state directory, the salt
    differs from process to process. Raises KeyFileError.
    """
    if state_dir is None:
        return _SALT_OF_PROCESS
    path = state_dir / _SALT_FILE
    try:
        salt = (path.read_bytes() if path.exists() else b"") or _new_salt(path)
    except OSError as error:
        raise KeyFileError(f"--state-dir: cannot create or read {path}: {error.strerror}") from None
    if len(salt) != _SALT_BYTES:
        raise KeyFileError(
            f"--state-dir: {path} is damaged; remove this file. Keys without a name then lose their sessions"
        )
    return salt


def _new_salt(path: Path) -> bytes:
    """Creates the file with the salt, and returns the salt. If two daemons do this in the same state directory at the
    same time, both use the salt of the daemon that locks the file first.
    """
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        salt = file.read()
        if not salt:
            salt = secrets.token_bytes(_SALT_BYTES)
            file.write(salt)
            file.flush()
            os.fsync(file.fileno())
            _sync(path.parent)
    return salt


def _sync(directory: Path) -> None:
    """Syncs the directory of a new salt file. Otherwise a power cut could remove the file's name from the directory,
    and the next start would create another salt.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def keys_of(path: Path | None, state_dir: Path | None) -> KeyRing:
    """Returns the keys in the key file. If `path` is None, returns a KeyRing without keys, which lets everybody use the
    TCP port. Raises KeyFileError.
    """
    return read_keys(path, cache(lambda: salt_of(state_dir))) if path is not None else KeyRing()


def read_keys(path: Path, salt: Salt = bytes) -> KeyRing:
    """Reads the keys from a file whose lines are `KEY [NAME] [admin]`. A # at the beginning of a line, or after a
    space, begins a comment. Raises KeyFileError.
    """
    keys: dict[bytes, Key] = {}
    names: dict[int, str] = {}
    owners: dict[str, int] = {}
    for number, line in enumerate(_text_of(path).split("\n"), 1):
        if words := _words(line):
            where = f"--api-key-file: {path} line {number}"
            key = _key(where, number, words, salt)
            if key.digest in keys:
                raise KeyFileError(f"{where}: the file has this key twice; remove one of the lines")
            _check_owner(where, key.caller, names, owners)
            keys[key.digest] = key
            if len(keys) > limits.KEYS_MAX:
                raise KeyFileError(f"{where}: the file has more than {limits.KEYS_MAX} keys, the limit")
    if not keys:
        raise KeyFileError(f"--api-key-file: {path} has no key; add a line KEY [NAME] [admin]")
    return KeyRing(keys.values())


def _open_nonblocking(path: str, flags: int) -> int:
    """Opens the key file; does not block if the path is a pipe. `_text_of` passes this function to Python's `open` as
    its opener. `open` refuses a directory. It then closes the descriptor that the opener has returned. It would not
    close a descriptor that was passed instead of the path.
    """
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _text_of(path: Path) -> str:
    """Checks the mode of the key file and returns its text. Uses one descriptor for the check and for reading. So
    nobody can replace the file in between.
    """
    try:
        with open(path, "rb", opener=_open_nonblocking) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise KeyFileError(f"--api-key-file: {path} is not a regular file")
            mode = stat.S_IMODE(found.st_mode)
            if mode & 0o007:
                raise KeyFileError(
                    f"--api-key-file: {path} has mode {mode:04o}: other users have access; "
                    f"use: chmod {mode & 0o770:03o} {path}"
                )
            data = file.read(limits.KEY_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise KeyFileError(f"--api-key-file: cannot read {path}: {error.strerror}") from None
    if len(data) > limits.KEY_FILE_BYTES_MAX:
        raise KeyFileError(f"--api-key-file: {path} has more than {limits.KEY_FILE_BYTES_MAX} bytes, the limit")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise KeyFileError(f"--api-key-file: {path} line {line} is not valid UTF-8") from None


def _words(line: str) -> list[str]:
    """Splits a line of the key file into words and drops the comment. A # inside a word belongs to the word, because
    keys can contain #.
    """
    words = [word for word in _SPACE.split(line.removesuffix("\r")) if word]
    comment = next((at for at, word in enumerate(words) if word.startswith("#")), len(words))
    return words[:comment]


def _key(where: str, number: int, words: list[str], salt: Salt) -> Key:
    secret, *rest = words
    is_admin = ADMIN_WORD in rest
    names = [word for word in rest if word != ADMIN_WORD]
    if len(names) > 1:
        raise KeyFileError(f"{where}: expected KEY [NAME] [admin], where NAME is one word")
    if not _KEY.fullmatch(secret):
        raise KeyFileError(
            f"{where}: the key has characters other than printable ASCII. Clients encode such characters differently. "
            "Choose another key"
        )
    name = names[0] if names else None
    if name is not None:
        _check_name(where, name)
    caller = Caller(owner_of(name, secret, salt), name or f"key-{number}", is_admin)
    return Key(hashlib.sha256(secret.encode()).digest(), caller, len(secret))


def _check_name(where: str, name: str) -> None:
    if not name.isprintable() or len(name) > limits.OWNER_NAME_CHARS_MAX:
        raise KeyFileError(
            f"{where}: the name {quoted(name)} is not valid: use 1 to {limits.OWNER_NAME_CHARS_MAX} printable "
            "characters"
        )
    if name.isdigit():
        raise KeyFileError(f"{where}: the name {name} has only digits, like the numbers of owners; add a letter")
    if name in _RESERVED_NAMES:
        raise KeyFileError(f"{where}: {name} is reserved for clients without a key; choose another name")


def _check_owner(where: str, caller: Caller, names: dict[int, str], owners: dict[str, int]) -> None:
    """Raises KeyFileError if `caller` has the number or the name of another owner in the file. Adds the caller to
    `names` and `owners`, which contain the owners of the lines before.
    """
    other = names.setdefault(caller.owner, caller.name)
    if other != caller.name:
        raise KeyFileError(
            f"{where}: {caller.name} and {other} have the same owner number, {caller.owner}; change one of the names"
        )
    if owners.setdefault(caller.name, caller.owner) != caller.owner:
        raise KeyFileError(
            f"{where}: two owners have the name {caller.name}. Give one of these keys another name. A key without a "
            "name gets the name key-LINE"
        )


# --- requests of web pages -------------------------------------------------------------------------------------------

_HOST_OF_CONTAINERS = ("host.docker.internal", "gateway.docker.internal", "host.containers.internal")
"""Names by which programs in a container of Docker or Podman reach the host. Public DNS has no names that end with
.internal. So no web page can have such a host name.
"""


def check_host(host: str | None, allowed: tuple[str, ...]) -> None:
    """Refuses a request whose Host header is not a name of this server. This stops DNS rebinding. In such an attack,
    the attacker makes the host name of a web page point to this machine. The Host header then has the host name of that
    page.
    """
    name = host_name(host or "")
    if EVERYBODY in allowed or _is_own_name(name) or (name and any(host_name(one) == name for one in allowed)):
        return
    raise ApiError(
        "forbidden_host",
        f"The Host header {quoted(host)} is not a name of this server. Start llmd with --allowed-hosts to allow it.",
    )


def host_name(host: str) -> str:
    """Returns the host name or IP address of a Host header in lower case, without port and brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def _is_own_name(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost") or name in _HOST_OF_CONTAINERS:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def check_origin(origin: str | None, host: str | None, allowed: tuple[str, ...]) -> bool:
    """Returns True if the request comes from a page of another site, and `allowed` contains this site. The answer then
    needs CORS headers. Returns False if the request comes from no web page, or from a page of this server. Raises
    ApiError if the page's site is not allowed.
    """
    if origin is None:
        return False
    if origin.partition("://")[2].lower() == (host or "").lower() and origin != "null":
        return False
    if EVERYBODY in allowed or any(_origin(one) == _origin(origin) for one in allowed):
        return True
    raise ApiError(
        "forbidden_origin",
        f"Pages of {quoted(origin)} are not allowed to call this server. Start llmd with --allowed-origins to allow "
        "them.",
    )


def _origin(text: str) -> str:
    """Returns an origin as browsers send it, in lower case and with no slash at the end."""
    return text.strip().lower().rstrip("/")
