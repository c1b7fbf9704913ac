"""Computes the embeddings of texts or token ids."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from ..core import limits
from ..core.context_limits import token_bytes, utf8_bytes
from ..core.errors import ApiError, invalid_value
from ..engine.engine import Engine
from .services import Sender, Services

Text = str | list[int]
"""A text, or the tokens of a text."""


@dataclass(frozen=True, slots=True)
class Embedded:
    vectors: list[bytes]
    """One vector for each text: float32, little-endian, normalized to unit length."""
    n_tokens: int
    """Total tokens of all texts."""

    @property
    def n_bytes(self) -> int:
        return sum(map(len, self.vectors))


@dataclass(frozen=True, slots=True)
class EmbeddingJob:
    texts: Sequence[Text]
    param: str
    """The client's name of the member with the texts."""
    is_list: bool = True
    """Whether the client sent a list of texts. Errors about a text then name its index."""
    n_dimensions: int | None = None
    """Number of dimensions to return: each vector is truncated to its first `n_dimensions` numbers, and normalized
    again. None if all dimensions are returned.
    """
    truncates: bool = False
    """Whether a text that is too long is truncated instead of refused."""


async def embedded(services: Services, job: EmbeddingJob, sender: Sender) -> Embedded:
    """Returns the vectors. Raises ApiError."""
    engine, texts = services.engine, job.texts
    _check(engine, job)
    n_bytes = sum(utf8_bytes(text) if isinstance(text, str) else 4 * len(text) for text in texts)
    numbers = range(len(texts))
    tokens = await engine.in_thread(sender.owner, n_bytes, lambda: [_tokens(engine, job, n) for n in numbers])
    vectors = await engine.embedder.embed(tokens)
    n_dimensions = job.n_dimensions
    if n_dimensions not in (None, engine.info.n_embedding):
        n_numbers = len(texts) * engine.info.n_embedding
        vectors = await engine.in_thread(sender.owner, n_numbers, lambda: [_shorter(n_dimensions, v) for v in vectors])
    return Embedded(vectors, sum(map(len, tokens)) // 4)


def _check(engine: Engine, job: EmbeddingJob) -> None:
    n_embedding, param, n_texts = engine.info.n_embedding, job.param, len(job.texts)
    if n_embedding == 0:
        raise ApiError("no_embeddings", "This model does not support embeddings.")
    if job.n_dimensions is not None and not 1 <= job.n_dimensions <= n_embedding:
        raise invalid_value(
            "dimensions", f"{job.n_dimensions} is not between 1 and {n_embedding}, the dimensions of this model"
        )
    if not 1 <= n_texts <= limits.EMBEDDING_TEXTS_MAX:
        most = limits.EMBEDDING_TEXTS_MAX
        raise invalid_value(param, f"{n_texts} texts; 1 to {most} are allowed at once")


def _tokens(engine: Engine, job: EmbeddingJob, n: int) -> bytes:
    """Returns the tokens of one text, including those that the model expects at the beginning and end of a text."""
    text, param = job.texts[n], f"{job.param}[{n}]" if job.is_list else job.param
    most = engine.info.n_embedding_tokens
    n_bytes_max = most * engine.info.token_bytes_max
    if not isinstance(text, str):
        tokens = token_bytes(text, engine.info.n_vocab, param)
    elif job.truncates or utf8_bytes(text) <= n_bytes_max:
        tokens = engine.tokens(text[:n_bytes_max], around=True)
    else:
        raise _too_long(param, -(-utf8_bytes(text) // engine.info.token_bytes_max), most)
    if not tokens or text == "":
        raise invalid_value(param, "it must have at least one token")
    if len(tokens) > 4 * most:
        if not job.truncates:
            raise _too_long(param, len(tokens) // 4, most)
        tokens = tokens[: 4 * (most - 1)] + tokens[-4:]  # keeps the last token, which can be the model's end token
    return tokens


def _too_long(param: str, n_tokens: int, most: int) -> ApiError:
    return ApiError(
        "context_length_exceeded",
        f"This model's maximum context length is {most} tokens for embeddings. However, {param} has at least "
        f"{n_tokens} tokens.",
        param,
    )


def _shorter(n: int | None, vector: bytes) -> bytes:
    first = array("f", vector)[:n]
    length = math.hypot(*first)
    return array("f", [number / length for number in first]).tobytes() if length > 0 else first.tobytes()


def as_json(vector: bytes) -> msgspec.Raw:
    """Returns a vector as JSON. Called in a text thread. Only one vector is encoded per call, because encoding holds
    the interpreter lock.
    """
    return msgspec.Raw(msgspec.json.encode(array("f", vector).tolist()))
