"""Building blocks that the architectures share, and the three tricks that make random weights testable.

A constant channel. Channel 0 of the residual stream is a constant: every embedding sets it and nothing writes to it.
Column 0 of a matrix is thus a bias for maps that have none. The output uses it to keep tokens away that people cannot
read (control tokens, lone bytes); a logit bias still reaches them.

A long memory. Plain random weights forget: one token of a few hundred moves the logits by less than rounding does.
Here decays are slow and attention is peaked, so that a lost or foreign prefix shows.

Bounded growth. Each block adds a fixed share to the stream, so the logits have the same spread in every model.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .plan import FloatArray, Matrix, Tensor, Vector, ones
from .tokenizer import N_VOCAB, Tokenizer
from .weights import generator

CONSTANT = 4.0
LOGIT_SPREAD = 3.0
HIDDEN_LOGIT = -5.0
CONV_KERNEL = 4


@dataclass(frozen=True)
class Stream:
    """The residual stream: its width and the standard deviation of its entries when a token enters."""

    n_embd: int
    unit: float = 1.0

    def into(self, name: str, n_cols: int, share: float) -> Matrix:
        """A matrix that writes to the stream and leaves the constant channel alone."""
        return Matrix(f"{name}.weight", self.n_embd, n_cols, share * self.unit, silent_first_row=True)

    def out_of(self, name: str, n_rows: int, gain: float = 1.0, bias: float | None = None) -> Matrix:
        """A matrix that reads the normalized stream. Its bias is scaled by the constant channel."""
        column = None if bias is None else np.full(n_rows, bias, dtype=np.float32)
        return Matrix(f"{name}.weight", n_rows, self.n_embd, gain, column)


def tied_stream(n_embd: int) -> Stream:
    """The stream whose embeddings have the size that output rows need."""
    return Stream(n_embd, LOGIT_SPREAD / float(np.sqrt(n_embd)))


def embedding(stream: Stream, n_vocab: int, scale: float = 1.0) -> list[Tensor]:
    """The embedding of a model that multiplies embeddings by scale."""
    column = np.full(n_vocab, CONSTANT * stream.unit / scale, dtype=np.float32)
    gain = float(np.sqrt(stream.n_embd)) * stream.unit / scale
    return [Matrix("token_embd.weight", n_vocab, stream.n_embd, gain, column)]


def output(stream: Stream, tokenizer: Tokenizer, scale: float = 1.0) -> list[Tensor]:
    """The output of a model that divides logits by scale."""
    column = np.where(tokenizer.printable(), 0.0, HIDDEN_LOGIT * scale).astype(np.float32)
    matrix = Matrix("output.weight", len(tokenizer.tokens), stream.n_embd, LOGIT_SPREAD * scale, column)
    return [ones("output_norm.weight", stream.n_embd), matrix]


def tied_embedding(stream: Stream, tokenizer: Tokenizer, seed: str) -> list[Tensor]:
    """One matrix for embedding and output, as small real models have it.

    The random signs in the norm keep a token from predicting itself. A token that people cannot read sets the
    constant channel to something extreme instead, as the price of a hopeless logit.
    """
    column = np.where(tokenizer.printable(), CONSTANT * stream.unit, HIDDEN_LOGIT).astype(np.float32)
    gain = float(np.sqrt(stream.n_embd)) * stream.unit
    signs = generator(seed, "output_norm").choice(np.array([-1, 1], dtype=np.float32), stream.n_embd)
    signs[0] = 1
    n_vocab = len(tokenizer.tokens)
    matrix = Matrix("token_embd.weight", n_vocab, stream.n_embd, gain, column, n_rows_drawn=N_VOCAB)
    return [matrix, Vector("output_norm.weight", signs)]


@dataclass(frozen=True)
class Heads:
    """Attention heads. A query of two parts carries its output gate."""

    n: int
    n_kv: int
    size: int
    query_parts: int = 1

    def norms(self, prefix: str, peak: float = 2.2) -> list[Tensor]:
        """Norms of queries and keys; scores have a standard deviation of peak²."""
        return [ones(f"{prefix}.attn_{side}_norm.weight", self.size, peak) for side in ("q", "k")]

    def metadata(self) -> dict[str, int]:
        return {
            "attention.head_count": self.n,
            "attention.head_count_kv": self.n_kv,
            "attention.key_length": self.size,
            "attention.value_length": self.size,
        }


def attention(stream: Stream, prefix: str, heads: Heads, query_gain: float = 1.0, share: float = 1.0) -> list[Tensor]:
    return [
        stream.out_of(f"{prefix}.attn_q", heads.n * heads.size * heads.query_parts, query_gain),
        stream.out_of(f"{prefix}.attn_k", heads.n_kv * heads.size, query_gain),
        stream.out_of(f"{prefix}.attn_v", heads.n_kv * heads.size),
        stream.into(f"{prefix}.attn_output", heads.n * heads.size, share),
    ]


def feed_forward(stream: Stream, prefix: str, n_ff: int, share: float = 0.8) -> list[Tensor]:
    return [
        stream.out_of(f"{prefix}.ffn_gate", n_ff),
        stream.out_of(f"{prefix}.ffn_up", n_ff),
        stream.into(f"{prefix}.ffn_down", n_ff, share),
    ]


@dataclass(frozen=True)
class Experts:
    """Feed-forward networks of which each token uses some, as a router says."""

    n: int
    n_used: int

    def metadata(self, n_ff: int) -> dict[str, int]:
        return {
            "expert_count": self.n,
            "expert_used_count": self.n_used,
            "expert_feed_forward_length": n_ff,
        }

    def tensors(self, stream: Stream, prefix: str, n_ff: int, seed: str) -> list[Tensor]:
        """The router is always F32, as real models have it."""
        router = f"{prefix}.ffn_gate_inp.weight"
        weights = generator(seed, router).standard_normal((self.n, stream.n_embd), dtype=np.float32)
        weights *= np.float32(2.0 / np.sqrt(stream.n_embd))
        weights[:, 0] = 0
        return [
            Vector(router, weights),
            replace(stream.out_of(f"{prefix}.ffn_gate_exps", self.n * n_ff), n_experts=self.n),
            replace(stream.out_of(f"{prefix}.ffn_up_exps", self.n * n_ff), n_experts=self.n),
            Matrix(
                f"{prefix}.ffn_down_exps.weight",
                self.n * stream.n_embd,
                n_ff,
                1.2 * stream.unit,
                silent_first_row=True,
                n_experts=self.n,
            ),
        ]


@dataclass(frozen=True)
class Mamba2:
    """The state space of a Mamba-2 layer, with one group of B and C for all heads."""

    n_heads: int
    d_inner: int
    d_state: int

    def metadata(self) -> dict[str, int]:
        return {
            "ssm.conv_kernel": CONV_KERNEL,
            "ssm.inner_size": self.d_inner,
            "ssm.state_size": self.d_state,
            "ssm.time_step_rank": self.n_heads,
            "ssm.group_count": 1,
        }

    def tensors(self, stream: Stream, prefix: str, seed: str, share: float) -> list[Tensor]:
        """Small inputs keep SiLU nearly linear: otherwise its mean piles up in the state and drowns single tokens."""
        n_conv = self.d_inner + 2 * self.d_state
        step = np.geomspace(0.02, 0.2, self.n_heads)
        rate = decay_rates(self.n_heads) / step
        return [
            stream.out_of(f"{prefix}.ssm_in", self.d_inner + n_conv + self.n_heads, gain=0.5),
            convolution(prefix, n_conv, seed),
            ones(f"{prefix}.ssm_conv1d.bias", n_conv, 0.0),
            Vector(f"{prefix}.ssm_dt.bias", inverse_softplus(step)),
            Vector(f"{prefix}.ssm_a", -rate.astype(np.float32).reshape(-1, 1)),
            Vector(f"{prefix}.ssm_d", np.full((self.n_heads, 1), 0.1, dtype=np.float32)),
            Vector(f"{prefix}.ssm_norm.weight", np.ones((1, self.d_inner), dtype=np.float32)),
            stream.into(f"{prefix}.ssm_out", self.d_inner, share),
        ]


def decay_rates(n_heads: int) -> FloatArray:
    """Returns how fast each head forgets: from a memory of 200 tokens to one of 5000."""
    return np.geomspace(1 / 200, 1 / 5000, n_heads).astype(np.float32)


def inverse_softplus(value: npt.NDArray[np.float64]) -> FloatArray:
    return np.log(np.expm1(value)).astype(np.float32)


def convolution(prefix: str, n_channels: int, seed: str) -> Vector:
    """Always F32: llama.cpp convolves in nothing else."""
    name = f"{prefix}.ssm_conv1d.weight"
    taps = generator(seed, name).standard_normal((n_channels, CONV_KERNEL), dtype=np.float32)
    return Vector(name, taps * np.float32(0.6))
