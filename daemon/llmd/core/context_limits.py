"""Refuses text that can never fit the context by its bytes, before anything is rendered or tokenized. Pure."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from .errors import ApiError, ContextLengthError, advice_on_length, context_length_error, quoted


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """The longest prompt in tokens, and the longest text of one token in bytes."""

    n_ctx: int
    token_bytes_max: int
    n_ctx_train: int = 0
    """Context that the model was trained for."""
    kv_bytes: int = 0
    """Size of the KV cache, if that is why a session holds less; else 0."""

    @property
    def n_bytes(self) -> int:
        """Longest text that can fit: a longer one has too many tokens, whatever it says."""
        return self.n_ctx * self.token_bytes_max

    def check_bytes(self, n_bytes: int, param: str) -> None:
        if n_bytes > self.n_bytes:
            n_tokens = -(-n_bytes // self.token_bytes_max)
            raise ContextLengthError(
                self.n_ctx,
                n_tokens,
                f"This model's maximum context length is {self.n_ctx} tokens. However, you requested at least "
                f"{n_tokens} tokens ({n_bytes} bytes of text in {param}). "
                f"{advice_on_length(self.n_ctx, self.n_ctx_train, self.kv_bytes)}",
                param,
            )

    def check_tokens(self, n_tokens: int, param: str) -> None:
        if n_tokens > self.n_ctx:
            raise self.error(n_tokens, param)

    def error(self, n_tokens: int, param: str) -> ApiError:
        """Returns the error for a prompt of this many tokens."""
        return context_length_error(self.n_ctx, n_tokens, param, self.n_ctx_train, self.kv_bytes)


def utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


# --- token ids --------------------------------------------------------------------------------------------------------


def token_bytes(tokens: list[int], n_vocab: int, param: str) -> bytes:
    """Returns the ids in the engine's form. Raises ApiError naming the first one that is not in the vocabulary."""
    try:
        ids = array("i", tokens)
    except OverflowError:
        raise _outside(tokens, n_vocab, param) from None
    if ids and (min(ids) < 0 or max(ids) >= n_vocab):
        raise _outside(tokens, n_vocab, param)
    return ids.tobytes()


def _outside(tokens: list[int], n_vocab: int, param: str) -> ApiError:
    index, token = next((index, token) for index, token in enumerate(tokens) if not 0 <= token < n_vocab)
    message = f"{param}[{index}]: {quoted(token)} is not a token: the vocabulary has 0 to {n_vocab - 1}."
    return ApiError("invalid_token", message, param)
