"""Scores without generation: a turn counts when each of its tokens is the model's first choice.

For an answer with one right text this is exactly what greedy decoding would produce.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice

import torch

from tools.demo_model.mixture import conversations
from tools.demo_model.model import DemoModel
from tools.demo_model.tokenizer import Encoder

FREE = ("tell", "story", "other")


def turns(tags: list[str]) -> list[tuple[int, int, str]]:
    """Returns begin, end and tag of each text that the model has to write."""
    found: list[tuple[int, int, str]] = []
    begin = 0
    for at in range(1, len(tags) + 1):
        if at == len(tags) or tags[at] != tags[begin]:
            if tags[begin]:
                found.append((begin, at, tags[begin]))
            begin = at
    return found


@torch.no_grad()
def score(model: DemoModel, encoder: Encoder, seed: int, count: int, held: bool) -> dict[str, tuple[int, int]]:
    """Returns the counts of right turns and of all turns per tag, for new conversations."""
    results: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    device = model.embedding.weight.device
    for conversation in islice(conversations(seed, held=held), count):
        ids, tags = encoder.encode(conversation)
        tokens = torch.tensor([ids[: model.shape.context]], device=device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model.logits(model.hidden(tokens, torch.zeros_like(tokens)))
        best = [-1, *logits[0].argmax(-1).tolist()]
        for begin, end, tag in turns(tags[: model.shape.context]):
            results[tag][0] += best[begin:end] == ids[begin:end]
            results[tag][1] += 1
    return {tag: (right, total) for tag, (right, total) in sorted(results.items())}


def line(results: dict[str, tuple[int, int]]) -> str:
    """Returns percentages in one line."""
    return " ".join(f"{tag}={100 * right / total:.1f}%/{total}" for tag, (right, total) in results.items())
