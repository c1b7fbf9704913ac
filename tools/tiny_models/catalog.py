"""The models by name."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from . import copying, dense, granite, hybrid, latent, recurrent, shortconv, sparse, window
from .dense import Dense
from .encoder import Encoder
from .granite import Granite
from .hybrid import DeltaNet, Hybrid
from .latent import Indexer, Latent
from .layers import Experts, Heads, Mamba2
from .plan import Plan
from .recurrent import Recurrent
from .shortconv import ShortConv
from .sparse import Blocks, Sparse
from .tokenizer import N_VOCAB, Tokenizer, build
from .window import Window


@dataclass(frozen=True)
class Recipe:
    name: str
    summary: str
    plan: Callable[[Tokenizer], Plan]
    quantized: bool = False
    n_vocab: int = N_VOCAB
    vocabulary: Callable[[], Tokenizer] = build

    def words(self) -> Tokenizer:
        return self.vocabulary().padded(self.n_vocab)


TINY_HEADS = Heads(n=2, n_kv=1, size=64)
TINY_MAMBA = Mamba2(n_heads=8, d_inner=256, d_state=128)
TINY_DENSE = Dense(n_embd=128, n_layers=4, n_ff=384, heads=Heads(n=4, n_kv=2, size=64))
TINY_ODD_HEADS = replace(TINY_DENSE, heads=Heads(n=4, n_kv=2, size=48))
TINY_EXPERTS = replace(TINY_DENSE, n_ff=128, experts=Experts(n=8, n_used=2))
MEAN, CLS, LAST, RANK = 1, 2, 3, 4
TINY_WINDOW = Window(n_embd=128, n_layers=6, n_ff=256, heads=TINY_HEADS, n_window=64)
TINY_RECURRENT = Recurrent(n_embd=128, n_layers=4, mamba=TINY_MAMBA)
TINY_HYBRID = Hybrid(
    n_embd=128,
    n_layers=4,
    n_ff=256,
    heads=Heads(n=2, n_kv=1, size=64, query_parts=2),
    rope_sections=(3, 3, 2, 0),
    delta=DeltaNet(n_key_heads=2, n_value_heads=4, head_size=64),
)
TINY_GRANITE = Granite(
    n_embd=128, n_layers=4, n_ff=256, heads=TINY_HEADS, attention_layers=frozenset({2}), mamba=TINY_MAMBA
)
TINY_LATENT = Latent(
    n_embd=128,
    n_layers=4,
    n_ff=384,
    n_heads=4,
    n_query_rank=64,
    n_key_rank=64,
    n_plain=32,
    n_rope=32,
    n_value=32,
)
TINY_INDEXER = Indexer(n_heads=4, head_size=64, top_k=64)
TINY_SPARSE = Sparse(
    n_embd=128,
    n_layers=4,
    n_dense=1,
    n_ff=128,
    heads=Heads(n=4, n_kv=2, size=64),
    n_rope=32,
    experts=Experts(n=2, n_used=2),
    blocks=Blocks(size=16, n_picked=4, n_local=1, head_size=64),
)
TINY_INDEXED = replace(TINY_LATENT, indexer=TINY_INDEXER)
TINY_INDEXED_SHARED = replace(TINY_LATENT, indexer=replace(TINY_INDEXER, layers=(0, 2)))
TINY_HYBRID_WINDOW = ShortConv(
    n_embd=128,
    n_layers=6,
    n_ff=256,
    heads=TINY_HEADS,
    attention_layers=frozenset({1, 3, 5}),
    n_window=128,
)

BENCH_CONTEXT_LENGTH = 40_960
BENCH_DENSE = Dense(n_embd=1024, n_layers=28, n_ff=3072, heads=Heads(n=16, n_kv=8, size=128), tied=True)
BENCH_EXPERTS = Dense(
    n_embd=1024,
    n_layers=12,
    n_ff=512,
    heads=Heads(n=16, n_kv=4, size=128),
    tied=True,
    experts=Experts(n=64, n_used=8),
)
BENCH_SMALL = Dense(n_embd=512, n_layers=8, n_ff=1536, heads=Heads(n=8, n_kv=2, size=64), tied=True)
BENCH_HYBRID = Hybrid(
    n_embd=1024,
    n_layers=24,
    n_ff=3584,
    heads=Heads(n=8, n_kv=2, size=256, query_parts=2),
    rope_sections=(11, 11, 10, 0),
    delta=DeltaNet(n_key_heads=16, n_value_heads=16, head_size=128),
    tied=True,
)

# Recipes that share a seed share their weights, up to quantization.
TINY: tuple[Recipe, ...] = (
    Recipe("tiny-dense", "qwen3, full attention", lambda t: dense.plan(TINY_DENSE, "dense", t)),
    Recipe("tiny-window", "gemma3, sliding window of 64", lambda t: window.plan(TINY_WINDOW, "window", t)),
    Recipe("tiny-recurrent", "mamba2, state only", lambda t: recurrent.plan(TINY_RECURRENT, "recurrent", t)),
    Recipe("tiny-hybrid", "qwen35, delta nets and attention", lambda t: hybrid.plan(TINY_HYBRID, "hybrid", t)),
    Recipe("tiny-granite", "granitehybrid, Mamba-2 and attention", lambda t: granite.plan(TINY_GRANITE, "granite", t)),
    Recipe(
        "tiny-hybrid-window",
        "lfm2, short convolutions and a sliding window of 128",
        lambda t: shortconv.plan(TINY_HYBRID_WINDOW, "hybrid-window", t),
    ),
    Recipe("tiny-latent", "deepseek2, latent attention", lambda t: latent.plan(TINY_LATENT, "latent", t)),
    Recipe(
        "tiny-indexed",
        "deepseek32, latent attention to 64 tokens that an indexer picks",
        lambda t: latent.plan(TINY_INDEXED, "indexed", t),
    ),
    Recipe(
        "tiny-indexed-shared",
        "glm-dsa, as tiny-indexed but with an indexer in every other layer",
        lambda t: latent.plan(TINY_INDEXED_SHARED, "indexed", t),
    ),
    Recipe(
        "tiny-sparse",
        "minimax-m3, attention to 4 blocks of 16 tokens that an indexer picks",
        lambda t: sparse.plan(TINY_SPARSE, "sparse", t),
    ),
    Recipe(
        "tiny-embed-last",
        "tiny-dense that embeds by its last token",
        lambda t: dense.plan(replace(TINY_DENSE, pooling=LAST), "dense", t),
    ),
    Recipe(
        "tiny-embed-mean",
        "tiny-dense that embeds by the mean of its tokens",
        lambda t: dense.plan(replace(TINY_DENSE, pooling=MEAN), "dense", t),
    ),
    Recipe("tiny-dense-q8", "tiny-dense in Q8_0", lambda t: dense.plan(TINY_DENSE, "dense", t), quantized=True),
    Recipe("tiny-experts", "qwen3moe, 2 of 8 experts", lambda t: dense.plan(TINY_EXPERTS, "experts", t)),
    Recipe(
        "tiny-experts-q8",
        "tiny-experts in Q8_0",
        lambda t: dense.plan(TINY_EXPERTS, "experts", t),
        quantized=True,
    ),
    Recipe(
        "tiny-odd-heads",
        "tiny-dense whose heads have 48 values, no multiple of 32",
        lambda t: dense.plan(TINY_ODD_HEADS, "dense", t),
    ),
    Recipe("tiny-hybrid-q8", "tiny-hybrid in Q8_0", lambda t: hybrid.plan(TINY_HYBRID, "hybrid", t), quantized=True),
)

TINY_ENCODERS: dict[str, Encoder] = {
    "tiny-bert": Encoder("bert", n_embd=64, n_layers=3, n_heads=2, n_ff=128, pooling=CLS),
    "tiny-nomic-bert": Encoder("nomic-bert", n_embd=64, n_layers=3, n_heads=2, n_ff=128, pooling=MEAN),
    "tiny-modern-bert": Encoder("modern-bert", n_embd=64, n_layers=5, n_heads=2, n_ff=128, pooling=CLS, n_window=32),
}
"""They only embed; their tokenizer is the word pieces of vocabularies.py."""


def long(plan: Plan, n_tokens: int = BENCH_CONTEXT_LENGTH) -> Plan:
    """Models of that size are trained for such a context: a server's defaults follow it."""
    return replace(plan, metadata={**plan.metadata, "context_length": n_tokens})


BENCH: tuple[Recipe, ...] = (
    Recipe(
        "bench-small",
        "qwen3 of 28 million parameters, Q8_0",
        lambda t: long(dense.plan(BENCH_SMALL, "bench-small", t)),
        quantized=True,
        n_vocab=8192,
    ),
    Recipe(
        "bench-long",
        "bench-small, trained for 131,072 tokens",
        lambda t: long(dense.plan(BENCH_SMALL, "bench-small", t), 131_072),
        quantized=True,
        n_vocab=8192,
    ),
    Recipe(
        "bench-dense",
        "qwen3 of 0.6 billion parameters, Q8_0",
        lambda t: long(dense.plan(BENCH_DENSE, "bench-dense", t)),
        quantized=True,
        n_vocab=151_936,
    ),
    Recipe(
        "bench-edit",
        "bench-dense that answers with a file of its prompt and changes some tokens of it",
        lambda t: long(copying.plan(BENCH_DENSE, "bench-edit", t)),
        quantized=True,
        n_vocab=151_936,
        vocabulary=copying.vocabulary,
    ),
    Recipe(
        "bench-experts",
        "qwen3moe of 1.4 billion parameters, 8 of 64 experts, Q8_0",
        lambda t: long(dense.plan(BENCH_EXPERTS, "bench-experts", t)),
        quantized=True,
        n_vocab=151_936,
    ),
    Recipe(
        "bench-hybrid",
        "qwen35 of 0.75 billion parameters, Q8_0",
        lambda t: long(hybrid.plan(BENCH_HYBRID, "bench-hybrid", t)),
        quantized=True,
        n_vocab=248_320,
    ),
)
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in TINY + BENCH}
