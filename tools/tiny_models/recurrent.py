"""mamba2: no attention; a state of constant size that can be copied but never cut back."""

from dataclasses import dataclass

from .layers import Mamba2, Stream, embedding, output
from .plan import Plan, ones
from .tokenizer import Tokenizer


@dataclass(frozen=True)
class Recurrent:
    n_embd: int
    n_layers: int
    mamba: Mamba2


def plan(shape: Recurrent, seed: str, tokenizer: Tokenizer) -> Plan:
    stream = Stream(shape.n_embd)
    n_vocab = len(tokenizer.tokens)
    tensors = embedding(stream, n_vocab) + output(stream, tokenizer)
    for layer in range(shape.n_layers):
        prefix = f"blk.{layer}"
        tensors.append(ones(f"{prefix}.attn_norm.weight", shape.n_embd))
        tensors += shape.mamba.tensors(stream, prefix, seed, share=0.6)
    metadata = {
        "block_count": shape.n_layers,
        "embedding_length": shape.n_embd,
        "feed_forward_length": 0,
        "attention.head_count": 0,
        **shape.mamba.metadata(),
    }
    return Plan("mamba2", seed, n_vocab, metadata, tensors)
