"""qwen3, qwen3moe: full attention in every layer, so every token stays in the cache and any suffix can be removed."""

from dataclasses import dataclass

from .layers import Experts, Heads, Stream, attention, embedding, feed_forward, output, tied_embedding, tied_stream
from .plan import Metadata, Plan, Tensor, ones
from .tokenizer import Tokenizer

ROPE_BASE = 1e6


@dataclass(frozen=True)
class Dense:
    n_embd: int
    n_layers: int
    n_ff: int
    heads: Heads
    tied: bool = False
    experts: Experts | None = None
    """n_ff is each one's."""
    pooling: int | None = None
    """How states become an embedding: llama.cpp's number; None: it makes none."""


def plan(shape: Dense, seed: str, tokenizer: Tokenizer) -> Plan:
    stream = tied_stream(shape.n_embd) if shape.tied else Stream(shape.n_embd)
    n_vocab = len(tokenizer.tokens)
    if shape.tied:
        tensors = tied_embedding(stream, tokenizer, seed)
    else:
        tensors = embedding(stream, n_vocab) + output(stream, tokenizer)
    for layer in range(shape.n_layers):
        tensors += _layer(shape, stream, f"blk.{layer}", seed)
    return Plan("qwen3" if shape.experts is None else "qwen3moe", seed, n_vocab, metadata(shape), tensors)


def metadata(shape: Dense) -> Metadata:
    return {
        "block_count": shape.n_layers,
        "embedding_length": shape.n_embd,
        "feed_forward_length": shape.n_ff,
        "rope.freq_base": ROPE_BASE,
        **({} if shape.pooling is None else {"pooling_type": shape.pooling}),
        **({} if shape.experts is None else shape.experts.metadata(shape.n_ff)),
        **shape.heads.metadata(),
    }


def _layer(shape: Dense, stream: Stream, prefix: str, seed: str) -> list[Tensor]:
    if shape.experts is None:
        after_attention = feed_forward(stream, prefix, shape.n_ff)
    else:
        after_attention = shape.experts.tensors(stream, prefix, shape.n_ff, seed)
    return [
        ones(f"{prefix}.attn_norm.weight", shape.n_embd),
        *attention(stream, prefix, shape.heads),
        *shape.heads.norms(prefix),
        ones(f"{prefix}.ffn_norm.weight", shape.n_embd),
        *after_attention,
    ]
