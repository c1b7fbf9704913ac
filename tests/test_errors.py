"""The error table, and all ways in which a status of the engine becomes an error."""

from __future__ import annotations

import json

import pytest

from llmd.core import limits
from llmd.core.context_limits import ContextLimits
from llmd.core.errors import CODES, ApiError, code_of_status, quoted
from llmd.engine import native
from llmd.http.envelope import OWN

WORDS_AGENTS_MISREAD = ("too many tokens", "token limit exceeded", "quota", "billing", "500", "502", "timeout")


@pytest.mark.parametrize("code", CODES)
def test_body(code: str) -> None:
    error = ApiError(code, None, "field")
    body = json.loads(OWN.body(error))
    assert body == {"error": {"message": CODES[code].text, "type": CODES[code].type, "code": code, "param": "field"}}
    assert 400 <= error.status < 600


@pytest.mark.parametrize("code", CODES)
def test_sentences_do_not_sound_like_an_overflow(code: str) -> None:
    assert not any(word in CODES[code].text.lower() for word in WORDS_AGENTS_MISREAD)


def test_retry_after() -> None:
    retried = {code for code in CODES if "Retry-After" in ApiError(code).headers()}
    assert retried == {code for code, kind in CODES.items() if kind.status in (429, 503)}


def test_what_would_end_the_same_way_is_not_tried_again() -> None:
    """Clients retry by themselves, and the same request would fail again in the same way. Two errors are exceptions,
    because a retry can succeed: a request that took too long to arrive, and a session that was in use.
    """
    marked = {code for code in CODES if "x-should-retry" in ApiError(code).headers()}
    refused = {code for code, kind in CODES.items() if kind.status < 499 and kind.status != 429}
    assert marked == (refused | {"constraint_failed", "model_failed"}) - {"request_timeout", "session_busy"}
    assert ApiError("deadline_exceeded").headers() == {"x-should-retry": "false"}
    assert ApiError("invalid_api_key").headers() == {"WWW-Authenticate": "Bearer", "x-should-retry": "false"}


@pytest.mark.parametrize("word", native.STATUS_WORDS)
def test_every_status_of_the_engine_has_a_code(word: str) -> None:
    assert code_of_status(word) in CODES


def test_what_clients_cause_is_no_internal_error() -> None:
    caused = {"context_length_exceeded", "capacity_exhausted", "queue_full", "overloaded", "kv_cache_full"}
    caused |= {"step_failed", "shutting_down", "cancelled", "template_failed", "invalid_token"}
    assert {word: code_of_status(word) for word in caused} == {word: word for word in caused}
    assert caused <= set(native.STATUS_WORDS)
    assert code_of_status("full") == "overloaded"
    assert code_of_status("misuse") == "internal_error"


def test_overflow() -> None:
    def overflow(n_ctx: int, n_prompt: int, n_ctx_train: int = 0, kv_bytes: int = 0) -> ApiError:
        return ContextLimits(n_ctx, 7, n_ctx_train, kv_bytes).error(n_prompt, "prompt")

    small, large = (overflow(n, n + 1000, n).message for n in (4096, 32768))
    assert "--ctx-size" not in small and small.endswith(
        "not trained for more tokens. Agents need 32768 tokens or more."
    )
    assert large.endswith("Please shorten the prompt: the model was not trained for more tokens.")
    assert "--ctx-size: the model was trained for 32768 tokens" in overflow(8192, 9000, 32768).message
    bound = overflow(8192, 9000, 32768, 96 << 20).message
    assert "a larger --kv-memory: a KV cache of 96 MiB holds no more" in bound and "--ctx-size" not in bound
    error = overflow(4096, 5000)
    assert (error.code, error.status, error.param) == ("context_length_exceeded", 400, "prompt")
    assert error.message.startswith(
        "This model's maximum context length is 4096 tokens. However, you requested 5001 tokens"
    )


def test_shown_values_are_short() -> None:
    assert quoted("x") == "'x'"
    assert len(quoted("x" * 10_000)) == limits.USER_FIELD_SHOWN_CHARS_MAX
