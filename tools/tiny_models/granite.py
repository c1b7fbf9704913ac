"""granitehybrid: Mamba-2 layers with a few of full attention, no position encoding, and the family's scales."""

from dataclasses import dataclass

from .layers import Heads, Mamba2, Stream, attention, embedding, feed_forward, output
from .plan import Metadata, Plan, Tensor, ones
from .tokenizer import Tokenizer

EMBEDDING_SCALE = 12.0
RESIDUAL_SCALE = 0.25
LOGIT_SCALE = 8.0
ATTENTION_SCALE = 1 / 64
# Gives scores a standard deviation of 4 to 5 with heads of 64 and the scale above.
QUERY_GAIN = 6.0


@dataclass(frozen=True)
class Granite:
    n_embd: int
    n_layers: int
    n_ff: int
    heads: Heads
    attention_layers: frozenset[int]
    mamba: Mamba2


def plan(shape: Granite, seed: str, tokenizer: Tokenizer) -> Plan:
    if shape.mamba.d_inner != 2 * shape.n_embd:
        raise ValueError(f"d_inner is {shape.mamba.d_inner}, must be twice n_embd, {shape.n_embd}")
    stream = Stream(shape.n_embd)
    n_vocab = len(tokenizer.tokens)
    tensors = embedding(stream, n_vocab, EMBEDDING_SCALE) + output(stream, tokenizer, LOGIT_SCALE)
    for layer in range(shape.n_layers):
        tensors += _layer(shape, stream, layer, seed)
    metadata: Metadata = {
        "block_count": shape.n_layers,
        "embedding_length": shape.n_embd,
        "feed_forward_length": shape.n_ff,
        "embedding_scale": EMBEDDING_SCALE,
        "residual_scale": RESIDUAL_SCALE,
        "logit_scale": LOGIT_SCALE,
        "attention.scale": ATTENTION_SCALE,
        "rope.scaling.finetuned": False,
        **shape.heads.metadata(),
        **shape.mamba.metadata(),
        "attention.head_count_kv": [
            shape.heads.n_kv if layer in shape.attention_layers else 0 for layer in range(shape.n_layers)
        ],
    }
    return Plan("granitehybrid", seed, n_vocab, metadata, tensors)


def _layer(shape: Granite, stream: Stream, layer: int, seed: str) -> list[Tensor]:
    prefix = f"blk.{layer}"
    scaled = Stream(stream.n_embd, stream.unit / RESIDUAL_SCALE)
    if layer in shape.attention_layers:
        mixer = attention(scaled, prefix, shape.heads, QUERY_GAIN)
    else:
        mixer = shape.mamba.tensors(scaled, prefix, seed, share=0.6)
    return [
        ones(f"{prefix}.attn_norm.weight", shape.n_embd),
        *mixer,
        ones(f"{prefix}.ffn_norm.weight", shape.n_embd),
        *feed_forward(scaled, prefix, shape.n_ff),
    ]
