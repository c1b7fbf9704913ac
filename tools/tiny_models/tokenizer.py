"""A byte-level BPE tokenizer trained on the text in corpus.txt, in the form GGUF files carry it."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

CORPUS_PATH = Path(__file__).with_name("corpus.txt")
TEMPLATE_PATH = Path(__file__).with_name("chatml.jinja")

TOKEN_NORMAL = 1
TOKEN_CONTROL = 3
TOKEN_USER_DEFINED = 4
TOKEN_UNUSED = 5

END_OF_TEXT = "<|endoftext|>"
END_OF_TURN = "<|im_end|>"
SPECIALS: tuple[tuple[str, int], ...] = (
    (END_OF_TEXT, TOKEN_CONTROL),
    ("<|im_start|>", TOKEN_CONTROL),
    (END_OF_TURN, TOKEN_CONTROL),
    ("<|pad|>", TOKEN_CONTROL),
    ("<think>", TOKEN_USER_DEFINED),
    ("</think>", TOKEN_USER_DEFINED),
    ("<tool_call>", TOKEN_USER_DEFINED),
    ("</tool_call>", TOKEN_USER_DEFINED),
)
N_VOCAB = 1024
N_MERGES = N_VOCAB - 256 - len(SPECIALS)

# The name tells llama.cpp where words end. The pattern says the same to the training below; a difference
# on rare characters would only waste a merge, never make the tokenizer inconsistent.
PRE_TOKENIZER = "qwen2"
WORD = re.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|(?:[^\r\n\w]|_)?[^\W\d_]+|\d| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

Pair = tuple[str, str]


@dataclass(frozen=True)
class Tokenizer:
    """Tokens in id order with their types, and the merges in the order in which they apply."""

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]
    chat_template: str

    def id_of(self, token: str) -> int:
        return self.tokens.index(token)

    def printable(self) -> tuple[bool, ...]:
        """For each token, whether it can stand alone in a text that people read."""
        return tuple(
            kind == TOKEN_NORMAL and _is_text(token) for token, kind in zip(self.tokens, self.types, strict=True)
        )

    def padded(self, n_vocab: int) -> "Tokenizer":
        """The same tokenizer with unused tokens behind it, for models whose cost depends on n_vocab."""
        n_unused = n_vocab - len(self.tokens)
        unused = tuple(f"<|unused_{index}|>" for index in range(n_unused))
        return Tokenizer(self.tokens + unused, self.types + (TOKEN_UNUSED,) * n_unused, self.merges, self.chat_template)

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text without special tokens."""
        ids = {token: id for id, token in enumerate(self.tokens)}
        ranks = {merge: rank for rank, merge in enumerate(self.merges)}
        words = {word: _split(word, ranks) for word in set(WORD.findall(text))}
        return [ids[part] for word in WORD.findall(text) for part in words[word]]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of tokens that are neither special nor unused."""
        letters = {letter: byte for byte, letter in enumerate(byte_letters())}
        return bytes(letters[letter] for id in ids for letter in self.tokens[id]).decode()


@cache
def byte_letters() -> tuple[str, ...]:
    """The letter that stands for each byte in a vocabulary: the byte itself where that is visible, else from U+0100."""
    visible = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return tuple(chr(byte) if byte in visible else chr(next(hidden)) for byte in range(256))


@cache
def build() -> Tokenizer:
    """Train on the corpus. About a second; the same result every time."""
    return trained(CORPUS_PATH.read_text(encoding="utf-8"), N_MERGES)


def trained(text: str, n_merges: int, added: Sequence[str] = ()) -> Tokenizer:
    """Train on a text. No text is split into the added tokens, but a model can answer with them."""
    letters = byte_letters()
    merges = train(text, n_merges)
    plain = tuple(dict.fromkeys((*letters, *(left + right for left, right in merges), *added)))
    tokens = (*plain, *(token for token, _ in SPECIALS))
    types = (TOKEN_NORMAL,) * len(plain) + tuple(kind for _, kind in SPECIALS)
    spelled = tuple(f"{left} {right}" for left, right in merges)
    return Tokenizer(tokens, types, spelled, TEMPLATE_PATH.read_text(encoding="utf-8").rstrip("\n"))


def train(text: str, n_merges: int) -> list[Pair]:
    """The n_merges most frequent pairs, one after another; ties go to the alphabet, so that the order is fixed."""
    letters = byte_letters()
    counts = Counter(WORD.findall(text))
    words = [(tuple(letters[byte] for byte in word.encode()), count) for word, count in counts.items()]
    merges: list[Pair] = []
    seen: set[str] = set()
    while len(merges) < n_merges:
        pairs: Counter[Pair] = Counter()
        for word, count in words:
            for pair in pairwise(word):
                pairs[pair] += count
        best = min((pair for pair in pairs if "".join(pair) not in seen), key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        seen.add("".join(best))
        words = [(_merged(word, best), count) for word, count in words]
    return merges


def _split(word: str, ranks: dict[str, int]) -> tuple[str, ...]:
    """Returns the tokens of a word: applies the merges in their order, as the training has found them."""
    letters = byte_letters()
    parts = tuple(letters[byte] for byte in word.encode())
    while pairs := [pair for pair in pairwise(parts) if " ".join(pair) in ranks]:
        parts = _merged(parts, min(pairs, key=lambda pair: ranks[" ".join(pair)]))
    return parts


def _merged(word: tuple[str, ...], pair: Pair) -> tuple[str, ...]:
    if pair[0] not in word:
        return word
    return tuple(_merge_steps(word, pair))


def _merge_steps(word: tuple[str, ...], pair: Pair) -> Iterator[str]:
    at = 0
    while at < len(word):
        if word[at : at + 2] == pair:
            yield pair[0] + pair[1]
            at += 2
        else:
            yield word[at]
            at += 1


def _is_text(token: str) -> bool:
    letters = {letter: byte for byte, letter in enumerate(byte_letters())}
    try:
        text = bytes(letters[letter] for letter in token).decode()
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char == "\n" for char in text)
