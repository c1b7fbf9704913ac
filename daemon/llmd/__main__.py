"""The `llmd` command: configuration, sockets, signals, and the life of the process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

import uvloop
from aiohttp import web

from . import __version__, logs, systemd
from .access import KeyFileError
from .config import PROGRAM, load_or_exit
from .listen import BACKLOG, ListenError, Listeners, open_listeners
from .options import Config

if TYPE_CHECKING:
    from .api.context import State

log = logging.getLogger("llmd")

EXIT_FAILED = 1
EXIT_USAGE = 2


class StartError(Exception):
    """The daemon cannot start; the message is for people."""

    def __init__(self, message: str, status: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.status = status


def main() -> None:
    config = load_or_exit(sys.argv[1:])
    logs.configure(config.log_level, config.log_format)
    try:
        _run(config)
    except (StartError, ListenError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        sys.exit(error.status if isinstance(error, StartError) else EXIT_FAILED)


def _run(config: Config) -> None:
    _make_state_dir(config)
    listeners = open_listeners(config)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, listeners))
    finally:
        listeners.close()


def _make_state_dir(config: Config) -> None:
    if config.state_dir is None:
        return
    try:
        config.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StartError(f"--state-dir: cannot make {config.state_dir}: {error.strerror}") from None
    if not os.access(config.state_dir, os.W_OK | os.X_OK):
        raise StartError(f"--state-dir: {config.state_dir} cannot be written to by this user")


async def _serve(config: Config, listeners: Listeners) -> None:
    """Opens, serves until a signal, stops in order."""
    signals = _Signals(listeners)
    app = _create_app(config)
    log.info("starting", extra=logs.fields(version=__version__, pid=os.getpid(), model=config.model))
    from .api.context import STATE
    from .app import runner_of, stop_serving

    runner = runner_of(app)
    await _set_up(runner, config)
    try:
        for listener in listeners.sockets:
            await web.SockSite(runner, listener, backlog=BACKLOG).start()
        signals.is_serving = True
        _announce(app[STATE], listeners)
        await signals.first.wait()
        await stop_serving(app[STATE])
    finally:
        await runner.cleanup()
    log.info("stopped")


def _create_app(config: Config) -> web.Application:
    """Loads the native library; only here, so that --help works without it."""
    try:
        from .app import create_app

        return create_app(config)
    except ImportError as error:
        raise StartError(str(error)) from error
    except KeyFileError as error:
        raise StartError(str(error), EXIT_USAGE) from None
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"--chat-template-file: {error}", EXIT_USAGE) from None


async def _set_up(runner: web.AppRunner, config: Config) -> None:
    from .engine_open import EngineError

    try:
        await runner.setup()
    except EngineError as error:
        status = EXIT_USAGE if error.field == "chat_template" else EXIT_FAILED
        raise StartError(_blamed(config, error.field, str(error)), status) from None


# Fields of EngineOptions that can be wrong in a way only the engine finds out, and the options that set them.
_OPTIONS = {"model": "model", "n_ctx": "ctx_size", "state_dir": "state_dir", "chat_template": "chat_template_file"}


def _blamed(config: Config, field: str, message: str) -> str:
    """The message with the option that it is about, and its value unless the message has it."""
    if field not in _OPTIONS:
        return message
    name = _OPTIONS[field]
    flag, value = f"--{name.replace('_', '-')}", str(getattr(config, name))
    if message.startswith(f"{field} "):
        return flag + message.removeprefix(field)
    return f"{flag}: {message}" if value in message else f"{flag} {value}: {message}"


class _Signals:
    """SIGTERM and SIGINT: the first stops in order, the second at once. While the model loads, both are the same."""

    def __init__(self, listeners: Listeners) -> None:
        self.first = asyncio.Event()
        self.is_serving = False
        self._listeners = listeners
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: int) -> None:
        if self.is_serving and not self.first.is_set():
            self.first.set()
            return
        log.warning("exiting at once", extra=logs.fields(signal=signal.Signals(number).name))
        self._listeners.close()
        os._exit(128 + number if self.first.is_set() else 0)


def _announce(state: State, listeners: Listeners) -> None:
    """What is served, where, and how to try it."""
    info = state.engine.info
    log.info(
        "serving",
        extra=logs.fields(
            model=state.model_id,
            description=info.description,
            memory=info.memory,
            backend=info.backend,
            threads=info.n_threads,
            context=info.n_ctx,
            sessions=info.n_sessions,
            addresses=" ".join(listeners.addresses()),
        ),
    )
    public = listeners.public_addresses()
    if public and state.keys.is_open:
        log.warning("other machines can reach this server, and no --api-key-file is set: %s", " ".join(public))
    url = next((address for address in listeners.addresses() if address.startswith("http")), None)
    if url is not None and sys.stderr.isatty():
        print(_HOW_TO_TRY.format(url=url), file=sys.stderr)
    systemd.notify("READY=1", f"STATUS=Serving {state.model_id}")


_HOW_TO_TRY = """\
  Try it:  curl -N {url}/v1/chat/completions -H 'content-type: application/json' \\
             -d '{{"messages":[{{"role":"user","content":"hello"}}],"stream":true,"session_id":"a"}}'
  or:      llmctl chat"""


if __name__ == "__main__":
    main()
