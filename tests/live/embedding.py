"""Compares embeddings of generated models with other results of the same weights.

`python -m tests.live.embedding DIRECTORY` prints a JSON object:

    logits   the angle between the logits of a session with the text, and the embedding by the last token multiplied by
             the output matrix (with numpy, from the file); `others` is the angle for another text
    mean     the distance between the embedding by the mean, and the mean of the embeddings by the last token of all
             beginnings of the text, which are its tokens' states (the last norm gave them one length); `apart` is the
             distance to `last`
"""

from __future__ import annotations

import json
import sys
from array import array
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from llmd.engine.native import Status, ffi, lib
from tests.live.logits import prefill
from tests.storm.engine import Engine, Places

FloatArray = npt.NDArray[np.float64]
PLACES = Places(n_sessions=1, n_scratch=1, n_ctx=256)
TEXT = [(7 * n * n + 11 * n + 3) % 900 for n in range(60)]


def embedding(engine: Engine, texts: list[list[int]]) -> list[FloatArray]:
    n_embedding = int(engine.info.n_embedding)
    found: list[FloatArray] = []
    while len(found) < len(texts):
        left = texts[len(found) :]
        out = array("f", bytes(4 * n_embedding * len(left)))
        n_done = ffi.new("size_t *")
        tokens, n_tokens = [token for text in left for token in text], [len(text) for text in left]
        vectors = ffi.from_buffer("float[]", out)
        status = lib.llm_embed(engine.pointer, tokens, n_tokens, len(left), ffi.NULL, vectors, n_done)
        assert status == Status.OK
        found += list(np.array(out, dtype=np.float64).reshape(len(left), -1)[: n_done[0]])
    return found


def output_matrix(path: Path) -> FloatArray:
    [found] = [tensor for tensor in gguf.GGUFReader(path).tensors if tensor.name == "output.weight"]
    return gguf.quants.dequantize(found.data, found.tensor_type).astype(np.float64)


def angle(a: FloatArray, b: FloatArray) -> float:
    return float(np.arccos(np.clip(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)), -1, 1)))


def main(directory: Path) -> None:
    last, mean = directory / "tiny-embed-last.gguf", directory / "tiny-embed-mean.gguf"
    engines = [Engine(str(path), PLACES) for path in (last, mean)]
    states = embedding(engines[0], [TEXT[:n] for n in range(1, len(TEXT) + 1)])
    told = [embedding(engine, [TEXT])[0] for engine in engines]
    expected = np.mean(states, axis=0)
    expected /= np.linalg.norm(expected)
    said = np.array(prefill(engines[0], "one", TEXT)[1], dtype=np.float64)
    found = {
        "logits": angle(output_matrix(last) @ told[0], said),
        "others": angle(output_matrix(last) @ states[-2], said),
        "mean": float(np.linalg.norm(told[1] - expected)),
        "apart": float(np.linalg.norm(told[1] - told[0])),
    }
    for engine in engines:
        engine.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
