"""minimax-m3: attention to blocks of tokens, which an indexer with a cache of its own picks for each group of heads."""

from dataclasses import dataclass, replace

import numpy as np

from .layers import Experts, Heads, Stream, attention, embedding, feed_forward, output
from .plan import Matrix, Metadata, Plan, Tensor, Vector, ones
from .tokenizer import Tokenizer

SIGMOID = 2
"""How routers weigh experts: llama.cpp's number."""


@dataclass(frozen=True)
class Blocks:
    size: int
    """Tokens of a block."""
    n_picked: int
    n_local: int
    """The last ones, which are always among them."""
    head_size: int

    def metadata(self, heads: Heads) -> dict[str, int]:
        return {
            "attention.indexer.head_count": heads.n_kv,
            "attention.indexer.key_length": self.head_size,
            "attention.indexer.top_k": self.n_picked,
            "attention.indexer.block_size": self.size,
            "attention.indexer.local_blocks": self.n_local,
        }

    def tensors(self, stream: Stream, prefix: str, heads: Heads) -> list[Tensor]:
        return [
            stream.out_of(f"{prefix}.indexer.q_proj", heads.n_kv * self.head_size),
            stream.out_of(f"{prefix}.indexer.k_proj", self.head_size),
            ones(f"{prefix}.indexer.q_norm.weight", self.head_size),
            ones(f"{prefix}.indexer.k_norm.weight", self.head_size),
        ]


@dataclass(frozen=True)
class Sparse:
    n_embd: int
    n_layers: int
    n_dense: int
    """The first ones, which attend to all tokens."""
    n_ff: int
    heads: Heads
    n_rope: int
    experts: Experts
    blocks: Blocks


def plan(shape: Sparse, seed: str, tokenizer: Tokenizer) -> Plan:
    stream = Stream(shape.n_embd)
    n_vocab = len(tokenizer.tokens)
    tensors = embedding(stream, n_vocab) + output(stream, tokenizer)
    for layer in range(shape.n_layers):
        tensors += _layer(shape, stream, layer, seed)
    metadata: Metadata = {
        "block_count": shape.n_layers,
        "leading_dense_block_count": shape.n_dense,
        "embedding_length": shape.n_embd,
        "feed_forward_length": shape.n_ff,
        "expert_shared_count": 1,
        "expert_gating_func": SIGMOID,
        "rope.freq_base": 1e6,
        "rope.dimension_count": shape.n_rope,
        **shape.heads.metadata(),
        **shape.experts.metadata(shape.n_ff),
        **shape.blocks.metadata(shape.heads),
    }
    return Plan("minimax-m3", seed, n_vocab, metadata, tensors)


def _layer(shape: Sparse, stream: Stream, layer: int, seed: str) -> list[Tensor]:
    prefix = f"blk.{layer}"
    if layer < shape.n_dense:
        rest = feed_forward(stream, prefix, shape.n_ff)
    else:
        rest = [
            *shape.experts.tensors(stream, prefix, shape.n_ff, seed),
            Vector(f"{prefix}.exp_probs_b.bias", np.zeros(shape.experts.n, dtype=np.float32)),
            *_shared_expert(stream, prefix, shape.n_ff),
            *shape.blocks.tensors(stream, prefix, shape.heads),
        ]
    return [
        ones(f"{prefix}.attn_norm.weight", shape.n_embd),
        *attention(stream, prefix, shape.heads),
        *shape.heads.norms(prefix),
        ones(f"{prefix}.ffn_norm.weight", shape.n_embd),
        *rest,
    ]


def _shared_expert(stream: Stream, prefix: str, n_ff: int) -> list[Tensor]:
    named = []
    for matrix in feed_forward(stream, prefix, n_ff, share=0.4):
        assert isinstance(matrix, Matrix)
        named.append(replace(matrix, name=matrix.name.replace(".weight", "_shexp.weight")))
    return [*named]
