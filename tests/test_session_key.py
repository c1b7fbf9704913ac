"""Identity: which session a request belongs to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmd.core.errors import ApiError
from llmd.core.session_key import HEADERS, SCRATCH, is_valid, resolve

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
    ("pi", [("session_id", "p"), ("x-session-affinity", "p"), ("x-client-request-id", "p")], {},
     ("p", "x-session-affinity")),
    ("underscores fold", [("session_id", "u")], {}, ("u", "session-id")),
    ("case and underscores fold", [("X_Session_ID", "u")], {}, ("u", "x-session-id")),
    ("opencode", [("x-session-affinity", "a"), ("x-session-id", "a"), ("x-parent-session-id", "p")], {},
     ("a", "x-session-affinity")),
    ("conversation", [("x-conversation-id", "c")], {}, ("c", "x-conversation-id")),
    ("litellm", [("x-litellm-session-id", "l")], {}, ("l", "x-litellm-session-id")),
    ("open webui", [("X-OpenWebUI-Chat-Id", "w")], {}, ("w", "x-openwebui-chat-id")),
    ("request ids are no identity", [("x-client-request-id", "r")], {}, ("", "scratch")),
    ("cache key", [], {"prompt_cache_key": "k"}, ("k", "prompt_cache_key")),
    ("header before cache key", [("session-id", "s")], {"prompt_cache_key": "k"}, ("s", "session-id")),
    ("metadata", [], {"metadata": {"session_id": "m"}}, ("m", "metadata.session_id")),
    ("cache key before metadata", [], {"prompt_cache_key": "k", "metadata": {"session_id": "m"}},
     ("k", "prompt_cache_key")),
    ("metadata of another kind", [], {"metadata": {"session_id": 5}}, ("", "scratch")),
    ("an invalid foreign header is passed over", [("x-session-id", "has space"), ("x-conversation-id", "c")], {},
     ("c", "x-conversation-id")),
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
    if value != "a\n":  # the blank around a header's value is no part of it
        with pytest.raises(ApiError) as header:
            resolve([("X-LLM-Session-Id", value)])
        assert header.value.param == "X-LLM-Session-Id"


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
