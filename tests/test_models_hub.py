"""Downloads with the real huggingface_hub from a hub on this machine: requests, the cache, and the sentence of each
error.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.local_hub import TOKEN, LocalHub
from tests.serving import environment_without_options

# Finds the model of the first argument. Prints the path or the error, and then the log lines.
PROGRAM = """
import json, logging, sys
from llmd.models import hub
from llmd.models.errors import ModelError
from llmd.models.finding import find_model
from llmd.process.progress import Download
lines, progress = [], []
class Lines(logging.Handler):
    def emit(self, record):
        lines.append({"message": record.getMessage(), **getattr(record, "fields", {})})
logging.getLogger("llmd").addHandler(Lines())
logging.getLogger("llmd").setLevel("INFO")
free = int(sys.argv[2]) or None
exec(sys.argv[3])
found = {}
try:
    found["path"] = find_model(sys.argv[1], lambda: free, Download(lambda one: progress.append(one.n_bytes)))
except ModelError as error:
    found["error"] = str(error)
print(json.dumps({**found, "lines": lines, "progress": progress}))
"""
MIB = 1 << 20


@dataclass
class Finder:
    hub: LocalHub
    home: Path

    def environment(self, **more: str) -> dict[str, str]:
        inherited = environment_without_options()
        clean = {name: value for name, value in inherited.items() if not name.startswith("HF_")}
        return {**clean, "HOME": str(self.home), "HF_HOME": str(self.home / "hf"), "HF_ENDPOINT": self.hub.url, **more}

    def popen(self, name: str, free: int = 0, before: str = "", **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, name, str(free), before],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(**more),
        )

    def __call__(self, name: str, free: int = 0, before: str = "", **more: str) -> dict[str, Any]:
        """Returns what the program prints. Forgets the earlier requests."""
        self.hub.requests.clear()
        out, errors = self.popen(name, free, before, **more).communicate(timeout=100)
        assert errors == ""
        found = json.loads(out)
        assert isinstance(found, dict)
        return found

    def error(self, name: str, free: int = 0, before: str = "", **more: str) -> str:
        found = str(self(name, free, before, **more)["error"]).replace(self.hub.url.removeprefix("http://"), "HUB")
        assert "\n" not in found
        return found

    def files(self) -> list[str]:
        """The files of the cache, without its locks."""
        paths = (self.home / "hf" / "hub").rglob("*")
        return sorted(path.name for path in paths if not path.is_dir() and path.suffix not in (".lock", ".TAG"))


@pytest.fixture
def find(hub: LocalHub, tmp_path: Path) -> Finder:
    return Finder(hub, tmp_path)


# --- download and cache -----------------------------------------------------------------------------------------------


def test_a_download_and_a_start_without_the_hub(hub: LocalHub, find: Finder, model: bytes) -> None:
    commit = hub.add("ann/tiny-GGUF", {"README.md": b"x", "t-Q8_0.gguf": model + b"1", "t-Q4_K_M.gguf": model}).commit
    found = find("ann/tiny-GGUF")
    path = Path(found["path"])
    assert path.parts[-4:] == ("models--ann--tiny-GGUF", "snapshots", commit, "t-Q4_K_M.gguf")
    assert path.read_bytes() == model and path.is_symlink()
    assert found["progress"][0] == 0 and found["progress"][-1] == len(model) == max(found["progress"])
    assert found["lines"] == [
        {
            "message": "model chosen",
            "name": "ann/tiny-GGUF",
            "file": "t-Q4_K_M.gguf",
            "files": 1,
            "size": "5 MiB",
            "why": "Q4_K_M is the most preferred quantization that is available",
        }
    ]
    assert find.files() == sorted([hashlib.sha256(model).hexdigest(), "t-Q4_K_M.gguf", "main"])  # no copy
    for name in ("ann/tiny-GGUF", "hf.co/ann/tiny-GGUF:q4_k_m", "ann/tiny-GGUF:t-Q4_K_M.gguf"):
        again = find(name)
        assert again["path"] == str(path) and again["lines"][0]["message"] == "model found in the cache"
        assert hub.requests == []
    assert find("ann/tiny-GGUF", HF_HUB_OFFLINE="1")["path"] == str(path)
    assert find("ann/tiny-GGUF", HF_ENDPOINT="http://127.0.0.1:9")["path"] == str(path)


def test_what_is_requested(hub: LocalHub, find: Finder, model: bytes) -> None:
    """The library must report nothing about this process, and the token must not reach the host of the content."""
    commit = hub.add("a/b", {"m.gguf": model}, access="account").commit
    find("a/b", HF_TOKEN=TOKEN)
    digest = hashlib.sha256(model).hexdigest()
    assert [(one.method, one.path, one.token) for one in hub.requests] == [
        ("GET", "/api/models/a/b/revision/main", TOKEN),
        ("HEAD", f"/a/b/resolve/{commit}/m.gguf", TOKEN),
        ("GET", f"/a/b/resolve/{commit}/m.gguf", TOKEN),
        ("GET", f"/cdn/{digest}", None),
        ("HEAD", f"/a/b/resolve/{commit}/m.gguf", TOKEN),
    ]


def test_a_quantization_that_is_not_cached_is_downloaded(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("a/b", {"m-Q8_0.gguf": model + b"1", "m-Q4_K_M.gguf": model})
    find("a/b")
    assert find("a/b:q8_0")["path"].endswith("/m-Q8_0.gguf") and len(hub.downloads) == 1
    assert find("a/b")["path"].endswith("/m-Q4_K_M.gguf") and hub.requests == []


def test_capitals_do_not_matter(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("Ann/Tiny-GGUF", {"m.gguf": model})
    path = find("ann/tiny-gguf")["path"]
    assert "models--Ann--Tiny-GGUF" in path
    for name in ("ann/tiny-gguf", "Ann/Tiny-GGUF", "hf.co/ANN/tiny-GGUF"):
        assert find(name, HF_HUB_OFFLINE="1")["path"] == path


def test_a_file_of_an_older_commit_stays_cached(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("a/b", {"m-Q8_0.gguf": model + b"1", "m-Q4_K_M.gguf": model}, commit="1" * 40)
    older = find("a/b")["path"]
    hub.add("a/b", {"m-Q8_0.gguf": model + b"1", "m-Q4_K_M.gguf": model}, commit="2" * 40)
    newer = find("a/b:q8_0")["path"]
    assert "1" * 40 in older and "2" * 40 in newer
    for name, path in (("a/b", older), ("a/b:q4_k_m", older), ("a/b:q8_0", newer)):
        assert find(name, HF_HUB_OFFLINE="1")["path"] == path


def test_a_cached_model_needs_no_memory_to_spare(hub: LocalHub, find: Finder, model: bytes) -> None:
    """Otherwise a start while other programs use the memory would download another quantization."""
    hub.add("a/b", {"m-Q4_K_M.gguf": model, "m-Q2_K.gguf": model[: 2 * MIB]})
    cached = find("a/b")["path"]
    assert find("a/b", free=len(model) + 1)["path"] == cached
    assert find("a/b:q4_k_m", free=MIB)["path"] == cached  # libllm says how much memory the model needs
    assert hub.requests == []
    assert find("a/b", free=len(model) - 1)["path"].endswith("m-Q2_K.gguf")


def test_a_file_with_the_same_content_is_not_downloaded_again(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("a/b", {"old.gguf": model}, commit="1" * 40)
    find("a/b")
    hub.add("a/b", {"new.gguf": model}, commit="2" * 40)
    assert find("a/b:new.gguf")["path"].endswith("2/new.gguf") and hub.downloads == []


def test_a_split_model(hub: LocalHub, find: Finder, model: bytes) -> None:
    parts = {f"Q8_0/m-Q8_0-{n:05}-of-00003.gguf": model + bytes([n]) for n in (1, 2, 3)}
    hub.add("a/b", parts | {"Q4_0/m-Q4_0.gguf": model})
    path = Path(find("a/b")["path"])
    assert path.name == "m-Q8_0-00001-of-00003.gguf"
    assert {one.name: one.read_bytes() for one in path.parent.iterdir()} == {
        name.partition("/")[2]: content for name, content in parts.items()
    }
    path.with_name("m-Q8_0-00002-of-00003.gguf").unlink()
    path.with_name("m-Q8_0-00002-of-00003.gguf").resolve().unlink(missing_ok=True)
    assert find("a/b")["path"] == str(path)  # the cached model was incomplete
    assert path.with_name("m-Q8_0-00002-of-00003.gguf").exists()


def test_a_projector_is_left_out(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("a/b", {"mmproj-m-F16.gguf": model + b"1", "m-Q6_K.gguf": model})
    found = find("a/b")
    assert found["path"].endswith("/m-Q6_K.gguf") and len(hub.downloads) == 1
    assert found["lines"][1] == {
        "message": "the projector is not downloaded, because llmd does not support images and sound",
        "projector": "mmproj-m-F16.gguf",
    }


# --- interrupted downloads --------------------------------------------------------------------------------------------


def test_a_broken_connection_is_resumed(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("a/b", {"m.gguf": model})
    hub.breaks_after = [MIB + 1, MIB + 1]
    found = find("a/b")
    assert Path(found["path"]).read_bytes() == model
    assert [one.range for one in hub.downloads] == [None, f"bytes={MIB}-", f"bytes={2 * MIB}-"]
    assert found["progress"][-1] == len(model)


def test_a_hub_that_ignores_ranges(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("a/b", {"m.gguf": model})
    hub.breaks_after = [2 * MIB]
    hub.ignores_ranges = True
    assert Path(find("a/b")["path"]).read_bytes() == model


def test_a_killed_download_is_resumed(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("a/b", {"m.gguf": model})
    hub.breaks_after, hub.gate = [3 * MIB], threading.Event()
    popen = find.popen("a/b", before="hub.constants.DOWNLOAD_CHUNK_SIZE = 65536")
    wait_for_bytes(find, 2 * MIB)
    popen.kill()
    popen.communicate(timeout=100)
    found = find("a/b")
    assert Path(found["path"]).read_bytes() == model
    (again,) = hub.downloads
    assert again.range is not None and int(again.range[6:-1]) >= 2 * MIB
    assert found["lines"][1]["message"].startswith("resuming m.gguf after ")
    assert not any(name.endswith(".incomplete") for name in find.files())


def wait_for_bytes(find: Finder, n: int) -> None:
    waiting = threading.Event()
    for _ in range(6000):
        sizes = [path.stat().st_size for path in find.home.rglob("*.incomplete")]
        if sizes and sizes[0] >= n:
            return
        waiting.wait(0.01)
    raise AssertionError("the download did not begin")


def test_two_processes_download_once(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("a/b", {"m.gguf": model})
    hub.breaks_after, hub.gate = [3 * MIB], threading.Event()
    first = find.popen("a/b")
    wait_for_bytes(find, 1)
    second = find.popen("a/b")
    hub.gate.set()
    found = [json.loads(one.communicate(timeout=100)[0]) for one in (first, second)]
    assert found[0]["path"] == found[1]["path"] and Path(found[0]["path"]).read_bytes() == model
    assert [one.range for one in hub.downloads if one.range is None] == [None]


# --- errors -----------------------------------------------------------------------------------------------------------


def test_repositories_that_cannot_be_read(hub: LocalHub, find: Finder, model: bytes) -> None:
    for access in ("private", "gated", "account", "forbidden"):
        hub.add(f"{access}/m", {"m.gguf": model}, access=access)
    absent = "HUB has no such repository: check the spelling, or set HF_TOKEN if it is private"
    assert find.error("no/thing") == find.error("no/thing", HF_TOKEN=TOKEN) == find.error("private/m") == absent
    assert find.error("private/m", HF_TOKEN="hf_old") == (
        "HUB refuses the token: renew HF_TOKEN, or run hf auth login again"
    )
    assert find.error("account/m") == (
        "the repository is gated: accept its conditions at http://HUB/account/m, and set HF_TOKEN or run hf auth login"
    )
    assert find.error("gated/m", HF_TOKEN=TOKEN) == (
        "the repository is gated, and your account has no access yet: ask for it at http://HUB/gated/m"
    )
    assert find.error("forbidden/m", HF_TOKEN=TOKEN) == (
        "HUB denies access: use a token with permission to read the repository (HF_TOKEN)"
    )
    assert find.error("https://hf.co/account/m/blob/v9/m.gguf", HF_TOKEN=TOKEN) == (
        "HUB has no such revision v9 of the repository: check the spelling, or set HF_TOKEN if it is private"
    )


def test_a_hub_that_does_not_answer(hub: LocalHub, find: Finder) -> None:
    hub.status = 429
    assert find.error("a/b") == "HUB refuses more requests for now: wait some minutes, or set HF_TOKEN"
    hub.status = 503
    assert find.error("a/b") == "HUB answered with HTTP status 503: try again later"
    assert find.error("a/b", HF_ENDPOINT="http://127.0.0.1:9") == (
        "cannot download from 127.0.0.1:9 ([Errno 111] Connection refused): check the network; the next start "
        "continues the download"
    )
    assert find.error("a/b", HF_HUB_OFFLINE="1") == (
        "the model is not in the cache, and HF_HUB_OFFLINE forbids downloads: unset HF_HUB_OFFLINE"
    )


def test_repositories_without_the_file(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("a/b", {"m-Q8_0.gguf": model, "m-Q4_K_M.gguf": model})
    assert find.error("a/b:Q3_K_M") == "the repository has no quantization Q3_K_M: name one of Q4_K_M, Q8_0"
    assert find.error("a/b:x.gguf") == (
        "the repository has no file x.gguf that is a model: name one of m-Q4_K_M.gguf, m-Q8_0.gguf"
    )
    hub.add("no/gguf", {"model.safetensors": model})
    assert find.error("no/gguf") == (
        "the repository has no GGUF file: look for a repository of the same model whose name ends in -GGUF"
    )
    hub.add("half/split", {"m-00001-of-00002.gguf": model})
    assert find.error("half/split") == ("the repository has only 1 of the 2 parts of m: choose another quantization")
    assert hub.downloads == []


def test_a_wrong_hash(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("a/b", {"m.gguf": model}, stated_sha256={"m.gguf": "0" * 64})
    assert find.error("a/b") == (
        "the content of m.gguf has another SHA-256 than HUB states, and was deleted: start the download again"
    )
    assert find.files() == []


def test_a_file_that_is_no_model(hub: LocalHub, find: Finder) -> None:
    hub.add("a/b", {"m.gguf": b"<!doctype html>"})
    assert find.error("a/b") == "m.gguf is not a GGUF file, and was deleted: choose another file"
    assert find.files() == []


def test_a_model_that_is_too_large(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("a/b", {"m-Q4_K_M.gguf": model})
    assert find.error("a/b", free=2 * MIB) == (
        "no file fits into the memory: the smallest, m-Q4_K_M.gguf, takes 5 MiB, and 2 MiB are available; free some "
        "memory, or choose a smaller model"
    )
    assert find.error("a/b:q4_k_m", free=2 * MIB) == (
        "m-Q4_K_M.gguf takes 5 MiB, but 2 MiB of memory are available: name a smaller quantization, or set --oversize "
        "allow"
    )
    assert hub.downloads == []


LARGE = f"""
from pathlib import Path
from types import SimpleNamespace
from huggingface_hub import file_download
from huggingface_hub.utils._xet_progress_reporting import XetDownloadProgressReporter

def download(*, incomplete_path, expected_size, tqdm_class=None, **more):
    options = dict(reconstruction_desc="", transfer_desc="", total=expected_size, log_level=0, tqdm_class=tqdm_class)
    with XetDownloadProgressReporter(**options) as reporter:
        for n_mib in (1, 3):
            reporter.update_progress(SimpleNamespace(
                total_bytes=expected_size, total_bytes_completed=n_mib * {MIB}, total_bytes_completion_rate=None,
                total_transfer_bytes=expected_size // 2, total_transfer_bytes_completed=n_mib * {MIB} // 2,
                total_transfer_bytes_completion_rate=None))
    incomplete_path.write_bytes(Path.home().joinpath("content").read_bytes())

file_download.xet_get = download
hub.constants.MAX_HTTP_DOWNLOAD_SIZE = {MIB}
"""
"""Like the Xet client, with a limit of 1 MiB for downloads over HTTP. The content is that of a file in HOME."""


def test_a_file_that_only_the_xet_client_downloads(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("a/b", {"m.gguf": model}, has_xet=True)
    (find.home / "content").write_bytes(model[:-1] + b"x")
    assert "has another SHA-256 than HUB states, and was deleted" in find.error("a/b", before=LARGE)
    (find.home / "content").write_bytes(model)
    found = find("a/b", before=LARGE)
    assert Path(found["path"]).read_bytes() == model
    assert [n for n in found["progress"] if n < len(model)] == [0, MIB, 3 * MIB] and found["progress"][-1] == len(model)
    assert hub.downloads == []


SMALL_DISK = f"""
import shutil
shutil.disk_usage = lambda folder: shutil._ntuple_diskusage({100 * MIB}, 0, {MIB})
"""
FULL_DISK = f"""
def full(*of, **more):
    raise OSError({errno.ENOSPC}, "No space left on device")
hub.http_get = full
"""


def test_a_full_disk(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("a/b", {"m.gguf": model})
    cache = find.home / "hf" / "hub"
    assert find.error("a/b", before=SMALL_DISK) == (
        f"the disk has 1 MiB free in {find.home}, and the download needs 5 MiB: free some space, or set HF_HOME to a "
        "folder on another disk"
    )
    blobs = cache / "models--a--b" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{hashlib.sha256(model).hexdigest()}.incomplete").write_bytes(model[: 4 * MIB])
    assert find("a/b", before=SMALL_DISK)["path"]  # the rest of an interrupted download is less than 1 MiB
    hub.add("a/b", {"n.gguf": model + b"1"})
    assert find.error("a/b:n.gguf", before=FULL_DISK) == (
        f"the disk of {cache} is full: free some space, or set HF_HOME to a folder on another disk; the next start "
        "continues the download"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("a/b", {"m.gguf": model})
    find.home.chmod(0o500)
    assert "Permission denied; set HF_HOME to another folder" in find.error("a/b")


def test_a_cache_whose_folder_is_a_file(hub: LocalHub, find: Finder, model: bytes) -> None:
    hub.add("a/b", {"m.gguf": model})
    (find.home / "hf").mkdir()
    (find.home / "hf" / "hub").write_text("")
    assert find.error("a/b") == (
        f"cannot write to the cache: {find.home}/hf/hub/models--a--b/blobs: Not a directory; set HF_HOME to another "
        "folder"
    )
