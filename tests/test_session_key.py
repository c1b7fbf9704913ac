"""Finds the session to which a request belongs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmd.core.errors import ApiError
from llmd.core.session_key import HEADERS, SCRATCH, is_valid, parent_of, resolve

Headers = list[tuple[str, str]]

TABLE: list[tuple[str, Headers, dict[str, Any], tuple[str, str]]] = [
    ("nothing", [], {}, ("", "scratch")),
    ("body wins", [("X-LLM-Session-Id", "h")], {"session_id": "b"}, ("b", "session_id")),
    ("own header", [("X-LLM-Session-Id", "h")], {}, ("h", "x-llm-session-id")),
    ("own header before others", [("thread-id", "t"), ("x-llm-session-id", "h")], {}, ("h", "x-llm-session-id")),
    ("executorch", [("X-ExecuTorch-Session-ID", "e")], {}, ("e", "x-executorch-session-id")),
    ("codex: the thread", [("session-id", "s"), ("thread-id", "t")], {}, ("t", "thread-id")),
    ("claude", [("X-Claude-Code-Session-Id", "c")], {}, ("c", "x-claude-code-session-id")),
    (
        "claude's agent",
        [("X-Claude-Code-Session-Id", "c"), ("x-claude-code-agent-id", "a7")],
        {},
        ("c:a7", "x-claude-code-session-id"),
    ),
    ("an agent alone is none", [("x-claude-code-agent-id", "a7")], {}, ("", "scratch")),
    ("pi", [("session_id", "p"), ("x-session-affinity", "p"), ("x-client-request-id", "p")], {}, ("p", "session-id")),
    ("pi over responses", [("session_id", "p"), ("x-client-request-id", "p")], {"prompt_cache_key": "p"},
     ("p", "session-id")),
    ("pi over messages", [("x-session-affinity", "p")], {}, ("p", "x-session-affinity")),
    ("executorch's order", [("session_id", "s"), ("x-session-affinity", "a")], {}, ("s", "session-id")),
    ("executorch's own first", [("session_id", "s"), ("X-ExecuTorch-Session-ID", "e")], {},
     ("e", "x-executorch-session-id")),
    ("codex counts its windows", [("session-id", "s"), ("thread-id", "t"), ("x-codex-window-id", "s:3")], {},
     ("t", "thread-id")),
    ("underscores fold", [("session_id", "u")], {}, ("u", "session-id")),
    ("case and underscores fold", [("X_Session_ID", "u")], {}, ("u", "x-session-id")),
    ("opencode", [("x-session-affinity", "a"), ("x-session-id", "a"), ("x-parent-session-id", "p")], {},
     ("a", "x-session-affinity")),
    ("conversation", [("x-conversation-id", "c")], {}, ("c", "x-conversation-id")),
    ("litellm", [("x-litellm-session-id", "l")], {}, ("l", "x-litellm-session-id")),
    ("open webui", [("X-OpenWebUI-Chat-Id", "w")], {}, ("w", "x-openwebui-chat-id")),
    ("sglang's router", [("X-SGL-Routing-Key", "r")], {}, ("r", "x-sgl-routing-key")),
    ("smg", [("X-SMG-Routing-Key", "r")], {}, ("r", "x-smg-routing-key")),
    ("a client's header before a router's", [("x-smg-routing-key", "r"), ("x-session-id", "s")], {},
     ("s", "x-session-id")),
    ("request ids are no identity", [("x-client-request-id", "r")], {}, ("", "scratch")),
    ("cache key", [], {"prompt_cache_key": "k"}, ("k", "prompt_cache_key")),
    ("header before cache key", [("session-id", "s")], {"prompt_cache_key": "k"}, ("s", "session-id")),
    ("metadata", [], {"metadata": {"session_id": "m"}}, ("m", "metadata.session_id")),
    ("cache key before metadata", [], {"prompt_cache_key": "k", "metadata": {"session_id": "m"}},
     ("k", "prompt_cache_key")),
    ("metadata of another kind", [], {"metadata": {"session_id": 5}}, ("", "scratch")),
    ("claude's user", [], {"metadata": {"user_id": '{"device_id":"d","session_id":"m"}'}}, ("m", "metadata.user_id")),
    ("claude's user of old", [], {"metadata": {"user_id": "user_0a_account_b-c_session_4f-9d"}},
     ("4f-9d", "metadata.user_id")),
    ("claude's header before its user", [("X-Claude-Code-Session-Id", "c")],
     {"metadata": {"user_id": '{"session_id":"m"}'}}, ("c", "x-claude-code-session-id")),
    ("a user is no session", [], {"metadata": {"user_id": "ann"}}, ("", "scratch")),
    ("a user of other JSON", [], {"metadata": {"user_id": '{"session_id": 5}'}}, ("", "scratch")),
    ("a user of broken JSON", [], {"metadata": {"user_id": "{"}}, ("", "scratch")),
    ("a user of deep JSON", [], {"metadata": {"user_id": '{"a":' + "[" * 4000}}, ("", "scratch")),
    ("a user without end", [], {"metadata": {"user_id": "user_" + "x" * 9000 + "_session_m"}}, ("", "scratch")),
    ("a user that is no text", [], {"metadata": {"user_id": {"session_id": "m"}}}, ("", "scratch")),
    ("an invalid cache key is passed over", [], {"prompt_cache_key": "ü"}, ("", "scratch")),
    ("blank headers are none", [("x-session-id", " ")], {}, ("", "scratch")),
    ("surrounding blanks do not count", [("x-session-id", " s ")], {}, ("s", "x-session-id")),
]  # fmt: skip


@pytest.mark.parametrize(("headers", "body", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_resolve(headers: Headers, body: dict[str, Any], expected: tuple[str, str]) -> None:
    key = resolve(headers, **body)
    assert (key.id, key.source) == expected


@pytest.mark.parametrize("value", ["", " ", "a b", "x" * 129, "ü", "a\n", "\x7f"])
def test_an_explicit_id_must_be_valid(value: str) -> None:
    with pytest.raises(ApiError) as body:
        resolve([], session_id=value)
    assert (body.value.code, body.value.param, body.value.status) == ("invalid_session_id", "session_id", 400)
    if value != "a\n":  # blanks around a header's value do not count
        with pytest.raises(ApiError) as header:
            resolve([("X-LLM-Session-Id", value)])
        assert header.value.param == "X-LLM-Session-Id"


@pytest.mark.parametrize("names", HEADERS)
@pytest.mark.parametrize("value", ["a b", "x" * 129, "\u00fc"])
def test_a_header_that_names_a_session_must_be_valid(names: tuple[str, ...], value: str) -> None:
    with pytest.raises(ApiError) as refused:
        resolve([(names[0], value)], prompt_cache_key="k")
    assert (refused.value.code, str(refused.value.param).lower()) == ("invalid_session_id", names[0])


@pytest.mark.parametrize(
    ("headers", "parent"),
    [
        ([("x-session-id", "a"), ("x-parent-session-id", "p")], "p"),
        ([("x-session-id", "a"), ("x-parent-session-id", "a")], ""),
        ([("x-parent-session-id", "p")], ""),
        ([("session-id", "s"), ("thread-id", "t")], "s"),
        ([("session-id", "s"), ("thread-id", "s")], ""),
        ([("thread-id", "t")], ""),
        ([("x-claude-code-session-id", "c"), ("x-claude-code-agent-id", "a2"),
          ("x-claude-code-parent-agent-id", "a1")], "c:a1"),
        ([("x-claude-code-session-id", "c"), ("x-claude-code-agent-id", "a1")], ""),
    ],
)  # fmt: skip
def test_a_subagent_begins_as_its_parent(headers: Headers, parent: str) -> None:
    assert parent_of(headers, resolve(headers)) == parent


def test_a_malformed_parent_is_refused() -> None:
    headers = [("x-session-id", "a"), ("x-parent-session-id", "p q")]
    with pytest.raises(ApiError) as refused:
        parent_of(headers, resolve(headers))
    assert (refused.value.code, refused.value.param) == ("invalid_session_id", "x-parent-session-id")


def test_the_longest_id() -> None:
    assert resolve([], session_id="~" * 128).id == "~" * 128


@pytest.mark.parametrize("names", HEADERS)
def test_every_header_of_the_table_works(names: tuple[str, ...]) -> None:
    assert resolve([(names[0].upper().replace("-", "_"), "id")]).id == "id"


@given(st.lists(st.tuples(st.text(), st.text())), st.text(), st.dictionaries(st.text(), st.text()))
def test_whatever_comes_the_id_is_valid(headers: Headers, cache_key: str, metadata: dict[str, str]) -> None:
    try:
        key = resolve(headers, None, cache_key, metadata)
    except ApiError as error:
        assert error.code == "invalid_session_id"
    else:
        assert key == SCRATCH or is_valid(key.id)
