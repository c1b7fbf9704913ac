"""The network of the demo model: a small decoder that llama.cpp runs as architecture `qwen3`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes that define the network; written into each checkpoint and into the GGUF file."""

    vocabulary: int = 1024
    width: int = 256
    layers: int = 5
    heads: int = 4
    head_width: int = 64
    feed_forward: int = 640
    context: int = 2048
    rope_base: float = 10_000.0
    norm_epsilon: float = 1e-6


class RmsNorm(nn.Module):
    """Root-mean-square norm with a learned gain, computed in float32."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return (wide * scale * self.weight).to(x.dtype)


def rope_tables(shape: Shape) -> tuple[Tensor, Tensor]:
    """Cosines and sines for each position, in the half-split (NEOX) layout."""
    half = shape.head_width // 2
    frequencies = shape.rope_base ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = torch.outer(torch.arange(shape.context, dtype=torch.float32), frequencies)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Apply rotary positions to `x` of shape [batch, heads, length, head width]."""
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)
    return turned.to(x.dtype)


class Block(nn.Module):
    """Attention with normalized queries and keys, then a gated feed-forward layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        inner = shape.heads * shape.head_width
        self.heads, self.head_width = shape.heads, shape.head_width
        self.norm_attention = RmsNorm(shape.width, shape.norm_epsilon)
        self.norm_query = RmsNorm(shape.head_width, shape.norm_epsilon)
        self.norm_key = RmsNorm(shape.head_width, shape.norm_epsilon)
        self.query = nn.Linear(shape.width, inner, bias=False)
        self.key = nn.Linear(shape.width, inner, bias=False)
        self.value = nn.Linear(shape.width, inner, bias=False)
        self.output = nn.Linear(inner, shape.width, bias=False)
        self.norm_feed = RmsNorm(shape.width, shape.norm_epsilon)
        self.gate = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.up = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.down = nn.Linear(shape.feed_forward, shape.width, bias=False)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.head_width)).transpose(1, 2)

    def attend(self, x: Tensor, cosines: Tensor, sines: Tensor, mask: Tensor) -> Tensor:
        query = rotate(self.norm_query(self.split(self.query(x))), cosines, sines)
        key = rotate(self.norm_key(self.split(self.key(x))), cosines, sines)
        value = self.split(self.value(x))
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.output(mixed.transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attend(self.norm_attention(x), cosines, sines, mask)
        normal = self.norm_feed(x)
        return x + self.down(functional.silu(self.gate(normal)) * self.up(normal))  # type: ignore[no-any-return]


class DemoModel(nn.Module):
    """Token ids in, last hidden states or logits out; the embedding is tied to the output."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm_last = RmsNorm(shape.width, shape.norm_epsilon)
        cosines, sines = rope_tables(shape)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)
        self.initialize()

    def initialize(self) -> None:
        nn.init.normal_(self.embedding.weight, std=0.02)
        for name, weight in self.named_parameters():
            if weight.ndim != 2 or name.startswith("embedding"):
                continue
            residual = name.endswith(("output.weight", "down.weight"))
            deviation = weight.shape[1] ** -0.5 * (0.5 if not residual else 0.1)
            nn.init.normal_(weight, std=deviation)

    def hidden(self, tokens: Tensor, documents: Tensor) -> Tensor:
        """Hidden states of packed rows; a token sees only what is before it in its own document."""
        length = tokens.shape[1]
        cosines, sines = self.cosines[:length], self.sines[:length]  # type: ignore[index]
        same = documents.unsqueeze(2) == documents.unsqueeze(1)
        mask = same.tril().unsqueeze(1)
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cosines, sines, mask)
        return self.norm_last(x)  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Tensor:
        return functional.linear(hidden, self.embedding.weight)
