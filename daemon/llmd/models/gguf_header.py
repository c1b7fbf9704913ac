"""Reads the header of a GGUF file, to check that a file is a model and to describe the model in a list."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from .errors import ModelError

Value = int | float | bool | str

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT_BYTES_MAX = 1 << 20
_ENTRIES_MAX = 1 << 16
_VOCABULARY = "tokenizer."
"""Keys of the vocabulary begin with this text. The vocabulary's large arrays come after the facts about the model."""


@dataclass(frozen=True, slots=True)
class Header:
    n_tensors: int
    facts: dict[str, Value] = field(default_factory=dict)
    """The entries before the vocabulary, without arrays."""

    @property
    def architecture(self) -> str:
        return str(self.facts.get("general.architecture", ""))

    @property
    def n_ctx_train(self) -> int:
        found = self.facts.get(f"{self.architecture}.context_length", 0)
        return found if isinstance(found, int) else 0

    @property
    def is_model(self) -> bool:
        """True if the file is a model, and not a projector or an adapter."""
        return self.architecture != "clip" and self.facts.get("general.type", "model") == "model"


def read_header(path: Path) -> Header:
    """Reads the header of the file up to the vocabulary. Raises ModelError if the header is not valid."""
    try:
        with path.open("rb") as file:
            return _read(file)
    except (ValueError, OverflowError, struct.error) as error:
        raise ModelError(f"{path.name} is not a GGUF file ({error}): choose another file, or remove it") from None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None


def _read(file: BinaryIO) -> Header:
    if file.read(4) != _MAGIC:
        raise ValueError("it does not begin with GGUF")
    version, n_tensors, n_entries = struct.unpack("<IQQ", _bytes(file, 20))
    if version not in _VERSIONS:
        raise ValueError(f"its version is {version}")
    if n_entries > _ENTRIES_MAX:
        raise ValueError(f"it claims to have {n_entries} entries")
    facts: dict[str, Value] = {}
    for _ in range(n_entries):
        key = _text(file)
        if key.startswith(_VOCABULARY):
            break
        value = _value(file, *struct.unpack("<I", _bytes(file, 4)))
        if value is not None:
            facts[key] = value
    return Header(n_tensors, facts)


def _value(file: BinaryIO, kind: int) -> Value | None:
    """Reads a value. If the value is an array, skips it and returns None."""
    if kind == _STRING:
        return _text(file)
    if kind == _ARRAY:
        element, n = struct.unpack("<IQ", _bytes(file, 12))
        if element in _NUMBERS:
            file.seek(n * struct.calcsize(_NUMBERS[element]), 1)
        elif element != _STRING or n > _ENTRIES_MAX:
            raise ValueError("an array before the vocabulary is too long, or has arrays")
        else:
            for _ in range(n):
                _text(file)
        return None
    if kind not in _NUMBERS:
        raise ValueError(f"a value has the unknown type {kind}")
    form = "<" + _NUMBERS[kind]
    found: Value = struct.unpack(form, _bytes(file, struct.calcsize(form)))[0]
    return found


def _text(file: BinaryIO) -> str:
    (n,) = struct.unpack("<Q", _bytes(file, 8))
    if n > _TEXT_BYTES_MAX:
        raise ValueError(f"a text claims to have {n} bytes")
    return _bytes(file, n).decode("utf-8", "replace")


def _bytes(file: BinaryIO, n: int) -> bytes:
    found = file.read(n)
    if len(found) != n:
        raise ValueError("it ends in the header")
    return found
