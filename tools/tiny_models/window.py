"""gemma3: attention over a sliding window in five layers of six, over everything in the sixth."""

from dataclasses import dataclass

import numpy as np

from .layers import Heads, Stream, attention, embedding, feed_forward, output
from .plan import Plan, Tensor, ones
from .tokenizer import Tokenizer

LAYERS_PER_FULL_ATTENTION = 6
POST_NORM = 0.6


@dataclass(frozen=True)
class Window:
    n_embd: int
    n_layers: int
    n_ff: int
    heads: Heads
    n_window: int


def plan(shape: Window, seed: str, tokenizer: Tokenizer) -> Plan:
    if shape.n_layers < LAYERS_PER_FULL_ATTENTION:
        raise ValueError(f"n_layers is {shape.n_layers}, needs {LAYERS_PER_FULL_ATTENTION} for one of full attention")
    stream = Stream(shape.n_embd)
    n_vocab = len(tokenizer.tokens)
    tensors = embedding(stream, n_vocab, scale=float(np.sqrt(shape.n_embd))) + output(stream, tokenizer)
    for layer in range(shape.n_layers):
        tensors += _layer(shape, stream, f"blk.{layer}")
    metadata = {
        "block_count": shape.n_layers,
        "embedding_length": shape.n_embd,
        "feed_forward_length": shape.n_ff,
        "attention.sliding_window": shape.n_window,
        "rope.freq_base": 1e6,
        **shape.heads.metadata(),
    }
    return Plan("gemma3", seed, n_vocab, metadata, tensors)


def _layer(shape: Window, stream: Stream, prefix: str) -> list[Tensor]:
    return [
        ones(f"{prefix}.attn_norm.weight", shape.n_embd),
        *attention(stream, prefix, shape.heads),
        *shape.heads.norms(prefix),
        ones(f"{prefix}.post_attention_norm.weight", shape.n_embd, POST_NORM),
        ones(f"{prefix}.ffn_norm.weight", shape.n_embd),
        *feed_forward(stream, prefix, shape.n_ff),
        ones(f"{prefix}.post_ffw_norm.weight", shape.n_embd, POST_NORM),
    ]
