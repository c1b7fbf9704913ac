"""Converts the input of OpenAI's and llama.cpp's embedding requests, and the vectors of their answers."""

from __future__ import annotations

from typing import cast

from ..core.errors import invalid_type
from ..pipeline.embedding import EmbeddingJob, as_json

Input = str | list[int | str | list[int]]


def embedding_job(client_input: Input, param: str, n_dimensions: int | None = None) -> EmbeddingJob:
    """Returns the job for a request's input. A list of numbers means the tokens of one text. Raises ApiError."""
    if isinstance(client_input, str):
        return EmbeddingJob([client_input], param, is_list=False, n_dimensions=n_dimensions)
    kinds = set(map(type, client_input))
    if kinds == {int}:
        return EmbeddingJob([cast(list[int], client_input)], param, is_list=False, n_dimensions=n_dimensions)
    if int in kinds:
        raise invalid_type(param, "token ids and texts cannot be mixed in one list")
    return EmbeddingJob(cast(list[str | list[int]], client_input), param, n_dimensions=n_dimensions)


def listed(vector: bytes) -> list[float]:
    return cast("list[float]", as_json(vector))  # msgspec writes the Raw value unchanged
