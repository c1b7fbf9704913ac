"""Decides which of several GGUF files to serve. Decisions depend only on names, sizes and the available memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .errors import ModelError

GIB = 1 << 30
_SUFFIX = ".gguf"
_PART = re.compile(r"-(\d{5})-of-(\d{5})$")
_QUANTIZATION = re.compile(
    r"(?<![A-Za-z0-9])(?:UD-)?(?:I?Q[1-8](?:_(?:K|\d|XXS|XS|S|M|L|XL|NL|P))+|TQ[12]_0|MXFP4(?:_MOE)?|NVFP4|BF16|F[P]?16"
    r"|F[P]?32|Q8)(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_PREFERRED = (
    "Q4_K_M", "Q8_0", "Q5_K_M", "Q6_K", "Q4_K_XL", "Q5_K_S", "Q4_K_L", "Q4_K_S", "Q5_K_XL", "Q6_K_XL", "Q6_K_L",
    "Q5_K_L", "Q3_K_L", "Q3_K_XL", "Q3_K_M", "Q3_K_S", "Q8_K_XL", "Q2_K_XL", "Q2_K_L", "Q2_K", "Q4_0", "Q4_1",
    "IQ4_XS", "IQ4_NL", "MXFP4_MOE", "MXFP4", "Q5_0", "Q5_1", "IQ3_M", "IQ3_S", "IQ3_XS", "IQ3_XXS", "BF16", "F16",
    "F32",
)  # fmt: skip
"""Quantizations from the first choice to the last. Q4_K_M is the first choice of llama.cpp and Ollama, too."""
MEMORY_SHARE = 0.9
"""Share of the available memory that the weights can take if llmd chooses the file. The rest of the memory is for the
KV cache.
"""
_LISTED_MAX = 12


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    path: str
    n_bytes: int
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model: one GGUF file, or all files of a split model in their order."""

    name: str
    """The path of the file without .gguf. For a split model, also without the number of the file."""
    files: tuple[RepositoryFile, ...]
    n_files: int
    """Number of files that the model should have. `files` has fewer if some are missing."""

    @property
    def is_complete(self) -> bool:
        return len(self.files) == self.n_files

    @property
    def n_bytes(self) -> int:
        return sum(file.n_bytes for file in self.files)

    @property
    def quantization(self) -> str:
        return quantization_of(self.name)

    @property
    def first(self) -> str:
        """The path of the first file. libllm finds the other files of a split model next to the first."""
        return self.files[0].path


@dataclass(frozen=True, slots=True)
class Choice:
    candidate: Candidate
    why: str


def quantization_of(path: str) -> str:
    """Returns the quantization that a file's name states, in capitals, or "" if it states none."""
    stem = path.rpartition("/")[2].removesuffix(_SUFFIX)
    found = _QUANTIZATION.findall(stem) or _QUANTIZATION.findall(path)
    return found[-1].upper().replace("FP16", "F16").replace("FP32", "F32") if found else ""


def base_of(name: str) -> str:
    """Returns the last part of a candidate's name without the quantization, in lower case."""
    stem = name.rpartition("/")[2]
    return _QUANTIZATION.sub("", stem).strip("-._").lower()


def is_projector(path: str) -> bool:
    """Returns whether the file is a projector: the part of a model that processes images or sound. It is no model by
    itself.
    """
    return "mmproj" in path.rpartition("/")[2].lower()


def _is_model(path: str) -> bool:
    name = path.rpartition("/")[2].lower()
    return name.endswith(_SUFFIX) and not is_projector(path) and "imatrix" not in name


def candidates_of(files: Iterable[RepositoryFile]) -> list[Candidate]:
    """Groups the files of a repository or folder into models. Leaves out projectors and files that are not GGUF."""
    groups: dict[str, dict[int, RepositoryFile]] = {}
    numbers: dict[str, int] = {}
    for file in files:
        if not _is_model(file.path):
            continue
        stem = file.path[: -len(_SUFFIX)]
        part = _PART.search(stem)
        name = stem[: part.start()] if part else stem
        groups.setdefault(name, {})[int(part[1]) if part else 1] = file
        numbers[name] = int(part[2]) if part else 1
    return [
        Candidate(name, tuple(parts[number] for number in sorted(parts)), numbers[name])
        for name, parts in sorted(groups.items())
        if 1 in parts
    ]


def choose(
    candidates: Sequence[Candidate], quantization: str = "", file: str = "", free_bytes: int | None = None
) -> Choice:
    """Returns the model to serve. If `file` is set, this is the model with this file. If `quantization` is set, it is
    the model with this quantization. Otherwise it is the most preferred model that fits into the memory. If
    `free_bytes` is None, the memory does not matter. Raises ModelError.
    """
    if not candidates:
        raise ModelError(
            "the repository has no GGUF file: look for a repository of the same model whose name ends in -GGUF"
        )
    if file:
        return _checked(Choice(_with_file(candidates, file), "you named this file"), free_bytes)
    if quantization:
        return _checked(Choice(_with_quantization(candidates, quantization), "you named this quantization"), free_bytes)
    return _preferred(candidates, free_bytes)


def _with_file(candidates: Sequence[Candidate], path: str) -> Candidate:
    for exact in (True, False):
        for one in candidates:
            if any(file.path == path or (not exact and file.path.endswith(f"/{path}")) for file in one.files):
                return one
    raise ModelError(
        f"the repository has no file {path} that is a model: name one of {listed(one.first for one in candidates)}"
    )


def _with_quantization(candidates: Sequence[Candidate], text: str) -> Candidate:
    wanted = text.upper()
    found = [one for one in candidates if one.quantization == wanted]
    found = found or [one for one in candidates if one.quantization.removeprefix("UD-") == wanted]
    found = found or [one for one in candidates if one.name.rpartition("/")[2].upper().endswith(wanted)]
    if not found:
        raise ModelError(f"the repository has no quantization {text}: name one of {listed(tags(candidates))}")
    return _only(found)


def _only(found: Sequence[Candidate]) -> Candidate:
    if len(found) > 1:
        raise ModelError(f"several files match: write OWNER/NAME:FILE with one of {listed(one.first for one in found)}")
    return found[0]


def _preferred(candidates: Sequence[Candidate], free_bytes: int | None) -> Choice:
    most = None if free_bytes is None else int(free_bytes * MEMORY_SHARE)
    fitting = [one for one in candidates if most is None or one.n_bytes <= most]
    if not fitting:
        smallest = min(candidates, key=lambda one: one.n_bytes)
        raise ModelError(
            f"no file fits into the memory: the smallest, {smallest.first}, takes {gib(smallest.n_bytes)}, and "
            f"{gib(free_bytes or 0)} are available; free some memory, or choose a smaller model"
        )
    rank = min(_rank(one) for one in fitting)
    chosen = _only([one for one in fitting if _rank(one) == rank])
    tag = chosen.quantization or "a file without a known quantization"
    if len(candidates) == 1:
        why = "there is no other"
    elif all(_rank(one) >= rank for one in candidates):
        why = f"{tag} is the most preferred quantization that is available"
    else:
        why = f"{tag} is the most preferred quantization that fits into {gib(free_bytes or 0)} of memory"
    return Choice(chosen, why)


def _rank(one: Candidate) -> int:
    name = one.quantization.removeprefix("UD-")
    return _PREFERRED.index(name) if name in _PREFERRED else len(_PREFERRED)


def _checked(choice: Choice, free_bytes: int | None) -> Choice:
    one = choice.candidate
    if free_bytes is not None and one.n_bytes > free_bytes:
        raise ModelError(
            f"{one.first} takes {gib(one.n_bytes)}, but {gib(free_bytes)} of memory are available: name a smaller "
            "quantization, or set --oversize allow"
        )
    return choice


def tags(candidates: Iterable[Candidate]) -> list[str]:
    """Returns the texts that can follow "OWNER/NAME:": the quantization of each candidate, or the path of its file if
    the name of the file states no quantization.
    """
    return sorted({one.quantization or one.first for one in candidates})


def listed(names: Iterable[str]) -> str:
    """Returns the names as text. If there are many, returns some of them, and how many more there are."""
    found = sorted(set(names))
    more = len(found) - _LISTED_MAX
    return ", ".join(found[:_LISTED_MAX]) + (f" and {more} more" if more > 0 else "")


def gib(n_bytes: int) -> str:
    """Returns a size such as "4.7 GiB" or "12 MiB"."""
    return f"{n_bytes / GIB:.1f} GiB" if n_bytes >= GIB // 10 else f"{max(1, round(n_bytes / 2**20))} MiB"
