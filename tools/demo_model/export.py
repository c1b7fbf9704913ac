"""Write a checkpoint of the trainer as a GGUF file.

python -m tools.demo_model.export --run /tmp/demo-model --out llmd-demo.gguf
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from tools.demo_model.chat import END, PAD, SPECIAL_TOKENS, START
from tools.demo_model.model import Shape

TEMPLATE = Path(__file__).with_name("template.jinja")
TEMPERATURE = 0.1

_TENSORS = {
    "norm_attention": "attn_norm",
    "norm_query": "attn_q_norm",
    "norm_key": "attn_k_norm",
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "output": "attn_output",
    "norm_feed": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}


def tensor_name(name: str) -> str:
    """Returns the GGUF name of a weight of the trainer's network."""
    if name == "embedding.weight":
        return "token_embd.weight"
    if name == "norm_last.weight":
        return "output_norm.weight"
    _, layer, part, _ = name.split(".")
    return f"blk.{layer}.{_TENSORS[part]}.weight"


def add_shape(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_key_length(shape.head_width)
    writer.add_value_length(shape.head_width)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)


def add_tokenizer(writer: gguf.GGUFWriter, path: Path) -> None:
    """Writes the BPE tokenizer. Control tokens are marked, so that user text cannot produce them."""
    model: dict[str, Any] = json.loads(path.read_text())["model"]
    words = sorted(model["vocab"], key=model["vocab"].__getitem__)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(words)
    writer.add_token_types([control if word in SPECIAL_TOKENS else normal for word in words])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(words.index(PAD))
    writer.add_pad_token_id(words.index(PAD))
    writer.add_eos_token_id(words.index(END))
    writer.add_eot_token_id(words.index(END))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE.read_text().rstrip("\n"))
    if words.index(START) != len(SPECIAL_TOKENS) - 2:
        raise ValueError("the tokenizer does not begin with the control tokens")


def add_about(writer: gguf.GGUFWriter) -> None:
    writer.add_name("llmd-demo")
    writer.add_description("A small chat model, trained from scratch, that shows that a session remembers.")
    writer.add_license("MIT")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_sampling_temp(TEMPERATURE)
    writer.add_sampling_top_k(20)
    writer.add_sampling_top_p(0.9)
    writer.add_sampling_min_p(0.05)
    writer.add_sampling_penalty_repeat(1.0)


def add_weights(writer: gguf.GGUFWriter, weights: dict[str, torch.Tensor]) -> None:
    """Writes matrices as Q8_0 and norms as F32."""
    kind = gguf.GGMLQuantizationType.Q8_0
    for name, weight in weights.items():
        values = weight.float().cpu().numpy().astype(np.float32)
        if values.ndim == 2:
            writer.add_tensor(tensor_name(name), gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor_name(name), values)


def export(run: Path, out: Path) -> None:
    state = torch.load(run / "checkpoint.pt", map_location="cpu", weights_only=True)
    partial = out.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, "qwen3")
    add_about(writer)
    add_shape(writer, Shape(**state["shape"]))
    add_tokenizer(writer, run / "tokenizer.json")
    add_weights(writer, state["model"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(partial, out)
    print(f"{out}: {out.stat().st_size} bytes, step {state['step']}, {state['tokens']} tokens")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a checkpoint as a GGUF file.")
    parser.add_argument("--run", type=Path, required=True, help="the trainer's --out")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    options = parser.parse_args()
    export(options.run, options.out)


if __name__ == "__main__":
    main()
