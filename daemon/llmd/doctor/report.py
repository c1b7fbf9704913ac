"""The command line of `llmd doctor`: runs all checks and prints their findings."""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from ..process.config_checks import n_processors
from ..process.config_reader import load_or_exit
from ..process.config_table import Config
from . import places, process_limits, services
from .finding import Finding

_JSON = "--json"


def main(arguments: Sequence[str]) -> int:
    """Runs `llmd doctor`. `arguments` can have --json and the options of llmd that are to be checked. Returns the exit
    status: 1 if something is wrong, otherwise 0.
    """
    config = load_or_exit([one for one in arguments if one != _JSON])
    logging.disable()  # no log lines of the checked parts, because the findings say the same
    findings = list(checked(config))
    wrong = [one for one in findings if one.verdict == "wrong"]
    if _JSON in arguments:
        text = json.dumps({"is_ok": not wrong, "findings": [asdict(one) for one in findings]}, indent=2)
    else:
        text = "\n".join([*map(line_of, findings), "", summary(findings)])
    try:
        print(text, flush=True)
    except BrokenPipeError:  # the program that reads the output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1 if wrong else 0


def line_of(found: Finding) -> str:
    advice = f"\n{'':22}{found.advice}" if found.advice else ""
    return f"{found.verdict:<7}{found.subject:<15}{found.fact}{advice}"


def summary(findings: Sequence[Finding]) -> str:
    n = {verdict: sum(one.verdict == verdict for one in findings) for verdict in ("slow", "wrong")}
    if not any(n.values()):
        return "Everything is ok."
    return f"{n['wrong']} wrong, {n['slow']} slow. Each line says what to do."


def checked(config: Config) -> Iterator[Finding]:
    yield from _of_machine(config)
    yield process_limits.open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    yield process_limits.locked_memory(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0])
    yield process_limits.shared_memory(Path("/dev/shm"), process_limits.session_table_bytes(config))
    yield places.state_directory(config.state_dir)
    yield places.port(config.host, config.port)
    yield places.unix_socket(config.socket)
    yield places.access(config.host, config.api_key_file, config.open)
    yield services.users(_reports_users(), config.api_key_file is not None)
    yield services.unit()


def _of_machine(config: Config) -> Iterator[Finding]:
    """Yields the findings for which libllm is needed."""
    try:
        from ..engine import machine, native
        from . import hardware
    except ImportError as error:
        yield Finding("libllm", "wrong", f"{error}.", "Build llmd: ./build.sh setup.")
        return
    yield Finding("libllm", "ok", f"llmd {native.version()} with llama.cpp {native.backend_version()}.")
    devices, measured = machine.devices(), machine.this_machine()
    found, n_model = hardware.model(config.model, config.models_dir)
    yield found
    yield hardware.processor(native.processor())
    yield hardware.cores(measured, config.threads, n_processors())
    yield hardware.gpus(devices, native.gpu_trouble(), config.gpu_layers)
    yield hardware.memory(measured, devices, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), n_model)


def _reports_users() -> bool:
    from ..http.peer_user import PeerUsers

    users = PeerUsers()
    try:
        return users.is_trusted
    finally:
        users.close()
