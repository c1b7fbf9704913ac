"""Computes embeddings, one batch at a time, in a separate thread that runs parallel to the decode thread."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..core.errors import ApiError, code_of_status
from .native import STATUS_WORDS, Status, ffi, lib

_TEXTS_AT_ONCE = 64
"""Maximum number of texts passed to libllm in one call. libllm embeds only as many of them as fit into a batch."""
_FLOAT_BYTES = 4


class Embedder:
    """Embeds texts. Requests take turns: after each batch, the next request is served. If a request is cancelled, its
    batch is stopped. The event loop owns this object.
    """

    def __init__(self, engine: Any, loop: asyncio.AbstractEventLoop, n_embedding: int) -> None:
        self._engine = engine
        self._loop = loop
        self._n_embedding = n_embedding
        self._thread = ThreadPoolExecutor(1, "llmd-embed")
        self._turn = asyncio.Lock()
        self._cancel_flag = ffi.new("int32_t *")
        """Flag of the newest batch. A nonzero value cancels the batch."""
        self._is_closed = False

    async def embed(self, texts: Sequence[bytes]) -> list[bytes]:
        """Returns a float32 vector for each text, normalized to unit length. Each text is given as int32 token ids, and
        must not have more tokens than the model accepts.
        """
        found: list[bytes] = []
        while len(found) < len(texts):
            async with self._turn:
                if self._is_closed:
                    raise ApiError("shutting_down")
                some = texts[len(found) : len(found) + _TEXTS_AT_ONCE]
                found += await self._one_batch(some)
        return found

    async def close(self) -> None:
        """Cancels the current batch and waits for its end."""
        self._is_closed = True
        self._cancel_flag[0] = 1
        await asyncio.to_thread(self._thread.shutdown, wait=True, cancel_futures=True)

    async def _one_batch(self, texts: Sequence[bytes]) -> list[bytes]:
        cancel_flag = self._cancel_flag = ffi.new("int32_t *")
        try:
            return await self._loop.run_in_executor(self._thread, self._embed, texts, cancel_flag)
        finally:
            cancel_flag[0] = 1  # cancelling the task alone would not stop the thread

    def _embed(self, texts: Sequence[bytes], cancel_flag: Any) -> list[bytes]:
        """Embeds the first of the texts, as many as fit into a batch. Runs in the embedding thread."""
        tokens = ffi.from_buffer("int32_t[]", b"".join(texts))
        n_tokens = array("I", [len(text) // 4 for text in texts])
        n_bytes = _FLOAT_BYTES * self._n_embedding
        out = bytearray(n_bytes * len(texts))
        n_done = ffi.new("size_t *")
        lengths, vectors = ffi.from_buffer("uint32_t[]", n_tokens), ffi.from_buffer("float[]", out)
        status = lib.llm_embed(self._engine, tokens, lengths, len(texts), cancel_flag, vectors, n_done)
        if status == Status.CANCELLED:
            raise ApiError("shutting_down")  # the client has already disconnected, or the server stops
        if status != Status.OK:
            raise ApiError(code_of_status(STATUS_WORDS[status]))
        return [bytes(out[at : at + n_bytes]) for at in range(0, n_done[0] * n_bytes, n_bytes)]
