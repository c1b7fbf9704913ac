"""Computes the embedding of tokens from an encoder's file, only with numpy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

MEAN, CLS = 1, 2


class Encoder:
    """bert and nomic-bert as their papers describe them: attention over the whole text, and a norm after each sum."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self._tensors: dict[str, FloatArray] = {one.name: one.data.astype(np.float64) for one in reader.tensors}
        self._arch = str(_value(reader, "general.architecture"))
        self._n_layers = int(_value(reader, f"{self._arch}.block_count"))
        self._n_heads = int(_value(reader, f"{self._arch}.attention.head_count"))
        self._pooling = int(_value(reader, f"{self._arch}.pooling_type"))
        self._has_rope = self._arch != "bert"
        self._rope_base = float(_value(reader, f"{self._arch}.rope.freq_base")) if self._has_rope else 0.0
        self._reader = reader

    def embedding(self, tokens: Sequence[int]) -> FloatArray:
        """Returns a vector of length 1."""
        x = self._states(tokens)
        pooled = x[0] if self._pooling == CLS else x.mean(axis=0)
        found: FloatArray = pooled / np.linalg.norm(pooled)
        return found

    def _states(self, tokens: Sequence[int]) -> FloatArray:
        x = self._tensors["token_embd.weight"][list(tokens)] + self._tensors["token_types.weight"][0]
        if not self._has_rope:
            x = x + self._tensors["position_embd.weight"][: len(tokens)]
        x = self._norm("token_embd_norm", x)
        for layer in range(self._n_layers):
            x = self._layer(f"blk.{layer}", x)
        return x

    def _layer(self, name: str, x: FloatArray) -> FloatArray:
        x = self._norm(f"{name}.attn_output_norm", x + self._attention(name, x))
        up = self._linear(f"{name}.ffn_up", x)
        gate = self._linear(f"{name}.ffn_gate", x) if self._has_rope else up
        inner = up * gate / (1 + np.exp(-gate)) if self._has_rope else _gelu(up)
        return self._norm(f"{name}.layer_output_norm", x + self._linear(f"{name}.ffn_down", inner))

    def _attention(self, name: str, x: FloatArray) -> FloatArray:
        q, k, v = (self._linear(f"{name}.attn_{side}", x) for side in "qkv")
        return self._linear(f"{name}.attn_output", self._mixed(q, k, v, rope_base=self._rope_base))

    def _mixed(self, *qkv: FloatArray, rope_base: float, reach: int | None = None) -> FloatArray:
        """Computes attention. `reach` is the number of tokens on each side that a token attends to, or None for all."""
        n, width = qkv[0].shape
        size = width // self._n_heads
        q, k, v = (one.reshape(n, self._n_heads, size) for one in qkv)
        if rope_base:
            q, k = _turned(q, rope_base), _turned(k, rope_base)
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(size)
        if reach is not None:
            distance = np.abs(np.arange(n)[:, None] - np.arange(n))
            scores = np.where(distance > reach, -np.inf, scores)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        found: FloatArray = np.einsum("hij,jhd->ihd", shares, v).reshape(n, width)
        return found

    def _linear(self, name: str, x: FloatArray) -> FloatArray:
        made: FloatArray = x @ self._tensors[f"{name}.weight"].T
        bias = self._tensors.get(f"{name}.bias")
        return made if bias is None else made + bias

    def _norm(self, name: str, x: FloatArray) -> FloatArray:
        apart = x - x.mean(axis=-1, keepdims=True)
        scaled = apart / np.sqrt((apart**2).mean(axis=-1, keepdims=True))
        found: FloatArray = scaled * self._tensors[f"{name}.weight"] + self._tensors.get(f"{name}.bias", 0.0)
        return found


class ModernEncoder(Encoder):
    """modern-bert: norms before each block, gated linear units, and two of three layers attend only to a token's
    neighbours.
    """

    def _states(self, tokens: Sequence[int]) -> FloatArray:
        window = int(_value(self._reader, "modern-bert.attention.sliding_window"))
        near_base = float(_value(self._reader, "modern-bert.rope.freq_base_swa"))
        x = self._norm("token_embd_norm", self._tensors["token_embd.weight"][list(tokens)])
        for layer in range(self._n_layers):
            name, is_near = f"blk.{layer}", layer % 3 != 0
            seen = self._norm(f"{name}.attn_norm", x) if layer else x
            qkv = np.split(self._linear(f"{name}.attn_qkv", seen), 3, axis=-1)
            base, reach = (near_base, window // 2) if is_near else (self._rope_base, None)
            x = x + self._linear(f"{name}.attn_output", self._mixed(*qkv, rope_base=base, reach=reach))
            gate, up = np.split(self._linear(f"{name}.ffn_up", self._norm(f"{name}.ffn_norm", x)), 2, axis=-1)
            x = x + self._linear(f"{name}.ffn_down", _gelu(gate) * up)
        return self._norm("output_norm", x)


def encoder(path: Path) -> Encoder:
    return (ModernEncoder if "modern-bert" in path.name else Encoder)(path)


def _turned(x: FloatArray, rope_base: float) -> FloatArray:
    """Rotates each pair of entries, which are half a head apart, by its position times a frequency."""
    n, _, size = x.shape
    angles = np.arange(n)[:, None] * rope_base ** (-np.arange(0, size, 2) / size)
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    a, b = x[..., : size // 2], x[..., size // 2 :]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def _gelu(x: FloatArray) -> FloatArray:
    found: FloatArray = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return found


def _value(reader: gguf.GGUFReader, key: str) -> str | int | float:
    field = reader.get_field(key)
    assert field is not None, key
    found = field.contents()
    assert isinstance(found, str | int | float), key
    return found
