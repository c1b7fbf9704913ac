"""The C tests cover every tokenizer that the pinned llama.cpp has."""

import re
from pathlib import Path

import pytest

from tools.tiny_models.vocabularies import VOCABULARIES

ROOT = Path(__file__).parents[1]
ROW = re.compile(r'\{"([^"]+)", "([^"]*)", "([^"]*)", "[^"]*", (?:0x[0-9a-f]{16}ull|0)\}')
WITHOUT_WORDS = {"none", "no_vocab"}  # llm_tokenize returns an error for them


def rows() -> list[tuple[str, ...]]:
    found = [match.groups() for match in ROW.finditer((ROOT / "tests/c/tokenizer_digests.h").read_text())]
    assert len(found) > 100
    return found


@pytest.fixture
def source() -> str:
    """Returns the text of llama-vocab.cpp of the pinned llama.cpp, which `./build.sh test` links at build/llama.cpp."""
    return (ROOT / "build/llama.cpp/src/llama-vocab.cpp").read_text()


def test_every_pre_tokenizer_is_tested(source: str) -> None:
    known = set(re.findall(r'tokenizer_pre == "([^"]+)"', source))
    assert known - {pre for _, _, pre in rows()} == set()


def test_every_kind_of_vocabulary_is_tested(source: str) -> None:
    known = set(re.findall(r'tokenizer_model == "([^"]+)"', source))
    tested = {model or VOCABULARIES[file]().model for file, model, _ in rows()}
    assert known - tested == WITHOUT_WORDS


def test_published_llama_survives_all_but_known_ones() -> None:
    """A digest of 0 means that nothing is compared. Only tokenizers for which the published llama.cpp aborts have
    it.
    """
    text = (ROOT / "tests/c/tokenizer_digests.h").read_text()
    assert set(re.findall(r'"([^"]*)", "", 0\},', text)) == {"whitespace"}
