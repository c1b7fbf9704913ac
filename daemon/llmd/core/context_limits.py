"""Refuses prompts that cannot fit the context. A text with too many bytes is refused before it is rendered or
tokenized. All functions are pure.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from . import limits
from .errors import ApiError, ContextLengthError, quoted


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """The longest prompt in tokens, and the longest text of one token in bytes."""

    n_ctx: int
    token_bytes_max: int
    n_ctx_train: int = 0
    """Size in tokens of the context that the model was trained for."""
    kv_bytes: int = 0
    """The size of the KV cache in bytes if this size makes the context shorter than the model's training context.
    Otherwise 0.
    """

    @property
    def n_bytes(self) -> int:
        """Bytes of the longest text that can fit. A longer text has too many tokens, whatever it contains."""
        return self.n_ctx * self.token_bytes_max

    def check_bytes(self, n_bytes: int, param: str) -> None:
        if n_bytes > self.n_bytes:
            n = -(-n_bytes // self.token_bytes_max)
            raise self._error(n, f"at least {n} tokens ({n_bytes} bytes of text in {param})", param)

    def check_tokens(self, n_tokens: int, param: str) -> None:
        if n_tokens > self.n_ctx:
            raise self.error(n_tokens, param)

    def error(self, n_prompt: int, param: str) -> ApiError:
        """Returns the error for a prompt of `n_prompt` tokens. `param` is the client's name of the member with the
        prompt.
        """
        n = n_prompt + 1
        return self._error(n, f"{n} tokens ({n_prompt} in the prompt, at least 1 for the answer)", param)

    def _error(self, n_requested: int, requested: str, param: str) -> ApiError:
        """Returns the error. Agents recognize the text of this error, and then compact their history."""
        message = f"This model's maximum context length is {self.n_ctx} tokens. However, you requested {requested}."
        return ContextLengthError(self.n_ctx, n_requested, f"{message} {self._advice()}", param)

    def _advice(self) -> str:
        """Returns the advice to shorten the prompt. If another value of an option would allow a longer prompt, the
        advice also names the option.
        """
        trained = self.n_ctx_train
        if trained <= self.n_ctx:
            wanted = limits.AGENT_CONTEXT_TOKENS
            agents = f". Agents need {wanted} tokens or more" if self.n_ctx < wanted else ""
            return f"Please shorten the prompt: the model was not trained for more tokens{agents}."
        if self.kv_bytes:
            return (
                f"Please shorten the prompt, or serve with a larger --kv-memory: a KV cache of {self.kv_bytes >> 20} "
                f"MiB holds no more tokens of one session; the model was trained for {trained} tokens."
            )
        return (
            f"Please shorten the prompt, or serve with a larger --ctx-size: the model was trained for {trained} tokens."
        )


def utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


# --- token ids -------------------------------------------------------------------------------------------------------


def token_bytes(tokens: list[int], n_vocab: int, param: str) -> bytes:
    """Returns the token ids as int32. Raises an ApiError that names the first id outside the vocabulary."""
    try:
        ids = array("i", tokens)
    except OverflowError:
        raise _outside(tokens, n_vocab, param) from None
    if ids and (min(ids) < 0 or max(ids) >= n_vocab):
        raise _outside(tokens, n_vocab, param)
    return ids.tobytes()


def _outside(tokens: list[int], n_vocab: int, param: str) -> ApiError:
    index, token = next((index, token) for index, token in enumerate(tokens) if not 0 <= token < n_vocab)
    message = f"{param}[{index}]: {quoted(token)} is not a token id: the model has the ids 0 to {n_vocab - 1}."
    return ApiError("invalid_token", message, param)
