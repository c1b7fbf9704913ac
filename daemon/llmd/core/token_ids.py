"""Token ids of a request, checked at the speed of C: a list of them may be as long as the context."""

from __future__ import annotations

from array import array

from .errors import ApiError, shown


def token_bytes(tokens: list[int], n_vocab: int, param: str) -> bytes:
    """Returns the ids as the engine takes them. Raises ApiError naming the first that is not in the vocabulary."""
    try:
        ids = array("i", tokens)
    except OverflowError:
        raise _outside(tokens, n_vocab, param) from None
    if ids and (min(ids) < 0 or max(ids) >= n_vocab):
        raise _outside(tokens, n_vocab, param)
    return ids.tobytes()


def _outside(tokens: list[int], n_vocab: int, param: str) -> ApiError:
    index, token = next((index, token) for index, token in enumerate(tokens) if not 0 <= token < n_vocab)
    message = f"{param}[{index}]: the vocabulary has tokens 0 to {n_vocab - 1}, not {shown(token)}."
    return ApiError("invalid_token", message, param)
