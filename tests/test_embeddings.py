"""Embeddings of a simulated model that supports them, in the form of each dialect."""

from __future__ import annotations

import asyncio
import base64
import math
import threading
from array import array
from collections.abc import Sequence
from typing import Any

import aiohttp
import openai
import pytest

from llmd.app import stop_serving
from llmd.core import limits
from llmd.core.errors import ApiError
from llmd.engine.embedding import Embedder
from tests.conftest import Serve
from tests.serving import SETTLE_S, Answer, Daemon, Json

OURS, PLAIN, OLLAMA, OLLAMA_OLD = "/v1/embeddings", "/embedding", "/api/embed", "/api/embeddings"
EMBEDDING = "sim:dense,embed=16"
N = 16
LONG = "the " * 400


@pytest.fixture
async def embedding(serve: Serve) -> Daemon:
    return await serve(model=EMBEDDING, ctx_size=64)


async def embed(daemon: Daemon, given: Any, **fields: Any) -> list[Any]:
    answer = await daemon.ask("POST", OURS, {"input": given, **fields})
    assert answer.status == 200, answer.body
    assert [one["index"] for one in answer.json["data"]] == list(range(len(answer.json["data"])))
    return [one["embedding"] for one in answer.json["data"]]


async def test_a_text_is_a_vector_of_length_one(embedding: Daemon) -> None:
    answer = (await embedding.ask("POST", OURS, {"input": "hello", "model": "any", "user": "me"})).json
    [found] = answer["data"]
    assert len(found["embedding"]) == N and math.hypot(*found["embedding"]) == pytest.approx(1, abs=1e-5)
    assert answer["usage"] == {"prompt_tokens": 1, "total_tokens": 1}
    assert (answer["object"], found["object"]) == ("list", "embedding")
    assert answer["model"] == embedding.state.model_id


async def test_texts_are_the_same_beside_others(embedding: Daemon) -> None:
    texts = [f"the text of number {n}" for n in range(150)]
    together = await embed(embedding, texts)
    assert len({str(vector) for vector in together}) == len(texts)
    for n in (0, 1, 63, 64, 149):
        assert await embed(embedding, texts[n]) == [together[n]]


async def test_token_ids_are_texts(embedding: Daemon) -> None:
    asked = {"content": "hello there"}
    tokens = (await embedding.ask("POST", "/tokenize", asked)).json["tokens"]
    assert len(tokens) > 1
    [by_text] = await embed(embedding, "hello there")
    assert await embed(embedding, tokens) == [by_text]
    assert await embed(embedding, [tokens, tokens[:1]]) == [by_text, *await embed(embedding, tokens[:1])]


async def test_base64_holds_the_same_floats(embedding: Daemon) -> None:
    plain = await embed(embedding, ["a", "b"], encoding_format="float", dimensions=N)
    packed = await embed(embedding, ["a", "b"], encoding_format="base64")
    assert [array("f", base64.b64decode(one)).tolist() for one in packed] == plain


async def test_fewer_dimensions_are_the_first_ones_at_length_one(embedding: Daemon) -> None:
    [whole] = await embed(embedding, "a")
    [short] = await embed(embedding, "a", dimensions=5)
    length = math.hypot(*whole[:5])
    assert short == pytest.approx([number / length for number in whole[:5]], abs=1e-6) and len(short) == 5
    assert (await embedding.ask("POST", OLLAMA, {"input": ["a"], "dimensions": 5})).json["embeddings"] == [short]
    assert await embed(embedding, "a", dimensions=N) == [whole]


async def test_every_dialect_says_the_same(embedding: Daemon) -> None:
    [[first], [second]] = [await embed(embedding, text) for text in ("a", "b")]
    for path in ("/v1/embedding", PLAIN):
        async with embedding.http.post(embedding.url + path, json={"content": ["a", "b"]}) as response:
            assert await response.json() == [{"index": 0, "embedding": [first]}, {"index": 1, "embedding": [second]}]
    asked = {"model": "any", "input": ["a", "b"], "keep_alive": "5m", "options": {}}
    answer = (await embedding.ask("POST", OLLAMA, asked)).json
    assert answer["embeddings"] == [first, second] and answer["prompt_eval_count"] == 2
    assert answer["total_duration"] > 0
    assert (await embedding.ask("POST", OLLAMA, {"input": "a"})).json["embeddings"] == [first]
    assert (await embedding.ask("POST", OLLAMA_OLD, {"model": "any", "prompt": "b"})).json == {"embedding": second}
    assert (await embedding.ask("POST", "/embeddings", {"input": "a"})).json["data"][0]["embedding"] == first


async def test_what_is_too_long_is_cut_only_where_that_is_asked(embedding: Daemon) -> None:
    long = "the " * 100
    most = embedding.state.engine.info.n_embedding_tokens
    for path, body in ((OURS, {"input": ["a", long]}), (OLLAMA, {"input": ["a", long], "truncate": False})):
        answer = await embedding.ask("POST", path, body)
        assert (answer.status, answer.code) == (400, "context_length_exceeded")
        assert b"input[1]" in answer.body and b"maximum context length is %d" % most in answer.body
    for text in (long, "the " * 200_000):
        cut = (await embedding.ask("POST", OLLAMA, {"input": text})).json
        assert cut["prompt_eval_count"] == most


REFUSED: tuple[tuple[str, Json, str, str], ...] = (
    (OURS, {}, "input", "missing_parameter"),
    (OURS, {"input": 5}, "input", "invalid_type"),
    (OURS, {"input": []}, "input", "invalid_value"),
    (OURS, {"input": ""}, "input", "invalid_value"),
    (OURS, {"input": ["a", ""]}, "input[1]", "invalid_value"),
    (OURS, {"input": ["a", 1]}, "input", "invalid_type"),
    (OURS, {"input": [1.5]}, "input[0]", "invalid_type"),
    (OURS, {"input": [1 << 40]}, "input", "invalid_token"),
    (OURS, {"input": [[1], [512]]}, "input[1]", "invalid_token"),
    (OURS, {"input": [-1]}, "input", "invalid_token"),
    (OURS, {"input": "the " * 30_000}, "input", "context_length_exceeded"),
    (OURS, {"input": ["a"] * (limits.EMBEDDING_TEXTS_MAX + 1)}, "input", "invalid_value"),
    (OURS, {"input": "a", "dimensions": N + 1}, "dimensions", "invalid_value"),
    (OURS, {"input": "a", "dimensions": 0}, "dimensions", "invalid_value"),
    (OLLAMA, {"input": "a", "dimensions": N + 1}, "dimensions", "invalid_value"),
    (OURS, {"input": "a", "encoding_format": "hex"}, "encoding_format", "invalid_value"),
    (OURS, {"input": "a", "stream": True}, "stream", "unsupported_parameter"),
    (OURS, {"input": "a", "task": "query"}, "task", "unsupported_parameter"),
    (PLAIN, {}, "content", "missing_parameter"),
    (PLAIN, {"content": [[]]}, "content[0]", "invalid_value"),
    (PLAIN, {"content": "a", "embd_normalize": -1}, "embd_normalize", "unsupported_parameter"),
    (OLLAMA, {"model": "any"}, "input", "missing_parameter"),
    (OLLAMA, {"input": [1]}, "input[0]", "invalid_type"),
    (OLLAMA, {"input": [""]}, "input[0]", "invalid_value"),
    (OLLAMA_OLD, {"prompt": ["a"]}, "prompt", "invalid_type"),
)


async def test_a_refusal_names_the_field(embedding: Daemon) -> None:
    for path, body, param, code in REFUSED:
        answer = await embedding.ask("POST", path, body)
        told = answer.json if isinstance(answer.json["error"], str) else answer.error
        assert (answer.status, told["param"], told["code"]) == (400, param, code), (path, body, answer.body)


async def test_a_model_without_embeddings_says_so(daemon: Daemon) -> None:
    for path, field in ((OURS, "input"), (PLAIN, "content"), (OLLAMA, "input"), (OLLAMA_OLD, "prompt")):
        answer = await daemon.ask("POST", path, {field: "a"})
        assert (answer.status, answer.code) == (400, "no_embeddings")


async def test_the_model_tells_whether_it_embeds(daemon: Daemon, embedding: Daemon) -> None:
    def meta(answer: Answer) -> Json:
        found: Json = answer.json["data"][0]["meta"]
        return found

    told, without = [meta(await one.ask("GET", "/v1/models")) for one in (embedding, daemon)]
    assert (told["n_embedding"], told["n_embedding_tokens"]) == (N, 64)
    assert (without["n_embedding"], without["n_embedding_tokens"]) == (0, 0)
    shown = (await embedding.ask("POST", "/api/show", {})).json
    assert "embedding" in shown["capabilities"] and shown["model_info"]["sim.embedding_length"] == N


async def test_a_chat_goes_on_beside_a_long_request(serve: Serve) -> None:
    daemon = await serve(model=f"{EMBEDDING},step_us=2000", ctx_size=64)
    asked = asyncio.create_task(embed(daemon, [f"text {n}" for n in range(400)]))
    await daemon.chat(max_tokens=3)
    assert not asked.done()
    short = await embed(daemon, "text 5")
    assert not asked.done()
    assert (await asked)[5] == short[0]


async def test_a_request_that_is_given_up_stops(serve: Serve) -> None:
    """The batches of the request would take a minute. The daemon must answer other requests, and stop, long before
    that.
    """
    daemon = await serve(model=f"{EMBEDDING},step_us=200000", ctx_size=64)
    with pytest.raises(TimeoutError):
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.3)) as client:
            await client.post(daemon.url + OURS, json={"input": ["x"] * 1200})
    async with asyncio.timeout(20):
        await embed(daemon, "a")


async def test_a_long_text_that_is_given_up_ends(serve: Serve) -> None:
    """The text would take minutes in one batch. The next request must not wait for that batch."""
    daemon = await serve(model=f"{EMBEDDING},token_us=500000", ctx_size=512)
    with pytest.raises(TimeoutError):
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.3)) as client:
            await client.post(daemon.url + OURS, json={"input": LONG})
    async with asyncio.timeout(SETTLE_S):
        await embed(daemon, "a")


def begun(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Returns an event that is set when the embedder's thread has begun a batch."""
    found, real = threading.Event(), embedder._embed

    def note(texts: Sequence[bytes], given_up: Any) -> list[bytes]:
        found.set()
        return real(texts, given_up)

    monkeypatch.setattr(embedder, "_embed", note)
    return found


async def test_a_stop_gives_up_a_long_text(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = await serve(model=f"{EMBEDDING},token_us=500000", ctx_size=512)
    embedder = daemon.state.engine.embedder
    is_begun = begun(embedder, monkeypatch)
    asked = asyncio.create_task(daemon.ask("POST", OURS, {"input": LONG}))
    async with asyncio.timeout(SETTLE_S):
        await asyncio.to_thread(is_begun.wait)
        await stop_serving(daemon.state)
        answer = await asked
        await embedder.close()
    assert (answer.status, answer.code) == (503, "shutting_down")


async def test_a_batch_that_runs_at_the_end_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = (await serve(model=f"{EMBEDDING},token_us=500000", ctx_size=512)).state.engine.embedder
    is_begun = begun(embedder, monkeypatch)
    asked = asyncio.create_task(embedder.embed([array("i", [1] * 400).tobytes()]))
    async with asyncio.timeout(SETTLE_S):
        await asyncio.to_thread(is_begun.wait)
        await embedder.close()
        with pytest.raises(ApiError, match="stopping"):
            await asked


async def test_the_official_client(embedding: Daemon) -> None:
    """OpenAI's client requests base64 by default."""
    async with openai.AsyncOpenAI(base_url=f"{embedding.url}/v1", api_key="none", max_retries=0) as client:
        answer = await client.embeddings.create(model="any", input=["hello", "there"])
        assert [len(one.embedding) for one in answer.data] == [N, N]
        assert [answer.data[0].embedding] == await embed(embedding, "hello")
