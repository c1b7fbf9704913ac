"""deepseek2: latent attention (MLA), whose cache holds one compressed key per token and no values."""

from dataclasses import dataclass

import numpy as np

from .layers import Stream, embedding, feed_forward, output
from .plan import Matrix, Metadata, Plan, Tensor, ones
from .tokenizer import Tokenizer

PEAK = 2.2
"""Gain of queries and of keys: scores have a standard deviation of its square."""


@dataclass(frozen=True)
class Latent:
    n_embd: int
    n_layers: int
    n_ff: int
    n_heads: int
    n_query_rank: int
    n_key_rank: int
    """Of the compressed key, which is the value, too."""
    n_plain: int
    n_rope: int
    """Entries of a head's query without and with a position."""
    n_value: int

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
        tensors += _layer(shape, stream, f"blk.{layer}")
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
    }
    return Plan("deepseek2", seed, n_vocab, metadata, tensors)


def _layer(shape: Latent, stream: Stream, prefix: str) -> list[Tensor]:
    return [
        ones(f"{prefix}.attn_norm.weight", shape.n_embd),
        *_attention(shape, stream, prefix),
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
