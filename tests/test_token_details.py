"""Token details that are sent with the text: log probabilities, token ids, current usage and timings, the prompt's
progress.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from llmd.core import limits
from llmd.core.generation_request import RawPrompt
from llmd.core.parts import ContentPart, Details, End, Part, TextPart, details_of
from llmd.engine.native import lib
from tests.calling import READ, REPLIES, calling
from tests.conftest import Serve
from tests.rows.case import chunks_of
from tests.serving import Daemon, Events, Json, chat
from tests.test_pipeline import all_parts, answering, asked, pushed, services, text_of  # noqa: F401

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SAMPLED: Json = {"temperature": 1.0, "seed": 3}


def raw(prompt: Any = "once upon a time", **fields: Any) -> Json:
    return {"prompt": prompt, "max_tokens": 60, "ignore_eos": True, **SAMPLED, **fields}


async def answered(daemon: Daemon, path: str, body: Json) -> Json:
    answer = await daemon.ask("POST", path, body)
    assert answer.status == 200, answer.body
    return answer.json


def choices_of(events: Events) -> list[Json]:
    return [choice for chunk in events.chunks for choice in chunk["choices"]]


# --- log probabilities -----------------------------------------------------------------------------------------------


def joined(logprobs: list[Json]) -> Json:
    """Joins the log probabilities of a stream's events into the form of an answer that is not streamed."""
    return {name: [one for some in logprobs for one in some[name] or []] for name in logprobs[0]}


async def test_a_stream_and_a_whole_tell_the_same(daemon: Daemon) -> None:
    for path, body in (
        (CHAT, chat(max_tokens=60, logprobs=True, top_logprobs=3, **SAMPLED)),
        (COMPLETIONS, raw(logprobs=3)),
    ):
        whole = (await answered(daemon, path, body))["choices"][0]
        streamed = choices_of(await daemon.stream(body, path))
        told = joined([choice["logprobs"] for choice in streamed if choice.get("logprobs")])
        if path == CHAT:
            assert told["content"] == whole["logprobs"]["content"] and len(told["content"]) == 60
        else:
            assert told == whole["logprobs"] and len(told["tokens"]) == 60


async def test_tokens_add_up_to_the_text(daemon: Daemon) -> None:
    """A character that consists of several tokens is reported as bytes."""
    choice = (await answered(daemon, CHAT, chat(max_tokens=300, logprobs=True, **SAMPLED)))["choices"][0]
    told = choice["logprobs"]["content"]
    spelled = b"".join(bytes(one["bytes"]) for one in told)
    assert spelled.decode("utf-8", "replace").startswith(choice["message"]["content"].rstrip("\ufffd"))
    assert any("\ufffd" in one["token"] for one in told), "no token was a part of a character"
    assert all(one["top_logprobs"] == [] and one["logprob"] <= 0 for one in told)


async def test_offsets_are_those_of_the_text(daemon: Daemon) -> None:
    choice = (await answered(daemon, COMPLETIONS, raw(logprobs=0, max_tokens=300)))["choices"][0]
    told, text = choice["logprobs"], choice["text"]
    assert told["top_logprobs"] is None and told["text_offset"][0] == 0
    assert told["text_offset"] == sorted(told["text_offset"])
    for begin, token in zip(told["text_offset"], told["tokens"], strict=True):
        assert "\ufffd" in token or text[begin:].startswith(token)


async def test_the_chosen_one_is_among_the_likely_of_a_completion(daemon: Daemon) -> None:
    told = (await answered(daemon, COMPLETIONS, raw(logprobs=1, temperature=2.0)))["choices"][0]["logprobs"]
    pairs = list(zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True))
    assert any(len(likely) == 2 for _, _, likely in pairs), "the likeliest one was always chosen"
    assert all("\ufffd" in token or likely[token] == value for token, value, likely in pairs)


async def test_n_probs_is_another_name(daemon: Daemon) -> None:
    by_name = await answered(daemon, CHAT, chat(logprobs=True, top_logprobs=2, **SAMPLED))
    by_other = await answered(daemon, CHAT, chat(n_probs=2, **SAMPLED))
    assert by_name["choices"] == by_other["choices"]
    none = await answered(daemon, CHAT, chat(n_probs=0, logprobs=False, top_logprobs=0, **SAMPLED))
    assert none["choices"][0]["logprobs"] is None


async def test_log_probabilities_change_no_text(daemon: Daemon) -> None:
    told, plain = await answered(daemon, COMPLETIONS, raw(logprobs=5)), await answered(daemon, COMPLETIONS, raw())
    assert told["choices"][0]["text"] == plain["choices"][0]["text"] and plain["choices"][0]["logprobs"] is None


async def test_what_a_stop_cuts_off_is_not_told(daemon: Daemon) -> None:
    text = (await answered(daemon, COMPLETIONS, raw()))["choices"][0]["text"]
    stop = text[40:45]
    cut = (await answered(daemon, COMPLETIONS, raw(logprobs=0, stop=stop)))["choices"][0]
    assert cut["finish_reason"] == "stop" and cut["text"].startswith("".join(cut["logprobs"]["tokens"]))


async def test_a_whole_holds_so_many(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is not streamed ends with the finish reason `length` at the limit of log probabilities. A stream
    keeps none of them, so it has no limit.
    """
    monkeypatch.setattr(limits, "LOG_PROBABILITIES_MAX", 60)
    body = raw(logprobs=2, n=2)
    whole = await answered(daemon, COMPLETIONS, body)
    assert [len(choice["logprobs"]["tokens"]) for choice in whole["choices"]] == [10, 10]
    assert {choice["finish_reason"] for choice in whole["choices"]} == {"length"}
    streamed = await daemon.stream({**body, "n": 1}, COMPLETIONS)
    assert len(joined([one["logprobs"] for one in choices_of(streamed) if one.get("logprobs")])["tokens"]) == 60


async def test_many_are_written_beside_the_loop(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set[threading.Thread]()
    in_thread = daemon.state.engine.in_thread

    async def noted(owner: int, n_bytes: int, call: Any) -> Any:
        def run() -> Any:
            threads.add(threading.current_thread())
            return call()

        return await in_thread(owner, n_bytes, run)

    monkeypatch.setattr(daemon.state.engine, "in_thread", noted)
    await answered(daemon, COMPLETIONS, raw([300, 301], logprobs=1))
    assert threads and threading.current_thread() not in threads


@pytest.mark.parametrize(("said", "tools"), [("ponder", {}), ("one file", {"tools": [READ]})])
async def test_log_probabilities_are_of_all_that_was_generated(
    serve: Serve, tmp_path: Path, said: str, tools: Json
) -> None:
    """The log probabilities include the tokens of reasoning and tool calls, in their order, however those were
    parsed.
    """
    daemon = await serve(**calling(tmp_path))
    body = {"messages": [{"role": "user", "content": said}], "logprobs": True, "n": 2, **tools}
    whole = await answered(daemon, CHAT, body)
    events = await daemon.stream({**body, "return_token_ids": True})
    for index, choice in enumerate(whole["choices"]):
        message, told = choice["message"], choice["logprobs"]["content"]
        assert choice["finish_reason"] == ("tool_calls" if tools else "stop") and message["reasoning_content"]
        assert "".join(one["token"] for one in told) == REPLIES[said]
        own = [one for one in choices_of(events) if one["index"] == index]
        assert joined([one["logprobs"] for one in own if one.get("logprobs")])["content"] == told
        assert sum(len(one.get("token_ids", [])) for one in own) == len(told)


def test_as_many_likely_ones_as_libllm_tells() -> None:
    assert lib.LLM_LOGPROBS_MAX == limits.LIKELIEST_MAX


# --- in parts --------------------------------------------------------------------------------------------------------


def details_each(parts: list[Part]) -> list[Details]:
    return [part.details for part in parts if isinstance(part, ContentPart) and part.details is not None]


async def test_what_is_told_stands_behind_its_text(services: Any) -> None:  # noqa: F811
    parts = await all_parts(await answering(services, n_logprobs=2, returns_tokens=True, returns_counts=True))
    text = text_of(parts, 0)
    chosen, ids = details_of(parts).log_probabilities, details_of(parts).tokens
    assert [one.token for one in chosen] == ids and len(ids) == 40
    assert b"".join(one.text for one in chosen).decode("utf-8", "replace") == text
    counts = [one.usage.usage.n_generated for one in details_each(parts) if one.usage is not None]
    assert counts == sorted(counts) and counts[-1] == 40
    so_far: list[Part] = []
    for part in parts:
        so_far.append(part)
        spelled = b"".join(one.text for one in details_of(so_far).log_probabilities).decode("utf-8", "replace")
        assert text_of(so_far, 0).startswith(spelled.rstrip("\ufffd"))
    assert isinstance(parts[-1], End)


async def test_who_asks_for_nothing_pays_nothing(services: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """A request without token details costs no extra work in the engine or in the event loop."""
    commands = pushed(services, monkeypatch)
    one = await answering(services)
    assert one._token_details == []
    parts = await all_parts(one)
    assert {type(part) for part in parts} == {TextPart, End} and not details_each(parts)
    assert one.generations[0]._events is None
    assert commands[0].n_logprobs == -1 and commands[0].flags == 1
    other = await answering(services, n_logprobs=0)
    assert details_each(await all_parts(other))


async def test_log_probabilities_pause_a_stream_sooner(services: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Log probabilities that a client has not read count like text that it has not read."""
    monkeypatch.setattr(limits, "PENDING_TEXT_CHARS_MAX", 20_000)
    paused: list[bool] = []
    pause = services.engine.pause

    def noted(request: int, on: bool) -> None:
        paused.append(on)
        pause(request, on)

    monkeypatch.setattr(services.engine, "pause", noted)
    one = await answering(services, n_logprobs=20, max_tokens=2000, prompt=RawPrompt([300, 301]))
    plain = await answering(services, max_tokens=2000, prompt=RawPrompt([300, 301]))
    while plain.generations[0].finished is None:
        await plain._notifier.wait()
    assert True in paused
    assert len(details_each(await all_parts(one))) > 1
    await all_parts(plain)
    assert paused.count(True) == paused.count(False)


# --- token ids -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["return_token_ids", "return_tokens"])
async def test_token_ids(daemon: Daemon, name: str) -> None:
    prompt = (await daemon.ask("POST", "/tokenize", {"content": "once upon a time"})).json["tokens"]
    whole = (await answered(daemon, COMPLETIONS, raw(**{name: True})))["choices"][0]
    assert whole["prompt_token_ids"] == prompt and len(whole["token_ids"]) == 60
    back = (await daemon.ask("POST", "/detokenize", {"tokens": whole["token_ids"]})).json
    assert back["content"] == whole["text"]
    streamed = choices_of(await daemon.stream(raw(**{name: True}), COMPLETIONS))
    assert [one["prompt_token_ids"] for one in streamed if "prompt_token_ids" in one] == [prompt]
    assert [one for choice in streamed for one in choice.get("token_ids", [])] == whole["token_ids"]


async def test_token_ids_of_a_chat(daemon: Daemon) -> None:
    body = chat(return_token_ids=True, n=2, **SAMPLED)
    whole = await answered(daemon, CHAT, body)
    assert len(whole["prompt_token_ids"]) == whole["usage"]["prompt_tokens"]
    events = await daemon.stream(body)
    prompts = [chunk["prompt_token_ids"] for chunk in events.chunks if "prompt_token_ids" in chunk]
    assert prompts == [whole["prompt_token_ids"]]
    for index, choice in enumerate(whole["choices"]):
        own = [one for one in choices_of(events) if one["index"] == index]
        assert [token for one in own for token in one.get("token_ids", [])] == choice["token_ids"]
        assert len(choice["token_ids"]) == 8


# --- usage, timings, progress ----------------------------------------------------------------------------------------


async def test_usage_so_far(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,step_us=500")
    options: Json = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    events = await daemon.stream(chat(max_tokens=20, **options))
    told = [chunk for chunk in events.chunks if "usage" in chunk]
    assert len(told) == len(events.chunks) - 1, "in all but the one that opens the answer"
    counts = [chunk["usage"]["completion_tokens"] for chunk in told]
    assert counts == sorted(counts) and counts[-1] == 20 and len(set(counts)) > 2
    assert all(
        chunk["usage"]["total_tokens"] == n + told[0]["usage"]["prompt_tokens"]
        for chunk, n in zip(told, counts, strict=True)
    )
    for less in ({"include_usage": True}, {"continuous_usage_stats": True}):
        events = await daemon.stream(chat(stream_options=less))
        assert ["usage" in chunk for chunk in events.chunks].count(True) == 1


TIMINGS = {
    "cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_n", "predicted_ms",
    "predicted_per_token_ms", "predicted_per_second",
}  # fmt: skip


@pytest.mark.parametrize("usage", [{}, {"stream_options": {"include_usage": True}}])
async def test_timings(daemon: Daemon, usage: Json) -> None:
    whole = await answered(daemon, CHAT, chat(timings_per_token=True))
    timings = whole["timings"]
    assert set(timings) == TIMINGS and timings["predicted_n"] == 8
    assert timings["prompt_n"] + timings["cache_n"] == whole["usage"]["prompt_tokens"]
    assert timings["predicted_ms"] == whole["session"]["decode_ms"]
    events = await daemon.stream(chat(timings_per_token=True, **usage))
    told = [chunk["timings"]["predicted_n"] for chunk in events.chunks if "timings" in chunk]
    assert told[-1] == 8 and "timings" in events.chunks[-1] and len(told) >= 2
    assert "timings" not in await answered(daemon, CHAT, chat())


async def test_progress(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,batch=16,token_us=500")
    await daemon.chat("word " * 20, session_id="s", max_tokens=1)
    for session, is_warm in (({"session_id": "s"}, True), ({}, False)):
        body = chat("word " * 100, return_progress=True, cache_prompt=is_warm, **session)
        events = await daemon.stream(body)
        told = [chunk["prompt_progress"] for chunk in events.chunks if "prompt_progress" in chunk]
        first, last = told[0], told[-1]
        assert len(told) > 2 and (first["processed"], first["time_ms"]) == (first["cache"], 0)
        assert last["processed"] == last["total"] and last["time_ms"] > 0 and (first["cache"] > 0) == is_warm
        assert [one["processed"] for one in told] == sorted({one["processed"] for one in told})
        texts = [bool(chunk["choices"][0]["delta"].get("content")) for chunk in events.chunks if chunk["choices"]]
        assert texts.index(True) > len(told), "it comes before the text"
    assert "prompt_progress" not in await answered(daemon, CHAT, chat(return_progress=True))


PROMPT: Json = {"prompt": "word " * 100}
HISTORY: Json = {"messages": [{"role": "user", "content": "word " * 100}]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", PROMPT | {"n_predict": 4}),
        ("/v1/messages", HISTORY | {"max_tokens": 4}),
        ("/v1/responses", {"input": "word " * 100, "max_output_tokens": 4}),
        ("/api/chat", HISTORY | {"options": {"num_predict": 4}}),
        ("/api/generate", PROMPT | {"options": {"num_predict": 4}}),
    ],
)
async def test_progress_in_other_apis(serve: Serve, path: str, body: Json) -> None:
    daemon = await serve(model="sim:dense,batch=16,token_us=500")

    async def reports(**members: Any) -> list[Json]:
        answer = await daemon.ask("POST", path, body | {"model": "any", **members})
        assert answer.status == 200
        return [chunk["prompt_progress"] for chunk in chunks_of(answer) if "prompt_progress" in chunk]

    found = await reports(stream=True, return_progress=True)
    n_all = found[0]["total"]
    assert len(found) > 2 and found[0] == {"total": n_all, "cache": 0, "processed": 0, "time_ms": 0}
    assert found[-1]["processed"] == n_all and found[-1]["time_ms"] > 0
    assert [one["processed"] for one in found] == sorted({one["processed"] for one in found})
    assert await reports(stream=True) == [] == await reports(stream=False, return_progress=True)


# --- what is put around the answer -----------------------------------------------------------------------------------


async def test_echo(daemon: Daemon) -> None:
    prompt = "once upon <|im_end|>"
    plain = (await answered(daemon, COMPLETIONS, raw(prompt)))["choices"][0]["text"]
    assert (await answered(daemon, COMPLETIONS, raw(prompt, echo=True)))["choices"][0]["text"] == prompt + plain
    tokens = (await daemon.ask("POST", "/tokenize", {"content": prompt, "parse_special": True})).json["tokens"]
    for body in (raw(tokens, echo=True), raw([tokens], echo=True, n=2)):
        assert (await answered(daemon, COMPLETIONS, body))["choices"][0]["text"] == prompt + plain
    assert (await daemon.stream(raw(tokens, echo=True), COMPLETIONS)).text == prompt + plain


async def test_a_stop_that_is_a_part_of_the_answer(daemon: Daemon) -> None:
    messages: list[Json] = [{"role": "user", "content": "hello"}]
    text = (await daemon.chat(messages=messages, max_tokens=40, temperature=0))["choices"][0]["message"]["content"]
    body = chat(messages=messages, max_tokens=40, temperature=0, stop=text[20:24])
    assert (await answered(daemon, CHAT, body))["choices"][0]["message"]["content"] == text[:20]
    body |= {"include_stop_str_in_output": True, "session_id": "s"}
    told = (await answered(daemon, CHAT, body))["choices"][0]
    assert told["message"]["content"] == text[:24] and told["finish_reason"] == "stop"
    assert (await daemon.stream(body)).text == text[:24]
    ends = (await answered(daemon, CHAT, {**body, "stop": ["never, ever"]}))["choices"][0]
    assert ends["message"]["content"] == text
    held = (await answered(daemon, CHAT, body))["usage"]["total_tokens"]
    messages += [{"role": "assistant", "content": text[:24]}, {"role": "user", "content": "and?"}]
    again = (await daemon.chat(messages=messages, session_id="s"))["session"]
    # The longer answer is kept too. It shares the last token, which the stopped answer never consumed.
    assert again["session_reset_reason"] in ("exact_prefix", "rewind") and again["reused_prompt_tokens"] >= held - 1
