"""Makes fill-in-the-middle prompts from the text before the gap, the text after the gap, and texts from nearby
files.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from ..core.context_limits import utf8_bytes
from ..core.errors import unsupported
from ..core.generation_request import NearbyText, RawPrompt
from ..engine.engine import Engine
from ..engine.opening import FimTokens
from ..engine.text import Prompt
from .services import Sender, Services

_NEARBY_SHARE = 2
"""Texts from nearby files can use 1 / _NEARBY_SHARE of the context that the other texts of the prompt leave free. The
rest of the context is for the answer.
"""
_REPOSITORY, _FILE = "repository", "file"
"""Names that the prompt has for the repository and the current file, because clients do not send their real names."""


def fills_in(raw: RawPrompt) -> bool:
    return raw.is_infill or bool(raw.suffix)


async def infilled(services: Services, raw: RawPrompt, sender: Sender) -> Prompt:
    """Returns the prompt. Its only control tokens are those that separate the texts (FimTokens). Names of control
    tokens in the client's texts are tokenized as plain text. Raises ApiError.
    """
    engine, fim, content = services.engine, services.engine.fim, raw.content
    param = raw.suffix_param
    if fim is None:
        raise unsupported(param, "this model does not support filling in the middle")
    if not isinstance(content, str):
        raise unsupported(param, "filling in the middle needs a text as the prompt, not token ids")
    n_bytes = sum(map(utf8_bytes, (content, raw.suffix, raw.begun)))
    engine.context_limits.check_bytes(n_bytes, raw.param)
    nearby = _fitting(raw.nearby, engine.context_limits.n_bytes - n_bytes)
    tokens = await engine.in_thread(
        sender.owner,
        n_bytes + sum(utf8_bytes(one.text) for one in nearby),
        lambda: _tokens(engine, fim, raw, content, nearby),
    )
    engine.context_limits.check_tokens(len(tokens) // 4, raw.param)
    return Prompt(tokens)


def _fitting(nearby: Iterable[NearbyText], n_bytes: int) -> list[NearbyText]:
    """Returns the last of the nearby texts, as many as fit into `n_bytes`."""
    found: list[NearbyText] = []
    for one in reversed(tuple(nearby)):
        n_bytes -= utf8_bytes(one.text)
        if n_bytes < 0:
            break
        found.insert(0, one)
    return found


def _tokens(engine: Engine, fim: FimTokens, raw: RawPrompt, content: str, nearby: list[NearbyText]) -> bytes:
    text = b"".join((
        _mark(fim.prefix), engine.tokens(content),
        _mark(fim.suffix), engine.tokens(raw.suffix),
        _mark(fim.middle), engine.tokens(raw.begun),
    ))  # fmt: skip
    front = engine.tokens("", around=raw.add_special)
    if nearby:
        n_tokens_max = (engine.info.n_ctx - len(text) // 4 - len(front) // 4) // _NEARBY_SHARE
        front += _context(engine, fim, nearby, 4 * n_tokens_max)
    return front + text


def _context(engine: Engine, fim: FimTokens, nearby: list[NearbyText], n_bytes: int) -> bytes:
    """Returns the nearby texts in the format that the model was trained for. If not all texts fit, the first texts are
    left out.
    """
    opening = _marked_name(engine, fim.repository, _REPOSITORY)
    closing = _marked_name(engine, fim.file, _FILE)
    left = n_bytes - len(opening) - len(closing)
    found: list[bytes] = []
    for one in reversed(nearby):
        tokens = _marked_name(engine, fim.file, one.name) + engine.tokens(f"{one.text}\n")
        left -= len(tokens)
        if left < 0:
            break
        found.insert(0, tokens)
    return b"".join((opening, *found, closing)) if found else b""


def _marked_name(engine: Engine, mark: int, name: str) -> bytes:
    """Returns the control token `mark` followed by the name. Returns nothing if the model does not have the token (-1).
    The model would mistake the name alone for text.
    """
    return b"" if mark < 0 else _mark(mark) + engine.tokens(f"{name}\n")


def _mark(token: int) -> bytes:
    return array("i", [token]).tobytes()
