"""An endless stream of conversations, packed into rows of equal length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from tools.demo_model.chat import Conversation
from tools.demo_model.mixture import conversations
from tools.demo_model.tokenizer import Encoder

IGNORED = -100
ROW_LENGTHS = (512, 1024, 2048)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of packed documents. `targets` has the token after each token, if the model has to write it."""

    tokens: Tensor
    targets: Tensor
    documents: Tensor


Document = tuple[list[int], list[int]]


def document(ids: list[int], tags: list[str]) -> Document:
    """Returns inputs and targets of one conversation."""
    targets = [token if tag else IGNORED for token, tag in zip(ids[1:], tags[1:], strict=True)]
    return ids[:-1], targets


def pack(documents: list[Document], length: int, rows: int) -> Batch:
    """Fills rows from a list of documents in order, and removes the used ones from the list."""
    tokens = torch.zeros((rows, length), dtype=torch.long)
    targets = torch.full((rows, length), IGNORED, dtype=torch.long)
    numbers = torch.full((rows, length), -1, dtype=torch.int32)
    for row in range(rows):
        at, number = 0, 0
        for index in range(len(documents)):
            size = len(documents[index][0])
            if size and at + size <= length:
                inputs, wanted = documents[index]
                tokens[row, at : at + size] = torch.tensor(inputs)
                targets[row, at : at + size] = torch.tensor(wanted)
                numbers[row, at : at + size] = number
                at, number = at + size, number + 1
                documents[index] = ([], [])
    documents[:] = [entry for entry in documents if entry[0]]
    return Batch(tokens, targets, numbers)


class Packer:
    """Batches of about `size` tokens; long conversations go into their own, longer rows."""

    def __init__(self, encoder: Encoder, seed: int, size: int) -> None:
        self.encoder, self.size = encoder, size
        self.rng = Random(seed)
        self.waiting: dict[int, list[Document]] = {length: [] for length in ROW_LENGTHS}

    def _feed(self, source: Iterator[Conversation], count: int) -> None:
        for _ in range(count):
            inputs, targets = document(*self.encoder.encode(next(source)))
            for length in ROW_LENGTHS:
                if len(inputs) <= length:
                    self.waiting[length].append((inputs, targets))
                    break

    def next(self, stage: float) -> Batch:
        """Returns the next batch, at a stage of the curriculum between 0 and 1."""
        source = conversations(self.rng.getrandbits(60), stage)
        while True:
            for length in reversed(ROW_LENGTHS):
                enough = sum(len(entry[0]) for entry in self.waiting[length])
                if enough >= self.size * (1.6 if length > ROW_LENGTHS[0] else 2.5):
                    chosen = self.waiting[length]
                    self.rng.shuffle(chosen)
                    return pack(chosen, length, self.size // length)
            self._feed(source, 16)
