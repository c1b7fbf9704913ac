"""llama.cpp's own endpoints: requests that plugins of editors send, and the members of answers that the plugins use."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from llmd.core.generation_request import GenerationRequest, NearbyText, RawPrompt
from llmd.core.parts import End, SessionReport, TextPart, UsedTokens
from llmd.core.sampling import sampler_names
from llmd.dialects.llamacpp.reader import infill_of
from llmd.dialects.llamacpp.wire import InfillRequest
from llmd.dialects.llamacpp.writer import NativeWriter, chosen
from tests.conftest import Serve
from tests.serving import Daemon, Json, parse_events
from tests.test_access import key_file

COMPLETION, INFILL = "/completion", "/infill"
FILLING = "sim:dense,fim=1"
EDITOR: Json = {
    "input_prefix": "def f(x):\n",
    "input_suffix": "\n    return y\n",
    "input_extra": [{"text": "y = 1\n", "time": [1, 2], "filename": "a.py"}],
    "prompt": "    y",
    "n_predict": 6,
    "n_indent": 4,
    "top_k": 40,
    "top_p": 0.99,
    "temperature": 0,
    "stream": False,
    "samplers": ["top_k", "top_p", "infill"],
    "cache_prompt": True,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 1500,
    "response_fields": [
        "content",
        "timings/prompt_n",
        "timings/predicted_n",
        "truncated",
        "tokens_cached",
        "no/x",
    ],
}
"""A request as plugins of editors send it."""


def native(text: str = "once upon a time", **fields: Any) -> Json:
    return {"prompt": text, "n_predict": 8, "temperature": 0, "ignore_eos": True, **fields}


# --- completions -----------------------------------------------------------------------------------------------------


async def test_a_text_is_continued(daemon: Daemon) -> None:
    whole = (await daemon.ask("POST", COMPLETION, native())).json
    openai = (await daemon.ask("POST", "/v1/completions", {**native(), "max_tokens": 8, "n_predict": 8})).json
    assert whole["content"] == openai["choices"][0]["text"] != ""
    assert (whole["stop"], whole["stop_type"], whole["tokens_predicted"]) == (True, "limit", 8)
    assert whole["tokens_evaluated"] == whole["timings"]["prompt_n"] > 3
    assert whole["timings"]["predicted_n"] == 8 and whole["timings"]["predicted_per_second"] > 0
    assert whole["model"] == daemon.state.model_id


async def test_a_stream_ends_with_the_object(daemon: Daemon) -> None:
    whole = (await daemon.ask("POST", COMPLETION, native())).json
    events = parse_events((await daemon.ask("POST", COMPLETION, native(stream=True))).body)
    *pieces, last = events.chunks
    assert not events.done and all(piece["stop"] is False for piece in pieces)
    assert "".join(piece["content"] for piece in pieces) == whole["content"]
    assert last["stop"] is True and last["content"] == "" and set(last) == set(whole)


async def test_stops_and_token_ids(daemon: Daemon) -> None:
    said = (await daemon.ask("POST", COMPLETION, native())).json["content"]
    stopped = (await daemon.ask("POST", COMPLETION, native(stop=[said[4:8]]))).json
    assert stopped["content"] == said[:4] and stopped["stop_type"] == "word"
    tokens = (await daemon.ask("POST", "/tokenize", {"content": "once upon a time"})).json["tokens"]
    assert (await daemon.ask("POST", COMPLETION, native(prompt=tokens))).json["content"] == said


async def test_without_samplers_tokens_are_drawn_as_they_are_likely(daemon: Daemon) -> None:
    async def said(**fields: Any) -> set[str]:
        asked = [native(seed=seed, **fields) for seed in range(4)]
        return {(await daemon.ask("POST", COMPLETION, one)).json["content"] for one in asked}

    assert len(await said(samplers=["temperature"])) == len(await said(samplers=None)) == 1
    assert len(await said(samplers=[])) > 1


async def test_an_answer_has_the_form_asked_for(daemon: Daemon) -> None:
    forms: tuple[Json, ...] = ({"grammar": 'root ::= " other" " time"'}, {"json_schema": {"enum": ["x"]}})
    for form in forms:
        answer = (await daemon.ask("POST", COMPLETION, {**native(), "ignore_eos": False, "n_predict": 20, **form})).json
        assert answer["content"] in (" other time", '"x"') and answer["stop_type"] == "eos"


async def test_a_prompt_can_be_read_ahead(daemon: Daemon) -> None:
    """After a request with n_predict 0, the next request reuses the prefilled prompt."""
    fields = {"session_id": "s"}
    ahead = (await daemon.ask("POST", COMPLETION, native(n_predict=0, **fields))).json
    assert (ahead["content"], ahead["tokens_predicted"]) == ("", 0)
    warm = (await daemon.ask("POST", COMPLETION, native("once upon a time there was", **fields))).json
    assert warm["timings"]["cache_n"] >= ahead["tokens_evaluated"] - 2


# --- beside the text -------------------------------------------------------------------------------------------------

TOLD: Json = {"n_predict": 40, "temperature": 1.0, "seed": 3}


async def test_probabilities_come_with_the_text(daemon: Daemon) -> None:
    body = native(n_probs=3, **TOLD)
    whole = (await daemon.ask("POST", COMPLETION, body)).json
    told = whole["completion_probabilities"]
    *pieces, last = parse_events((await daemon.ask("POST", COMPLETION, {**body, "stream": True})).body).chunks
    assert [one for piece in pieces for one in piece.get("completion_probabilities", [])] == told
    assert "completion_probabilities" not in last and "".join(piece["content"] for piece in pieces) == whole["content"]
    assert len(told) == whole["tokens_predicted"] == 40
    for one in told:
        assert set(one) == {"id", "token", "bytes", "logprob", "top_logprobs"} and one["logprob"] <= 0
        assert bytes(one["bytes"]).decode("utf-8", "replace") == one["token"] and len(one["top_logprobs"]) == 3
        assert all(set(likely) == {"id", "token", "bytes", "logprob"} for likely in one["top_logprobs"])
    assert any(one["id"] in [likely["id"] for likely in one["top_logprobs"]] for one in told)
    assert "completion_probabilities" not in (await daemon.ask("POST", COMPLETION, native(n_probs=0, **TOLD))).json


async def test_the_ids_of_an_answer_are_told(daemon: Daemon) -> None:
    body = native(return_tokens=True, **TOLD)
    whole = (await daemon.ask("POST", COMPLETION, body)).json
    *pieces, last = parse_events((await daemon.ask("POST", COMPLETION, {**body, "stream": True})).body).chunks
    assert [one for piece in pieces for one in piece["tokens"]] == whole["tokens"] and len(whole["tokens"]) == 40
    assert last["tokens"] == []
    text = (await daemon.ask("POST", "/detokenize", {"tokens": whole["tokens"]})).json["content"]
    assert text.startswith(whole["content"].rstrip("\ufffd"))
    assert (await daemon.ask("POST", COMPLETION, native(**TOLD))).json["tokens"] == []
    with_both = (await daemon.ask("POST", COMPLETION, {**body, "n_probs": 1})).json
    assert [one["id"] for one in with_both["completion_probabilities"]] == with_both["tokens"] == whole["tokens"]


async def test_of_a_prompt_that_is_only_read_nothing_is_told(daemon: Daemon) -> None:
    body = native(return_tokens=True, n_probs=1, **{**TOLD, "n_predict": 0})
    whole = (await daemon.ask("POST", COMPLETION, body)).json
    assert whole["tokens"] == [] and not whole.get("completion_probabilities")
    events = parse_events((await daemon.ask("POST", COMPLETION, {**body, "stream": True})).body).chunks
    assert [event["stop"] for event in events] == [True]


async def test_too_many_probabilities_are_refused(daemon: Daemon) -> None:
    answer = await daemon.refused(native(n_probs=21), COMPLETION)
    assert (answer.status, answer.error["param"]) == (400, "n_probs") and "20" in answer.error["message"]


# --- infill ----------------------------------------------------------------------------------------------------------


async def test_an_editor_fills_in(serve: Serve) -> None:
    daemon = await serve(model=FILLING)
    for path in (INFILL, "/v1/infill"):
        answer = (await daemon.ask("POST", path, EDITOR)).json
        assert set(answer) == {"content", "timings/prompt_n", "timings/predicted_n", "truncated", "tokens_cached"}
        assert answer["content"] and answer["timings/predicted_n"] == 6
    ahead = {**EDITOR, "n_predict": 0, "prompt": "", "samplers": [], "response_fields": [""]}
    assert (await daemon.ask("POST", INFILL, ahead)).json == {}


async def test_a_model_that_cannot_says_so(daemon: Daemon) -> None:
    answer = await daemon.refused(EDITOR, INFILL)
    assert (answer.status, answer.error["code"]) == (400, "unsupported_parameter")
    assert answer.error["param"] == "input_suffix" and "filling in the middle" in answer.error["message"]


def test_what_an_editor_asks() -> None:
    asked: GenerationRequest = infill_of(
        msgspec.json.decode(json.dumps(EDITOR), type=InfillRequest), [("X-Session-Id", "s")]
    )
    assert asked.prompt == RawPrompt(
        "def f(x):\n",
        suffix="\n    return y\n",
        is_infill=True,
        nearby=(NearbyText("a.py", "y = 1\n"),),
        begun="    y",
        param="input_prefix",
        suffix_param="input_suffix",
    )
    assert asked.key.id == "s" and asked.max_tokens == 6
    assert sampler_names(asked.sampling.samplers or 0) == ["top_k", "top_p", "infill"]


async def test_large_texts_are_taken(serve: Serve) -> None:
    daemon = await serve(model=FILLING)
    extra = [{"text": "x = 1\n" * 3000, "filename": f"{n}.py"} for n in range(8)]
    answer = await daemon.ask("POST", INFILL, {**EDITOR, "input_extra": extra})
    assert answer.status == 200, answer.body


# --- refusals --------------------------------------------------------------------------------------------------------

REFUSED: tuple[tuple[str, Json, str, str], ...] = (
    (COMPLETION, {"prompt": None}, "prompt", "invalid_type"),
    (COMPLETION, {"prompt": ""}, "prompt", "invalid_value"),
    (COMPLETION, {"prompt": [1 << 40]}, "prompt", "invalid_token"),
    (COMPLETION, {"prompt": [-1]}, "prompt", "invalid_token"),
    (COMPLETION, {"temperature": 101}, "temperature", "invalid_value"),
    (COMPLETION, {"samplers": ["best"]}, "samplers", "invalid_value"),
    (COMPLETION, {"logit_bias": [[5, 101]]}, "logit_bias.5", "invalid_value"),
    (COMPLETION, {"logit_bias": [[5]]}, "logit_bias[0]", "invalid_type"),
    (COMPLETION, {"post_sampling_probs": True}, "post_sampling_probs", "unsupported_parameter"),
    (COMPLETION, {"session_id": "has space"}, "session_id", "invalid_session_id"),
    (COMPLETION, {"response_fields": "content"}, "response_fields", "invalid_type"),
    (COMPLETION, {"grammar": "root ::= ("}, "grammar", "invalid_value"),
    (COMPLETION, {"grammar": 'root ::= "x"', "json_schema": {"type": "object"}}, "grammar", "invalid_value"),
    (COMPLETION, {"json_schema": {"type": "sentence"}}, "json_schema", "invalid_value"),
    (COMPLETION, {"input_prefix": "x"}, "input_prefix", "unsupported_parameter"),
    (INFILL, {"input_prefix": 5}, "input_prefix", "invalid_type"),
    (INFILL, {"input_extra": [{"filename": "x"}]}, "input_extra[0].text", "missing_parameter"),
    (INFILL, {"input_extra": "x"}, "input_extra", "invalid_type"),
    (INFILL, {"input_prefix": "word " * 5000}, "input_prefix", "context_length_exceeded"),
    (INFILL, {"prompt": [1]}, "prompt", "invalid_type"),
)


async def test_a_refusal_names_the_field(serve: Serve) -> None:
    daemon = await serve(model=FILLING)
    for path, fields, param, code in REFUSED:
        answer = await daemon.refused({**(native() if path == COMPLETION else EDITOR), **fields}, path)
        found = answer.error["param"].removesuffix("[0]") if code == "invalid_token" else answer.error["param"]
        assert (answer.status, found, answer.error["code"]) == (400, param, code), (fields, answer.body)


# --- what is told ----------------------------------------------------------------------------------------------------


def test_fields_are_chosen_by_their_path() -> None:
    told = {"a": 1, "b": {"c": {"d": 2}}, "e": "x"}
    assert chosen(told, ["a", "b/c/d", "b/x", "e/f", ""]) == {"a": 1, "b/c/d": 2}


async def test_nothing_is_divided_by_zero(daemon: Daemon) -> None:
    end = End(0, "stop", UsedTokens(3, 3, 0), SessionReport(None, 3, 0, None, 0.0, 0.0, 0.0))
    told = json.loads(NativeWriter(daemon.state, fields=None).complete([TextPart(0, "a\nb"), end]))
    assert told["timings"]["prompt_per_second"] == 0 and told["has_new_line"] is True
    assert told["stop_type"] == "word"


# --- the server ------------------------------------------------------------------------------------------------------


async def test_props(daemon: Daemon) -> None:
    for path in ("/props", "/v1/props"):
        props = (await daemon.ask("GET", path)).json
        info = daemon.state.engine.info
        assert props["default_generation_settings"]["n_ctx"] == info.n_ctx
        assert props["default_generation_settings"]["params"]["temperature"] == info.sampling.temperature
        assert props["total_slots"] == info.n_sessions + info.n_scratch
        assert "messages" in props["chat_template"] and props["modalities"] == {"vision": False, "audio": False}
        assert props["kv_type"] == info.kv_type == "f16"
        assert props["model_path"] == "sim:dense" and props["build_info"].startswith("llmd ")


async def test_slots_lists_the_slots(daemon: Daemon) -> None:
    info = daemon.state.engine.info
    empty = json.loads((await daemon.ask("GET", "/slots")).body)
    assert len(empty) == info.n_sessions + info.n_scratch
    assert [slot["id"] for slot in empty] == list(range(len(empty)))
    await daemon.chat(session_id="mine")
    slots = json.loads((await daemon.ask("GET", "/v1/slots")).body)
    assert len(slots) == len(empty)
    [mine] = [slot for slot in slots if slot["session"] == "mine"]
    assert mine["tokens"] > 8 and mine["is_processing"] is False and mine["n_ctx"] == info.n_ctx


async def test_a_slot_at_work(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,length=0,step_us=2000", ctx_size=4096)
    async with daemon.streaming({"messages": [{"role": "user", "content": "x"}], "session_id": "s"}) as response:
        slots = json.loads((await daemon.ask("GET", "/slots")).body)
        assert [slot["session"] for slot in slots if slot["is_processing"]] == ["s"]
        response.close()


async def test_others_learn_nothing_of_a_session(serve: Serve, tmp_path: Any) -> None:
    keys = key_file(tmp_path, "first-key-of-somebody alice\nsecond-key-of-somebody bob\n")
    daemon = await serve(api_key_file=keys)
    alice, bob = ({"Authorization": f"Bearer {key}-key-of-somebody"} for key in ("first", "second"))
    body = {"messages": [{"role": "user", "content": "hi"}], "session_id": "secret", "max_tokens": 2}
    assert (await daemon.ask("POST", "/v1/chat/completions", body, headers=alice)).status == 200
    assert b"secret" in (await daemon.ask("GET", "/slots", headers=alice)).body
    told = json.loads((await daemon.ask("GET", "/slots", headers=bob)).body)
    assert all(slot["session"] is None and slot["tokens"] == 0 and slot["next_token"] == [] for slot in told)


@pytest.mark.parametrize(
    "path", ["/tokenize", "/detokenize", "/apply-template", "/infill", "/completion", "/embedding"]
)
async def test_each_has_both_spellings(daemon: Daemon, path: str) -> None:
    plain, versioned = await asyncio.gather(*(daemon.ask("POST", f"{prefix}{path}", {}) for prefix in ("", "/v1")))
    assert plain.status == versioned.status == 400 and plain.body == versioned.body
