"""Makes the engine's options from the configuration, and opens the engine. Opening begins before the event loop exists.
So the model is read while Python imports the other modules of the daemon.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core import limits
from ..models.display import DownloadDisplay
from ..models.errors import ModelError
from ..models.finding import find_model
from ..process.config_table import Config
from ..process.logs import fields
from ..process.progress import Download
from . import segment
from .machine import memory_for_model
from .opening import EngineError, EngineOptions, open_engine
from .wire import differences

log = logging.getLogger("llmd.engine")

_CRASH_NOTICE = (
    "llmd: --model: cannot load the model {model}: llama.cpp crashed while it read the file. The file is damaged or "
    "not a valid model, or llama.cpp has a defect"
)


class EngineLoader:
    """Opens an engine in a thread. The same thread owns the engine afterwards."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._pointer: Future[Any] | None = None
        self.download = Download()
        self.thread = ThreadPoolExecutor(1, "llmd-engine")

    @property
    def model(self) -> str:
        """The model as the user named it. As soon as the engine is open, the path of the model."""
        return self._options.model

    def begin(self) -> None:
        """Begins to open the engine. Further calls do nothing. Only the end of the process can stop the opening. Raises
        EngineError if the opening cannot begin.
        """
        if self._pointer is not None:
            return
        if disagreements := differences():
            raise EngineError(
                "the daemon and its native library have different versions; build both again with: ./build.sh setup "
                f"({'; '.join(disagreements)})"
            )
        self._prepare()
        self._pointer = self.thread.submit(self._open)

    def _prepare(self) -> None:
        """Called just before the engine is opened. Subclasses can override it."""

    def _open(self) -> Any:
        """Opens the engine, and returns its pointer. Called in the thread that owns the engine."""
        return open_engine(self._options)

    async def pointer(self) -> Any:
        """Waits for the opened engine and returns its pointer. Raises EngineError, whose message is for the user."""
        self.begin()
        assert self._pointer is not None
        opening = asyncio.wrap_future(self._pointer)
        started = time.monotonic()
        while True:
            done, _ = await asyncio.wait([opening], timeout=limits.LOAD_PROGRESS_S)
            if done:
                return opening.result()
            if self.download.is_running:
                continue  # the download reports its progress itself
            seconds = round(time.monotonic() - started)
            log.info("loading the model", extra=fields(model=self._options.model, seconds=seconds))


class DaemonEngineLoader(EngineLoader):
    """Opens the engine of a daemon. Also writes the name of the engine's session table to the lock file next to the
    unix socket. The file also keeps the names of the session tables of killed daemons. They stay until a daemon with
    the same model has taken over these tables.
    """

    def __init__(self, config: Config) -> None:
        options = engine_options(config)
        super().__init__(options)
        self._config = config
        self._names = [*filter(None, [options.table_name]), *(options.dead_table_names or "").split()]
        self._has_names = False
        log_lines = logging.getLogger("llmd.models").info
        self.download = Download(DownloadDisplay(log_lines, has_bar=None if config.log_format == "text" else False))

    def _open(self) -> Any:
        try:
            draft_model = self._options.draft_model and self._find(self._options.draft_model, "draft_model")
            path = self._find(self._options.model, "model")
        finally:
            self.download.is_running = False
        self._options = replace(self._options, model=path, draft_model=draft_model)
        return super()._open()

    def _find(self, model: str, field: str) -> str:
        try:
            return find_model(model, self._free_bytes, self.download, self._config.models_dir)
        except ModelError as error:
            raise EngineError(str(error), field) from None

    def _free_bytes(self) -> int | None:
        return None if self._options.allow_oversize else memory_for_model(with_gpu=self._options.n_gpu_layers != 0)

    def _prepare(self) -> None:
        if self._options.dead_table_names:
            log.warning(
                "the previous daemon was killed or crashed. Its sessions are kept. If the state of a session was not "
                "on disk, the next request of the session prefills all tokens again (reason torn)"
            )
        self._has_names = self._name(self._names)

    async def pointer(self) -> Any:
        pointer = await super().pointer()
        if self._has_names:
            self._name([name for name in self._names if segment.exists(name)])
        return pointer

    def _name(self, names: list[str]) -> bool:
        try:
            segment.write(self._config.socket, *names)
        except OSError as error:
            log.warning(
                "cannot write the name of the session table. llmctl cannot show tokens. If llmd is killed, sessions "
                "that are not on disk are lost",
                extra=fields(reason=f"{self._config.socket}.lock: {error.strerror}"),
            )
            return False
        return True


def engine_options(config: Config) -> EngineOptions:
    template = config.chat_template_file
    return EngineOptions(
        model=config.model,
        table_name=segment.new_name(config.socket),
        dead_table_names=_abandoned_segments(config.socket),
        chat_template=template.read_text("utf-8") if template is not None else None,
        n_ctx=config.ctx_size,
        n_sessions=config.max_sessions,
        n_scratch=config.scratch_sessions,
        kv_bytes_max=config.kv_memory,
        kv_type=config.kv_type,
        capacity_policy=config.capacity_policy,
        n_parked_max=config.max_parked,
        branches_max=config.session_timelines,
        parked_bytes_max=config.park_memory,
        parked_disk_bytes_max=config.park_disk,
        checkpoint_bytes_max=config.checkpoint_memory,
        checkpoint_every=config.checkpoint_every,
        idle_s_max=config.session_idle_time,
        state_dir=str(config.state_dir) if config.state_dir is not None else None,
        n_threads=config.threads,
        n_gpu_layers=config.gpu_layers,
        gap_ms_target=config.gap_target_ms,
        no_drafts=config.speculate == "off",
        draft_model=config.draft_model if config.draft_model and config.speculate != "off" else None,
        allow_oversize=config.oversize == "allow",
        crash_notice=_CRASH_NOTICE.format(model=config.model),
    )


def _abandoned_segments(socket: Path) -> str | None:
    try:
        return " ".join(name for name in segment.names(socket) if segment.exists(name)) or None
    except PermissionError:
        return None  # writing the file will fail, too, and log a warning
