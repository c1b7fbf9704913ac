"""The chat templates that llama.cpp keeps of real models (models/templates of the pinned source), and what each can do.

The tests of this folder run over TEMPLATES. Where a family cannot do what a test asks, its row says so, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.real_templates.driver import ROOT, Driver, Model

FOLDER = ROOT / "build/llama.cpp/models/templates"

# Delimiters that are control tokens in models of these families, and others that are mostly one token.
_CONTROL = re.compile(
    r"<\|[^|<>\s'\"{}+]{1,40}\|>|<\|[a-z_]{2,30}>|<[a-z_]{2,30}\|>|<｜[^｜<>\s'\"{}+]{1,40}｜>|\[/?[A-Z_]{3,40}\]"
    r"|<(?:start|end)_of_[a-z]+>"
)
_WORD = re.compile(r"</?[a-z_:]{2,24}>")
TOKEN = re.compile(rf"{_CONTROL.pattern}|{_WORD.pattern}| ?[^\W\d_]{{1,6}}|.", re.DOTALL)
"""Matches a token like those of models: a delimiter, a short word or one character."""

# The text that ends a string argument that is not JSON, by family. A random walk would hardly ever find it.
CLOSERS = {
    "qwen3-coder": ["\n</parameter>\n"],
    "seed-oss": ["</parameter>\n"],
    "glm": ["</arg_value>", "</arg_value>\n"],
    "ling3": ["</arg_value>"],
    "laguna": ["</arg_value>", "</arg_value>\n"],
    "spark": ["</arg_value>", "</arg_value>\n"],
    "hunyuan": ["</arg_value:opensource>", "</arg_value:opensource>\n"],
    "minimax-m2": ["</parameter>\n"],
    "minimax-m3": ["]<]minimax[>[</city>"],
    "minicpm5": ["</param>"],
    "deepseek-v3.2": ["</｜DSML｜parameter>"],
    "muse": ["</atem:parameter>\n", "<|end|>", "<|eom|>"],
    "kimi-k3": ["<|close|>argument<|sep|>"],
    "gemma4": ['<|"|>'],
    "gpt-oss": ["<|end|>"],
    "mistral": ["[ARGS]"],
}


class Ends:
    """Special tokens of a model's file: eos and others that end an answer, and bos."""

    def __init__(self, eos: str, *others: str, bos: str = "") -> None:
        self.eos, self.others, self.bos = eos, others, bos


@dataclass(frozen=True)
class Template:
    name: str  # of the file, without .jinja
    family: str
    ends: Ends
    calls: bool = True  # the template writes calls; otherwise calls have a form of llmd's own
    thinks: bool = False  # its reasoning is separate from its content
    note: str = ""

    @property
    def source(self) -> str:
        return (FOLDER / f"{self.name}.jinja").read_text()

    def open(self, driver: Driver) -> Model:
        source = self.source
        return driver.open(
            source,
            bos=self.ends.bos,
            eos=self.ends.eos,
            ends=self.ends.others,
            controls=sorted(set(_CONTROL.findall(source))),
            words=sorted(set(_WORD.findall(source))),
        )


_IM = Ends("<|im_end|>")
_DEEPSEEK = Ends("<｜end▁of▁sentence｜>", bos="<｜begin▁of▁sentence｜>")
_LLAMA = Ends("<|eot_id|>", "<|eom_id|>", bos="<|begin_of_text|>")
_COHERE = Ends("<|END_OF_TURN_TOKEN|>", bos="<BOS_TOKEN>")
_SENTENCE = Ends("</s>", bos="<s>")
_GRANITE = Ends("<|end_of_text|>")
_GLM = Ends("<|endoftext|>", "<|user|>", "<|observation|>")
_GEMMA4 = Ends("<turn|>", "<|tool_response>", bos="<bos>")

TEMPLATES = (
    Template("Apertus-8B-Instruct", "apertus", Ends("<|assistant_end|>", bos="<s>")),
    Template("Apriel-1.6-15b-Thinker-fixed", "apriel", Ends("<|end|>", bos="<|begin_of_text|>"), thinks=True),
    Template("Bielik-11B-v3.0-Instruct", "bielik", Ends("<|im_end|>", bos="<s>"), thinks=True),
    Template("ByteDance-Seed-OSS", "seed-oss", Ends("<seed:eos>", bos="<seed:bos>"), thinks=True),
    Template("Cohere2MoE", "cohere2-moe", _COHERE, thinks=True),
    Template("CohereForAI-c4ai-command-r-plus-tool_use", "command-r", _COHERE),
    Template("CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command-r7b", _COHERE, thinks=True),
    Template("GLM-4.6", "glm", _GLM, thinks=True),
    Template("GLM-4.7-Flash", "glm", _GLM, thinks=True),
    Template("GigaChat3-10B-A1.8B", "gigachat", _SENTENCE),
    Template("GigaChat3.1-10B-A1.8B", "gigachat", _SENTENCE),
    Template("HuggingFaceTB-SmolLM3-3B", "smollm3", _IM, calls=False, thinks=True),
    Template("IFM-K2-Horizon", "k2-horizon", Ends("<|ifm|im_end|>"), thinks=True),
    Template("Kimi-K2-Instruct", "kimi-k2", _IM, thinks=True),
    Template("Kimi-K2-Thinking", "kimi-k2", _IM, thinks=True),
    Template("Kimi-K3", "kimi-k3", Ends("<|end_of_msg|>"), thinks=True),
    Template("LFM2-8B-A1B", "lfm2", Ends("<|im_end|>", bos="<|startoftext|>"), thinks=True),
    Template("LFM2.5-8B-A1B", "lfm2", Ends("<|im_end|>", bos="<|startoftext|>"), thinks=True),
    Template("LFM2.5-Instruct", "lfm2", Ends("<|im_end|>", bos="<|startoftext|>"), thinks=True),
    Template("MiMo-VL", "hermes", _IM),
    Template("MiniMax-M1", "minimax-m1", Ends("<end_of_sentence>")),
    Template("MiniMax-M2", "minimax-m2", Ends("[e~["), thinks=True),
    Template("MiniMax-M3", "minimax-m3", Ends("[e~[", bos="]~!b["), thinks=True),
    Template("Mistral-Small-3.2-24B-Instruct-2506", "mistral", _SENTENCE),
    Template("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3-coder", _IM, thinks=True),
    Template("NVIDIA-Nemotron-Nano-v2", "nemotron-v2", Ends("<SPECIAL_12>"), thinks=True),
    Template("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes", Ends("<|im_end|>", bos="<|begin_of_text|>")),
    Template("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes", Ends("<|im_end|>", bos="<|begin_of_text|>")),
    Template("Qwen-QwQ-32B", "hermes", _IM, thinks=True),
    Template("Qwen-Qwen2.5-7B-Instruct", "hermes", _IM),
    Template("Qwen-Qwen3-0.6B", "hermes", _IM, thinks=True),
    Template("Qwen3-Coder", "qwen3-coder", _IM),
    Template("Qwen3.5-4B", "qwen3-coder", _IM, thinks=True),
    Template("Reka-Edge", "reka", Ends("<sep>"), thinks=True),
    Template("Spark2.5", "spark", Ends("<｜end▁of▁sentence｜>"), thinks=True),
    Template("StepFun3.5-Flash", "qwen3-coder", Ends("<|im_end|>", bos="<s>"), thinks=True),
    Template("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek-r1", _DEEPSEEK, calls=False, thinks=True),
    Template("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek-r1", _DEEPSEEK, thinks=True),
    Template("deepseek-ai-DeepSeek-V3.1", "deepseek-v3.1", _DEEPSEEK, thinks=True),
    Template("deepseek-ai-DeepSeek-V3.2", "deepseek-v3.2", _DEEPSEEK, thinks=True),
    Template("deepseek-ai-DeepSeek-V4", "deepseek-v3.2", _DEEPSEEK, thinks=True),
    Template("deepseek-ai-DeepSeek-V4-Flash-0731", "deepseek-v3.2", _DEEPSEEK, thinks=True),
    Template("fireworks-ai-llama-3-firefunction-v2", "firefunction", _LLAMA),
    Template("google-gemma-2-2b-it", "gemma", Ends("<end_of_turn>", bos="<bos>"), calls=False),
    Template("google-gemma-4-31B-it", "gemma4", _GEMMA4, thinks=True),
    Template("google-gemma-4-31B-it-interleaved", "gemma4", _GEMMA4, thinks=True),
    Template("ibm-granite-granite-3.3-2B-Instruct", "granite", _GRANITE, calls=False, thinks=True),
    Template("ibm-granite-granite-4.0", "hermes", _GRANITE),
    Template("ibm-granite-granite-4.1", "hermes", _GRANITE),
    Template("inclusionai-ling-3.0-flash", "ling3", Ends("<|role_end|>"), thinks=True),
    Template("llama-cpp-deepseek-r1", "deepseek-r1", _DEEPSEEK, thinks=True),
    Template("llama-cpp-rwkv-world", "rwkv", _SENTENCE, calls=False, thinks=True),
    Template("llm-jp-llm-jp-4.1-8b-thinking", "gpt-oss", Ends("<|return|>", "<|call|>"), thinks=True),
    Template("meetkai-functionary-medium-v3.1", "functionary-3.1", _LLAMA),
    Template("meta-llama-Llama-3.1-8B-Instruct", "llama", _LLAMA),
    Template("meta-llama-Llama-3.2-3B-Instruct", "llama", _LLAMA),
    Template("meta-llama-Llama-3.3-70B-Instruct", "llama", _LLAMA),
    Template("microsoft-Phi-3.5-mini-instruct", "phi", Ends("<|endoftext|>", "<|end|>", bos="<s>"), calls=False),
    Template("mistralai-Ministral-3-14B-Reasoning-2512", "ministral", _SENTENCE, thinks=True),
    Template("mistralai-Mistral-Nemo-Instruct-2407", "mistral", _SENTENCE),
    Template("moonshotai-Kimi-K2", "kimi-k2", _IM, thinks=True),
    Template("muse-glimmer", "muse", Ends("<|eot|>", "<|eom|>", bos="<|begin_of_text|>")),
    Template("openai-gpt-oss-120b", "gpt-oss", Ends("<|return|>", "<|call|>"), thinks=True),
    Template("openbmb-MiniCPM5-1B", "minicpm5", Ends("<|im_end|>", bos="<s>"), thinks=True),
    Template("poolside-Laguna-S-2.1", "laguna", Ends("</assistant>"), thinks=True),
    Template("poolside-Laguna-XS-2.1", "laguna", Ends("</assistant>"), thinks=True),
    Template("poolside-Laguna-XS.2", "laguna", Ends("</assistant>"), thinks=True),
    Template(
        "tencent-Hy3",
        "hunyuan",
        Ends("<｜hy_eos:opensource｜>", bos="<｜hy_begin_of_sentence:opensource｜>"),
        thinks=True,
    ),
    Template("unsloth-Apriel-1.5", "apriel", Ends("<|end|>", bos="<|begin_of_text|>")),
    Template("unsloth-mistral-Devstral-Small-2507", "mistral", _SENTENCE, thinks=True),
    Template("upstage-Solar-Open-100B", "solar", Ends("<|flush|>", "<|calls|>"), thinks=True),
)

# Only their prompts are compared.
PROMPTS_ONLY = (
    # Known gap: llama.cpp's grammar allows calls, and text before them, that its parser of the family reads
    # differently.
    Template("meetkai-functionary-medium-v3.2", "functionary-3.2", _LLAMA),
    # The model translates one text. llama.cpp's parser of the family does not support tools.
    Template("google-translategemma-4b-it", "translategemma", Ends("<end_of_turn>", bos="<bos>"), calls=False),
)

BY_NAME = {template.name: template for template in TEMPLATES}
