"""Files of models that can only embed. Their embeddings agree with their weights, and all other requests are
refused.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.live.daemon import DEADLINE_S, Daemons, Process
from tests.live.encoder import FloatArray, encoder
from tests.live.models import model_path
from tests.storm.engine import DEVICE

NAMES = ("bert", "nomic-bert", "modern-bert")
CLOSE = 0.005 if DEVICE else 0.002
"""Distance between vectors of length 1: keys, values and GELU are rounded to 16 bits. Measured: 0.001; 0.0025 on a
device, which rounds more."""
SAME = 0.005 if DEVICE else 0.0005
"""Distance between a text embedded alone and next to others: only rounding differs. Measured: 0.0002, 0.0033 on a
device."""
N_CTX = 512
TEXTS = (
    "hello",
    "The daemon serves many sessions from one model.",
    "the daemon serves many models from one session",
    "one " * 300,
    " ".join(f"word{n}" for n in range(60)),
)


def vectors(process: Process, texts: Sequence[str | list[int]]) -> list[FloatArray]:
    body = process.do("POST", "/v1/embeddings", {"input": list(texts)})
    return [np.array(one["embedding"], dtype=np.float64) for one in body["data"]]


def tokens_of(process: Process, text: str) -> list[int]:
    answer = process.do("POST", "/tokenize", {"content": text, "add_special": True})
    return [int(token) for token in answer["tokens"]]


def apart(a: FloatArray, b: FloatArray) -> float:
    return float(np.linalg.norm(a - b))


@pytest.fixture(params=NAMES)
def path(request: pytest.FixtureRequest) -> str:
    return model_path(request.param)


def test_embeddings_are_those_of_the_weights(daemons: Daemons, path: str) -> None:
    process = daemons.start(path, "--ctx-size", "0")
    reference = encoder(Path(path))
    texts = [tokens_of(process, text) for text in TEXTS] + [[(7 * n * n + 3) % 400 + 5 for n in range(N_CTX)]]
    assert {len(texts[0]) > 2, texts[0][0] == 1, texts[0][-1] == 2} == {True}  # [CLS] ... [SEP]
    together = vectors(process, [*TEXTS, texts[-1]])
    expected = [reference.embedding(tokens) for tokens in texts]
    for tokens, found, wanted in zip(texts, together, expected, strict=True):
        assert apart(found, wanted) < CLOSE, len(tokens)
        assert apart(found, vectors(process, [tokens])[0]) < SAME, len(tokens)
    assert min(apart(a, b) for a, b in pairwise(expected)) > 10 * CLOSE


def test_many_texts_are_the_same_as_each_alone(daemons: Daemons, path: str) -> None:
    process = daemons.start(path, "--ctx-size", "0")
    words = ("the", "daemon", "session", "one", "token", "and", "memory", "is", "not", "a model")
    texts = [f"{a} {b} {a}" for a in words for b in words]
    together = vectors(process, texts)
    assert len({vector.tobytes() for vector in together}) == len(texts)
    for n in (0, 1, 15, 16, 17, 63, 64, 99):
        assert apart(together[n], vectors(process, [texts[n]])[0]) < SAME


def test_a_text_that_is_too_long_is_refused_or_cut(daemons: Daemons) -> None:
    process = daemons.start(model_path("bert"), "--ctx-size", "0")
    n_tokens = len(tokens_of(process, "one " * N_CTX))
    assert n_tokens > N_CTX
    status, answer = process.ask("POST", "/v1/embeddings", {"input": ["hello", "one " * N_CTX]})
    assert status == 400 and answer["error"]["code"] == "context_length_exceeded"
    told = f"maximum context length is {N_CTX} tokens for embeddings. However, input[1] has at least {n_tokens} tokens."
    assert told in answer["error"]["message"]
    assert process.do("POST", "/api/embed", {"input": "one " * N_CTX})["prompt_eval_count"] == N_CTX
    status, answer = process.ask("POST", "/v1/embeddings", {"input": ["hello", ""]})  # special tokens do not count
    assert status == 400 and (answer["error"]["code"], answer["error"]["param"]) == ("invalid_value", "input[1]")
    status, answer = process.ask("POST", "/v1/embeddings", {"input": [5] * (N_CTX + 1)})
    assert status == 400 and answer["error"]["code"] == "context_length_exceeded"


def test_the_daemon_serves_it_as_what_it_is(daemons: Daemons) -> None:
    process = daemons.start(model_path("bert"), "--ctx-size", "0")
    [model] = process.do("GET", "/v1/models")["data"]
    facts = {name: model["meta"][name] for name in ("memory", "n_embedding", "n_embedding_tokens", "n_ctx")}
    assert facts == {"memory": "none", "n_embedding": 64, "n_embedding_tokens": N_CTX, "n_ctx": N_CTX}
    status, answer = process.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}]})
    assert status == 400 and answer["error"]["code"] == "no_generation"
    assert process.do("GET", "/props")["bos_token"] == "[CLS]"
    process.stop()


def test_llmctl_talks_to_it(daemons: Daemons) -> None:
    process = daemons.start(model_path("bert"), "--ctx-size", "0")

    def llmctl(*verb: str, lines: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "llmd.ctl", *verb, "--socket", str(process.socket)]
        return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=DEADLINE_S)

    assert llmctl("status").returncode == 0 and llmctl("sessions", "list").returncode == 0
    shown = llmctl("models").stdout
    assert "64 dimensions, texts of up to 512 tokens" in shown and "memory        none" in shown
    refused = llmctl("chat", lines="hello\n")
    assert refused.returncode != 0 and "makes embeddings and cannot generate text" in refused.stderr


def test_fewer_tokens_when_asked(daemons: Daemons) -> None:
    process = daemons.start(model_path("nomic-bert"), "--ctx-size", "40")
    status, answer = process.ask("POST", "/v1/embeddings", {"input": [5] * 41})
    assert status == 400 and "maximum context length is 40 tokens" in answer["error"]["message"]
    assert len(vectors(process, [[5] * 40])) == 1
