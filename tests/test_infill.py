"""Fill-in-the-middle prompts."""

from __future__ import annotations

from array import array

import pytest

from llmd.core.errors import ApiError
from llmd.core.generation_request import NearbyText, RawPrompt
from llmd.pipeline.infill import infilled
from llmd.pipeline.services import Sender
from tests.conftest import Serve
from tests.serving import Daemon

SENDER = Sender(owner=0, n_bytes=10, is_large=False)
PREFIX, SUFFIX, MIDDLE = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
"""The control tokens for infill of the model sim:...,fim=1."""


@pytest.fixture
async def filling(serve: Serve) -> Daemon:
    return await serve(model="sim:dense,fim=1", ctx_size=256)


async def text_of(daemon: Daemon, asked: RawPrompt) -> str:
    prompt = await infilled(daemon.state.services, asked, SENDER)
    return await daemon.state.engine.detokenize(SENDER.owner, prompt.tokens)


async def test_the_marks_part_the_texts(filling: Daemon) -> None:
    asked = RawPrompt("def f(", suffix="): pass", begun="x")
    assert await text_of(filling, asked) == f"{PREFIX}def f({SUFFIX}): pass{MIDDLE}x"
    assert await text_of(filling, RawPrompt("a", is_infill=True)) == f"{PREFIX}a{SUFFIX}{MIDDLE}"


@pytest.mark.parametrize("is_wanted", [True, False])
async def test_tokens_around_a_text(filling: Daemon, monkeypatch: pytest.MonkeyPatch, is_wanted: bool) -> None:
    """The simulated model adds no tokens, so the test replaces the function that would add them."""
    engine, plain = filling.state.engine, filling.state.engine.tokens
    monkeypatch.setattr(engine, "tokens", lambda text, *, around=False: (b"\7\0\0\0" if around else b"") + plain(text))
    prompt = await infilled(filling.state.services, RawPrompt("a", suffix="b", add_special=is_wanted), SENDER)
    assert prompt.tokens.startswith(b"\7\0\0\0") is is_wanted


async def test_control_words_in_the_texts_are_plain(filling: Daemon) -> None:
    prompt = await infilled(filling.state.services, RawPrompt(MIDDLE, suffix=PREFIX), SENDER)
    tokens = array("i", prompt.tokens)
    assert [token for token in tokens if 256 <= token < 259] == [256, 257, 258]
    assert (tokens[0], tokens[-1]) == (256, 258)


async def test_of_texts_nearby_the_last_stay(filling: Daemon) -> None:
    nearby = tuple(NearbyText(f"{n}.py", f"{n} " * 30) for n in range(5))
    found = await text_of(filling, RawPrompt("a", suffix="b", nearby=nearby))
    assert found.endswith(f"{PREFIX}a{SUFFIX}b{MIDDLE}")
    assert "4 4" in found and "0 0" not in found
    prompt = await infilled(filling.state.services, RawPrompt("a", suffix="b", nearby=nearby), SENDER)
    assert prompt.n_tokens < 256 // 2 + 8


async def test_a_model_without_the_tokens_refuses(daemon: Daemon) -> None:
    with pytest.raises(ApiError) as caught:
        await infilled(daemon.state.services, RawPrompt("a", suffix="b", suffix_param="input_suffix"), SENDER)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "input_suffix")


@pytest.mark.parametrize(
    ("asked", "code", "param"),
    [
        (RawPrompt("word " * 300, suffix="b"), "context_length_exceeded", "prompt"),
        (RawPrompt("word " * 30_000, suffix="b"), "context_length_exceeded", "prompt"),
        (RawPrompt([1, 2], suffix="b"), "unsupported_parameter", "suffix"),
    ],
)
async def test_refusals(filling: Daemon, asked: RawPrompt, code: str, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        await infilled(filling.state.services, asked, SENDER)
    assert (caught.value.code, caught.value.param) == (code, param)


async def test_a_completion_with_a_suffix(filling: Daemon) -> None:
    """The suffix applies to each prompt of the request."""
    asked = {"prompt": ["a", "bc"], "suffix": "end", "return_token_ids": True, "max_tokens": 1}
    choices = (await filling.ask("POST", "/v1/completions", asked)).json["choices"]
    read = [
        await filling.state.engine.detokenize(0, array("i", choice["prompt_token_ids"]).tobytes()) for choice in choices
    ]
    assert read == [f"{PREFIX}{text}{SUFFIX}end{MIDDLE}" for text in ("a", "bc")]
    for path in ("/v1/completions", "/api/generate"):
        refused = await filling.ask("POST", path, {"prompt": "a", "suffix": "word " * 20_000})
        assert refused.status == 400 and b"maximum context length" in refused.body
