"""From what the user wrote to the path of a GGUF file: a path stays as it is, and a name is found on this machine or
downloaded.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from ..process.logs import fields
from ..process.progress import Download
from .choice import Choice, RepositoryFile, candidates_of, choose, gib, is_projector
from .errors import ModelError
from .names import HubName, parse_hub_name

log = logging.getLogger("llmd.models")

FreeBytes = Callable[[], int | None]
"""Returns the memory for the model, or None if the memory does not matter. Called only if a model must be chosen."""


def is_path(model: str) -> bool:
    """Returns whether the text names a simulated model, or an existing file or folder."""
    return model.startswith("sim:") or os.path.lexists(model)


def find_model(model: str, free_bytes: FreeBytes, download: Download) -> str:
    """Returns the path of the model. Raises ModelError."""
    if is_path(model):
        return model
    name = parse_hub_name(model)
    return model if name is None else str(from_hub(name, free_bytes, download))


def from_hub(name: HubName, free_bytes: FreeBytes, download: Download) -> Path:
    """Returns the path of the model in the hub's cache. Downloads the model if it is not there."""
    free = free_bytes()
    return _from_cache(name, free) or pull(name, free, download)


def pull(name: HubName, free_bytes: int | None, download: Download) -> Path:
    """Asks the hub which files the repository has now, chooses one, and downloads what the cache does not have."""
    from . import hub  # the library takes half a second to import

    listing = hub.list_files(name)
    candidates = candidates_of(listing.files)
    choice = choose(candidates, name.quantization, name.file, free_bytes)
    _report("model chosen", name, choice)
    if not choice.candidate.is_complete:
        raise ModelError(
            f"the repository has only {len(choice.candidate.files)} of the {choice.candidate.n_files} parts of "
            f"{choice.candidate.name}: choose another quantization"
        )
    _report_projectors(listing.files)
    return hub.download(name, listing, choice.candidate.files, download)


def _from_cache(name: HubName, free_bytes: int | None) -> Path | None:
    """Returns the path of a cached model that fits the name, without using the network."""
    from . import hub
    from .gguf_header import read_header

    for snapshot in hub.snapshots(name.repository):
        if name.revision not in (*snapshot.refs, snapshot.folder.name):
            continue
        complete = [one for one in candidates_of(snapshot.files) if one.is_complete]
        try:
            choice = choose(complete, name.quantization, name.file, free_bytes)
            read_header(snapshot.folder / choice.candidate.first)
        except ModelError as error:
            log.debug("not in the cache", extra=fields(name=str(name), reason=str(error)))
            continue
        _report("model found in the cache", name, choice)
        return snapshot.folder / choice.candidate.first
    return None


def _report(message: str, name: HubName, choice: Choice) -> None:
    one = choice.candidate
    log.info(
        message,
        extra=fields(name=str(name), file=one.first, files=len(one.files), size=gib(one.n_bytes), why=choice.why),
    )


def _report_projectors(files: tuple[RepositoryFile, ...]) -> None:
    found = [file.path for file in files if is_projector(file.path)]
    if found:
        log.info("left out, because llmd does not support images and sound", extra=fields(projector=found[0]))
