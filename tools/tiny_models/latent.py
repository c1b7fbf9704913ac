"""deepseek2, deepseek32, glm-dsa: latent attention (MLA), whose cache holds one compressed key per token and no values.

The last two have an indexer (DSA), which picks the tokens to attend to by keys in a cache of its own. glm-dsa has it in
some layers, and the layers after them attend to the same tokens.
"""

from dataclasses import dataclass

import numpy as np

from .layers import Stream, embedding, feed_forward, output
from .plan import Matrix, Metadata, Plan, Tensor, ones
from .tokenizer import Tokenizer

PEAK = 2.2
"""Gain of queries and of keys: scores have a standard deviation of its square."""


@dataclass(frozen=True)
class Indexer:
    n_heads: int
    head_size: int
    top_k: int
    """Tokens that each token attends to."""
    layers: tuple[int, ...] | None = None
    """Those that have one; None: all."""

    def metadata(self, n_layers: int) -> Metadata:
        types = {} if self.layers is None else {"attention.indexer.types": self.types(n_layers)}
        return {
            **types,
            "attention.indexer.head_count": self.n_heads,
            "attention.indexer.key_length": self.head_size,
            "attention.indexer.top_k": self.top_k,
        }

    def types(self, n_layers: int) -> list[int]:
        """Return 1 for each layer with an indexer, 0 for the others."""
        return [int(self.layers is None or layer in self.layers) for layer in range(n_layers)]

    def tensors(self, stream: Stream, prefix: str, n_query_rank: int) -> list[Tensor]:
        """The sum over heads is positive: a key that suits a query wins, whatever the token's own weights would say."""
        return [
            ones(f"{prefix}.indexer.k_norm.weight", self.head_size),
            ones(f"{prefix}.indexer.k_norm.bias", self.head_size, 0.0),
            stream.out_of(f"{prefix}.indexer.proj", self.n_heads, gain=0.1, bias=0.25),
            stream.out_of(f"{prefix}.indexer.attn_k", self.head_size),
            Matrix(f"{prefix}.indexer.attn_q_b.weight", self.n_heads * self.head_size, n_query_rank, PEAK),
        ]


@dataclass(frozen=True)
class Latent:
    n_embd: int
    n_layers: int
    n_ff: int
    n_heads: int
    n_query_rank: int
    n_key_rank: int
    """Rank of the compressed key, which is the value, too."""
    n_plain: int
    n_rope: int
    """Entries of a head's query without and with a position."""
    n_value: int
    indexer: Indexer | None = None

    def metadata(self) -> dict[str, int]:
        return {
            "attention.head_count": self.n_heads,
            "attention.head_count_kv": 1,
            "attention.key_length": self.n_key_rank + self.n_rope,
            "attention.value_length": self.n_key_rank,
            "attention.key_length_mla": self.n_plain + self.n_rope,
            "attention.value_length_mla": self.n_value,
            "attention.q_lora_rank": self.n_query_rank,
            "attention.kv_lora_rank": self.n_key_rank,
            "rope.dimension_count": self.n_rope,
        }


def plan(shape: Latent, seed: str, tokenizer: Tokenizer) -> Plan:
    """Experts are left out: all layers are among the leading dense ones."""
    stream = Stream(shape.n_embd)
    n_vocab = len(tokenizer.tokens)
    tensors = embedding(stream, n_vocab) + output(stream, tokenizer)
    for layer in range(shape.n_layers):
        tensors += _layer(shape, stream, layer)
    metadata: Metadata = {
        "block_count": shape.n_layers,
        "embedding_length": shape.n_embd,
        "feed_forward_length": shape.n_ff,
        "leading_dense_block_count": shape.n_layers,
        "expert_feed_forward_length": shape.n_ff,
        "expert_shared_count": 0,
        "expert_gating_func": 2,
        "rope.freq_base": 1e6,
        **shape.metadata(),
        **({} if shape.indexer is None else shape.indexer.metadata(shape.n_layers)),
    }
    return Plan(_architecture(shape.indexer), seed, n_vocab, metadata, tensors)


def _architecture(indexer: Indexer | None) -> str:
    if indexer is None:
        return "deepseek2"
    return "deepseek32" if indexer.layers is None else "glm-dsa"


def _layer(shape: Latent, stream: Stream, layer: int) -> list[Tensor]:
    prefix = f"blk.{layer}"
    indexer: list[Tensor] = []
    if shape.indexer is not None and shape.indexer.types(shape.n_layers)[layer]:
        indexer = shape.indexer.tensors(stream, prefix, shape.n_query_rank)
    return [
        ones(f"{prefix}.attn_norm.weight", shape.n_embd),
        *_attention(shape, stream, prefix),
        *indexer,
        ones(f"{prefix}.ffn_norm.weight", shape.n_embd),
        *feed_forward(stream, prefix, shape.n_ff),
    ]


def _attention(shape: Latent, stream: Stream, prefix: str) -> list[Tensor]:
    """Keys with a position are not normalized, so their gain is the stream's; the others get theirs in attn_k_b."""
    n_query = shape.n_heads * (shape.n_plain + shape.n_rope)
    key_gain = PEAK * float(np.sqrt(shape.n_plain / shape.n_key_rank))
    return [
        stream.out_of(f"{prefix}.attn_q_a", shape.n_query_rank),
        ones(f"{prefix}.attn_q_a_norm.weight", shape.n_query_rank),
        Matrix(f"{prefix}.attn_q_b.weight", n_query, shape.n_query_rank, PEAK),
        stream.out_of(f"{prefix}.attn_kv_a_mqa", shape.n_key_rank + shape.n_rope, PEAK),
        ones(f"{prefix}.attn_kv_a_norm.weight", shape.n_key_rank),
        _by_head(f"{prefix}.attn_k_b", shape.n_heads, shape.n_key_rank, shape.n_plain, key_gain),
        _by_head(f"{prefix}.attn_v_b", shape.n_heads, shape.n_value, shape.n_key_rank),
        stream.into(f"{prefix}.attn_output", shape.n_heads * shape.n_value, share=1.0),
    ]


def _by_head(name: str, n_heads: int, n_rows: int, n_cols: int, gain: float = 1.0) -> Matrix:
    """Heads' matrices, one below the other as experts' are."""
    return Matrix(f"{name}.weight", n_heads * n_rows, n_cols, gain, n_experts=n_heads)
