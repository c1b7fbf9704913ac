"""What an encoder's file says the embedding of tokens is, computed with numpy alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

MEAN, CLS = 1, 2


class Encoder:
    """bert and nomic-bert, in the words of their papers: attention over the whole text, a norm behind each sum."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self._tensors: dict[str, FloatArray] = {one.name: one.data.astype(np.float64) for one in reader.tensors}
        self._arch = str(_value(reader, "general.architecture"))
        self._n_layers = int(_value(reader, f"{self._arch}.block_count"))
        self._n_heads = int(_value(reader, f"{self._arch}.attention.head_count"))
        self._pooling = int(_value(reader, f"{self._arch}.pooling_type"))
        self._has_rope = self._arch == "nomic-bert"
        self._rope_base = float(_value(reader, f"{self._arch}.rope.freq_base")) if self._has_rope else 0.0

    def embedding(self, tokens: Sequence[int]) -> FloatArray:
        """Of length 1."""
        x = self._tensors["token_embd.weight"][list(tokens)] + self._tensors["token_types.weight"][0]
        if not self._has_rope:
            x = x + self._tensors["position_embd.weight"][: len(tokens)]
        x = self._norm("token_embd_norm", x)
        for layer in range(self._n_layers):
            x = self._layer(f"blk.{layer}", x)
        pooled = x[0] if self._pooling == CLS else x.mean(axis=0)
        found: FloatArray = pooled / np.linalg.norm(pooled)
        return found

    def _layer(self, name: str, x: FloatArray) -> FloatArray:
        x = self._norm(f"{name}.attn_output_norm", x + self._attention(name, x))
        up = self._linear(f"{name}.ffn_up", x)
        gate = self._linear(f"{name}.ffn_gate", x) if self._has_rope else up
        inner = up * gate / (1 + np.exp(-gate)) if self._has_rope else _gelu(up)
        return self._norm(f"{name}.layer_output_norm", x + self._linear(f"{name}.ffn_down", inner))

    def _attention(self, name: str, x: FloatArray) -> FloatArray:
        n, width = x.shape
        size = width // self._n_heads
        q, k, v = (self._linear(f"{name}.attn_{side}", x).reshape(n, self._n_heads, size) for side in "qkv")
        if self._has_rope:
            q, k = self._turned(q), self._turned(k)
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(size)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        return self._linear(f"{name}.attn_output", np.einsum("hij,jhd->ihd", shares, v).reshape(n, width))

    def _turned(self, x: FloatArray) -> FloatArray:
        """Each pair of entries, half a head apart, by its position times a frequency."""
        n, _, size = x.shape
        angles = np.arange(n)[:, None] * self._rope_base ** (-np.arange(0, size, 2) / size)
        cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
        a, b = x[..., : size // 2], x[..., size // 2 :]
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)

    def _linear(self, name: str, x: FloatArray) -> FloatArray:
        made: FloatArray = x @ self._tensors[f"{name}.weight"].T
        bias = self._tensors.get(f"{name}.bias")
        return made if bias is None else made + bias

    def _norm(self, name: str, x: FloatArray) -> FloatArray:
        apart = x - x.mean(axis=-1, keepdims=True)
        scaled = apart / np.sqrt((apart**2).mean(axis=-1, keepdims=True))
        found: FloatArray = scaled * self._tensors[f"{name}.weight"] + self._tensors[f"{name}.bias"]
        return found


def _gelu(x: FloatArray) -> FloatArray:
    found: FloatArray = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return found


def _value(reader: gguf.GGUFReader, key: str) -> str | int | float:
    field = reader.get_field(key)
    assert field is not None, key
    found = field.contents()
    assert isinstance(found, str | int | float), key
    return found
