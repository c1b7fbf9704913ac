"""Makes the models of `bench turns`: a small network with the vocabulary of a large model, one model for each family of
chat templates. The network computes a token in microseconds, so the time of a turn is the time of the daemon.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from tools.tiny_models import recurrent, tokenizer, writer
from tools.tiny_models.layers import Mamba2
from tools.tiny_models.plan import Plan
from tools.tiny_models.tokenizer import TOKEN_CONTROL, TOKEN_NORMAL, TOKEN_USER_DEFINED, Tokenizer
from tools.tiny_models.vocabularies import Vocabulary

from .models import DIRECTORY, ROOT

N_VOCAB = 151_936
N_CTX = 262_144
FAMILIES: dict[str, dict[str, str]] = {
    "Qwen3.5-4B": {"bos": "<|endoftext|>", "eos": "<|im_end|>"},
    "GLM-4.6": {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "eot": "<|user|>", "eom": "<|observation|>"},
    "openai-gpt-oss-120b": {"bos": "<|startoftext|>", "eos": "<|return|>"},
}
"""For each family, which tokens have a special meaning. The name of a family is the name of its chat template in
llama.cpp's source.
"""
CONTROLS = (
    "<|endoftext|> <|im_start|> <|im_end|> [gMASK] <sop> <|system|> <|user|> <|assistant|> <|observation|> "
    "<|startoftext|> <|start|> <|end|> <|message|> <|channel|> <|constrain|> <|return|> <|call|>"
).split()
WORDS = (
    "<think> </think> <tool_call> </tool_call> <tool_response> </tool_response> <arg_key> </arg_key> <arg_value> "
    "</arg_value>"
).split()
_SHAPE = recurrent.Recurrent(n_embd=64, n_layers=1, mamba=Mamba2(n_heads=2, d_inner=128, d_state=16))


def template_of(family: str) -> Path:
    return ROOT / "build" / "llama.cpp" / "models" / "templates" / f"{family}.jinja"


def path_of(family: str, vocabulary: str) -> str:
    """Returns the path of a family's model, and generates the model if necessary. `vocabulary` is "made" for the
    tokenizer of the test models, or a file of tokens: one in base64 at the beginning of each line, the most frequent
    first.
    """
    name = f"bench-turns-{family}-{'made' if vocabulary == 'made' else Path(vocabulary).stem}"
    path = DIRECTORY / f"{name}.gguf"
    if not writer.is_current(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        words = _tokenizer(vocabulary)
        tokens = tuple(zip(words.tokens, words.types, strict=True))
        vocabulary_of_file = Vocabulary("gpt2", "qwen2", tokens, FAMILIES[family], words.merges)
        writer.write(path, name, _plan(words), vocabulary_of_file, quantized=False)
    return str(path)


def _plan(words: Tokenizer) -> Plan:
    plan = recurrent.plan(_SHAPE, "turns", words)
    return replace(plan, metadata={**plan.metadata, "context_length": N_CTX})


def _tokenizer(vocabulary: str) -> Tokenizer:
    if vocabulary == "made":
        built = tokenizer.build()
        n_text = len(built.tokens) - len(tokenizer.SPECIALS)
        texts, merges = built.tokens[:n_text], built.merges
    else:
        texts, merges = _read(Path(vocabulary))
    types = [TOKEN_NORMAL] * len(texts) + [TOKEN_CONTROL] * len(CONTROLS) + [TOKEN_USER_DEFINED] * len(WORDS)
    return Tokenizer((*texts, *CONTROLS, *WORDS), tuple(types), merges, "").padded(N_VOCAB)


def _read(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the tokens and the merges of a file of tokens. The merge that makes a token joins the two parts into
    which the earlier merges divide the token's text.
    """
    letters = tokenizer.byte_letters()
    tokens = [base64.b64decode(line.split()[0]) for line in path.read_bytes().splitlines() if line]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    spelled = ["".join(letters[byte] for byte in token) for token in tokens]
    merges = []
    for token in tokens:
        if len(token) > 1:
            left, right = _parts(token, ranks)
            merges.append("".join(letters[byte] for byte in left) + " " + "".join(letters[byte] for byte in right))
    return tuple(spelled[: N_VOCAB - len(CONTROLS) - len(WORDS)]), tuple(merges)


def _parts(token: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    parts = [token[at : at + 1] for at in range(len(token))]
    while len(parts) > 2:
        pairs = [(ranks.get(left + right, len(ranks)), at) for at, (left, right) in enumerate(pairwise(parts))]
        _, at = min(pairs)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts
