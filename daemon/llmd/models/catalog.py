"""Lists the models on this machine: those in --models-dir, in the cache of huggingface.co's tools, and in the folders
of LM Studio and Ollama. Only reads these folders.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .choice import Candidate, RepositoryFile, base_of, candidates_of, choose, listed
from .errors import ModelError

MODELS_DIR, CACHE, LM_STUDIO, OLLAMA = "models-dir", "cache", "LM Studio", "Ollama"
_LM_STUDIO_FOLDERS = ("~/.lmstudio/models", "~/.cache/lm-studio/models")
_OLLAMA_FOLDERS = ("~/.ollama/models", "/usr/share/ollama/.ollama/models")
_OLLAMA_LAYER = "application/vnd.ollama.image.model"
_OLLAMA_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_OLLAMA_REGISTRY = "registry.ollama.ai"
_MANIFEST_BYTES_MAX = 1 << 20
_LATEST = ":latest"


@dataclass(frozen=True, slots=True)
class LocalModel:
    name: str
    """A name under which llmd finds the model."""
    source: str
    folder: Path
    candidate: Candidate
    modified_s: float = 0.0

    @property
    def path(self) -> Path:
        return self.folder / self.candidate.first

    @property
    def paths(self) -> list[Path]:
        return [self.folder / file.path for file in self.candidate.files]

    @property
    def base(self) -> str:
        """The name without owner and quantization, in lower case."""
        if self.source == OLLAMA:
            return self.name.rpartition("/")[2].partition(":")[0].lower()
        return base_of(self.candidate.name).removesuffix("-gguf")


def local_models(models_dir: Path | None, sources: Sequence[str] = (CACHE, LM_STUDIO, OLLAMA)) -> list[LocalModel]:
    """Returns the models of --models-dir and of the other sources, in this order. A split model is left out if one of
    its files is missing. Blocks the calling thread.
    """
    found = list(_in_models_dir(models_dir)) if models_dir is not None else []
    for source, models in ((CACHE, _in_cache), (LM_STUDIO, _in_lm_studio), (OLLAMA, _in_ollama)):
        if source in sources:
            found += sorted(models(), key=lambda one: one.name.lower())
    return found


# --- names ------------------------------------------------------------------------------------------------------------


def with_exact_name(name: str, models: Iterable[LocalModel]) -> LocalModel | None:
    wanted = name.lower()
    return next((one for one in models if one.name.lower() in (wanted, wanted + _LATEST)), None)


def with_name(name: str, models: Sequence[LocalModel], free_bytes: int | None) -> LocalModel | None:
    """Returns the model that has this name. The name can be complete, can lack the owner or the quantization, or can be
    only the beginning of the model's name. If several quantizations of one model have this name, chooses one of them.
    Returns None if no model has this name. Raises ModelError if different models have this name.
    """
    found = all_with_name(name, models)
    return _only(name, found, free_bytes) if found else None


def all_with_name(name: str, models: Sequence[LocalModel]) -> list[LocalModel]:
    """Returns the models that have this name, as in `with_name`. If a model has exactly this name, returns only it."""
    exact = with_exact_name(name, models)
    if exact is not None:
        return [exact]
    wanted, _, tag = name.lower().removesuffix(".gguf").partition(":")
    tagged = [one for one in models if not tag or _has_tag(one, tag)]
    for matches in (_has_stem, _has_base, _begins):
        found = [one for one in tagged if matches(one, wanted)]
        if found:
            return found
    return []


def _has_stem(one: LocalModel, wanted: str) -> bool:
    return one.source != OLLAMA and one.candidate.name.rpartition("/")[2].lower() == wanted


def _has_base(one: LocalModel, wanted: str) -> bool:
    place = one.name.partition(":")[0].lower()
    repository = place.rpartition("/")[2]
    return wanted in (one.base, place, repository, repository.removesuffix("-gguf"))


def _begins(one: LocalModel, wanted: str) -> bool:
    return re.match(re.escape(wanted) + r"[-._:]", one.name.rpartition("/")[2].lower()) is not None or (
        one.source != OLLAMA and re.match(re.escape(wanted) + r"[-._]", one.base) is not None
    )


def _has_tag(one: LocalModel, tag: str) -> bool:
    return one.candidate.quantization.lower().removeprefix("ud-") == tag.removeprefix("ud-")


def _only(name: str, found: Sequence[LocalModel], free_bytes: int | None) -> LocalModel:
    if len({one.base for one in found}) > 1:
        raise ModelError(f"several models match {name}: name one of {listed(one.name for one in found)}")
    by_quantization = {(one.candidate.quantization or one.name): one for one in reversed(found)}
    unique = list(by_quantization.values())
    if len(unique) > 1 and not all(one.candidate.quantization for one in unique):
        raise ModelError(f"several models match {name}: name one of {listed(one.name for one in unique)}")
    chosen = choose([one.candidate for one in unique], free_bytes=free_bytes if len(unique) > 1 else None)
    return next(one for one in unique if one.candidate is chosen.candidate)


# --- folders ----------------------------------------------------------------------------------------------------------


def _in_models_dir(folder: Path) -> Iterator[LocalModel]:
    if not folder.is_dir():
        raise ModelError(f"--models-dir: {folder} is not a folder: name the folder that has the GGUF files")
    models = _in_folder(folder)
    stems = [one.name.rpartition("/")[2] for one in models]
    for one in models:
        stem = one.name.rpartition("/")[2]
        yield _local(stem if stems.count(stem) == 1 else one.name, MODELS_DIR, folder, one)


def _in_lm_studio() -> Iterator[LocalModel]:
    for folder in _folders(*_LM_STUDIO_FOLDERS):
        models = _in_folder(folder)
        for one in models:
            owner, _, rest = one.name.partition("/")
            repository = f"{owner}/{rest.partition('/')[0]}"
            same = [other for other in models if other.name.startswith(f"{repository}/")]
            yield _local(_tagged(repository, one, same), LM_STUDIO, folder, one)


def _in_cache() -> Iterator[LocalModel]:
    from . import hub_cache  # imports a part of huggingface_hub, which most verbs of llmctl do not need

    seen: set[str] = set()
    for snapshot in hub_cache.snapshots():
        models = [one for one in candidates_of(snapshot.files) if one.is_complete]
        for one in models:
            name = _tagged(snapshot.repository, one, models)
            if name not in seen:
                seen.add(name)
                yield _local(name, CACHE, snapshot.folder, one)


def _tagged(repository: str, one: Candidate, models: Sequence[Candidate]) -> str:
    """Returns OWNER/NAME:QUANTIZATION. If the quantization is unknown, or several files have it, returns
    OWNER/NAME:FILE instead.
    """
    same = [other for other in models if other.quantization == one.quantization]
    tag = one.quantization if one.quantization and len(same) == 1 else one.first.rpartition("/")[2]
    return f"{repository}:{tag}"


def _in_folder(folder: Path) -> list[Candidate]:
    files = []
    for parent, _, names in os.walk(folder):  # ignores folders that cannot be read
        for name in names:
            path = Path(parent, name)
            with suppress(OSError):  # a link whose target is missing
                if name.lower().endswith(".gguf"):
                    files.append(RepositoryFile(path.relative_to(folder).as_posix(), path.stat().st_size))
    return [one for one in candidates_of(files) if one.is_complete]


def _in_ollama() -> Iterator[LocalModel]:
    own = os.environ.get("OLLAMA_MODELS")
    for folder in _folders(*([own] if own else _OLLAMA_FOLDERS)):
        manifests = folder / "manifests"
        for parent, _, names in os.walk(manifests):
            for name in names:
                path = Path(parent, name)
                blob = _ollama_blob(folder, path)
                if blob is not None:
                    found = _ollama_name(path.relative_to(manifests).parts)
                    file = RepositoryFile(blob.relative_to(folder).as_posix(), blob.stat().st_size)
                    yield _local(found, OLLAMA, folder, Candidate(found, (file,), 1))


def _ollama_name(parts: Sequence[str]) -> str:
    *place, name, tag = parts
    if place[:1] == [_OLLAMA_REGISTRY]:
        place = place[1:]
    if place == ["library"]:
        place = []
    return "/".join([*place, f"{name}:{tag}"])


def _ollama_blob(folder: Path, manifest: Path) -> Path | None:
    """Returns the file of the model layer of a manifest. Returns None if the manifest does not have exactly one such
    layer.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        if manifest.stat().st_size > _MANIFEST_BYTES_MAX:
            return None
        layers = [one for one in json.loads(manifest.read_bytes())["layers"] if one["mediaType"] == _OLLAMA_LAYER]
        if len(layers) == 1 and _OLLAMA_DIGEST.fullmatch(layers[0]["digest"]):
            blob = folder / "blobs" / layers[0]["digest"].replace(":", "-")
            return blob if blob.is_file() else None
    return None


def _folders(*paths: str) -> list[Path]:
    """Returns the existing folders, each once."""
    found: dict[Path, Path] = {}
    for path in paths:
        with suppress(OSError, RuntimeError):
            folder = Path(path).expanduser()
            if folder.is_dir():
                found.setdefault(folder.resolve(), folder)
    return list(found.values())


def _local(name: str, source: str, folder: Path, candidate: Candidate) -> LocalModel:
    modified_s = 0.0
    with suppress(OSError):
        modified_s = (folder / candidate.first).stat().st_mtime
    return LocalModel(name, source, folder, candidate, modified_s)
