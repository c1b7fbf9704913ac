"""Models on this machine: in which folders they are found, and under which names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmd.models import catalog
from llmd.models.catalog import LM_STUDIO, MODELS_DIR, OLLAMA, LocalModel, local_models, with_name
from llmd.models.choice import GIB, Candidate, RepositoryFile
from llmd.models.errors import ModelError
from llmd.models.finding import find_model, is_local_name
from llmd.process.progress import Download

DIGEST = "sha256:" + "ab" * 32


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory in which no model is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setattr(catalog, "_OLLAMA_FOLDERS", ("~/.ollama/models",))
    monkeypatch.setattr("llmd.models.hub_cache.snapshots", lambda repository=None: [])
    return tmp_path


def put(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF")


def manifest(folder: Path, name: str, digest: str = DIGEST, kind: str = "model") -> None:
    path = folder / "manifests" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    layer = {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": digest, "size": 4}
    path.write_text(json.dumps({"layers": [layer, {"mediaType": "application/vnd.ollama.image.params", "digest": ""}]}))


def test_models_of_every_folder(home: Path) -> None:
    own, studio, ollama = home / "own", home / ".lmstudio" / "models", home / ".ollama" / "models"
    put(own, "a-Q8_0.gguf", "sub/b.gguf", "mmproj-a.gguf", "notes.txt", "half-00001-of-00002.gguf")
    put(own, *(f"big-{n:05}-of-00002.gguf" for n in (1, 2)))
    put(
        studio,
        "ann/Tiny-GGUF/Tiny-Q4_K_M.gguf",
        "ann/Tiny-GGUF/mmproj.gguf",
        "ann/Two/x-Q8_0.gguf",
        "ann/Two/y-Q8_0.gguf",
    )
    put(ollama / "blobs", DIGEST.replace(":", "-"))
    manifest(ollama, "registry.ollama.ai/library/llama3.2/3b")
    manifest(ollama, "registry.ollama.ai/bob/own/latest")
    manifest(ollama, "hf.co/ann/x/Q8_0")
    manifest(ollama, "registry.ollama.ai/library/gone/1b", "sha256:" + "00" * 32)
    manifest(ollama, "registry.ollama.ai/library/evil/1b", "sha256:../../x")
    manifest(ollama, "registry.ollama.ai/library/adapter/1b", kind="adapter")
    (ollama / "manifests" / "broken").write_text("{")
    models = local_models(own)
    assert [(one.source, one.name) for one in models] == [
        (MODELS_DIR, "a-Q8_0"),
        (MODELS_DIR, "big"),
        (MODELS_DIR, "b"),
        (LM_STUDIO, "ann/Tiny-GGUF:Q4_K_M"),
        (LM_STUDIO, "ann/Two:x-Q8_0.gguf"),
        (LM_STUDIO, "ann/Two:y-Q8_0.gguf"),
        (OLLAMA, "bob/own:latest"),
        (OLLAMA, "hf.co/ann/x:Q8_0"),
        (OLLAMA, "llama3.2:3b"),
    ]
    assert models[1].paths == [own / f"big-{n:05}-of-00002.gguf" for n in (1, 2)]
    assert models[-1].path == ollama / "blobs" / DIGEST.replace(":", "-")


def test_other_folders(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_models(None) == []
    monkeypatch.setenv("OLLAMA_MODELS", str(home / "models"))
    put(home / "models" / "blobs", DIGEST.replace(":", "-"))
    manifest(home / "models", "registry.ollama.ai/library/m/1b")
    put(home / ".cache" / "lm-studio" / "models", "a/b/c.gguf")
    assert [one.name for one in local_models(None)] == ["a/b:c.gguf", "m:1b"]
    with pytest.raises(ModelError, match=r"--models-dir: .*/none is not a folder: name the folder that has the GGUF"):
        local_models(home / "none")


def local(name: str, source: str = MODELS_DIR, n_bytes: int = GIB) -> LocalModel:
    path = f"{name.rpartition('/')[2].replace(':', '-')}.gguf"
    file = RepositoryFile(path, n_bytes)
    return LocalModel(name, source, Path("/models"), Candidate(path.removesuffix(".gguf"), (file,), 1))


QWEN = [local(f"Qwen3-4B-{tag}", n_bytes=n * GIB) for tag, n in (("Q8_0", 5), ("Q4_K_M", 3))]
OTHERS = [
    local("Qwen3-4B-Instruct-2507-Q4_K_M"),
    local("gemma-3-1b"),
    local("llama3.2:3b", OLLAMA),
    local("llama3.2:latest", OLLAMA),
    local("mistral:7b", OLLAMA),
    local("mistral:12b", OLLAMA),
    local("phi:2b", OLLAMA),
    local("ann/Tiny-GGUF:Q4_K_M", LM_STUDIO),
]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("qwen3-4b", "Qwen3-4B-Q4_K_M"),
        ("qwen3-4b:q8_0", "Qwen3-4B-Q8_0"),
        ("qwen3-4b-q8_0", "Qwen3-4B-Q8_0"),
        ("Qwen3-4B-Q8_0.gguf", "Qwen3-4B-Q8_0"),
        ("qwen3-4b-instruct", "Qwen3-4B-Instruct-2507-Q4_K_M"),
        ("gemma-3-1b", "gemma-3-1b"),
        ("gemma", "gemma-3-1b"),
        ("llama3.2:3b", "llama3.2:3b"),
        ("llama3.2", "llama3.2:latest"),
        ("phi", "phi:2b"),
        ("ann/tiny-gguf:q4_k_m", "ann/Tiny-GGUF:Q4_K_M"),
        ("tiny", "ann/Tiny-GGUF:Q4_K_M"),
        ("tiny-gguf", "ann/Tiny-GGUF:Q4_K_M"),
        ("qwen", None),
        ("qwen3-4b:q2_k", None),
        ("emma", None),
    ],
)
def test_names(name: str, found: str | None) -> None:
    one = with_name(name, [*QWEN, *OTHERS], None)
    assert (one.name if one else None) == found


def test_a_quantization_that_fits(home: Path) -> None:
    one = with_name(
        "qwen3-4b", [local("Qwen3-4B-Q4_K_M", n_bytes=6 * GIB), local("Qwen3-4B-Q3_K_M", n_bytes=GIB)], 2 * GIB
    )
    assert one is not None and one.name == "Qwen3-4B-Q3_K_M"


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("qwen3", "Qwen3-4B-Instruct-2507-Q4_K_M, Qwen3-4B-Q4_K_M, Qwen3-4B-Q8_0"),
        ("mistral", "mistral:12b, mistral:7b"),
    ],
)
def test_a_name_of_several_models(name: str, names: str) -> None:
    with pytest.raises(ModelError) as caught:
        with_name(name, [*QWEN, *OTHERS], None)
    assert str(caught.value) == f"several models match {name}: name one of {names}"


def test_the_first_source_wins() -> None:
    copies = [local("m-Q4_K_M", MODELS_DIR), local("a/m-GGUF:Q4_K_M", LM_STUDIO), local("m-Q4_K_M", LM_STUDIO)]
    one = with_name("m", copies, None)
    assert one is copies[0]


@pytest.mark.parametrize(
    ("text", "is_local"),
    [("qwen3-4b", True), ("llama3.2:3b", True), ("m.gguf", True), ("a/b", False), ("./m", False), ("~x", False)],
)
def test_which_texts_are_names_of_this_machine(text: str, is_local: bool) -> None:
    assert is_local_name(text) == is_local
    assert not is_local_name("sim:dense") and not is_local_name("/etc/passwd")


def find(name: str, models_dir: Path | None = None, **_: Any) -> str:
    return find_model(name, lambda: None, Download(), models_dir)


def test_a_model_is_found_by_its_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, studio = home / "own", home / ".lmstudio" / "models"
    put(own, "Tiny-Q8_0.gguf")
    put(studio, "ann/Two-GGUF/two-Q8_0.gguf")
    assert find("tiny", own) == str(own / "Tiny-Q8_0.gguf")
    assert find("two") == str(studio / "ann/Two-GGUF/two-Q8_0.gguf")
    assert find("ann/Two-GGUF:q8_0") == str(studio / "ann/Two-GGUF/two-Q8_0.gguf")  # instead of a download
    with pytest.raises(
        ModelError, match=r"^there is no such file, and no model of this name in .*/own, the cache, and"
    ):
        find("small", own)
    with pytest.raises(ModelError, match=r"in the cache, .*: llmctl models list .*, and llmd OWNER/NAME downloads a"):
        find("tiny")
    monkeypatch.chdir(own)
    assert find("Tiny-Q8_0.gguf") == "Tiny-Q8_0.gguf"
    assert find("none/none.gguf") == "none/none.gguf"  # libllm says what is wrong with a path
