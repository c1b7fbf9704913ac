"""Names of models, and which file of a repository is chosen. Nothing here uses the network or the disk."""

from __future__ import annotations

import pytest

from llmd.models import choice, names
from llmd.models.choice import GIB, RepositoryFile, candidates_of, choose
from llmd.models.errors import ModelError
from llmd.models.names import HubName, is_hub_name, parse_hub_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Qwen/Qwen3-8B-GGUF", HubName("Qwen/Qwen3-8B-GGUF")),
        ("Qwen/Qwen3-8B-GGUF:q4_k_m", HubName("Qwen/Qwen3-8B-GGUF", "q4_k_m")),
        ("a/b:latest", HubName("a/b")),
        ("a/b:x.gguf", HubName("a/b", "", "x.gguf")),
        ("hf.co/a/b", HubName("a/b")),
        ("hf.co/a/b:Q8_0", HubName("a/b", "Q8_0")),
        ("huggingface.co/a/b:sub/x.gguf", HubName("a/b", "", "sub/x.gguf")),
        ("https://huggingface.co/a/b", HubName("a/b")),
        ("https://huggingface.co/a/b/", HubName("a/b")),
        ("https://huggingface.co/a/b/tree/main", HubName("a/b")),
        ("https://hf.co/a/b/blob/main/sub/x%2Dy.gguf", HubName("a/b", "", "sub/x-y.gguf")),
        ("https://huggingface.co/a/b/resolve/v2/x.gguf?download=true", HubName("a/b", "", "x.gguf", "v2")),
        ("hf://a/b", HubName("a/b")),
        ("hf://a/b@v2/x.gguf", HubName("a/b", "", "x.gguf", "v2")),
        ("hf://models/a/b:Q8_0", HubName("a/b", "Q8_0")),
        ("model.gguf", None),
        ("models/model.gguf", None),
        ("./a/b", None),
        ("/a/b", None),
        ("~/a", None),
        ("a/b/c", None),
        ("qwen3:8b", None),
        ("sim:dense", None),
        ("https://example.org/a/b.gguf", None),
    ],
)
def test_names(text: str, name: HubName | None) -> None:
    assert parse_hub_name(text) == name and is_hub_name(text) == (name is not None)


@pytest.mark.parametrize("text", ["https://huggingface.co/models", "hf.co/a", "hf://datasets/", "hf.co/../b"])
def test_an_address_that_names_no_repository(text: str) -> None:
    assert is_hub_name(text)
    with pytest.raises(ModelError, match=r"a name is OWNER/NAME, OWNER/NAME:QUANTIZATION"):
        parse_hub_name(text)


def test_a_name_as_text() -> None:
    assert [str(one) for one in (HubName("a/b"), HubName("a/b", "Q8_0"), HubName("a/b", "", "c.gguf"))] == [
        "a/b",
        "a/b:Q8_0",
        "a/b:c.gguf",
    ]
    assert names.MAIN == HubName("a/b").revision


@pytest.mark.parametrize(
    ("path", "quantization", "base"),
    [
        ("Qwen3-8B-Q4_K_M.gguf", "Q4_K_M", "qwen3-8b"),
        ("model.q4_0.gguf", "Q4_0", "model"),
        ("Qwen3-30B-A3B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL", "qwen3-30b-a3b"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4", "gpt-oss-20b"),
        ("ggml-model-fp16.gguf", "F16", "ggml-model"),
        ("BF16/model.gguf", "BF16", "model"),
        ("phi-IQ1_S.gguf", "IQ1_S", "phi"),
        ("tiny-dense.gguf", "", "tiny-dense"),
        ("SQ8_0.gguf", "", "sq8_0"),
    ],
)
def test_quantizations(path: str, quantization: str, base: str) -> None:
    assert choice.quantization_of(path) == quantization
    assert choice.base_of(path.removesuffix(".gguf")) == base


def files(*paths: str, n_bytes: int = GIB) -> list[RepositoryFile]:
    return [RepositoryFile(path, n_bytes) for path in paths]


def chosen(paths: list[str], **wanted: object) -> str:
    return choose(candidates_of(files(*paths)), **wanted).candidate.first  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["m-F16.gguf", "m-Q8_0.gguf", "m-Q4_K_M.gguf"], "m-Q4_K_M.gguf"),
        (["m-F16.gguf", "m-Q8_0.gguf", "m-Q6_K.gguf"], "m-Q8_0.gguf"),
        (["m-F16.gguf", "m-Q4_0.gguf", "m-Q3_K_M.gguf", "m-Q6_K.gguf"], "m-Q6_K.gguf"),
        (["m-F16.gguf", "m-IQ4_XS.gguf"], "m-IQ4_XS.gguf"),
        (["m-UD-Q4_K_XL.gguf", "m-BF16.gguf"], "m-UD-Q4_K_XL.gguf"),
        (["m.gguf", "m-F32.gguf"], "m-F32.gguf"),
        (["README.md", "mmproj-m-f16.gguf", "m.imatrix.gguf", "m.gguf"], "m.gguf"),
    ],
)
def test_the_preferred_quantization(paths: list[str], expected: str) -> None:
    assert chosen(paths) == expected
    assert chosen(paths[::-1]) == expected


def test_what_fits_into_the_memory() -> None:
    found = candidates_of([RepositoryFile("m-Q4_K_M.gguf", 5 * GIB), RepositoryFile("m-Q2_K.gguf", 3 * GIB)])
    assert choose(found, free_bytes=6 * GIB).candidate.first == "m-Q4_K_M.gguf"
    small = choose(found, free_bytes=5 * GIB)  # the KV cache needs memory, too
    assert small.candidate.first == "m-Q2_K.gguf"
    assert small.why == "Q2_K is the most preferred quantization that fits into 5.0 GiB of memory"
    with pytest.raises(ModelError, match=r"the smallest, m-Q2_K.gguf, takes 3.0 GiB, and 2.0 GiB are available; free"):
        choose(found, free_bytes=2 * GIB)
    assert choose(found, "q4_k_m", free_bytes=5 * GIB).why == "you named this quantization"
    with pytest.raises(ModelError, match=r"m-Q4_K_M.gguf takes 5.0 GiB, but 4.0 GiB .* --oversize allow"):
        choose(found, "q4_k_m", free_bytes=4 * GIB)
    assert choose(found).candidate.first == "m-Q4_K_M.gguf"


def test_a_named_quantization() -> None:
    paths = ["m-Q4_K_M.gguf", "m-UD-Q4_K_XL.gguf", "m-Q8_0.gguf", "m-special.gguf"]
    assert chosen(paths, quantization="q8_0") == "m-Q8_0.gguf"
    assert chosen(paths, quantization="Q4_K_XL") == "m-UD-Q4_K_XL.gguf"
    assert chosen(paths, quantization="ud-q4_k_xl") == "m-UD-Q4_K_XL.gguf"
    assert chosen(paths, quantization="special") == "m-special.gguf"
    with pytest.raises(ModelError, match=r"no quantization Q5_0: name one of Q4_K_M, Q8_0, UD-Q4_K_XL, m-special.gguf"):
        chosen(paths, quantization="Q5_0")


def test_a_named_file() -> None:
    paths = ["a/m-Q4_K_M.gguf", "b/m-Q4_K_M.gguf", "mmproj.gguf"]
    assert chosen(paths, file="b/m-Q4_K_M.gguf") == "b/m-Q4_K_M.gguf"
    assert chosen(paths, file="m-Q4_K_M.gguf") == "a/m-Q4_K_M.gguf"
    with pytest.raises(ModelError, match=r"no file mmproj.gguf that is a model: name one of a/m-Q4_K_M.gguf, b/m-"):
        chosen(paths, file="mmproj.gguf")
    for wanted in ({}, {"quantization": "Q4_K_M"}):
        with pytest.raises(ModelError, match=r"several files match: write OWNER/NAME:FILE with one of a/m-Q4_K_M"):
            chosen(paths, **wanted)


def test_a_long_list_is_cut() -> None:
    with pytest.raises(ModelError, match=r"m-11.gguf and 8 more$"):
        chosen([f"m-{n:02}.gguf" for n in range(20)], quantization="Q4_K_M")


def test_no_gguf_file() -> None:
    with pytest.raises(ModelError, match="no GGUF file: look for a repository .* -GGUF"):
        chosen(["model.safetensors", "mmproj.gguf"])


def test_split_models() -> None:
    parts = [f"Q8_0/m-Q8_0-{n:05}-of-00003.gguf" for n in (2, 3, 1)]
    found = candidates_of(files(*parts, "m-00001-of-00002.gguf", "lone-00002-of-00002.gguf"))
    assert [(one.name, one.is_complete, one.n_bytes // GIB) for one in found] == [
        ("Q8_0/m-Q8_0", True, 3),
        ("m", False, 1),
    ]
    assert found[0].first == "Q8_0/m-Q8_0-00001-of-00003.gguf"
    assert [file.path for file in found[0].files] == sorted(parts)
    assert choose(found, file=parts[0]).candidate is found[0]  # any part names the whole model


@pytest.mark.parametrize(
    ("n_bytes", "text"), [(0, "1 MiB"), (12 << 20, "12 MiB"), (GIB // 2, "0.5 GiB"), (4 * GIB + GIB // 4, "4.2 GiB")]
)
def test_sizes(n_bytes: int, text: str) -> None:
    assert choice.gib(n_bytes) == text
