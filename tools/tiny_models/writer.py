"""Writes a plan as a GGUF file: one tensor in memory at a time, complete or not at all."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import gguf
import numpy as np

from .plan import MetadataValue, Plan, Tensor, Vector
from .tokenizer import END_OF_TEXT, END_OF_TURN, PRE_TOKENIZER, Tokenizer
from .vocabularies import Vocabulary
from .weights import Stored, stored, stored_shape

VERSION_SEARCH_BYTES = 1024
SPECIAL_KEYS = {
    "bos": gguf.Keys.Tokenizer.BOS_ID,
    "eos": gguf.Keys.Tokenizer.EOS_ID,
    "eot": gguf.Keys.Tokenizer.EOT_ID,
    "eom": gguf.Keys.Tokenizer.EOM_ID,
    "unk": gguf.Keys.Tokenizer.UNK_ID,
    "sep": gguf.Keys.Tokenizer.SEP_ID,
    "pad": gguf.Keys.Tokenizer.PAD_ID,
    "mask": gguf.Keys.Tokenizer.MASK_ID,
}


def generator_version() -> str:
    """Changes with anything that could change the bytes of a file: this package's sources and its two libraries."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.iterdir()):
        if path.suffix in (".py", ".txt", ".jinja"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    for name in ("gguf", "numpy"):
        digest.update(f"{name} {version(name)}".encode())
    return digest.hexdigest()[:32]


def is_current(path: Path) -> bool:
    """Whether the file was made by this version. The version is the second entry of its metadata."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return generator_version().encode() in file.read(VERSION_SEARCH_BYTES)


def write(path: Path, name: str, plan: Plan, words: Tokenizer | Vocabulary, quantized: bool) -> None:
    with _whole(path) as partial:
        _write(partial, name, plan, words, quantized)


def write_vocabulary(path: Path, name: str, vocabulary: Vocabulary) -> None:
    with _whole(path) as partial:
        _write_vocabulary(partial, name, vocabulary)


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _write(path: Path, name: str, plan: Plan, words: Tokenizer | Vocabulary, quantized: bool) -> None:
    writer = gguf.GGUFWriter(path, plan.arch)
    writer.add_string("general.version", generator_version())
    writer.add_type("model")
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0 if quantized else gguf.LlamaFileType.ALL_F32)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for key, value in plan.all_metadata().items():
        _add(writer, f"{plan.arch}.{key}", value)
    if isinstance(words, Vocabulary):
        _add_vocabulary(writer, words)
    else:
        _add_tokenizer(writer, words)
    for tensor in plan.tensors:
        _declare(writer, tensor, quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in plan.tensors:
        writer.write_tensor_data(_data(tensor, plan.seed, quantized))
    writer.close()


def _write_vocabulary(path: Path, name: str, vocabulary: Vocabulary) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("general.version", generator_version())
    writer.add_type("vocab")
    writer.add_name(name)
    _add_vocabulary(writer, vocabulary)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def _add_vocabulary(writer: gguf.GGUFWriter, vocabulary: Vocabulary) -> None:
    writer.add_tokenizer_model(vocabulary.model)
    if vocabulary.pre:
        writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list([text for text, _ in vocabulary.tokens])
    writer.add_token_types([kind for _, kind in vocabulary.tokens])
    writer.add_token_scores([-float(rank) for rank in range(len(vocabulary.tokens))])
    if vocabulary.merges:
        writer.add_token_merges(vocabulary.merges)
    for kind, text in vocabulary.specials.items():
        writer.add_uint32(SPECIAL_KEYS[kind], vocabulary.id_of(text))
    writer.add_add_space_prefix(vocabulary.adds_space)
    if vocabulary.n_text_types:
        writer.add_token_type_count(vocabulary.n_text_types)


def _add(writer: gguf.GGUFWriter, key: str, value: MetadataValue) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_array(key, value)


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER)
    writer.add_token_list(tokenizer.tokens)
    writer.add_token_types(tokenizer.types)
    writer.add_token_merges(tokenizer.merges)
    writer.add_bos_token_id(tokenizer.id_of(END_OF_TEXT))
    writer.add_eos_token_id(tokenizer.id_of(END_OF_TURN))
    writer.add_eot_token_id(tokenizer.id_of(END_OF_TURN))
    writer.add_pad_token_id(tokenizer.id_of("<|pad|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(tokenizer.chat_template)


def _declare(writer: gguf.GGUFWriter, tensor: Tensor, quantized: bool) -> None:
    if isinstance(tensor, Vector):
        writer.add_tensor_info(tensor.name, tensor.values.shape, tensor.values.dtype, tensor.values.nbytes)
        return
    n_rows, n_cols = stored_shape(tensor, quantized)
    n = tensor.n_experts
    shape = (n_rows, n_cols) if n is None else (n, n_rows // n, n_cols)
    if quantized:
        q8_0 = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.uint8), n_rows * n_cols, q8_0)
    else:
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), n_rows * n_cols * 4)


def _data(tensor: Tensor, seed: str, quantized: bool) -> Stored:
    if isinstance(tensor, Vector):
        return tensor.values
    return stored(tensor, seed, quantized)
