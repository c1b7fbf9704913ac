"""The header of GGUF files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmd.models.errors import ModelError
from llmd.models.gguf_header import Header, read_header


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


ENTRIES = (
    entry("general.architecture", 8, text("qwen3")),
    entry("general.tags", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b")),
    entry("general.numbers", 9, struct.pack("<IQ", 4, 3) + bytes(12)),
    entry("general.flag", 7, b"\1"),
    entry("qwen3.context_length", 4, struct.pack("<I", 4096)),
    entry("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 1 << 40)),
)


def header(*entries: bytes, version: int = 3, magic: bytes = b"GGUF", n_entries: int | None = None) -> bytes:
    n = len(entries) if n_entries is None else n_entries
    return magic + struct.pack("<IQQ", version, 7, n) + b"".join(entries)


def read(tmp_path: Path, content: bytes) -> Header:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    return read_header(path)


def test_facts_before_the_vocabulary(tmp_path: Path) -> None:
    found = read(tmp_path, header(*ENTRIES))
    assert found.facts == {"general.architecture": "qwen3", "general.flag": True, "qwen3.context_length": 4096}
    assert (found.architecture, found.n_ctx_train, found.n_tensors, found.is_model) == ("qwen3", 4096, 7, True)
    assert not read(tmp_path, header(entry("general.type", 8, text("adapter")))).is_model
    assert not read(tmp_path, header(entry("general.architecture", 8, text("clip")))).is_model


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it does not begin with GGUF"),
        (b"<!doctype html>", "it does not begin with GGUF"),
        (header(version=1), "its version is 1"),
        (header(n_entries=1 << 40), "it claims to have 1099511627776 entries"),
        (header(n_entries=1), "it ends in the header"),
        (header(entry("a", 99, b"")), "a value has the unknown type 99"),
        (header(entry("a", 8, struct.pack("<Q", 1 << 40))), "a text claims to have 1099511627776 bytes"),
        (header(entry("a", 9, struct.pack("<IQ", 9, 1) * 5000)), "an array before the vocabulary is too long, or has"),
        (header(entry("a", 9, struct.pack("<IQ", 4, 1 << 63))), ".*"),
        (header(entry("a", 9, struct.pack("<IQ", 8, 1 << 40))), "an array before the vocabulary is too long, or has"),
    ],
)
def test_files_that_are_no_models(tmp_path: Path, content: bytes, why: str) -> None:
    with pytest.raises(
        ModelError, match=rf"^m.gguf is not a GGUF file \({why}.*\): choose another file, or remove it$"
    ):
        read(tmp_path, content)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot read .*none: No such file or directory"):
        read_header(tmp_path / "none")


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0, 400), n=st.integers(0, 9), value=st.binary(max_size=9), end=st.integers(0, 400))
def test_damaged_files_are_models_or_errors(
    tmp_path_factory: pytest.TempPathFactory, at: int, n: int, value: bytes, end: int
) -> None:
    content = header(*ENTRIES)
    damaged = (content[:at] + value + content[at + n :])[: max(end, 4)]
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(damaged)
    try:
        read_header(path)
    except ModelError:
        pass
