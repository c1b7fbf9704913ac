"""POST /v1/completions, /tokenize, /detokenize."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.serving import Daemon, chat

PATH = "/v1/completions"


async def tokens_of(daemon: Daemon, text: str) -> list[int]:
    tokens = (await daemon.ask("POST", "/tokenize", {"content": text})).json["tokens"]
    assert isinstance(tokens, list)
    return tokens


async def complete(daemon: Daemon, prompt: object, **fields: Any) -> dict[str, Any]:
    answer = await daemon.ask("POST", PATH, {"prompt": prompt, "seed": 1, **fields})
    assert answer.status == 200, answer.body
    return answer.json


async def test_text_and_tokens_say_the_same(daemon: Daemon) -> None:
    text = "once upon a time"
    tokens = await tokens_of(daemon, text)
    answers = [await complete(daemon, prompt, max_tokens=20) for prompt in (text, [text], tokens, [tokens])]
    assert len({answer["choices"][0]["text"] for answer in answers}) == 1
    assert answers[0]["object"] == "text_completion"
    assert answers[0]["usage"]["prompt_tokens"] == len(tokens)


@pytest.mark.parametrize(
    ("fields", "is_parsed"),
    [({}, True), ({"parse_special": True}, True), ({"parse_special": None}, True), ({"parse_special": False}, False)],
)
async def test_a_raw_prompt_has_control_words(daemon: Daemon, fields: dict[str, Any], is_parsed: bool) -> None:
    text = "<|im_start|>user\nhello<|im_end|>\n"
    tokenized = await daemon.ask(
        "POST", "/tokenize", {"content": text, "add_special": True, "parse_special": is_parsed}
    )
    answer = (await daemon.ask("POST", PATH, {"prompt": text, "max_tokens": 1, **fields})).json
    assert answer["usage"]["prompt_tokens"] == tokenized.json["count"]


async def test_tokens_around_a_text(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulated model adds no tokens, so the test checks only the flag."""
    wanted, tokenize = list[bool](), daemon.state.engine.tokenize

    async def noted(owner: int, text: str, *, add_special: bool, parse_special: bool = False) -> bytes:
        wanted.append(add_special)
        return await tokenize(owner, text, add_special=add_special, parse_special=parse_special)

    monkeypatch.setattr(daemon.state.engine, "tokenize", noted)
    for fields in ({}, {"add_special_tokens": True}, {"add_special_tokens": False}):
        await complete(daemon, "x", max_tokens=1, **fields)
    assert wanted == [True, True, False]


async def test_the_switch_for_control_words_is_for_raw_prompts(daemon: Daemon) -> None:
    answer = await daemon.refused({"prompt": "x", "parse_special": "yes"}, PATH)
    assert (answer.error["code"], answer.error["param"]) == ("invalid_type", "parse_special")
    answer = await daemon.refused(chat(parse_special=True))
    assert (answer.error["code"], answer.error["param"]) == ("unsupported_parameter", "parse_special")


async def test_length_defaults_to_sixteen(daemon: Daemon) -> None:
    answer = await complete(daemon, "x", ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 16


async def test_stream(daemon: Daemon) -> None:
    whole = await complete(daemon, "x", max_tokens=30, session_id="a")
    events = await daemon.stream(
        {"prompt": "x", "seed": 1, "max_tokens": 30, "session_id": "b", "stream_options": {"include_usage": True}}, PATH
    )
    assert events.text == whole["choices"][0]["text"]
    assert events.done and events.finish_reasons == [whole["choices"][0]["finish_reason"]]
    assert events.chunks[-1]["usage"] == whole["usage"]
    assert {chunk["object"] for chunk in events.chunks} == {"text_completion"}


async def test_warm_by_tokens(daemon: Daemon) -> None:
    prompt = await tokens_of(daemon, "a b c d e f g")
    await complete(daemon, prompt, session_id="a", max_tokens=1)
    answer = await complete(daemon, [*prompt, *prompt], session_id="a", max_tokens=1)
    assert answer["session"]["session_reset_reason"] == "exact_prefix"
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == len(prompt)


async def test_cache_prompt_false_reuses_nothing(daemon: Daemon) -> None:
    prompt = await tokens_of(daemon, "a b c d e f g")
    await complete(daemon, prompt, session_id="a", max_tokens=1)
    answer = await complete(daemon, prompt, session_id="a", max_tokens=1, cache_prompt=False)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize(
    ("prompt", "code"),
    [
        (["a"] * 17, "invalid_value"),
        ([1, [2]], "invalid_type"),
        ([1, "a"], "invalid_type"),
        ([], "invalid_value"),
        ("", "invalid_value"),
        ([-1], "invalid_token"),
        ([1 << 40], "invalid_token"),
        (5, "invalid_type"),
    ],
)
async def test_bad_prompts(daemon: Daemon, prompt: object, code: str) -> None:
    answer = await daemon.refused({"prompt": prompt}, PATH)
    assert answer.status == 400 and answer.error["code"] == code
    assert answer.error["param"] == "prompt"


async def test_tokens_and_back(daemon: Daemon) -> None:
    text = "Grüße, 世界! <|im_end|>"
    answer = (await daemon.ask("POST", "/v1/tokenize", {"content": text})).json
    assert answer["count"] == len(answer["tokens"])
    back = (await daemon.ask("POST", "/detokenize", {"tokens": answer["tokens"]})).json
    assert back["content"] == text
    special = (await daemon.ask("POST", "/tokenize", {"content": text, "parse_special": True})).json
    assert special["count"] < answer["count"]
    pieces = (await daemon.ask("POST", "/tokenize", {"content": "hello", "with_pieces": True})).json["tokens"]
    assert "".join(piece["piece"] for piece in pieces) == "hello"


async def test_pieces_are_spelled_beside_the_loop(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, threads = daemon.state.engine, set()
    piece = engine.piece

    def noted(tokens: bytes) -> str:
        threads.add(threading.current_thread())
        return piece(tokens)

    monkeypatch.setattr(engine, "piece", noted)
    answer = (await daemon.ask("POST", "/tokenize", {"content": "word " * 100, "with_pieces": True})).json
    assert answer["count"] == len(answer["tokens"]) >= 100
    assert threads and threading.current_thread() not in threads


async def test_bad_tokens(daemon: Daemon) -> None:
    answer = await daemon.refused({"tokens": [999_999_999]}, "/detokenize")
    assert answer.error["code"] == "invalid_token"
    answer = await daemon.refused({"tokens": "x"}, "/detokenize")
    assert answer.error["code"] == "invalid_type"
    answer = await daemon.refused({"text": "x"}, "/tokenize")
    assert (answer.error["code"], answer.error["param"]) == ("unsupported_parameter", "text")
    answer = await daemon.refused({}, "/tokenize")
    assert answer.error["code"] == "missing_parameter"
