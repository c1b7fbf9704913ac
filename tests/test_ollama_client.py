"""Ollama's own client, unmodified: answers, streams, facts about the model, and its error class."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import ollama
import pytest

from tests.calling import READ, calling
from tests.conftest import Serve
from tests.serving import Daemon

SHORT = ollama.Options(num_predict=5, temperature=0)
MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def client(daemon: Daemon) -> AsyncIterator[ollama.AsyncClient]:
    async with ollama.AsyncClient(host=daemon.url) as client:
        yield client


async def test_chat(client: ollama.AsyncClient) -> None:
    answer = await client.chat("any", MESSAGES, options=SHORT)
    assert answer.message.content and answer.done_reason == "length" and answer.eval_count == 5
    parts = [part async for part in await client.chat("any", MESSAGES, options=SHORT, stream=True)]
    assert "".join(part.message.content or "" for part in parts) == answer.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]


async def test_generate(client: ollama.AsyncClient) -> None:
    answer = await client.generate("any", "hello", options=SHORT)
    parts = [part async for part in await client.generate("any", "hello", options=SHORT, stream=True)]
    assert "".join(part.response or "" for part in parts) == answer.response != ""
    assert (await client.generate("any", keep_alive=0)).done_reason == "unload"


async def test_tools(serve: Serve, tmp_path: Path) -> None:
    daemon = await serve(**calling(tmp_path))
    options = ollama.Options(num_predict=200, temperature=0)
    async with ollama.AsyncClient(host=daemon.url) as client:
        asked = [{"role": "user", "content": "one file"}]
        answer = await client.chat("any", asked, tools=[READ], options=options, think=True)
        assert (answer.message.thinking or "").strip() == "which one?" and answer.message.tool_calls is not None
        assert answer.message.tool_calls[0].function.arguments == {"path": "a.txt"}
        past = [*asked, answer.message, {"role": "tool", "content": "plain", "tool_name": "read"}]
        assert (await client.chat("any", past, tools=[READ], options=options)).message.content == "Just text."


async def test_embed(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,embed=8")
    async with ollama.AsyncClient(host=daemon.url) as client:
        answer = await client.embed("any", ["a", "b"])
        assert [len(vector) for vector in answer.embeddings] == [8, 8] and answer.prompt_eval_count == 2
        assert (await client.embeddings("any", "a")).embedding == answer.embeddings[0]


async def test_blanks_are_no_lines(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,token_us=4000", keepalive_interval=0.1)
    async with ollama.AsyncClient(host=daemon.url) as client:
        asked = await client.generate("any", "word " * 50, options=SHORT, stream=True)
        parts = [part async for part in asked]
    assert parts[-1].done


async def test_the_model(client: ollama.AsyncClient) -> None:
    [listed] = (await client.list()).models
    [running] = (await client.ps()).models
    assert listed.model == running.model and listed.details is not None and listed.modified_at is not None
    shown = await client.show(listed.model or "")
    assert shown.capabilities is not None and "completion" in shown.capabilities


async def test_errors(client: ollama.AsyncClient) -> None:
    with pytest.raises(ollama.ResponseError) as caught:
        await client.chat("any", MESSAGES, options={"temperature": -9})
    assert caught.value.status_code == 400 and "options.temperature" in caught.value.error
