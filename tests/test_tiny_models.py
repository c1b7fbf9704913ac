"""The generated GGUF models are complete and reproducible, and have the architectures that their names say."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from tools.tiny_models import copying, tokenizer, writer
from tools.tiny_models.__main__ import main, make
from tools.tiny_models.catalog import BENCH, RECIPES, TINY, TINY_ENCODERS, Recipe
from tools.tiny_models.dense import ROPE_BASE
from tools.tiny_models.plan import FloatArray, Matrix, Plan
from tools.tiny_models.vocabularies import VOCABULARIES
from tools.tiny_models.weights import BLOCK_ROWS, DRAWN_ENTRIES_MAX, rows, stored

ROOT = Path(__file__).parents[1]
SIZE_MAX_BYTES = 25_000_000
TINY_NAMES = [recipe.name for recipe in TINY]
ARCHITECTURES = {
    "tiny-dense": "qwen3",
    "tiny-window": "gemma3",
    "tiny-recurrent": "mamba2",
    "tiny-hybrid": "qwen35",
    "tiny-granite": "granitehybrid",
    "tiny-hybrid-window": "lfm2",
    "tiny-latent": "deepseek2",
    "tiny-indexed": "deepseek32",
    "tiny-indexed-shared": "glm-dsa",
    "tiny-sparse": "minimax-m3",
    "tiny-embed-last": "qwen3",
    "tiny-embed-mean": "qwen3",
    "tiny-dense-q8": "qwen3",
    "tiny-odd-heads": "qwen3",
    "tiny-experts": "qwen3moe",
    "tiny-experts-q8": "qwen3moe",
    "tiny-hybrid-q8": "qwen35",
}
REQUIRED_KEYS = {
    "qwen3": {"attention.head_count", "attention.head_count_kv", "rope.freq_base"},
    "qwen3moe": {"expert_count", "expert_used_count", "expert_feed_forward_length"},
    "gemma3": {"attention.sliding_window"},
    "mamba2": {"ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank", "ssm.group_count"},
    "qwen35": {"rope.dimension_sections", "full_attention_interval", "ssm.state_size", "ssm.group_count"},
    "deepseek2": {"attention.kv_lora_rank", "attention.key_length_mla", "leading_dense_block_count"},
    "deepseek32": {"attention.indexer.head_count", "attention.indexer.key_length", "attention.indexer.top_k"},
    "glm-dsa": {"attention.indexer.top_k", "attention.indexer.types"},
    "minimax-m3": {"attention.indexer.block_size", "attention.indexer.local_blocks", "expert_shared_count"},
    "lfm2": {"attention.head_count_kv", "attention.sliding_window", "shortconv.l_cache"},
    "granitehybrid": {"attention.head_count_kv", "attention.scale", "logit_scale", "ssm.inner_size"},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models")
    assert main(["--out", str(out)]) == 0
    return out


def read(made: Path, name: str) -> gguf.GGUFReader:
    return gguf.GGUFReader(made / f"{name}.gguf")


def value(reader: gguf.GGUFReader, key: str) -> object:
    field = reader.get_field(key)
    assert field is not None, key
    return field.contents()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_catalogue_is_what_is_tested() -> None:
    assert set(TINY_NAMES) == set(ARCHITECTURES)


@pytest.mark.parametrize("name", TINY_NAMES)
def test_architecture_keys_and_size(made: Path, name: str) -> None:
    reader = read(made, name)
    arch = ARCHITECTURES[name]
    assert value(reader, "general.architecture") == arch
    assert value(reader, f"{arch}.context_length") == 4096
    for key in REQUIRED_KEYS[arch]:
        value(reader, f"{arch}.{key}")
    assert (made / f"{name}.gguf").stat().st_size < SIZE_MAX_BYTES


@pytest.mark.parametrize("name", TINY_NAMES)
def test_tensors_are_finite_and_of_the_named_type(made: Path, name: str) -> None:
    tensors = read(made, name).tensors
    quantized = {tensor.name for tensor in tensors if tensor.tensor_type == gguf.GGMLQuantizationType.Q8_0}
    for tensor in tensors:
        assert np.isfinite(gguf.quants.dequantize(tensor.data, tensor.tensor_type)).all(), tensor.name
    if not name.endswith("-q8"):
        assert not quantized
        return
    down = "blk.0.ffn_down_exps.weight" if "experts" in name else "blk.0.ffn_down.weight"
    assert {"token_embd.weight", "output.weight", down} <= quantized
    assert not any("norm" in tensor or "conv1d" in tensor or "gate_inp" in tensor for tensor in quantized)


def test_another_process_makes_the_same_bytes(made: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.tiny_models", "--out", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "1"})
    names = (*TINY_NAMES, *TINY_ENCODERS, *VOCABULARIES)
    assert {name: digest(tmp_path / f"{name}.gguf") for name in names} == {
        name: digest(made / f"{name}.gguf") for name in names
    }


def test_quantized_twins_have_the_same_weights(made: Path) -> None:
    exact = {tensor.name: tensor for tensor in read(made, "tiny-dense").tensors}
    for tensor in read(made, "tiny-dense-q8").tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        step = np.abs(exact[tensor.name].data).max() / 127
        assert np.abs(values - exact[tensor.name].data).max() <= step, tensor.name


def test_a_current_file_is_kept_and_any_other_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make(RECIPES["tiny-dense-q8"], tmp_path)
    os.utime(path, (1, 1))
    make(RECIPES["tiny-dense-q8"], tmp_path)
    assert path.stat().st_mtime == 1
    assert "up to date" in capsys.readouterr().out
    whole = path.read_bytes()
    path.write_bytes(whole.replace(writer.generator_version().encode(), b"0" * 32))
    make(RECIPES["tiny-dense-q8"], tmp_path)
    assert path.read_bytes() == whole


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def broken(_: tokenizer.Tokenizer) -> Plan:
        plan = RECIPES["tiny-dense"].plan(tokenizer.build())
        return Plan(plan.arch, plan.seed, plan.n_vocab, plan.metadata, [Matrix("odd.weight", 2, 33, 1.0)])

    with pytest.raises(ValueError, match=r"odd\.weight: rows of 33 entries"):
        make(Recipe("broken", "", broken, quantized=True), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_unknown_names_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path / "none"), "tiny-dense", "tiny-nothing"]) == 2
    assert "no such model: tiny-nothing" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", TINY_NAMES)
def test_tokenizer_metadata_is_consistent(made: Path, name: str) -> None:
    reader = read(made, name)
    tokens = value(reader, "tokenizer.ggml.tokens")
    assert isinstance(tokens, list)
    assert len(tokens) == len(set(tokens)) == tokenizer.N_VOCAB
    merges = value(reader, "tokenizer.ggml.merges")
    assert isinstance(merges, list)
    assert {merge.replace(" ", "", 1) for merge in merges} <= set(tokens)
    end_of_turn = tokens.index("<|im_end|>")
    assert value(reader, "tokenizer.ggml.eos_token_id") == end_of_turn
    assert value(reader, "tokenizer.ggml.eot_token_id") == end_of_turn
    types = value(reader, "tokenizer.ggml.token_type")
    assert isinstance(types, list)
    assert types[end_of_turn] == tokenizer.TOKEN_CONTROL
    embedding = next(tensor for tensor in reader.tensors if tensor.name == "token_embd.weight")
    assert embedding.shape[1] == len(tokens)


@pytest.mark.parametrize("name", TINY_ENCODERS)
def test_encoders_pool_and_have_a_row_for_each_token(made: Path, name: str) -> None:
    reader, shape = read(made, name), TINY_ENCODERS[name]
    assert value(reader, "general.architecture") == shape.arch
    assert value(reader, f"{shape.arch}.pooling_type") == shape.pooling
    assert value(reader, f"{shape.arch}.context_length") == 512
    assert value(reader, "tokenizer.ggml.model") == "bert"
    rows_of = {tensor.name: tensor.shape[1] for tensor in reader.tensors if tensor.name.endswith("embd.weight")}
    tokens = value(reader, "tokenizer.ggml.tokens")
    assert isinstance(tokens, list) and rows_of["token_embd.weight"] == len(tokens) == len(set(tokens))
    assert rows_of.get("position_embd.weight", 512) == 512
    assert all(np.isfinite(tensor.data).all() for tensor in reader.tensors)


def test_every_byte_has_a_token() -> None:
    words = tokenizer.build()
    assert set(tokenizer.byte_letters()) <= set(words.tokens)
    assert len(set(tokenizer.byte_letters())) == 256


def test_merges_join_only_what_exists_before() -> None:
    known = set(tokenizer.byte_letters())
    for merge in tokenizer.build().merges:
        left, right = merge.split(" ")
        assert left in known and right in known
        known.add(left + right)


def test_training_takes_the_most_frequent_pair_first() -> None:
    assert tokenizer.train("low low low lower", 3) == [("l", "o"), ("lo", "w"), ("Ġ", "low")]


def test_only_readable_tokens_are_printable() -> None:
    words = tokenizer.build()
    printable = dict(zip(words.tokens, words.printable(), strict=True))
    assert printable["Ġthe"] and printable["a"]
    assert not printable["<|im_end|>"]
    assert not printable[tokenizer.byte_letters()[0x00]]
    assert not printable[tokenizer.byte_letters()[0xC3]]


def test_a_text_is_encoded_with_the_merges_in_their_order() -> None:
    words = tokenizer.trained("low low low lower", 3)
    assert [words.tokens[id] for id in words.encode("low flow")] == ["low", "Ġ", "f", "low"]
    text = tokenizer.CORPUS_PATH.read_text()
    built = tokenizer.build()
    assert built.decode(built.encode(text)) == text
    assert len(built.encode(text)) < len(text) / 2


def test_no_text_is_split_into_added_tokens() -> None:
    words = tokenizer.trained("low low low lower", 3, ["flow", "low"])
    assert [words.tokens[id] for id in words.encode("flow")] == ["f", "low"]
    assert words.tokens.count("low") == 1
    assert words.decode([words.id_of("flow")]) == "flow"
    assert words.types[words.id_of("flow")] == tokenizer.TOKEN_NORMAL


def test_padding_adds_unused_tokens_only() -> None:
    words = tokenizer.build()
    padded = words.padded(tokenizer.N_VOCAB + 5)
    assert padded.tokens[: tokenizer.N_VOCAB] == words.tokens
    assert padded.types[tokenizer.N_VOCAB :] == (tokenizer.TOKEN_UNUSED,) * 5
    assert len(set(padded.tokens)) == tokenizer.N_VOCAB + 5


def test_large_matrices_repeat_one_block_up_to_sign() -> None:
    large = Matrix("large.weight", DRAWN_ENTRIES_MAX // 64 + 1, 64, gain=8.0)
    drawn = np.concatenate(list(rows(large, "test")))
    assert drawn.shape == (large.n_rows, large.n_cols)
    assert len(np.unique(np.abs(drawn), axis=0)) <= BLOCK_ROWS
    assert abs(float(drawn.std()) - 1.0) < 0.05


def test_no_expert_writes_to_the_constant_channel(made: Path) -> None:
    for tensor in read(made, "tiny-experts").tensors:
        if tensor.name.endswith("ffn_down_exps.weight"):
            assert tensor.data.shape == (8, 128, 128)
            assert (tensor.data[:, 0] == 0).all()
            assert (tensor.data[:, 1:] != 0).any(axis=2).all()


def test_rows_that_are_not_drawn_are_zero_but_for_the_first_column() -> None:
    column = np.arange(8, dtype=np.float32)
    matrix = Matrix("few.weight", 8, 32, gain=1.0, first_column=column, n_rows_drawn=3)
    values = stored(matrix, "test", quantized=False)
    assert (values[:, 0] == column).all()
    assert (values[3:, 1:] == 0).all()
    assert (values[:3, 1:] != 0).all()


def test_drawn_rows_can_be_given() -> None:
    column, first = np.arange(8, dtype=np.float32), np.ones((3, 32), dtype=np.float32)
    values = stored(Matrix("few.weight", 8, 32, 0, column, rows_drawn=first), "test", quantized=False)
    assert (values[:, 0] == column).all()
    assert (values[:3, 1:] == 1).all()
    assert (values[3:, 1:] == 0).all()


def test_a_token_attends_to_the_one_at_the_distance() -> None:
    query, key = copying.peaked_at(copying.DISTANCE, 128)
    frequencies = ROPE_BASE ** (-np.arange(0, 128, 2) / 128)

    def rotated(vector: FloatArray, position: npt.NDArray[np.int_]) -> npt.NDArray[np.complex128]:
        return (vector[:64] + 1j * vector[64:]) * np.exp(1j * np.multiply.outer(position, frequencies))

    n = copying.DISTANCE + 500
    scores = (rotated(query, np.array(n)) * rotated(key, np.arange(n + 1)).conj()).real.sum(axis=1) / np.sqrt(128)
    assert scores.argmax() == n - copying.DISTANCE
    assert np.sort(scores)[-1] - np.sort(scores)[-2] > 10


def test_the_model_that_edits_replaces_tokens_of_its_file() -> None:
    words = copying.vocabulary()
    file = words.encode(copying.FILE_PATH.read_text())
    replaced = copying.edits(words)
    assert len(replaced) == len(copying.EDITS)
    assert set(replaced) <= set(file)
    assert 0.02 < sum(token in replaced for token in file) / len(file) < 0.05
    assert copying.FILE_PATH.read_text().count("\n") == 300


PROMISED_PARAMETERS = {
    "bench-small": 28e6,
    "bench-long": 28e6,
    "bench-dense": 0.6e9,
    "bench-edit": 0.6e9,
    "bench-experts": 1.4e9,
    "bench-hybrid": 0.75e9,
}


@pytest.mark.parametrize("recipe", BENCH, ids=lambda recipe: recipe.name)
def test_bench_plans_have_the_promised_number_of_parameters(recipe: Recipe) -> None:
    promised = PROMISED_PARAMETERS[recipe.name]
    plan = recipe.plan(recipe.words())
    n_parameters = sum(
        tensor.n_rows * tensor.n_cols if isinstance(tensor, Matrix) else tensor.values.size for tensor in plan.tensors
    )
    assert abs(n_parameters / promised - 1) < 0.05
    assert plan.n_vocab == recipe.n_vocab
