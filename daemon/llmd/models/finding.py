"""Finds the GGUF file for the text of --model. If the text is a path, the path is returned unchanged. If the text is a
name, the model is looked up on this machine or downloaded.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..process.logs import fields
from ..process.progress import Download
from . import catalog
from .catalog import LM_STUDIO, OLLAMA, LocalModel, local_models
from .choice import MEMORY_SHARE, Choice, RepositoryFile, candidates_of, choose, gib, is_projector
from .errors import ModelError
from .names import MAIN, HubName, is_hub_name, parse_hub_name

log = logging.getLogger("llmd.models")

FreeBytes = Callable[[], int | None]
"""Type of a function that returns the bytes of memory for the model, or None if the memory does not matter. The
function is called only if the model is given by its name, not by a path.
"""


def is_path(model: str) -> bool:
    """Returns whether the text names a simulated model, or an existing file or folder."""
    return model.startswith("sim:") or os.path.lexists(model)


def is_local_name(model: str) -> bool:
    """Returns whether the text can only be the name of a model on this machine: it is no path, no address and no name
    on the hub.
    """
    return not is_path(model) and not is_hub_name(model) and "/" not in model and not model.startswith("~")


def find_model(model: str, free_bytes: FreeBytes, download: Download, models_dir: Path | None = None) -> str:
    """Returns the path of the model. Raises ModelError."""
    if is_path(model):
        return model
    if is_local_name(model):
        return str(_on_this_machine(model, free_bytes(), models_dir))
    name = parse_hub_name(model)
    if name is None:
        return model
    free = free_bytes()
    found = _from_cache(name, free)
    if found is not None:
        return str(found)
    copy = catalog.with_name(str(name), local_models(models_dir, (LM_STUDIO, OLLAMA)), free)
    return _found(copy) if copy is not None else str(pull(name, free, download))


def _on_this_machine(name: str, free_bytes: int | None, models_dir: Path | None) -> str:
    models = local_models(models_dir)
    found = catalog.with_name(name, models, free_bytes)
    if found is not None:
        return _found(found)
    own = "" if models_dir is None else f"{models_dir}, "
    raise ModelError(
        f"there is no such file, and no model of this name in {own}the cache, and the folders of LM Studio and Ollama: "
        "llmctl models list shows the names, and llmd OWNER/NAME downloads a model from huggingface.co"
    )


def _found(one: LocalModel) -> str:
    log.info(
        "model found", extra=fields(name=one.name, source=one.source, file=one.path, size=gib(one.candidate.n_bytes))
    )
    return str(one.path)


def pull(name: HubName, free_bytes: int | None, download: Download) -> Path:
    """Asks the hub which files the repository has now, chooses one, and downloads what the cache does not have."""
    from . import hub  # importing huggingface_hub takes half a second

    listing = hub.list_files(name)
    name = replace(name, repository=listing.repository)
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
    """Returns the path of a cached model that matches the name, or None. Does not use the network. Takes every cached
    commit into account, because the newest one may lack a file that was downloaded before.
    """
    from . import hub_cache
    from .gguf_header import read_header

    places: dict[str, Path] = {}
    candidates = []
    for snapshot in hub_cache.snapshots(name.repository):
        if name.revision not in (MAIN, *snapshot.refs, snapshot.folder.name):
            continue
        for one in candidates_of(snapshot.files):
            if one.is_complete and one.name not in places:
                places[one.name] = snapshot.folder
                candidates.append(one)
    try:
        choice = choose(candidates, name.quantization, name.file, _bytes_for_cached(name, free_bytes))
        path = places[choice.candidate.name] / choice.candidate.first
        read_header(path)
    except ModelError as error:
        log.debug("not in the cache", extra=fields(name=str(name), reason=str(error)))
        return None
    _report("model found in the cache", name, choice)
    return path


def _bytes_for_cached(name: HubName, free_bytes: int | None) -> int | None:
    """Returns the memory for a model that needs no download. If the user named a quantization or a file, returns None,
    because the size of the model must not overrule the user. If the named model is too large, libllm refuses it with a
    message about the size. If the user named neither, the weights can take all memory that is free now. With a smaller
    share, a busy machine would download a smaller model although a cached one fits.
    """
    if free_bytes is None or name.quantization or name.file:
        return None
    return int(free_bytes / MEMORY_SHARE) + 1


def _report(message: str, name: HubName, choice: Choice) -> None:
    one = choice.candidate
    log.info(
        message,
        extra=fields(name=str(name), file=one.first, files=len(one.files), size=gib(one.n_bytes), why=choice.why),
    )


def _report_projectors(files: tuple[RepositoryFile, ...]) -> None:
    found = [file.path for file in files if is_projector(file.path)]
    if found:
        log.info(
            "the projector is not downloaded, because llmd does not support images and sound",
            extra=fields(projector=found[0]),
        )
