"""llmctl models list, show, pull and remove, without a daemon, with a hub on this machine."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from llmd.ctl.context import EXIT_OK, EXIT_REFUSED, EXIT_USAGE
from tests.local_hub import LocalHub
from tests.test_models_hub import Finder


@pytest.fixture
def find(hub: LocalHub, tmp_path: Path) -> Finder:
    return Finder(hub, tmp_path)


def llmctl(find: Finder, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.CompletedProcess[str]:
    socket = str(find.home / "none.sock")
    return subprocess.run(
        [sys.executable, "-m", "llmd.ctl", "--socket", socket, "models", *arguments],
        stdin=stdin,
        capture_output=True,
        text=True,
        env=find.environment(OLLAMA_MODELS=str(find.home)),
        timeout=100,
    )


def test_a_model_from_download_to_removal(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("ann/Tiny-GGUF", {"t-Q8_0.gguf": model + b"1", "t-Q4_K_M.gguf": model})
    assert "no models in the folders that llmd searches; llmctl models pull OWNER/NAME" in llmctl(find, "list").stdout
    pulled = llmctl(find, "pull", "ann/Tiny-GGUF")
    assert pulled.returncode == EXIT_OK and pulled.stdout.startswith("Model ann/Tiny-GGUF:Q4_K_M is in the cache: /")
    assert "downloading ann/Tiny-GGUF: 100 % of 5 MiB" in pulled.stderr
    assert llmctl(find, "pull", "hf.co/ann/Tiny-GGUF:q8_0", "--json").stderr.count("downloading") > 1
    rows = llmctl(find, "list").stdout.splitlines()
    assert rows[0].split() == ["NAME", "SIZE", "SOURCE", "MODIFIED"]
    assert [row.split()[0] for row in rows[1:]] == ["ann/Tiny-GGUF:Q4_K_M", "ann/Tiny-GGUF:Q8_0"]
    shown = json.loads(llmctl(find, "show", "tiny:q8_0", "--json").stdout)
    assert Path(shown["path"]).read_bytes() == model + b"1"
    assert {**shown, "path": "", "modified_ms": 0} == {
        "name": "ann/Tiny-GGUF:Q8_0",
        "source": "cache",
        "path": "",
        "files": 1,
        "size_bytes": len(model) + 1,
        "quantization": "Q8_0",
        "modified_ms": 0,
        "architecture": "qwen3",
        "n_ctx_train": 4096,
    }
    assert "trained for 4,096 tokens" in llmctl(find, "show", "ann/Tiny-GGUF").stdout
    for name in ("ann/Tiny-GGUF", "tiny-gguf", "tiny"):
        refused = llmctl(find, "remove", name, "--yes")
        assert refused.returncode == EXIT_REFUSED
        assert "name one of ann/Tiny-GGUF:Q4_K_M, ann/Tiny-GGUF:Q8_0" in refused.stderr
    removed = llmctl(find, "remove", "ann/Tiny-GGUF:Q8_0", "--yes", "--json")
    assert json.loads(removed.stdout) == {"name": "ann/Tiny-GGUF:Q8_0", "removed": True, "size_bytes": len(model) + 1}
    assert not Path(shown["path"]).exists()
    left = json.loads(llmctl(find, "list", "--json").stdout)
    assert [one["name"] for one in left["data"]] == ["ann/Tiny-GGUF:Q4_K_M"]
    assert llmctl(find, "remove", "tiny", "--yes").stdout == "Model ann/Tiny-GGUF:Q4_K_M removed.\n"
    assert find.files() == []


def test_a_newer_version_is_pulled(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("a/b", {"m-Q8_0.gguf": model}, commit="1" * 40)
    llmctl(find, "pull", "a/b")
    hub.add("a/b", {"m-Q8_0.gguf": model + b"2"}, commit="2" * 40)
    pulled = json.loads(llmctl(find, "pull", "a/b", "--json").stdout)
    assert Path(pulled["path"]).read_bytes() == model + b"2"
    shown = json.loads(llmctl(find, "show", "a/b:Q8_0", "--json").stdout)
    assert shown["path"] == pulled["path"] and len(json.loads(llmctl(find, "list", "--json").stdout)["data"]) == 1


def test_removal_needs_an_answer(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("a/b", {"m-Q8_0.gguf": model})
    path = Path(json.loads(llmctl(find, "pull", "a/b", "--json").stdout)["path"])
    refused = llmctl(find, "remove", "a/b")
    assert refused.returncode == EXIT_REFUSED and "a/b:Q8_0 was not removed; --yes removes it" in refused.stderr
    for answer, code in ((b"n\n", EXIT_REFUSED), (b"y\n", EXIT_OK)):
        assert path.exists()
        terminal, inside = pty.openpty()
        os.write(terminal, answer)
        asked = llmctl(find, "remove", "a/b", stdin=inside)
        assert asked.returncode == code and "Remove a/b:Q8_0 (4.8 MiB)? [y/N]" in asked.stderr
        os.close(terminal)
        os.close(inside)
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["pull", "tiny"], "tiny names no model to download: write OWNER/NAME[:QUANTIZATION]"),
        (["pull", "no/thing"], "has no such repository: check the spelling, or set HF_TOKEN if it is private"),
        (["show", "tiny"], "no model on this machine is named tiny: llmctl models list shows the names"),
        (["remove", "tiny", "--yes"], "no model named tiny is in the cache: llmctl models list shows the names"),
        (
            ["list", "--models-dir", "/none"],
            "--models-dir: /none is not a folder: name the folder that has the GGUF files",
        ),
    ],
)
def test_errors(find: Finder, arguments: list[str], sentence: str) -> None:
    failed = llmctl(find, *arguments)
    assert failed.returncode == EXIT_REFUSED and failed.stdout == ""
    assert failed.stderr.startswith("llmctl: ") and failed.stderr.endswith(f"{sentence}\n")
    error = json.loads(llmctl(find, *arguments, "--json").stderr)["error"]
    assert error["code"] == "model_unavailable" and error["message"].endswith(sentence)
    assert llmctl(find, "nonsense").returncode == EXIT_USAGE


def test_folders_of_others_are_only_read(find: Finder, model: bytes) -> None:
    path = find.home / ".lmstudio" / "models" / "ann" / "Tiny" / "t-Q8_0.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(model)
    failed = llmctl(find, "remove", "tiny", "--yes")
    assert failed.returncode == EXIT_REFUSED
    assert failed.stderr == (
        "llmctl: ann/Tiny:Q8_0 belongs to LM Studio, whose folder llmctl only reads: remove it there\n"
    )
    assert path.exists()
