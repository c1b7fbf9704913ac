"""Each field of a request is supported, accepted or refused, as the table says, and errors name the field."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from anthropic.types.beta import message_count_tokens_params as beta_count
from anthropic.types.beta import message_create_params as beta_messages
from anthropic.types.message_count_tokens_params import MessageCountTokensParams
from anthropic.types.message_create_params import MessageCreateParamsBase
from openai.types import completion_create_params as completion_params
from openai.types.chat import completion_create_params as chat_params
from openai.types.embedding_create_params import EmbeddingCreateParams
from openai.types.responses.input_token_count_params import InputTokenCountParams
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from llmd.core.errors import ApiError
from llmd.dialects.anthropic.wire import CountTokensRequest, MessagesRequest
from llmd.dialects.ollama.wire import OllamaGenerateRequest
from llmd.dialects.openai.wire import ChatCompletionRequest, CompletionRequest, EmbeddingsRequest
from llmd.dialects.responses.wire import ResponseRequest
from llmd.http import body
from llmd.http.parameters import parameters_of
from tests.serving import Daemon, chat
from tools.reference import DIALECTS, with_endpoints

Chat, Completion, Embeddings = ChatCompletionRequest, CompletionRequest, EmbeddingsRequest
Response, OllamaGenerate = ResponseRequest, OllamaGenerateRequest

NEEDED: dict[type[Any], dict[str, Any]] = {
    Chat: {"messages": []},
    Completion: {"prompt": ""},
    Embeddings: {"input": ""},
}


def refusal(kind: type[Any], **fields: Any) -> ApiError | None:
    try:
        body.typed(json.dumps({**NEEDED.get(kind, {}), **fields}).encode(), kind)
    except ApiError as error:
        return error
    return None


def test_true_is_not_one() -> None:
    assert refusal(Chat, length_penalty=1) is None
    assert refusal(Chat, length_penalty=True) is not None
    assert refusal(Chat, prompt_logprobs=False) is not None


def test_unknown_names_are_refused() -> None:
    error = refusal(Chat, temprature=1)
    assert error is not None and error.param == "temprature" and error.code == "unsupported_parameter"


async def test_an_unknown_name_may_ask_for_nothing(daemon: Daemon) -> None:
    """Clients that are generated from a schema write null for members that are not set."""
    assert refusal(Chat, temprature=None) is None
    assert refusal(Chat, structured_outputs={"regex": "[0-9]+", "structural_tag": None}) is None
    nothings: tuple[Any, ...] = (False, 0, "", [], {})
    for value in nothings:
        assert refusal(Chat, temprature=value) is not None
    answer = await daemon.ask("POST", "/v1/chat/completions", chat(min_answer_words=None))
    assert answer.status == 200


@pytest.mark.parametrize("kind", [Chat, Completion])
def test_unknown_names_within_structured_outputs_are_refused(kind: type[Any]) -> None:
    assert refusal(kind, structured_outputs={"regex": "[0-9]+"}) is None
    for name in ("regx", "structural_tag"):
        error = refusal(kind, structured_outputs={name: "[0-9]+"})
        assert (
            error is not None and error.param == f"structured_outputs.{name}" and error.code == "unsupported_parameter"
        )


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (Chat, {"echo": True},
         "echo: true asks for the prompt repeated in the answer, which this server does not support."),
        (Chat, {"lora": [{"id": 1}]}, 'lora: [{"id": 1}] asks for LoRA adapters, which this server does not support.'),
        (Chat, {"chat_template": "x"},
         'chat_template: "x" asks for another chat template, which this server does not support; start llmd with '
         "--chat-template-file."),
        (OllamaGenerate, {"context": [1, 2]},
         "context: [1, 2] asks for an answer that continues these tokens, which this server does not support; name a "
         "session, or use /api/chat."),
    ],
)  # fmt: skip
def test_a_refusal_quotes_json_and_says_what_to_do_instead(
    kind: type[Any], fields: dict[str, Any], message: str
) -> None:
    error = refusal(kind, **fields)
    assert error is not None and error.message == message


async def test_what_other_servers_documentation_sends(daemon: Daemon) -> None:
    """The documentation of LM Studio, Ollama, OpenRouter and llama-server tells clients to send such parameters."""
    kept: dict[str, Any] = {"ttl": 300, "keep_alive": "5m"}
    sent = {**kept, "usage": {"include": True}, "backend_sampling": False, "post_sampling_probs": False}
    answer = await daemon.ask("POST", "/v1/chat/completions", chat(**sent, include_reasoning=True))
    assert answer.status == 200
    assert refusal(Completion, **sent) is refusal(Embeddings, **kept) is refusal(Response, **kept) is None
    for fields in ({"include_reasoning": False}, {"post_sampling_probs": True}):
        error = refusal(Chat, **fields)
        assert error is not None and error.code == "unsupported_parameter"


@pytest.mark.parametrize(
    ("parameters", "kind"),
    [
        (chat_params.CompletionCreateParamsBase, Chat),
        (completion_params.CompletionCreateParamsBase, Completion),
        (EmbeddingCreateParams, Embeddings),
        (ResponseCreateParamsBase, Response),
        (InputTokenCountParams, Response),
        (MessageCreateParamsBase, MessagesRequest),
        (MessageCountTokensParams, CountTokensRequest),
        (beta_messages.MessageCreateParamsBase, MessagesRequest),
        (beta_count.MessageCountTokensParams, CountTokensRequest),
    ],
)
def test_what_the_official_clients_can_send_has_a_row(parameters: type, kind: type[Any]) -> None:
    assert set(inspect.get_annotations(parameters)) <= set(parameters_of(kind))


def test_a_parameter_of_several_endpoints_is_documented_once() -> None:
    found = with_endpoints(DIALECTS["parameters"])
    assert [endpoints for row, endpoints in found if row.name == "seed"] == [["chat", "completions"]]
    assert [endpoints for row, endpoints in found if row.name == "messages"] == [["chat"]]
    notes = [row.note for row, _ in found if row.name == "logprobs"]
    assert len(notes) == 2, "one for each endpoint: they differ"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 100.5}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"presence_penalty": 101}, "presence_penalty"),
        ({"frequency_penalty": -101}, "frequency_penalty"),
        ({"repeat_penalty": 0}, "repeat_penalty"),
        ({"top_k": -2}, "top_k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": -7}, "max_completion_tokens"),
        ({"n": 17}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"n": 2, "best_of": 17}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"n_probs": 21}, "n_probs"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop": "x" * 257}, "stop"),
        ({"logit_bias": {"99999999": 1}}, "logit_bias.99999999"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"seed": 1 << 64}, "seed"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": ""}]}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ],
)
async def test_values_out_of_range(daemon: Daemon, fields: dict[str, Any], param: str) -> None:
    answer = await daemon.refused(chat(**fields))
    assert answer.status == 400
    assert (answer.error["code"], answer.error["param"]) == ("invalid_value", param) or param.endswith("content")
    assert answer.error["param"] == param and param in answer.error["message"]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"temperature": "hot"}, "invalid_type", "temperature"),
        ({"messages": "hello"}, "invalid_type", "messages"),
        ({"messages": [{"content": "x"}]}, "missing_parameter", "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "invalid_type", "messages[0].content"),
        ({"stop": [1]}, "invalid_type", "stop[0]"),
        ({"session_id": 7}, "invalid_session_id", "session_id"),
        ({"session_id": "has space"}, "invalid_session_id", "session_id"),
        ({"stream": "yes"}, "invalid_type", "stream"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "unsupported_parameter",
            "messages[0].content[0]",
        ),
    ],
)
async def test_wrong_types_name_the_field(daemon: Daemon, fields: dict[str, Any], code: str, param: str) -> None:
    answer = await daemon.refused(chat(**fields))
    assert answer.status == 400
    assert (answer.error["code"], answer.error["param"]) == (code, param)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"nonsense", b'{"messages": [1, 2}', b"\xff\xfe", b'{"messages": [{"role": "\xff"}]}']
)
async def test_bad_json(daemon: Daemon, body: bytes) -> None:
    answer = await daemon.ask("POST", "/v1/chat/completions", body)
    assert answer.status == 400 and answer.error["code"] == "invalid_json"


@pytest.mark.parametrize("body", [b"[]", b"5", b'"text"', b"null"])
async def test_the_body_must_be_an_object(daemon: Daemon, body: bytes) -> None:
    answer = await daemon.ask("POST", "/v1/chat/completions", body)
    assert answer.status == 400 and answer.error["code"] == "invalid_type"


async def test_messages_are_required(daemon: Daemon) -> None:
    answer = await daemon.refused({"stream": True})
    assert (answer.error["code"], answer.error["param"]) == ("missing_parameter", "messages")


async def test_deep_nesting_is_refused(daemon: Daemon) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    answer = await daemon.ask("POST", "/v1/chat/completions", b'{"messages": ' + deep + b"}")
    assert answer.status == 400
