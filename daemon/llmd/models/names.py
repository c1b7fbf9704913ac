"""Parses names of models. `OWNER/NAME[:QUANTIZATION]` names a repository of the hub. Every other name means a file on
this machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from .errors import ModelError

MAIN = "main"
_ADDRESS = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/|hf://(?:models/)?", re.IGNORECASE)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FORM = "a name is OWNER/NAME, OWNER/NAME:QUANTIZATION or OWNER/NAME:FILE.gguf"
_LATEST = "latest"
"""A tag that Ollama's names can have. It names no quantization."""


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository of the hub and, if the user named them, a quantization or a file in the repository."""

    repository: str
    quantization: str = ""
    file: str = ""
    revision: str = MAIN

    def __str__(self) -> str:
        tag = self.file or self.quantization
        return f"{self.repository}:{tag}" if tag else self.repository


def parse_hub_name(text: str) -> HubName | None:
    """Returns the repository that the text names. Returns None for a path or a name on this machine. Raises ModelError
    if the text is an address of the hub, but names no repository.
    """
    address = _ADDRESS.match(text)
    if address is None:
        return _without_address(text)
    rest, _, tag = unquote(text[address.end() :].partition("?")[0].partition("#")[0]).strip("/").partition(":")
    parts = rest.split("/")
    repository, _, revision = "/".join(parts[:2]).partition("@")
    if not _REPOSITORY.fullmatch(repository):
        raise ModelError(f"the address names no repository of models: {_FORM}")
    if parts[2:3] and parts[2] in ("blob", "resolve", "tree", "raw"):
        revision, parts = "/".join(parts[3:4]), parts[:2] + parts[4:]
    file = "/".join(parts[2:])
    return _tagged(repository, tag, file, revision or MAIN)


def is_hub_name(text: str) -> bool:
    """Returns whether the text has the form of a name or an address on the hub."""
    return _ADDRESS.match(text) is not None or _without_address(text) is not None


def _without_address(text: str) -> HubName | None:
    repository, _, tag = text.partition(":")
    if not _REPOSITORY.fullmatch(repository) or repository.endswith(".gguf") or "/" in tag:
        return None
    return _tagged(repository, tag, "", MAIN)


def _tagged(repository: str, tag: str, file: str, revision: str) -> HubName:
    if tag.lower().endswith(".gguf"):
        return HubName(repository, "", tag, revision)
    return HubName(repository, "" if tag.lower() == _LATEST else tag, file, revision)
