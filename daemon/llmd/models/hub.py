"""Lists and downloads the files of a repository with huggingface_hub, which knows the cache folder, the tokens and the
environment variables (HF_HOME, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE, ...).

huggingface_hub deletes a download that was interrupted. So this module itself writes the download to
blobs/ETAG.incomplete in the library's cache folder. It uses a function of the library that can continue a download. The
library then adds the complete file to the cache.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from huggingface_hub import (
    HfApi,
    constants,
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    try_to_load_from_cache,
)
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError
from huggingface_hub.file_download import http_get, repo_folder_name
from huggingface_hub.utils import build_hf_headers, disable_progress_bars  # type: ignore[attr-defined]

from ..process.progress import Download
from .choice import RepositoryFile, gib
from .errors import ModelError
from .gguf_header import read_header
from .hub_cache import cache_folder
from .names import HubName

log = logging.getLogger("llmd.models")

_TRANSPORT_ERROR: type[Exception] = HfHubHTTPError.__bases__[0]
"""The base class of all errors of the library's HTTP client. Versions of huggingface_hub use different HTTP clients."""
_ETAG = re.compile(r"[\w-]+")
_LIST_S = 30.0
_HEAD_S = 30.0

disable_progress_bars()
logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # no warnings about retries
# If a download is interrupted, the library loses the last chunk. The library's default chunk has 10 MiB.
constants.DOWNLOAD_CHUNK_SIZE = 1 << 20
# With telemetry, the library asks the hub for a list of AI agents, and reports which of them runs this process.
constants.HF_HUB_DISABLE_TELEMETRY = True


@dataclass(frozen=True, slots=True)
class Listing:
    repository: str
    """The name as the hub spells it, if the user's spelling differs only in upper and lower case. Otherwise the name as
    the user spells it.
    """
    commit: str
    files: tuple[RepositoryFile, ...]


def endpoint() -> str:
    return constants.ENDPOINT.partition("://")[2] or constants.ENDPOINT


# --- the hub ----------------------------------------------------------------------------------------------------------


def list_files(name: HubName) -> Listing:
    """Asks the hub for the files of the repository. Raises ModelError."""
    with _explained(name):
        found = HfApi().model_info(name.repository, revision=name.revision, files_metadata=True, timeout=_LIST_S)
        files = tuple(
            RepositoryFile(one.rfilename, one.size or 0, one.lfs.sha256 if one.lfs is not None else None)
            for one in found.siblings or ()
        )
        is_same = found.id.lower() == name.repository.lower()
        return Listing(found.id if is_same else name.repository, found.sha or name.revision, files)


def download(name: HubName, listing: Listing, files: Sequence[RepositoryFile], progress: Download) -> Path:
    """Downloads the files that are not in the cache, and returns the path of the first one. Raises ModelError."""
    digest = f"sha256:{files[0].sha256}" if files[0].sha256 else ""
    progress.begin(str(name), sum(file.n_bytes for file in files), digest)
    with _explained(name):
        _check_space(sum(_missing_bytes(name, listing, file) for file in files))
        paths = [_fetch(name, listing, file, progress) for file in files]
        _write_ref(name, listing.commit)
    progress.end()
    return paths[0]


def _cached(name: HubName, listing: Listing, file: RepositoryFile) -> Path | None:
    found = try_to_load_from_cache(name.repository, file.path, revision=listing.commit)
    return Path(found) if isinstance(found, str) and os.path.getsize(found) == file.n_bytes else None


def _missing_bytes(name: HubName, listing: Listing, file: RepositoryFile) -> int:
    """Returns how much of the file must be downloaded. The bytes of an interrupted download are kept, and are not
    downloaded again.
    """
    if _cached(name, listing, file) is not None:
        return 0
    blob = _repository_folder(name) / "blobs" / (file.sha256 or "")
    if file.sha256 is not None and blob.exists():
        return 0
    try:
        return max(0, file.n_bytes - os.path.getsize(f"{blob}.incomplete"))
    except OSError:
        return file.n_bytes


def _fetch(name: HubName, listing: Listing, file: RepositoryFile, progress: Download) -> Path:
    cached = _cached(name, listing, file)
    if cached is not None:
        progress.add(file.n_bytes)
        return cached
    url = hf_hub_url(name.repository, file.path, revision=listing.commit)
    found = get_hf_file_metadata(url, timeout=_HEAD_S)
    if found.etag is None or not _ETAG.fullmatch(found.etag):
        raise ModelError(f"{endpoint()} answers without an ETag: check HF_ENDPOINT and the proxy")
    blob = _repository_folder(name) / "blobs" / found.etag
    if blob.exists():
        progress.add(file.n_bytes)
    elif file.n_bytes > constants.MAX_HTTP_DOWNLOAD_SIZE:
        _download_large(name, listing, file, blob, progress)
    else:
        blob.parent.mkdir(parents=True, exist_ok=True)
        _download_blob(url, blob, file, progress)
    return Path(hf_hub_download(name.repository, file.path, revision=listing.commit))


def _download_large(name: HubName, listing: Listing, file: RepositoryFile, blob: Path, progress: Download) -> None:
    """Downloads a file that the hub does not serve over plain HTTP. Only the library's Xet client can download it, and
    this client cannot continue an interrupted download.
    """
    n_before = progress.n_bytes
    hf_hub_download(name.repository, file.path, revision=listing.commit, tqdm_class=_meter(progress))
    _check_content(blob.resolve(), file, progress)  # some versions of the library put a link there
    progress.n_bytes = n_before + file.n_bytes


def _download_blob(url: str, blob: Path, file: RepositoryFile, progress: Download) -> None:
    """Downloads the file's content to `blob`. Continues an interrupted download. If another process is downloading the
    same file, waits for it.
    """
    partial = blob.with_name(f"{blob.name}.incomplete")
    while not blob.exists():
        with open(partial, "ab") as content:
            if not _lock(content, file):
                continue
            n_before = progress.n_bytes
            _download_rest(url, content, file, progress)
            _check_content(partial, file, progress)
            partial.replace(blob)
            progress.n_bytes = n_before + file.n_bytes


def _lock(content: BinaryIO, file: RepositoryFile) -> bool:
    """Locks the partial file. Returns False if the file was completed or removed by another process meanwhile."""
    try:
        fcntl.flock(content, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.info("waiting: another process downloads %s", file.path)
        fcntl.flock(content, fcntl.LOCK_EX)
    try:
        return os.path.samestat(os.fstat(content.fileno()), os.stat(content.name))
    except FileNotFoundError:
        return False


def _download_rest(url: str, content: BinaryIO, file: RepositoryFile, progress: Download) -> None:
    """Downloads the missing part of the file. If the connection breaks, tries again as long as each try brings more
    bytes.
    """
    has = content.seek(0, os.SEEK_END)
    if has > file.n_bytes:
        has = content.truncate(0)
    if has:
        log.info("resuming %s after %s of %s", file.path, gib(has), gib(file.n_bytes))
    progress.add(has)
    while has < file.n_bytes:
        try:
            http_get(
                url,
                content,
                resume_size=has,
                headers=build_hf_headers(),
                expected_size=file.n_bytes,
                tqdm_class=_meter(progress),
            )
        except (HfHubHTTPError, ModelError):
            raise
        except (_TRANSPORT_ERROR, OSError) as error:
            content.flush()
            had, has = has, content.seek(0, os.SEEK_END)
            if has <= had or getattr(error, "errno", None) is not None:
                raise
        else:
            has = content.seek(0, os.SEEK_END)


def _meter(progress: Download) -> type:
    class Meter:
        """Used by the library in place of a progress bar of tqdm."""

        def __init__(self, **_: object) -> None: ...

        def __enter__(self) -> Meter:
            return self

        def __exit__(self, *_: object) -> None: ...

        def update(self, n: int) -> None:
            progress.add(n)

        def update_transfer(self, n: int) -> None:
            """Called with the bytes from the network, by the Xet client only. They are compressed."""

        def set_postfix_str(self, text: str, refresh: bool = True) -> None: ...

        def set_transfer_postfix_str(self, text: str, refresh: bool = True) -> None: ...

    return Meter


def _check_content(partial: Path, file: RepositoryFile, progress: Download) -> None:
    """Checks the hash, if the hub states one, and the header. Removes a file that fails a check, because continuing its
    download would not repair it.
    """
    progress.is_checking = True
    with partial.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    progress.is_checking = False
    if file.sha256 not in (None, digest):
        partial.unlink()
        raise ModelError(
            f"the content of {file.path} has another SHA-256 than {endpoint()} states, and was deleted: start the "
            "download again"
        )
    try:
        read_header(partial)
    except ModelError:
        partial.unlink()
        raise ModelError(f"{file.path} is not a GGUF file, and was deleted: choose another file") from None


def _repository_folder(name: HubName) -> Path:
    return cache_folder() / repo_folder_name(repo_id=name.repository, repo_type="model")


def _write_ref(name: HubName, commit: str) -> None:
    """Writes the commit of the revision, such as `main`, to the cache, so that other programs also find the files
    without the network.
    """
    if name.revision == commit:
        return
    path = _repository_folder(name) / "refs" / name.revision
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(commit)
    new.replace(path)


def _check_space(n_bytes: int) -> None:
    folder = next(one for one in (cache_folder(), *cache_folder().parents) if one.exists())
    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise ModelError(
            f"the disk has {gib(free)} free in {folder}, and the download needs {gib(n_bytes)}: free some space, or "
            "set HF_HOME to a folder on another disk"
        )


# --- errors -----------------------------------------------------------------------------------------------------------


@contextmanager
def _explained(name: HubName) -> Iterator[None]:
    """Converts errors of the library to ModelError."""
    try:
        yield
    except OfflineModeIsEnabled:
        raise ModelError(
            "the model is not in the cache, and HF_HUB_OFFLINE forbids downloads: unset HF_HUB_OFFLINE"
        ) from None
    except HfHubHTTPError as error:
        raise ModelError(_refusal(name, error)) from None
    except OSError as error:
        raise ModelError(_disk_trouble(error)) from None
    except _TRANSPORT_ERROR as error:
        raise ModelError(_unreachable(error)) from None
    except ValueError as error:
        raise ModelError(f"huggingface_hub refuses the download: {_one_line(error)}") from None


def _refusal(name: HubName, error: HfHubHTTPError) -> str:
    status, hub = error.response.status_code, endpoint()
    if isinstance(error, GatedRepoError):
        where = f"{constants.ENDPOINT}/{name.repository}"
        if status == 401:
            return f"the repository is gated: accept its conditions at {where}, and set HF_TOKEN or run hf auth login"
        return f"the repository is gated, and your account has no access yet: ask for it at {where}"
    if isinstance(error, RepositoryNotFoundError) or status == 404:
        what = "repository" if name.revision == "main" else f"revision {name.revision} of the repository"
        return f"{hub} has no such {what}: check the spelling, or set HF_TOKEN if it is private"
    if status == 401:
        return f"{hub} refuses the token: renew HF_TOKEN, or run hf auth login again"
    if status == 403:
        return f"{hub} denies access: use a token with permission to read the repository (HF_TOKEN)"
    if status == 429:
        return f"{hub} refuses more requests for now: wait some minutes, or set HF_TOKEN"
    return f"{hub} answered with HTTP status {status}: try again later"


def _disk_trouble(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"the disk of {cache_folder()} is full: free some space, or set HF_HOME to a folder on another disk; the "
            "next start continues the download"
        )
    if error.errno is not None:
        where = error.filename or cache_folder()
        return f"cannot write to the cache: {where}: {error.strerror}; set HF_HOME to another folder"
    return _unreachable(error)


def _unreachable(error: Exception) -> str:
    return (
        f"cannot download from {endpoint()} ({_one_line(error)}): check the network; the next start continues the "
        "download"
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
