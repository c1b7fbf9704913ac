"""qwen35: gated delta nets in three layers of four, gated full attention in the fourth."""

from dataclasses import dataclass

import numpy as np

from .layers import (
    CONV_KERNEL,
    Heads,
    Stream,
    attention,
    convolution,
    decay_rates,
    embedding,
    feed_forward,
    inverse_softplus,
    output,
    tied_embedding,
    tied_stream,
)
from .plan import Metadata, Plan, Tensor, Vector, ones
from .tokenizer import Tokenizer

LAYERS_PER_FULL_ATTENTION = 4
# How strongly a token overwrites the state: sigmoid of this times the constant channel, 2 to 9 of a hundred.
# An even chance, which unbiased weights would give, erases a state of 64 directions within 200 tokens.
WRITE_BIAS = -1.0
STEP = 0.1


@dataclass(frozen=True)
class DeltaNet:
    """The state of one layer: for each value head a square matrix with head_size rows."""

    n_key_heads: int
    n_value_heads: int
    head_size: int

    @property
    def n_keys(self) -> int:
        return self.n_key_heads * self.head_size

    @property
    def n_values(self) -> int:
        return self.n_value_heads * self.head_size

    def metadata(self) -> dict[str, int]:
        return {
            "ssm.conv_kernel": CONV_KERNEL,
            "ssm.inner_size": self.n_values,
            "ssm.state_size": self.head_size,
            "ssm.time_step_rank": self.n_value_heads,
            "ssm.group_count": self.n_key_heads,
        }


@dataclass(frozen=True)
class Hybrid:
    n_embd: int
    n_layers: int
    n_ff: int
    heads: Heads
    rope_sections: tuple[int, int, int, int]
    delta: DeltaNet
    tied: bool = False


def plan(shape: Hybrid, seed: str, tokenizer: Tokenizer) -> Plan:
    stream = tied_stream(shape.n_embd) if shape.tied else Stream(shape.n_embd)
    n_vocab = len(tokenizer.tokens)
    if shape.tied:
        tensors = tied_embedding(stream, tokenizer, seed)
    else:
        tensors = embedding(stream, n_vocab) + output(stream, tokenizer)
    for layer in range(shape.n_layers):
        tensors += _layer(shape, stream, layer, seed)
    metadata: Metadata = {
        "block_count": shape.n_layers,
        "embedding_length": shape.n_embd,
        "feed_forward_length": shape.n_ff,
        "full_attention_interval": LAYERS_PER_FULL_ATTENTION,
        "rope.freq_base": 1e7,
        "rope.dimension_count": 2 * sum(shape.rope_sections),
        "rope.dimension_sections": list(shape.rope_sections),
        **shape.heads.metadata(),
        **shape.delta.metadata(),
    }
    return Plan("qwen35", seed, n_vocab, metadata, tensors)


def _layer(shape: Hybrid, stream: Stream, layer: int, seed: str) -> list[Tensor]:
    prefix = f"blk.{layer}"
    if (layer + 1) % LAYERS_PER_FULL_ATTENTION == 0:
        mixer = attention(stream, prefix, shape.heads) + shape.heads.norms(prefix)
    else:
        mixer = _delta_net(shape.delta, stream, prefix, seed)
    return [
        ones(f"{prefix}.attn_norm.weight", shape.n_embd),
        *mixer,
        ones(f"{prefix}.post_attention_norm.weight", shape.n_embd),
        *feed_forward(stream, prefix, shape.n_ff),
    ]


def _delta_net(delta: DeltaNet, stream: Stream, prefix: str, seed: str) -> list[Tensor]:
    n_conv = 2 * delta.n_keys + delta.n_values
    step = np.full(delta.n_value_heads, STEP)
    return [
        stream.out_of(f"{prefix}.attn_qkv", n_conv, gain=0.5),
        stream.out_of(f"{prefix}.attn_gate", delta.n_values),
        convolution(prefix, n_conv, seed),
        Vector(f"{prefix}.ssm_dt.bias", inverse_softplus(step)),
        Vector(f"{prefix}.ssm_a", -decay_rates(delta.n_value_heads) / np.float32(STEP)),
        stream.out_of(f"{prefix}.ssm_beta", delta.n_value_heads, bias=WRITE_BIAS),
        stream.out_of(f"{prefix}.ssm_alpha", delta.n_value_heads, gain=0.5),
        ones(f"{prefix}.ssm_norm.weight", delta.head_size),
        stream.into(f"{prefix}.ssm_out", delta.n_values, share=0.9),
    ]
