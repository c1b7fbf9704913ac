"""Several answers to one prompt, and answers to several prompts of one request."""

from __future__ import annotations

from typing import Any

import pytest

from llmd.core import limits
from tests.conftest import Serve
from tests.serving import Daemon, Json, chat, parse_events

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SAMPLED: Json = {"temperature": 1.0, "seed": 5}


async def answered(daemon: Daemon, path: str, body: Json) -> Json:
    answer = await daemon.ask("POST", path, body)
    assert answer.status == 200, answer.body
    return answer.json


def texts_of(answer: Json) -> list[str]:
    assert [choice["index"] for choice in answer["choices"]] == [*range(len(answer["choices"]))]
    return [choice["text"] if "text" in choice else choice["message"]["content"] for choice in answer["choices"]]


def raw(prompt: Any, **fields: Any) -> Json:
    return {"prompt": prompt, "max_tokens": 12, "ignore_eos": True, **SAMPLED, **fields}


async def n_tokens(daemon: Daemon, text: str) -> int:
    return int((await daemon.ask("POST", "/tokenize", {"content": text})).json["count"])


# --- to one prompt ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", [{}, {"session_id": "s"}], ids=["scratch", "named"])
@pytest.mark.parametrize("scratch_reuse", [True, False])
async def test_one_prefill(serve: Serve, session: Json, scratch_reuse: bool) -> None:
    daemon = await serve(scratch_reuse=scratch_reuse)
    before = daemon.counter("prefill_tokens_total")
    answer = await answered(daemon, CHAT, chat("word " * 100, n=3, **SAMPLED, **session))
    await daemon.idle()
    assert len(set(texts_of(answer))) == 3
    usage = answer["usage"]
    assert daemon.counter("prefill_tokens_total") - before <= usage["prompt_tokens"] + 2
    assert (usage["completion_tokens"], usage["prompt_tokens_details"]["cached_tokens"]) == (24, 0)
    assert answer["session"]["id"] == session.get("session_id")


async def test_an_error_ends_all_of_a_stream(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,length=0,step_us=5000")
    asked = chat(n=3, session_id="s", max_tokens=2000)
    async with daemon.streaming(asked) as response:
        assert (await daemon.ask("DELETE", "/v1/sessions/s")).status == 200
        events = parse_events(await response.read())
    assert ["error" in chunk for chunk in events.chunks].count(True) == 1 and "error" in events.chunks[-1]
    assert events.chunks[-1]["error"]["code"] == "cancelled"
    await daemon.idle()


async def test_the_first_is_the_one_that_is_given_alone(daemon: Daemon) -> None:
    for path, body in ((CHAT, chat(**SAMPLED)), (COMPLETIONS, raw("once"))):
        several, alone = await answered(daemon, path, {**body, "n": 3}), await answered(daemon, path, body)
        assert texts_of(several)[0] == texts_of(alone)[0]
        events = await daemon.stream({**body, "n": 3}, path)
        choices = [choice for chunk in events.chunks for choice in chunk["choices"]]
        for index, text in enumerate(texts_of(several)):
            own = [choice for choice in choices if choice["index"] == index]
            assert "".join(one.get("text") or one.get("delta", {}).get("content", "") for one in own) == text
        assert events.done and len(events.finish_reasons) == 3


@pytest.mark.parametrize("model", ["sim:dense", "sim:hybrid", "sim:recurrent", "sim:window"])
@pytest.mark.parametrize("timelines", [1, 4])
async def test_a_session_goes_on_from_any_of_them(serve: Serve, model: str, timelines: int) -> None:
    """If the client continues any of the answers, at most that answer is prefilled, and not the question."""
    daemon = await serve(model=model, session_timelines=timelines)
    for chosen in range(3):
        messages: list[Json] = [{"role": "user", "content": "tell me " + "a long story " * 30}]
        for turn in range(2):
            first = await daemon.chat(messages=messages, session_id=f"s{chosen}", n=3, max_tokens=20, **SAMPLED)
            said = texts_of(first)[chosen]
            messages = [*messages, {"role": "assistant", "content": said}, {"role": "user", "content": f"more {turn}"}]
        last = await daemon.chat(messages=messages, session_id=f"s{chosen}", temperature=0, max_tokens=20)
        n_new = await n_tokens(daemon, said + f"more {turn}") + 12
        assert last["session"]["prefilled_prompt_tokens"] <= n_new, last["session"]
        if chosen == 0:
            assert last["session"]["prefilled_prompt_tokens"] < n_new - 15, "the first one was resident"
        daemon.state.answers.copy(0, f"s{chosen}", "")
        assert texts_of(last)[0] == (await cold_of(daemon, messages))


async def cold_of(daemon: Daemon, messages: list[Json]) -> str:
    answer = await daemon.chat(messages=messages, cache_prompt=False, temperature=0, max_tokens=20)
    return texts_of(answer)[0]


async def test_a_session_takes_as_many_as_any(serve: Serve) -> None:
    """The answers do not wait for each other in the session."""
    daemon = await serve(session_timelines=1)
    answer = await daemon.chat(session_id="s", n=limits.ANSWERS_MAX, **SAMPLED)
    assert len(texts_of(answer)) == limits.ANSWERS_MAX
    sessions = (await daemon.ask("GET", "/v1/sessions")).json
    assert [one["id"] for one in sessions["data"]] == ["s"]


# --- the best of several ---------------------------------------------------------------------------------------------


def likelihood(choice: Json) -> float:
    logprobs = choice["logprobs"]["token_logprobs"]
    return float(sum(logprobs) / len(logprobs))


async def test_the_likeliest_are_told(daemon: Daemon) -> None:
    everything = await answered(daemon, COMPLETIONS, raw("once", n=6, logprobs=0, max_tokens=5, temperature=2))
    ranked = sorted(everything["choices"], key=likelihood, reverse=True)
    assert likelihood(ranked[0]) > likelihood(ranked[-1]) and ranked[0]["index"] != 0
    for n_told in (1, 2):
        body = raw("once", n=n_told, best_of=6, max_tokens=5, temperature=2)
        best = await answered(daemon, COMPLETIONS, body)
        assert texts_of(best) == [choice["text"] for choice in ranked[:n_told]]
        assert {choice["logprobs"] for choice in best["choices"]} == {None}
        assert best["usage"]["completion_tokens"] == 30, "all of them were generated"
        told = await answered(daemon, COMPLETIONS, {**body, "logprobs": 1})
        assert [likelihood(one) for one in told["choices"]] == [likelihood(one) for one in ranked[:n_told]]


async def test_the_best_of_as_many_is_all_of_them(daemon: Daemon) -> None:
    body = raw("once", n=3)
    assert texts_of(await answered(daemon, COMPLETIONS, {**body, "best_of": 3})) == texts_of(
        await answered(daemon, COMPLETIONS, body)
    )
    assert (await daemon.stream({**raw("once"), "best_of": 1}, COMPLETIONS)).done


# --- to several prompts ----------------------------------------------------------------------------------------------

PROMPTS: list[Any] = ["once upon a time", "there was", "hello you"]


async def test_each_prompt_has_its_answers(daemon: Daemon) -> None:
    together = await answered(daemon, COMPLETIONS, raw(PROMPTS, n=2))
    apart = [await answered(daemon, COMPLETIONS, raw(prompt, n=2)) for prompt in PROMPTS]
    assert texts_of(together) == [text for answer in apart for text in texts_of(answer)]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert together["usage"][name] == sum(answer["usage"][name] for answer in apart)
    best = await answered(daemon, COMPLETIONS, raw(PROMPTS, best_of=3))
    each = [await answered(daemon, COMPLETIONS, raw(prompt, best_of=3)) for prompt in PROMPTS]
    assert texts_of(best) == [texts_of(one)[0] for one in each]


async def test_prompts_of_tokens(daemon: Daemon) -> None:
    tokens = [(await daemon.ask("POST", "/tokenize", {"content": text})).json["tokens"] for text in PROMPTS]
    by_tokens = await answered(daemon, COMPLETIONS, raw(tokens))
    assert texts_of(by_tokens) == texts_of(await answered(daemon, COMPLETIONS, raw(PROMPTS)))


async def test_several_prompts_in_a_stream(daemon: Daemon) -> None:
    whole = await answered(daemon, COMPLETIONS, raw(PROMPTS))
    events = await daemon.stream(raw(PROMPTS, stream_options={"include_usage": True}), COMPLETIONS)
    choices = [choice for chunk in events.chunks for choice in chunk["choices"]]
    for index, text in enumerate(texts_of(whole)):
        assert "".join(choice["text"] for choice in choices if choice["index"] == index) == text
    assert events.chunks[-1]["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]


async def test_the_session_goes_on_with_the_first_prompt(daemon: Daemon) -> None:
    first = await answered(daemon, COMPLETIONS, raw(PROMPTS, session_id="s"))
    prompt = PROMPTS[0] + texts_of(first)[0]
    after = await answered(daemon, COMPLETIONS, raw(prompt, session_id="s", max_tokens=1))
    assert after["session"]["session_reset_reason"] == "exact_prefix"


@pytest.mark.parametrize(
    ("prompt", "fields", "code", "param"),
    [
        (["a", ""], {}, "invalid_value", "prompt[1]"),
        ([[1], [2], [-1]], {}, "invalid_token", "prompt[2]"),
        (["a", "b " * 5000], {}, "context_length_exceeded", "prompt[1]"),
        (["a"] * 17, {}, "invalid_value", "prompt"),
        (["a"] * 6, {"n": 3}, "invalid_value", "n"),
        (["a"] * 6, {"n": 2, "best_of": 3}, "invalid_value", "best_of"),
        (["a", [1]], {"n": 9}, "invalid_value", "n"),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_named(daemon: Daemon, prompt: Any, fields: Json, code: str, param: str) -> None:
    answer = await daemon.refused({"prompt": prompt, **fields}, COMPLETIONS)
    assert (answer.error["code"], answer.error["param"]) == (code, param)
