"""The byte-level BPE tokenizer, trained on generated conversations. llama.cpp's name for its pre-tokenizer is
`qwen2`.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from tools.demo_model.chat import END, PAD, SPECIAL_TOKENS, START, Conversation, render
from tools.demo_model.mixture import conversations

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train(size: int, seed: int, count: int) -> Tokenizer:
    """Trains a tokenizer of `size` tokens with `count` conversations."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = ("".join(text for text, _ in render(c)) for c in islice(conversations(seed), count))
    plain = (text.replace(START, "").replace(END, "").replace(PAD, "") for text in texts)
    tokenizer.train_from_iterator(plain, trainer)
    return tokenizer


def load_or_train(path: Path, size: int, seed: int = 1, count: int = 20_000) -> Tokenizer:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        train(size, seed, count).save(str(path))
    return Tokenizer.from_file(str(path))


class Encoder:
    """Conversations as token ids; user text never becomes a control token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.start = tokenizer.token_to_id(START)
        self.end = tokenizer.token_to_id(END)

    def encode(self, conversation: Conversation) -> tuple[list[int], list[str]]:
        """Returns token ids and, for each, the tag of what the model has to write there ('' elsewhere)."""
        ids: list[int] = []
        tags: list[str] = []
        for text, tag in render(conversation):
            piece: list[int] = self.tokenizer.encode(text).ids
            ids.extend(piece)
            tags.extend([tag] * len(piece))
        return ids, tags
