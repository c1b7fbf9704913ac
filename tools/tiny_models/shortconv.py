"""lfm2: short convolutions, whose state is their last inputs, between layers of attention over a sliding window."""

from dataclasses import dataclass, replace

import numpy as np

from .layers import Heads, Stream, attention, embedding, feed_forward, output
from .plan import Metadata, Plan, Tensor, Vector, ones
from .tokenizer import Tokenizer
from .weights import generator

KERNEL = 3


@dataclass(frozen=True)
class ShortConv:
    n_embd: int
    n_layers: int
    n_ff: int
    heads: Heads
    attention_layers: frozenset[int]
    n_window: int


def plan(shape: ShortConv, seed: str, tokenizer: Tokenizer) -> Plan:
    if shape.heads.n * shape.heads.size != shape.n_embd:
        raise ValueError(f"{shape.heads.n} heads of {shape.heads.size} are not n_embd, {shape.n_embd}")
    stream = Stream(shape.n_embd)
    n_vocab = len(tokenizer.tokens)
    norm, matrix = output(stream, tokenizer)
    tensors = [*embedding(stream, n_vocab), replace(norm, name="token_embd_norm.weight"), matrix]
    for layer in range(shape.n_layers):
        tensors += _layer(shape, stream, layer, seed)
    metadata: Metadata = {
        "block_count": shape.n_layers,
        "embedding_length": shape.n_embd,
        "feed_forward_length": shape.n_ff,
        "attention.sliding_window": shape.n_window,
        "shortconv.l_cache": KERNEL,
        "rope.freq_base": 1e6,
        **shape.heads.metadata(),
        "attention.head_count_kv": [
            shape.heads.n_kv if layer in shape.attention_layers else 0 for layer in range(shape.n_layers)
        ],
    }
    return Plan("lfm2", seed, n_vocab, metadata, tensors)


def _layer(shape: ShortConv, stream: Stream, layer: int, seed: str) -> list[Tensor]:
    prefix = f"blk.{layer}"
    if layer in shape.attention_layers:
        mixer = attention(stream, prefix, shape.heads) + shape.heads.norms(prefix)
    else:
        mixer = _convolution(stream, prefix, seed)
    return [
        ones(f"{prefix}.attn_norm.weight", shape.n_embd),
        *mixer,
        ones(f"{prefix}.ffn_norm.weight", shape.n_embd),
        *feed_forward(stream, prefix, shape.n_ff),
    ]


def _convolution(stream: Stream, prefix: str, seed: str) -> list[Tensor]:
    """The taps are always F32: llama.cpp convolves in nothing else."""
    name = f"{prefix}.shortconv.conv.weight"
    taps = generator(seed, name).standard_normal((stream.n_embd, KERNEL), dtype=np.float32)
    return [
        Vector(name, taps * np.float32(0.6)),
        stream.out_of(f"{prefix}.shortconv.in_proj", 3 * stream.n_embd),
        stream.into(f"{prefix}.shortconv.out_proj", stream.n_embd, share=0.6),
    ]
