"""Vocabularies without a model, one of each kind that llama.cpp tokenizes with; for tests of tokenizing alone."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from zlib import crc32

from . import tokenizer
from .tokenizer import TOKEN_CONTROL, TOKEN_NORMAL, TOKEN_USER_DEFINED

TOKEN_UNKNOWN = 2
TOKEN_BYTE = 6

SPACE = "\u2581"
EDGE_CHARS = (
    "abesdltmrvZALST 0127\n\r\t'!?/.-(|$+=~`^_,{\\][\"%<>:\x01\u00e9\u00df\u4e2d\u306e\ud55c\u0663\u00a0\u3000\u0301"
    "\u093f\U0001f600\u200b\u2026\uff0c\u2167\u01c5\u02b0\u1680\ufffd"
)
N_PIECES = 400
PIECE_CHARS_MAX = 5
N_TEXT_TYPES = 2  # of a model that is told which of two texts a token is in
PLACE_MARK = "\ue000"  # behind each DNA word, in the file alone

Token = tuple[str, int]


@dataclass(frozen=True)
class Vocabulary:
    """What a GGUF file says about its tokenizer. `specials`: kind (bos, eos, unk, sep, pad) → text of the token."""

    model: str
    pre: str
    tokens: tuple[Token, ...]
    specials: dict[str, str]
    merges: tuple[str, ...] = ()
    adds_space: bool = False
    n_text_types: int = 0

    def id_of(self, text: str) -> int:
        return [token for token, _ in self.tokens].index(text)


# Words of their own in any text: some begin others, one is a blank.
USER_DEFINED: tuple[Token, ...] = tuple(
    (text, TOKEN_USER_DEFINED) for text in ("<think>", "</think>", "<th", "zz", "zzz", "\n\n", "\t")
)
BYTES: tuple[Token, ...] = tuple((f"<0x{byte:02X}>", TOKEN_BYTE) for byte in range(256))


def byte_bpe() -> Vocabulary:
    """Merges of bytes, like GPT-2's. The name of its pre-tokenizer says where its words end; almost every difference
    there shows, since all pairs of many bytes merge, in an order without a pattern.
    """
    built = tokenizer.build()
    letters = tokenizer.byte_letters()
    edge_letters = sorted({letters[byte] for byte in EDGE_CHARS.encode()})
    pairs = sorted(product(edge_letters, repeat=2), key=lambda pair: crc32("".join(pair).encode()))
    merges = (*built.merges, *(f"{left} {right}" for left, right in pairs if left + right not in built.tokens))
    dna = ("AAA" + "".join(word) + PLACE_MARK for word in product("ACGT", repeat=3))
    tokens: dict[str, int] = dict(zip(built.tokens, built.types, strict=True))
    tokens |= dict(normal("".join(pair) for pair in pairs if "".join(pair) not in tokens))
    tokens |= {"<mask>": TOKEN_CONTROL} | dict(USER_DEFINED)
    tokens |= dict(normal(("<dna>", "</dna>", "<oov>", *dna)))  # words of DNA follow <oov>
    return Vocabulary("gpt2", "default", tuple(tokens.items()), {"bos": "<|endoftext|>", "eos": "<|im_end|>"}, merges)


def text_bpe() -> Vocabulary:
    """Merges of characters; what is no character of the vocabulary is spelled in bytes."""
    pairs = tuple(piece for piece in pieces() if len(piece) == 2)
    letters = tuple(sorted({letter for pair in pairs for letter in pair} | {SPACE, "\n"}))
    longer = tuple(piece for piece in pieces() if len(piece) == 3 and piece[:2] in pairs and piece[2] in letters)
    controls = tuple((text, TOKEN_CONTROL) for text in ("<pad>", "<eos>", "<bos>", "<|im_start|>", "<|im_end|>"))
    words = tuple((text, TOKEN_NORMAL) for text in (*letters, *pairs, *longer))
    merges = (*(f"{pair[0]} {pair[1]}" for pair in pairs), *(f"{piece[:2]} {piece[2]}" for piece in longer))
    tokens = (*controls, ("<unk>", TOKEN_UNKNOWN), *BYTES, *words, *USER_DEFINED)
    return Vocabulary("gemma4", "gemma4", tokens, {"bos": "<bos>", "eos": "<eos>", "unk": "<unk>"}, merges)


def sentence_pieces() -> Vocabulary:
    """SentencePiece's merges by score. With the control tokens that llama.cpp wants of a model named Phi-3."""
    controls = tuple((text, TOKEN_CONTROL) for text in ("<s>", "</s>", "<|endoftext|>", "<|end|>"))
    tokens = (("<unk>", TOKEN_UNKNOWN), *controls, *BYTES, *normal(pieces()), *USER_DEFINED)
    return Vocabulary("llama", "", tokens, {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}, adds_space=True)


def unigrams() -> Vocabulary:
    controls = (("<pad>", TOKEN_CONTROL), ("</s>", TOKEN_CONTROL), ("<unk>", TOKEN_UNKNOWN))
    tokens = (*controls, *normal(pieces()), *USER_DEFINED)
    return Vocabulary("t5", "", tokens, {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}, adds_space=True)


def word_pieces() -> Vocabulary:
    controls = tuple((text, TOKEN_CONTROL) for text in ("[PAD]", "[CLS]", "[SEP]", "[MASK]"))
    tokens = (*controls, ("[UNK]", TOKEN_UNKNOWN), *normal(pieces()), *USER_DEFINED)
    specials = {"bos": "[CLS]", "sep": "[SEP]", "unk": "[UNK]", "pad": "[PAD]", "mask": "[MASK]"}
    return Vocabulary("bert", "", tokens, specials, n_text_types=N_TEXT_TYPES)


def longest_matches() -> Vocabulary:
    """RWKV's; without the token "q", which others begin with, so that a match can begin and not end."""
    escaped = {0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x5C: "\\\\"}
    spelled = (escaped.get(byte, chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}") for byte in range(256))
    single = tuple(text for text in spelled if text != "q")
    words = sorted({piece.replace(SPACE, " ") for piece in pieces() if len(piece) > 1} | {"quu", "qui"})
    clean = tuple(word for word in words if "\\" not in word and word not in single)
    tokens = (("<s>", TOKEN_CONTROL), *normal((*single, *clean)), ("<unk>", TOKEN_UNKNOWN), *USER_DEFINED[:2])
    return Vocabulary("rwkv", "", tokens, {"unk": "<unk>"})


def plamo() -> Vocabulary:
    controls = tuple((f"<|plamo:{name}|>", TOKEN_CONTROL) for name in ("bos", "eos", "pad"))
    words = normal(piece.replace(SPACE, " ") for piece in pieces() if piece != SPACE)
    unique = tuple(dict.fromkeys(words))
    specials = {"bos": "<|plamo:bos|>", "eos": "<|plamo:eos|>", "pad": "<|plamo:pad|>", "unk": "<|plamo:unk|>"}
    return Vocabulary("plamo2", "", (("<|plamo:unk|>", TOKEN_UNKNOWN), *controls, *BYTES, *unique), specials)


def normal(texts: Iterator[str] | tuple[str, ...]) -> tuple[Token, ...]:
    return tuple((text, TOKEN_NORMAL) for text in texts)


def pieces() -> tuple[str, ...]:
    """The characters of the corpus and its most frequent short strings, frequent ones first."""
    text = tokenizer.CORPUS_PATH.read_text(encoding="utf-8").replace(" ", SPACE)
    lines = [SPACE + line for line in text.splitlines()]
    counts: Counter[str] = Counter()
    for length in range(2, PIECE_CHARS_MAX + 1):
        for line in lines:
            counts.update(line[at : at + length] for at in range(len(line) - length + 1))
    inner = sorted((piece for piece in counts if SPACE not in piece[1:]), key=lambda piece: (-counts[piece], piece))
    letters = sorted(set("".join(lines)))
    return (*inner[:N_PIECES], *letters)


VOCABULARIES: dict[str, Callable[[], Vocabulary]] = {
    "vocab-byte-bpe": byte_bpe,
    "vocab-text-bpe": text_bpe,
    "vocab-spm": sentence_pieces,
    "vocab-ugm": unigrams,
    "vocab-wpm": word_pieces,
    "vocab-rwkv": longest_matches,
    "vocab-plamo": plamo,
}
