"""Reads the cache folder of huggingface.co's tools, without the network and without most modules of huggingface_hub.
Importing those modules takes half a second.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import constants

from .choice import RepositoryFile
from .names import MAIN

_MODELS = "models--"
"""The beginning of the folder name of a model's repository in the cache: models--OWNER--NAME."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cached GGUF files of a repository at one commit."""

    repository: str
    folder: Path
    refs: frozenset[str]
    modified_s: float
    files: tuple[RepositoryFile, ...]


def cache_folder() -> Path:
    return Path(constants.HF_HUB_CACHE)


def snapshots(repository: str | None = None) -> list[Snapshot]:
    """Returns the commits whose GGUF files, or some of them, are in the cache. If `repository` is set, only commits of
    this repository are returned. The commits of branch `main` come first, then the newest. Does not use the network.
    The library's own scan would also read all data sets, which can have a million files.
    """
    found = []
    for folder in cache_folder().glob(f"{_MODELS}*"):
        name = folder.name.removeprefix(_MODELS).replace("--", "/", 1)
        if repository is None or repository.lower() == name.lower():
            found += [_snapshot(name, one, _refs(folder)) for one in (folder / "snapshots").glob("*")]
    with_files = (one for one in found if one.files)
    return sorted(with_files, key=lambda one: (one.repository, MAIN not in one.refs, -one.modified_s))


def _snapshot(repository: str, folder: Path, refs: dict[str, set[str]]) -> Snapshot:
    files = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            with suppress(OSError):  # a link to a file that was removed
                if name.endswith(".gguf"):
                    files.append(RepositoryFile(path.relative_to(folder).as_posix(), path.stat().st_size))
    return Snapshot(
        repository, folder, frozenset(refs.get(folder.name, ())), folder.stat().st_mtime, tuple(sorted(files, key=str))
    )


def _refs(repository_folder: Path) -> dict[str, set[str]]:
    """Returns a map from each commit to its branches and tags."""
    found: dict[str, set[str]] = {}
    refs = repository_folder / "refs"
    for path in refs.rglob("*"):
        with suppress(OSError, UnicodeDecodeError):
            if path.is_file():
                found.setdefault(path.read_text().strip(), set()).add(path.relative_to(refs).as_posix())
    return found


def remove(files: Sequence[Path]) -> None:
    """Removes cached files. Also removes the content of each file, unless another cached file has the same content. If
    a repository has no other cached file, removes its whole folder.
    """
    blobs = {file.resolve() for file in files}
    for file in files:
        file.unlink(missing_ok=True)
    still_used = {one.folder / file.path for one in snapshots() for file in one.files}
    for blob in blobs - {path.resolve() for path in still_used}:
        blob.unlink(missing_ok=True)
    for folder in {file.relative_to(cache_folder()).parts[0] for file in files}:
        if not any(path.is_file() for path in (cache_folder() / folder / "snapshots").rglob("*")):
            shutil.rmtree(cache_folder() / folder)
