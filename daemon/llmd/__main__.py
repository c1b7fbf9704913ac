"""The `llmd` command: reads the configuration, opens the sockets, handles signals, and starts and stops the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from . import __version__
from .core import limits
from .http.access import KeyFileError, KeyRing, keys_of
from .models.names import is_hub_name
from .process import config_checks, logs, systemd
from .process.config_reader import load_or_exit, remarks
from .process.config_table import Config
from .process.listen import ListenError, Listeners, open_listeners
from .process.manual import PROGRAM
from .process.socket_trust import make_private

if TYPE_CHECKING:
    from .engine.loader import EngineLoader
    from .http.context import State
    from .http.traces import Traces

log = logging.getLogger("llmd")

EXIT_FAILED = 1
EXIT_USAGE = 2


class StartError(Exception):
    """Raised if the daemon cannot start. The message is printed for the user."""

    def __init__(self, message: str, status: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.status = status


def main() -> None:
    _open_standard_streams()
    if sys.argv[1:2] == ["doctor"]:
        from .doctor import report  # imported here, because the daemon does not need it

        sys.exit(report.main(sys.argv[2:]))
    config = load_or_exit(sys.argv[1:])
    logs.configure(config.log_level, config.log_format)
    for remark in (*remarks(os.environ), *config_checks.remarks(config)):
        log.warning(remark)
    try:
        _run(config)
    except (StartError, ListenError, KeyboardInterrupt) as error:
        sys.exit(_report_failure(error))


def _report_failure(error: BaseException) -> int:
    """Prints why the process ends, and returns its exit status."""
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT  # Ctrl-C was pressed before llmd opened anything
    if isinstance(error, (StartError, ListenError, ImportError)):
        logs.print_fatal(f"{PROGRAM}: {error}")
    else:
        sys.excepthook(type(error), error, error.__traceback__)
    return error.status if isinstance(error, StartError) else EXIT_FAILED


def _open_standard_streams() -> None:
    """Opens /dev/null in place of each standard stream that the caller has closed. Otherwise the next file or socket of
    llmd could get the descriptor of standard error. Log lines would then be written into the model's file, for example.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # /dev/null gets the lowest free descriptor: `descriptor`
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or open(logs.STDERR, "w", encoding="utf-8", closefd=False)


def _run(config: Config) -> None:
    _make_state_dir(config)
    listeners = open_listeners(config)
    try:
        _check_exposure(config, listeners)
        log.info("starting", extra=logs.fields(version=__version__, pid=os.getpid(), model=config.model))
        loader, keys = _prepared(config)
        traces = _traces(config)
        faulthandler.enable(file=logs.STDERR)  # must precede libllm's own crash handler
        _load_and_serve(config, listeners, loader, keys, traces)
    finally:
        listeners.close()


def _check_exposure(config: Config, listeners: Listeners) -> None:
    public = listeners.public_addresses()
    if public and config.api_key_file is None and not config.open:
        raise StartError(
            f"other machines can reach {' '.join(public)}, and llmd has no API keys. Set --api-key-file, or --open on "
            "to let every machine use the model without a key, or --host 127.0.0.1 to serve only this machine",
            EXIT_USAGE,
        )


def _load_and_serve(
    config: Config, listeners: Listeners, loader: EngineLoader, keys: KeyRing, traces: Traces | None
) -> None:
    """Loads the model and serves requests until the engine is closed. If the engine was never opened, because the model
    cannot be loaded or a signal arrived, ends the process with os._exit. A normal exit would wait for the loading
    thread.
    """
    from .engine.opening import EngineError

    try:
        loader.begin()
        import uvloop  # imported here, like the modules of `_serve`, because the model loads meanwhile

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            if runner.run(_serve(config, listeners, loader, keys, traces)):
                return
        status = 0
    except EngineError as error:
        status = _report_failure(_blamed(config, error.field, str(error)))
    except BaseException as error:
        status = _report_failure(error)
    listeners.close()
    os._exit(status)


def _make_state_dir(config: Config) -> None:
    directory = config.state_dir
    if directory is None:
        return
    if directory.parts[:1] == ("~",):
        raise StartError(f"--state-dir: this user has no home directory; {_OTHER_DIRECTORY}", EXIT_USAGE)
    try:
        make_private(directory)
    except OSError as error:
        is_file = isinstance(error, FileExistsError)
        why = f"{error.filename} exists and is not a directory" if is_file else error.strerror
        raise StartError(f"--state-dir: cannot create {directory}: {why}; {_OTHER_DIRECTORY}") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise StartError(f"--state-dir: this user cannot write to {directory}; {_OTHER_DIRECTORY}")


_OTHER_DIRECTORY = "choose another directory, or --state-dir none to keep sessions in memory only"


async def _serve(
    config: Config, listeners: Listeners, loader: EngineLoader, keys: KeyRing, traces: Traces | None
) -> bool:
    """Listens, loads the model, and serves requests until llmd gets SIGTERM or SIGINT, its terminal is closed, or a
    client asks for POST /v1/drain. Then lets running requests finish, saves the sessions and closes everything. Returns
    False if llmd was asked to stop while the model was loading.
    """
    from aiohttp import web

    from .app import create_app, leave, runner_of, stop_serving
    from .http.context import OPENING, STATE

    app = create_app(config, keys, loader, traces)
    state, runner = app[STATE], runner_of(app)
    signals = _Signals(state, listeners)
    await runner.setup()
    try:
        for listener in listeners.sockets:
            await web.SockSite(runner, listener, backlog=limits.BACKLOG).start()
        if not _can_open(config.model):
            await app[OPENING]  # raises EngineError, before the addresses are logged
        log.info("listening", extra=logs.fields(addresses=" ".join(listeners.addresses())))
        await _first_of(app[OPENING], state.leaving)
        if state.loaded_model is not None:
            _announce(state, listeners)
            await leave(state, signals.stop)
        await stop_serving(state)
    finally:
        await runner.cleanup()
    log.info("stopped")
    return state.loaded_model is not None


def _can_open(model: str) -> bool:
    """Returns True if the model's file can be opened. Also returns True for a simulated model, which has no file. Also
    returns True for a name on the hub, because the file may not be downloaded yet. Does not check whether the file is a
    valid model.
    """
    try:
        os.close(os.open(model, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError:
        return model.startswith("sim:") or is_hub_name(model)
    return True


async def _first_of(opening: asyncio.Task[None], leaving: asyncio.Event) -> None:
    """Waits until the model is loaded, or until the daemon is asked to stop. Raises EngineError if the model cannot be
    loaded.
    """
    stopping = asyncio.create_task(leaving.wait())
    await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if opening.done():
        opening.result()


def _prepared(config: Config) -> tuple[EngineLoader, KeyRing]:
    """Returns the loader of the model, and the API keys. Raises StartError if the native library, the key file or the
    chat template file cannot be read. The native library is imported only here. So --help works without the library.
    """
    try:
        from .engine.loader import DaemonEngineLoader

        keys = keys_of(config.api_key_file, config.state_dir)
        return DaemonEngineLoader(config), keys
    except ImportError as error:
        raise StartError(str(error)) from error
    except KeyFileError as error:
        raise StartError(str(error), EXIT_USAGE) from None
    except UnicodeDecodeError as error:
        raise _unreadable_template(
            config, f"{error.reason} at byte {error.start}; the file must be UTF-8 text"
        ) from None
    except OSError as error:
        raise _unreadable_template(config, error.strerror or str(error)) from None


def _traces(config: Config) -> Traces | None:
    """Returns None if --otel-endpoint is not set. Raises StartError if OpenTelemetry's library is not installed, or
    refuses its settings.
    """
    if not config.otel_endpoint:
        return None
    try:
        from .http.traces import Traces  # imported only here, so that the library is needed only for this option

        return Traces(config.otel_endpoint)
    except ImportError as error:
        raise StartError(str(error)) from error
    except ValueError as error:
        raise StartError(f"--otel-endpoint: OpenTelemetry refuses a variable OTEL_...: {error}", EXIT_USAGE) from None


def _unreadable_template(config: Config, why: str) -> StartError:
    return StartError(f"--chat-template-file: cannot read {config.chat_template_file}: {why}", EXIT_USAGE)


# Maps fields of EngineOptions to the options of llmd that set them. Only the engine can check these fields.
_OPTIONS = {name: name for name in ("model", "draft_model", "kv_type", "state_dir")}
_OPTIONS |= {"n_ctx": "ctx_size", "chat_template": "chat_template_file"}


def _blamed(config: Config, field: str, message: str) -> StartError:
    """Returns an error for an option whose value the engine refused. `field` is the field of EngineOptions that the
    engine named, and `message` is the engine's message. The error's message names the option instead of the field, and
    adds the option's value unless `message` already contains the value.
    """
    if field not in _OPTIONS:
        return StartError(message)
    name = _OPTIONS[field]
    flag, value = f"--{name.replace('_', '-')}", str(getattr(config, name))
    if message.startswith(f"{field} "):
        message = flag + message.removeprefix(field)
    else:
        message = f"{flag}: {message}" if value in message else f"{flag} {value}: {message}"
    return StartError(message, EXIT_USAGE if field == "chat_template" else EXIT_FAILED)


class _Signals:
    """Handles signals. The first SIGTERM or SIGINT sets `stop`: running requests finish, and sessions are saved. A
    second signal ends the process at once. If llmd was started from a terminal, SIGHUP means that the terminal was
    closed, and sets `stop`, too. Otherwise llmd reads the key file again after SIGHUP. If SIGHUP was already ignored
    when llmd started (nohup), llmd ignores SIGHUP. After SIGQUIT, the stack of every thread is printed and the process
    ends, even if the event loop is stuck. POST /v1/drain does not set `stop`.
    """

    def __init__(self, state: State, listeners: Listeners) -> None:
        self.stop = asyncio.Event()
        self._state = state
        self._listeners = listeners
        faulthandler.register(signal.SIGQUIT, file=logs.STDERR, chain=True)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_end, number)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self._stop if _has_terminal() else self._on_reload)

    def _stop(self) -> None:
        self.stop.set()
        self._state.leaving.set()

    def _on_end(self, number: int) -> None:
        if self.stop.is_set():
            log.warning("exiting at once", extra=logs.fields(signal=signal.Signals(number).name))
            self._listeners.close()
            os._exit(128 + number)
        self._stop()

    def _on_reload(self) -> None:
        from .app import reload_keys

        if self._state.loaded_model is None or self._state.is_stopping:
            reload_keys(self._state)
            return
        systemd.notify(systemd.reloading())
        reload_keys(self._state)
        systemd.notify("READY=1")


def _has_terminal() -> bool:
    """Returns whether llmd has a controlling terminal. Called at the start. Later, when SIGHUP reports that the
    terminal was closed, /dev/tty can no longer be opened.
    """
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _announce(state: State, listeners: Listeners) -> None:
    """Logs the model and the addresses. In a terminal, also prints an example request."""
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
            kv_memory=info.state_bytes,
            kv_type=info.kv_type,
            sessions=info.n_sessions,
            addresses=" ".join(listeners.addresses()),
        ),
    )
    if info.backend != "sim":
        from .engine import native

        log.info("processor: %s", native.processor())
    _warn_of_short_context(state)
    _warn_of_host_weights(state)
    public = listeners.public_addresses()
    if public and state.keys.is_open:
        log.warning(
            "other machines can use this server without a key, because --api-key-file is not set: %s", " ".join(public)
        )
    url = next((address for address in listeners.addresses() if address.startswith("http")), None)
    if url is not None and sys.stderr.isatty():
        with contextlib.suppress(OSError):
            print((_HOW_TO_EMBED if info.only_embeds else _HOW_TO_TRY).format(url=url), file=sys.stderr)
    systemd.notify("READY=1", f"STATUS=Serving {state.model_id}")


def _warn_of_short_context(state: State) -> None:
    """Warns if the context is shorter than the model's trained context. No warning if the user has set --ctx-size.
    Agents need a long context. On a GPU, a shorter context is the documented default. So on a GPU, llmd warns only if
    too little memory for the KV cache is the cause.
    """
    info = state.engine.info
    needs_warning = info.backend in ("CPU", "sim") or info.kv_bytes_short > 0
    if state.config.ctx_size == 0 and info.n_ctx < info.n_ctx_train and needs_warning:
        cause = "a larger --kv-memory allows more tokens" if info.kv_bytes_short else "set --ctx-size to allow more"
        holder = "a text to embed" if info.only_embeds else "a session"
        log.warning(
            "%s can have at most %d tokens, but the model was trained for %d: %s",
            holder,
            info.n_ctx,
            info.n_ctx_train,
            cause,
        )


def _warn_of_host_weights(state: State) -> None:
    """Warns if some weights are in host memory, because the GPU's memory is too small. No warning if the user has set
    --gpu-layers.
    """
    info = state.engine.info
    if info.host_bytes and state.config.gpu_layers < 0:
        log.warning(
            "%.1f of %.1f GiB of weights do not fit into the GPU's memory. The CPU computes with them, which is slow",
            info.host_bytes / 2**30,
            info.model_bytes / 2**30,
        )


_HOW_TO_TRY = """\
  Try it:  curl -N {url}/v1/chat/completions -H 'content-type: application/json' \\
             -d '{{"messages":[{{"role":"user","content":"hello"}}],"stream":true,"session_id":"a"}}'
  or:      llmctl chat"""

_HOW_TO_EMBED = """\
  Try it:  curl {url}/v1/embeddings -H 'content-type: application/json' -d '{{"input":["hello"]}}'"""


if __name__ == "__main__":
    main()
