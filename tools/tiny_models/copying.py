"""qwen3 that answers with a file of its prompt and replaces some tokens, as an agent does that edits a file.

The first layer copies. Its queries and keys read only the constant channel (see layers.py), so they are the same for
every token. Rotary positions turn such a pair into a sharp peak at one distance: each token attends to the token
DISTANCE positions before it. The value heads together are the identity. Two query heads share a value head. The first
adds the embedding of the found token to the stream, with the signs of the output norm, so that this token becomes the
answer. The second adds the difference between the embedding of the replacement and that of the token, if EDITS has the
token.

All other matrices are random and have their usual size, so a step takes as long as with other weights. But they add
too little to the stream to change the answer.
"""

from pathlib import Path

import numpy as np

from . import dense
from .dense import Dense
from .layers import CONSTANT, HIDDEN_LOGIT, Heads, Stream, attention, feed_forward, tied_stream
from .plan import FloatArray, Matrix, Plan, Tensor, Vector, ones
from .tokenizer import CORPUS_PATH, TOKEN_UNUSED, Tokenizer, byte_letters, trained
from .weights import generator

FILE_PATH = Path(__file__).with_name("file_to_edit.txt")
"""A copy of 300 lines of daemon/llmd/http/boundary.py. If they changed, the vocabulary and all figures would change.
"""
N_MERGES = 1200
"""Number of merges with which a token of the file has four characters, as code has in the vocabularies of large models.
"""
DISTANCE = 3300
"""Number of tokens from the first token of the file to the last token of the prompt."""
EDITS = {
    # names that are used all over the file
    " facts": " record",
    "(facts": "(record",
    " transport": " carrier",
    ".transport": ".carrier",
    " connection": " channel",
    "_origin": "_source",
    "origin": "source",
    # sentences in which several words change
    " every": " each",
    " into": " to",
    " because": " since",
    " know": " see",
    " where": " when",
    " next": " following",
    " such": " like",
    " too": " quite",
    " many": " often",
    " only": " just",
    " on": " upon",
    " needs": " takes",
    " no": " neither",
    "PI": "ccess",
    " key": " token",
    " whether": " if",
    " came": " was",
    " over": " sent",
    " unix": " local",
    " caller": " sender",
    " above": " beyond",
    " generations": " outputs",
}
STRENGTH = 3.0
"""Size of the copied embedding in the stream, divided by the size of the last token's embedding."""
QUIET = 0.02
"""Size of the output of every other block, divided by the size of an embedding."""
PEAK = 8.0
"""Largest attention score that each pair of rotated channels adds. With this value, the second largest score is 10.8
below the largest one. Half precision changes scores by less than 0.1.
"""


def vocabulary() -> Tokenizer:
    text = CORPUS_PATH.read_text(encoding="utf-8") + FILE_PATH.read_text(encoding="utf-8")
    return trained(text, N_MERGES, [_spelled(new) for new in EDITS.values()])


def edits(words: Tokenizer) -> dict[int, int]:
    """Returns the tokens that are replaced, and by which."""
    return {words.id_of(_spelled(old)): words.id_of(_spelled(new)) for old, new in EDITS.items()}


def _spelled(text: str) -> str:
    return "".join(byte_letters()[byte] for byte in text.encode())


def plan(shape: Dense, seed: str, words: Tokenizer) -> Plan:
    stream = tied_stream(shape.n_embd)
    embeddings = generator(seed, "token_embd.weight").standard_normal((_n_drawn(words), shape.n_embd), dtype=np.float32)
    signs = generator(seed, "output_norm").choice(np.array([-1, 1], dtype=np.float32), shape.n_embd)
    signs[0] = 1
    printable = np.array(words.printable())
    column = np.where(printable, CONSTANT * stream.unit, HIDDEN_LOGIT).astype(np.float32)
    n_vocab = len(words.tokens)
    tensors: list[Tensor] = [
        Matrix("token_embd.weight", n_vocab, shape.n_embd, 0, column, rows_drawn=embeddings * np.float32(stream.unit)),
        Vector("output_norm.weight", signs),
        *_copying_attention(stream, "blk.0", shape.heads, signs, _changes(embeddings, edits(words))),
    ]
    for layer in range(shape.n_layers):
        prefix = f"blk.{layer}"
        if layer > 0:
            tensors += [*attention(stream, prefix, shape.heads, share=QUIET), *shape.heads.norms(prefix)]
        tensors += [
            ones(f"{prefix}.attn_norm.weight", shape.n_embd),
            ones(f"{prefix}.ffn_norm.weight", shape.n_embd),
            *feed_forward(stream, prefix, shape.n_ff, share=QUIET),
        ]
    return Plan("qwen3", seed, n_vocab, dense.metadata(shape), tensors)


def _n_drawn(words: Tokenizer) -> int:
    """Returns the number of tokens that are not unused: these are the first ones."""
    return sum(kind != TOKEN_UNUSED for kind in words.types)


def _changes(embeddings: FloatArray, replaced: dict[int, int]) -> FloatArray:
    """Returns the matrix that turns the embedding of a replaced token into what has to be added to it, and every other
    embedding into almost nothing.
    """
    old, new = embeddings[[*replaced.keys()]].copy(), embeddings[[*replaced.values()]]
    old[:, 0] = 0
    changes: FloatArray = (new - old).T @ np.linalg.pinv(old.T)
    return changes


def _copying_attention(
    stream: Stream, prefix: str, heads: Heads, signs: FloatArray, changes: FloatArray
) -> list[Tensor]:
    n_embd = stream.n_embd
    both = np.empty((n_embd, heads.n_kv, 2, heads.size), dtype=np.float32)
    both[:, :, 0] = np.diag(signs).reshape(n_embd, heads.n_kv, heads.size)
    both[:, :, 1] = (signs[:, None] * changes).reshape(n_embd, heads.n_kv, heads.size)
    both *= STRENGTH * stream.unit
    n_rows = heads.n * heads.size
    output = Matrix(
        f"{prefix}.attn_output.weight",
        n_embd,
        n_rows,
        0,
        silent_first_row=True,
        rows_drawn=both.reshape(n_embd, n_rows),
    )
    values = np.eye(n_embd, dtype=np.float32)
    query, key = peaked_at(DISTANCE, heads.size)
    return [
        stream.out_of(f"{prefix}.attn_q", n_rows, gain=0, bias=1),
        stream.out_of(f"{prefix}.attn_k", heads.n_kv * heads.size, gain=0, bias=1),
        Matrix(f"{prefix}.attn_v.weight", n_embd, n_embd, 0, rows_drawn=values),
        output,
        Vector(f"{prefix}.attn_q_norm.weight", query),
        Vector(f"{prefix}.attn_k_norm.weight", key),
    ]


def peaked_at(distance: int, size: int) -> tuple[FloatArray, FloatArray]:
    """Returns a query and a key, whose score is the sum of PEAK * cos(frequency * (n - distance)) over all frequencies,
    if the key is n tokens before the query.
    """
    angles = distance * dense.ROPE_BASE ** (-2 * np.arange(size // 2) / size)
    one = np.sqrt(PEAK * np.sqrt(size))
    query = one * np.concatenate([np.cos(angles), -np.sin(angles)])
    key = one * np.concatenate([np.ones(size // 2), np.zeros(size // 2)])
    return query.astype(np.float32), key.astype(np.float32)
