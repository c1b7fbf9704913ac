"""From the bytes of a body to a typed request: texts of errors, and limits that are checked before any work."""

from __future__ import annotations

import io
import json
import threading
from typing import Any, Literal

import msgspec
import pytest

from llmd.answers.digest import digest_of
from llmd.core import limits
from llmd.core.context_limits import ContextLimits
from llmd.core.errors import ApiError, quoted
from llmd.core.generation_request import PlainMessage, PlainToolCall
from llmd.dialects.anthropic.wire import OutputFormat
from llmd.dialects.llamacpp.wire import NativeCompletionRequest
from llmd.dialects.ollama.wire import OllamaChatRequest
from llmd.dialects.openai.wire import ChatCompletionRequest, CompletionRequest
from llmd.engine import json_scan
from llmd.engine.json_scan import decoder_of
from llmd.engine.native import JSON_WORDS
from llmd.http import body, decode
from llmd.http.endpoints.wire import ForkRequest
from llmd.http.parameters import Parameter
from llmd.pipeline.history import plain
from llmd.pipeline.rendering import text_bytes_of
from tests.conftest import Serve
from tests.serving import Daemon, chat

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
LONG = limits.TEXT_SHORT_BYTES + 1


def refusal(kind: type[Any], document: str) -> ApiError:
    with pytest.raises(ApiError) as refused:
        body.typed(document.encode(), kind)
    return refused.value


# --- what a refusal says ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "document", "code", "param", "message"),
    [
        (ForkRequest, "[]", "invalid_type", None, "The body: expected `object`, got []."),
        (ForkRequest, "{}", "missing_parameter", "session_id", "session_id is missing."),
        (ForkRequest, '{"session_id":5}', "invalid_session_id", "session_id", "session_id: expected `str`, got 5."),
        (ForkRequest, '{"session_id":"a","at":0.5}', "invalid_type", "at",
         "at: expected `int | str | null`, got 0.5."),
        (ForkRequest, '{"session_id":"a","an`odd - at `$.b`\\n":1}', "unsupported_parameter", "an`odd - at `$.b`\n",
         "'an`odd - at `$.b`\\n' is not a parameter of this endpoint."),
        (ChatCompletionRequest, '{"messages":[{"content":"x"}]}', "missing_parameter", "messages[0].role",
         "messages[0].role is missing."),
        (ChatCompletionRequest, '{"messages":[{"role":"a","tool_calls":[{"function":{}}]}]}', "missing_parameter",
         "messages[0].tool_calls[0].function.name", "messages[0].tool_calls[0].function.name is missing."),
        (ChatCompletionRequest, '{"messages":[{"role":"a","content":true}]}', "invalid_type", "messages[0].content",
         "messages[0].content: expected `str | array | null`, got true."),
        (ChatCompletionRequest, '{"messages":[],"logit_bias":{"x":1}}', "invalid_type", "logit_bias",
         "logit_bias: the name 'x' is not of the type `int`."),
        (ChatCompletionRequest, '{"messages":[],"logit_bias":{"1":"x"}}', "invalid_type", "logit_bias.1",
         "logit_bias.1: expected `float`, got \"x\"."),
        (ChatCompletionRequest, '{"messages":[],"temperature":1e999}', "invalid_type", "temperature",
         "temperature: number out of range."),
        (ChatCompletionRequest, '{"messages":[],"history":"all"}', "invalid_value", "history",
         "history: 'all' is not one of resident, template."),
        (ChatCompletionRequest, '{"messages":[],"tool_choice":"sometimes"}', "invalid_value", "tool_choice",
         "tool_choice: 'sometimes' is not one of auto, none, required, or an object."),
        (ChatCompletionRequest, '{"messages":[],"tool_choice":{"type":"x"}}', "invalid_value", "tool_choice.type",
         "tool_choice.type: 'x' is not one of function, custom, allowed_tools."),
        (ChatCompletionRequest, '{"messages":[],"response_format":{"type":"xml"}}', "invalid_value",
         "response_format.type", "response_format.type: 'xml' is not one of text, json_object, json_schema."),
        (ChatCompletionRequest,
         '{"messages":[],"tools":[{"type":"custom","custom":{"name":"a","format":{"type":"x"}}}]}', "invalid_value",
         "tools[0].custom.format.type", "tools[0].custom.format.type: 'x' is not one of text, grammar."),
        (OllamaChatRequest, '{"think":"sometimes"}', "invalid_value", "think",
         "think: 'sometimes' is not one of low, medium, high, max, true, false."),
        (OllamaChatRequest, '{"format":"xml"}', "invalid_value", "format", "format: 'xml' is not json, or an object."),
        (OutputFormat, '{"type":"x","schema":{}}', "invalid_value", "type", "type: 'x' is not json_schema."),
        (dict[str, Literal["a", "b"]], '{"x":"c"}', "invalid_value", "x", "x: 'c' is not one of a, b."),
        (ChatCompletionRequest, '{"messages":null}', "invalid_type", "messages",
         "messages: expected `array`, got null."),
        (ChatCompletionRequest, '{"messages":[5]}', "invalid_type", "messages[0]",
         "messages[0]: expected `object`, got 5."),
        (ChatCompletionRequest, '{"messages":[],"max_tokens":1.5}', "invalid_type", "max_tokens",
         "max_tokens: expected `int | null`, got 1.5."),
        (ChatCompletionRequest, '{"messages":[],"stop":{}}', "invalid_type", "stop",
         "stop: expected `str | array | null`, got {}."),
        (ChatCompletionRequest, '{"messages":[],"stream_options":{"include_usage":5}}', "invalid_type",
         "stream_options.include_usage", "stream_options.include_usage: expected `bool | null`, got 5."),
        (CompletionRequest, '{"prompt":[1.5]}', "invalid_type", "prompt[0]",
         "prompt[0]: expected `int | str | array`, got 1.5."),
        (ChatCompletionRequest,
         '{"messages":[],"tools":[{"type":"custom","custom":{"name":"a","format":{}}}]}', "missing_parameter",
         "tools[0].custom.format.type", "tools[0].custom.format.type is missing."),
        (ChatCompletionRequest,
         '{"messages":[],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}}',
         "invalid_type", "tool_choice.allowed_tools.tools", "tool_choice.allowed_tools.tools: it must not be empty."),
        (NativeCompletionRequest, '{"prompt":"","logit_bias":[[5.0]]}', "invalid_type", "logit_bias[0]",
         "logit_bias[0]: expected 2 items, got 1."),
    ],
)  # fmt: skip
def test_a_refusal_says_where_what_and_which_value(
    kind: type[Any], document: str, code: str, param: str | None, message: str
) -> None:
    error = refusal(kind, document)
    assert (error.code, error.param, error.message) == (code, param, message)


@pytest.mark.parametrize(
    ("kind", "document", "place", "value"),
    [
        (ChatCompletionRequest, '{"messages":[],"max_tokens":4.0}', "max_tokens", 4),
        (ChatCompletionRequest, '{"messages":[],"max_tokens":4e2,"n":1.0,"top_k":40.0,"seed":-1.0}', "seed", -1),
        (ChatCompletionRequest, '{"messages":[],"reasoning":{"max_tokens":-0.0}}', "reasoning.max_tokens", 0),
        (ChatCompletionRequest, '{"messages":[],"stop_token_ids":[7,5.0]}', "stop_token_ids.1", 5),
        (OllamaChatRequest, '{"options":{"num_predict":4.0},"format":{"x":1.0}}', "options.num_predict", 4),
        (CompletionRequest, '{"prompt":[1,2.0]}', "prompt.1", 2),
        (ForkRequest, '{"session_id":"a","at":3.0}', "at", 3),
    ],
)
def test_an_integer_may_be_written_as_a_float(kind: type[Any], document: str, place: str, value: int) -> None:
    """JavaScript, Lua and PHP have one kind of number, and some clients in these languages write integers as floats."""
    found = body.typed(document.encode(), kind)
    for step in place.split("."):
        found = found[int(step)] if step.isdigit() else getattr(found, step)
    assert found == value and type(found) is int


def test_only_the_integer_is_changed() -> None:
    document = '{"format":{"maximum":1.0},"options":{"temperature":1.0,"top_k":1.0},"tools":null}'
    found = body.typed(document.encode(), OllamaChatRequest)
    assert isinstance(found.format, dict) and json.dumps(found.format) == '{"maximum": 1.0}'


@pytest.mark.parametrize("value", ["4.5", '"4"', '"4.0"', "1e30", "true", "[4.0]"])
def test_what_is_no_integer_is_refused_as_ever(value: str) -> None:
    error = refusal(ChatCompletionRequest, f'{{"messages":[],"n":1.0,"max_tokens":{value}}}')
    assert (error.code, error.param) == ("invalid_type", "max_tokens")
    assert error.message == f"max_tokens: expected `int | null`, got {value}."


@pytest.mark.parametrize("last", ["null", "5", "[]", '{"top_k":1}', '{"num_predict":1e999}', '{"num_predict":"4"}'])
def test_of_two_members_with_one_name_neither_is_guessed(last: str) -> None:
    error = refusal(OllamaChatRequest, f'{{"options":{{"num_predict":4.0}},"options":{last}}}')
    assert error.code == "invalid_type"
    assert (error.param or "options").startswith("options") and (
        error.param or "members of the same name" in error.message
    )


def test_lists_of_integers_may_be_written_as_floats() -> None:
    assert body.typed(b'{"prompt":[[1.0,-2.00],[3]]}', CompletionRequest).prompt == [[1, -2], [3]]
    assert decode.decoded(b'{"prompt":["v1.0,",2.5]}', dict[str, Any]) == {"prompt": ["v1.0,", 2.5]}
    assert body.typed(b'{"prompt":["v1.0,","[2.0]"]}', CompletionRequest).prompt == ["v1.0,", "[2.0]"]
    assert refusal(CompletionRequest, '{"prompt":[1.0,2.5]}').param == "prompt[1]"
    biases = body.typed(b'{"prompt":"","logit_bias":[[5.0,1.0]]}', NativeCompletionRequest).logit_bias
    assert biases == [(5, 1.0)]


INTEGERS = ("max_tokens", "max_completion_tokens", "n_predict", "min_tokens", "seed", "top_k", "n", "top_logprobs")
SLOW_FLOAT = "1.7976931348623157e308"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of all texts that were decoded."""
    found: list[int] = []

    class Watched:
        def __init__(self, kind: Any) -> None:
            self._decoder = decoder_of(kind)

        def decode(self, document: bytes) -> Any:
            found.append(len(document))
            return self._decoder.decode(document)

    monkeypatch.setattr(decode, "decoder_of", Watched)
    return found


def test_a_document_is_decoded_a_fixed_number_of_times(decoded: list[int]) -> None:
    """The number of decodings does not depend on how many integers are written as floats."""
    fields = "".join(f'"{name}":4.0,' for name in INTEGERS)
    for tokens in ("[]", f"[{','.join(['1.0'] * 30_000)}]"):
        document = f'{{"messages":[],{fields}"stop_token_ids":{tokens}}}'.encode()
        decoded.clear()
        found = decode.decoded(document, ChatCompletionRequest)
        assert all(getattr(found, name) == 4 for name in INTEGERS)
        assert max(decoded.count(n) for n in decoded if n > 8) <= 2 and sum(decoded) <= 4 * len(document)


@pytest.mark.parametrize("last", ['"b"', '["x"]'])
def test_floats_among_the_texts_of_a_list_are_repaired_at_once(decoded: list[int], last: str) -> None:
    """This also holds if another item is wrong. The wrong item is found by bisection."""
    n_items = 2000
    document = f'{{"prompt":[{",".join(["1.0", chr(34) + "a" + chr(34)] * n_items)},{last}]}}'.encode()
    try:
        assert decode.decoded(document, CompletionRequest).prompt[:2] == [1, "a"]
    except ApiError as error:
        assert error.param == f"prompt[{2 * n_items}][0]"
    assert len(decoded) < 40 and sum(decoded) < 8 * len(document)


def test_slow_floats_are_read_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """msgspec would take 12 us for each of these floats, and would hold the interpreter lock for all of them
    together.
    """
    read: list[str] = []

    class Watched(float):
        def __new__(cls, text: str) -> Watched:
            read.append(text)
            return super().__new__(cls, text)

    monkeypatch.setattr(json_scan, "float", Watched, raising=False)
    document = f'{{"messages":[],"chat_template_kwargs":{{"a":[{",".join([SLOW_FLOAT] * 100)}]}}}}'
    found = body.typed(document.encode(), ChatCompletionRequest)
    assert read == [SLOW_FLOAT] * 100 and found.chat_template_kwargs == {"a": [float(SLOW_FLOAT)] * 100}
    error = refusal(ChatCompletionRequest, '{"messages":[],"chat_template_kwargs":{"a":1e999}}')
    assert error.message == "chat_template_kwargs.a: number out of range."


def test_a_refused_value_is_not_repeated_whole() -> None:
    error = refusal(ChatCompletionRequest, json.dumps({"messages": [], "history": "x - at `$." * 6000}))
    assert error.param == "history" and len(error.message) < 2 * limits.USER_FIELD_SHOWN_CHARS_MAX
    error = refusal(ForkRequest, json.dumps({"session_id": "a", "y" * 6000: 1}))
    assert len(error.message) + len(error.param or "") < 3 * limits.USER_FIELD_SHOWN_CHARS_MAX


# --- texts as they come ----------------------------------------------------------------------------------------------


async def test_half_a_pair_of_surrogates_is_a_replacement_character(daemon: Daemon) -> None:
    """JavaScript can cut a string in the middle of a surrogate pair. JSON.stringify then writes the remaining half as
    an escape.
    """
    cut = chat().copy()
    cut["messages"] = [{"role": "user", "content": "cut here: \ud83d"}]
    answer = await daemon.ask("POST", "/apply-template", json.dumps({"messages": cut["messages"]}).encode())
    assert answer.status == 200 and "cut here: \ufffd<" in answer.json["prompt"]
    assert (await daemon.ask("POST", CHAT, json.dumps(cut).encode())).status == 200
    tokens = [await daemon.ask("POST", "/tokenize", b'{"content": %s}' % text) for text in (b'"\\udc00"', b'"\\ufffd"')]
    assert tokens[0].json == tokens[1].json


@pytest.mark.parametrize("filler", ["", "x" * LONG])
async def test_small_and_large_bodies_are_read_alike(daemon: Daemon, filler: str) -> None:
    """The value of `user` is ignored, so that it only makes the body large."""
    text = json.dumps('ä€😀\n"\\ and\u2028')
    sent = f'{{"user": {json.dumps(filler)}, "messages": [{{"role": "user", "content": {text}}}]}}'
    answer = await daemon.ask("POST", "/apply-template", sent.encode())
    assert json.loads(text) in answer.json["prompt"]
    for wrong, code in ((b"{,}", "invalid_json"), (b'{"messages": 5}', "invalid_type"), (b"{}", "missing_parameter")):
        padded = wrong + b" " * len(filler)
        assert (await daemon.ask("POST", CHAT, padded)).error["code"] == code


async def test_a_large_body_is_read_in_a_text_thread(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    clean = daemon.state.engine.json.clean

    def watched(data: bytes) -> bytes:
        seen.append(threading.current_thread().name)
        return clean(data)

    monkeypatch.setattr(daemon.state.engine.json, "clean", watched)
    await daemon.chat()
    await daemon.chat(user="x" * LONG)
    assert seen[0] == threading.main_thread().name and seen[1].startswith("llmd-text")


# --- bounds before work ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "code", "word"),
    [
        (b'{"prompt":[' + b"1," * 10_000_000 + b"1]}", "request_too_large", "values"),
        (b'{"prompt":[' + b"[]," * 200_000 + b"[]]}", "request_too_large", "objects and lists"),
        (b'{"prompt":' + b"[" * 300 + b"]" * 300 + b"}", "invalid_json", "levels"),
        (b'{"prompt":"x","seed":' + b"1" * 200 + b"}", "invalid_json", "bytes in a number"),
        (b'{"' + b"x" * 2000 + b'":"x"}', "invalid_json", "bytes in a name"),
        (b'{"metadata":[' + b"1e300," * 3000 + b'1],"prompt":"x"}', "request_too_large", "other than integers"),
        (b'{"prompt":"' + b"x" * (17 * 1024**2) + b'"}', "request_too_large", "bytes in all texts"),
    ],
    ids=["values", "containers", "depth", "number_bytes", "key_bytes", "floats", "text_bytes"],
)
async def test_json_is_bounded(serve: Serve, document: bytes, code: str, word: str) -> None:
    daemon = await serve(ctx_size=100_000)
    answer = await daemon.ask("POST", COMPLETIONS, io.BytesIO(document))
    assert answer.error["code"] == code and word in answer.error["message"] and answer.error["param"] is None
    assert answer.status == (413 if code == "request_too_large" else 400)


def test_every_limit_of_the_scan_has_a_value(daemon: Daemon) -> None:
    first = JSON_WORDS.index("values")
    assert set(daemon.state.engine.json.allowed) == set(JSON_WORDS[first:])


@pytest.mark.parametrize(
    ("path", "request_", "param"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "x" * 500_000}]}, "messages"),
        (CHAT, {"messages": [{"role": "user", "content": "ä" * 8_000}] * 10}, "messages"),
        (CHAT, {"messages": [{"role": "assistant", "content": "x", "reasoning_content": "x" * 500_000}]}, "messages"),
        (CHAT, {"messages": [{"role": "assistant", "tool_calls": [
            {"function": {"name": "f", "arguments": {"a": "x" * 500_000}}}]}]}, "messages"),
        ("/apply-template", {"messages": [{"role": "user", "content": "x" * 500_000}]}, "messages"),
        (COMPLETIONS, {"prompt": "x" * 500_000}, "prompt"),
    ],
)  # fmt: skip
async def test_text_that_cannot_fit_is_refused_by_its_bytes(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, path: str, request_: dict[str, Any], param: str
) -> None:
    """The request is refused before anything is rendered or tokenized."""
    for name in ("render_chat", "tokenize"):
        monkeypatch.setattr(daemon.state.engine, name, None)
    answer = await daemon.refused(request_, path)
    assert (answer.error["code"], answer.error["param"]) == ("context_length_exceeded", param)
    n_ctx = daemon.state.engine.info.n_ctx
    opening = f"This model's maximum context length is {n_ctx} tokens. However, you requested at least "
    assert answer.error["message"].startswith(opening)
    assert f" bytes of text in {param})" in answer.error["message"]


def test_room_is_exact() -> None:
    room = ContextLimits(n_ctx=100, token_bytes_max=7)
    room.check_bytes(700, "prompt")
    room.check_tokens(100, "prompt")
    with pytest.raises(ApiError, match="at least 101 tokens"):
        room.check_bytes(701, "prompt")
    with pytest.raises(ApiError, match="you requested 102 tokens"):
        room.check_tokens(101, "prompt")


def test_the_text_of_a_conversation_is_counted_whole() -> None:
    messages = [
        PlainMessage("user", "ä", name="me"),
        PlainMessage("assistant", reasoning="abc", tool_calls=(PlainToolCall("f", "{}"),)),
        PlainMessage("tool", "12345", tool_call_id="id"),
    ]
    assert text_bytes_of(messages) == 2 + 2 + 3 + 1 + 2 + 5 + 2


async def test_a_prompt_that_is_too_long_is_called_by_its_name(daemon: Daemon) -> None:
    n_ctx = daemon.state.engine.info.n_ctx
    for prompt in ([300] * (n_ctx + 1), [[300] * (n_ctx + 1)], " the of" * n_ctx):
        answer = await daemon.refused({"prompt": prompt}, COMPLETIONS)
        assert (answer.error["code"], answer.error["param"]) == ("context_length_exceeded", "prompt")


@pytest.mark.parametrize("wrong", [-1, 1 << 20, 1 << 31, 1 << 80])
async def test_the_first_wrong_token_is_named(daemon: Daemon, wrong: int) -> None:
    answer = await daemon.refused({"prompt": [300, 301, wrong, -7]}, COMPLETIONS)
    assert (answer.error["code"], answer.error["param"]) == ("invalid_token", "prompt")
    assert answer.error["message"].startswith(f"prompt[2]: {quoted(wrong)} is not a token id: ")
    answer = await daemon.refused({"tokens": [wrong]}, "/detokenize")
    assert answer.error["message"].startswith("tokens[0]: ")


@pytest.mark.parametrize("prompt", [[1, "x"], ["x", 1], [1, [2]], [[1], 2], [[1], ["x"]]])
async def test_a_list_of_prompts_and_tokens_is_refused(daemon: Daemon, prompt: list[Any]) -> None:
    answer = await daemon.refused({"prompt": prompt}, COMPLETIONS)
    assert (answer.error["code"], answer.error["param"].partition("[")[0]) == ("invalid_type", "prompt")


async def test_texts_have_limits_beside_the_context(daemon: Daemon) -> None:
    answer = await daemon.ask(
        "POST", "/tokenize", io.BytesIO(b'{"content": "%s"}' % (b"x" * (limits.TOKENIZE_BYTES_MAX + 1)))
    )
    assert (answer.error["code"], answer.error["param"]) == ("invalid_value", "content")
    assert str(limits.TOKENIZE_BYTES_MAX) in answer.error["message"]
    answer = await daemon.refused({"tokens": [300] * (limits.DETOKENIZE_TOKENS_MAX + 1)}, "/detokenize")
    assert (answer.error["code"], answer.error["param"]) == ("invalid_value", "tokens")


@pytest.mark.parametrize("with_pieces", [False, True])
async def test_more_text_than_the_context_holds_can_be_tokenized(daemon: Daemon, with_pieces: bool) -> None:
    """The answer is encoded in several parts, which form one list."""
    text = " the of" * 10_000
    answer = (await daemon.ask("POST", "/tokenize", {"content": text, "with_pieces": with_pieces})).json
    assert answer["count"] == len(answer["tokens"]) == 20_000 > daemon.state.engine.info.n_ctx
    if with_pieces:
        assert "".join(token["piece"] for token in answer["tokens"]) == text
    else:
        assert (await daemon.ask("POST", "/detokenize", {"tokens": answer["tokens"]})).json["content"] == text


@pytest.mark.parametrize("field", ["metadata", "chat_template_kwargs"])
async def test_fields_beside_the_prompt_are_bounded(daemon: Daemon, field: str) -> None:
    answer = await daemon.refused({**chat(), field: {"a": "x" * limits.FIELD_BYTES_MAX}})
    assert (answer.error["code"], answer.error["param"]) == ("invalid_value", field)
    assert f"at most {limits.FIELD_BYTES_MAX} are allowed" in answer.error["message"]
    assert (await daemon.chat(prediction={"type": "content", "content": "x" * LONG}))["object"] == "chat.completion"


async def test_what_is_cheap_to_check_is_checked_before_the_prompt_is_made(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("render_chat", "tokenize"):
        monkeypatch.setattr(daemon.state.engine, name, None)
    for fields in ({"top_p": 5}, {"stop": ["x"] * 17}, {"stop": "x" * 257}, {"logit_bias": {"-1": 0}}):
        assert (await daemon.refused(chat(**fields))).error["code"] == "invalid_value"
        assert (await daemon.refused({"prompt": "x", **fields}, COMPLETIONS)).error["code"] == "invalid_value"


# --- values in messages ----------------------------------------------------------------------------------------------


class Untouchable(str):
    """A text whose repr must not be used, because it would be as long as the text."""

    def __repr__(self) -> str:
        raise AssertionError("all of it was shown")


def test_shown_looks_at_no_more_than_it_shows() -> None:
    assert quoted(Untouchable("x" * 10_000)) == "'" + "x" * (limits.USER_FIELD_SHOWN_CHARS_MAX - 2) + "…"
    assert quoted([1, 2]) == "[1, 2]" and quoted({"a": None}) == "{'a': None}" and quoted(None) == "None"
    assert len(quoted([[["x" * 1000] * 1000] * 1000] * 1000)) <= limits.USER_FIELD_SHOWN_CHARS_MAX
    assert quoted(1 << 70) == str(1 << 70) and quoted(10**5000) == "a number of 16610 bits"
    assert quoted(msgspec.Raw(b'{"a": 1}')) == '{"a": 1}'
    assert len(quoted(msgspec.Raw("ä".encode() * 10_000))) == limits.USER_FIELD_SHOWN_CHARS_MAX


def test_a_long_value_of_a_refused_parameter_is_shown_without_being_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Parameter, "is_neutral", None)
    found = refusal(ChatCompletionRequest, '{"messages":[],"documents":[{"title":"a",%s"b":1}]}' % (" " * 1000))
    assert found.param == "documents" and found.message.startswith('documents: [{"title":"a"')
    assert len(found.message) < 2 * limits.USER_FIELD_SHOWN_CHARS_MAX


# --- conversations ---------------------------------------------------------------------------------------------------


def test_a_long_run_of_the_user_is_joined_in_one_go() -> None:
    """Joining the messages one by one would copy the text once for each message."""
    messages = [PlainMessage("user", "x" * 1000)] * 16_000
    joined, _ = plain(messages)
    assert len(joined) == 1 and len(joined[0].content) == 16_000 * 1002 - 2


def test_arguments_that_would_take_long_are_compared_as_text() -> None:
    def digest(arguments: str) -> bytes:
        return digest_of(b"", PlainMessage("assistant", tool_calls=(PlainToolCall("f", arguments),)))

    few, many = (", ".join(["1.0"] * n) for n in (limits.ARGUMENTS_FLOATS_MAX, limits.ARGUMENTS_FLOATS_MAX + 1))
    assert digest(f"[{few}]") == digest(f"[{few.replace('.0', '')}]")
    assert digest(f"[{many}]") != digest(f"[{many.replace('.0', '')}]")
