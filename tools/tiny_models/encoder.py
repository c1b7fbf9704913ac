"""Encoders, which only embed: bert, with learned positions; nomic-bert, which turns queries and keys by them; and
modern-bert, whose layers mostly look at the neighbours of a token, on both sides.
"""

from dataclasses import dataclass

import numpy as np

from .plan import Matrix, Plan, Tensor, Vector
from .vocabularies import N_TEXT_TYPES
from .weights import generator

NORM_SPREAD = 0.2
CONTEXT_LENGTH = 512
PEAK = 1.6
"""Gain of queries and keys: a token attends to few others."""


@dataclass(frozen=True)
class Encoder:
    arch: str
    n_embd: int
    n_layers: int
    n_heads: int
    n_ff: int
    pooling: int
    """llama.cpp's number."""
    n_window: int = 0
    """Tokens, half of them on each side; modern-bert only."""

    @property
    def has_rope(self) -> bool:
        return self.arch != "bert"


def plan(shape: Encoder, seed: str, n_vocab: int) -> Plan:
    n = shape.n_embd
    tensors: list[Tensor] = [_matrix("token_embd", n_vocab, n, n**0.5)]
    if shape.n_window:
        tensors += _modern(shape, seed)
    else:
        tensors += _classic(shape, seed)
    metadata = {
        "context_length": CONTEXT_LENGTH,
        "block_count": shape.n_layers,
        "embedding_length": n,
        "feed_forward_length": shape.n_ff,
        "attention.head_count": shape.n_heads,
        "attention.layer_norm_epsilon": 1e-12,
        "attention.causal": False,
        "pooling_type": shape.pooling,
        **({"rope.freq_base": 1000.0} if shape.has_rope else {}),
        **({"attention.sliding_window": shape.n_window, "rope.freq_base_swa": 100.0} if shape.n_window else {}),
    }
    return Plan(shape.arch, seed, n_vocab, metadata, tensors)


def _modern(shape: Encoder, seed: str) -> list[Tensor]:
    """Norms before what they are for, and no biases."""
    n = shape.n_embd
    tensors: list[Tensor] = [_vector(seed, f"{name}_norm.weight", n, 1.0) for name in ("token_embd", "output")]
    for layer in range(shape.n_layers):
        prefix = f"blk.{layer}"
        norms = ("ffn_norm",) if layer == 0 else ("attn_norm", "ffn_norm")
        tensors += [_vector(seed, f"{prefix}.{name}.weight", n, 1.0) for name in norms]
        tensors += [_matrix(f"{prefix}.attn_qkv", 3 * n, n, PEAK), _matrix(f"{prefix}.attn_output", n, n)]
        tensors += [_matrix(f"{prefix}.ffn_up", 2 * shape.n_ff, n), _matrix(f"{prefix}.ffn_down", n, shape.n_ff)]
    return tensors


def _classic(shape: Encoder, seed: str) -> list[Tensor]:
    n = shape.n_embd
    tensors: list[Tensor] = [_matrix("token_types", N_TEXT_TYPES, n, n**0.5)]
    if not shape.has_rope:
        tensors.append(_matrix("position_embd", CONTEXT_LENGTH, n, n**0.5))
    tensors += _norm(seed, "token_embd_norm", n)
    for layer in range(shape.n_layers):
        tensors += _layer(shape, seed, f"blk.{layer}")
    return tensors


def _layer(shape: Encoder, seed: str, prefix: str) -> list[Tensor]:
    n, n_ff = shape.n_embd, shape.n_ff
    tensors: list[Tensor] = []
    for side, gain in (("q", PEAK), ("k", PEAK), ("v", 1.0)):
        tensors += _linear(shape, seed, f"{prefix}.attn_{side}", n, n, gain)
    tensors += _linear(shape, seed, f"{prefix}.attn_output", n, n)
    tensors += _norm(seed, f"{prefix}.attn_output_norm", n)
    tensors += _linear(shape, seed, f"{prefix}.ffn_up", n_ff, n)
    if shape.has_rope:
        tensors.append(_matrix(f"{prefix}.ffn_gate", n_ff, n))
    tensors += _linear(shape, seed, f"{prefix}.ffn_down", n, n_ff)
    return tensors + _norm(seed, f"{prefix}.layer_output_norm", n)


def _linear(shape: Encoder, seed: str, name: str, n_rows: int, n_cols: int, gain: float = 1.0) -> list[Tensor]:
    """Returns a linear layer, with a bias if the architecture has one."""
    matrix = _matrix(name, n_rows, n_cols, gain)
    return [matrix] if shape.has_rope else [matrix, _vector(seed, f"{name}.bias", n_rows)]


def _matrix(name: str, n_rows: int, n_cols: int, gain: float = 1.0) -> Matrix:
    return Matrix(f"{name}.weight", n_rows, n_cols, gain)


def _norm(seed: str, name: str, n: int) -> list[Tensor]:
    return [_vector(seed, f"{name}.weight", n, 1.0), _vector(seed, f"{name}.bias", n)]


def _vector(seed: str, name: str, n: int, mean: float = 0.0) -> Vector:
    drawn = generator(seed, name).standard_normal(n, dtype=np.float32)
    return Vector(name, np.float32(mean) + np.float32(NORM_SPREAD) * drawn)
