"""The contents of a model file as values: metadata and tensors, before any large array exists."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
MetadataValue = int | float | bool | list[int]
Metadata = Mapping[str, MetadataValue]

NORM_EPS = 1e-6
CONTEXT_LENGTH = 4096


@dataclass(frozen=True)
class Vector:
    """A small tensor whose values are given. Always stored as F32."""

    name: str
    values: FloatArray


@dataclass(frozen=True)
class Matrix:
    """A weight matrix of random rows, each column entry of variance gain² / n_cols.

    first_column replaces column 0, the one that reads the constant channel (see layers.py).
    Rows from n_rows_drawn on are zero but for that column. Experts' matrices lie one below the other.
    If rows_drawn is set, it has the first rows, in place of random ones, and all rows after them are zero.
    """

    name: str
    n_rows: int
    n_cols: int
    gain: float
    first_column: FloatArray | None = None
    silent_first_row: bool = False
    n_rows_drawn: int | None = None
    n_experts: int | None = None
    rows_drawn: FloatArray | None = None


Tensor = Vector | Matrix


@dataclass(frozen=True)
class Plan:
    """One model. Metadata keys are relative to the architecture's name; seed names the weights."""

    arch: str
    seed: str
    n_vocab: int
    metadata: Metadata
    tensors: list[Tensor]

    def all_metadata(self) -> dict[str, MetadataValue]:
        """Returns all metadata, with the entries that every model has."""
        return {
            "context_length": CONTEXT_LENGTH,
            "attention.layer_norm_rms_epsilon": NORM_EPS,
            "vocab_size": self.n_vocab,
            **self.metadata,
        }


def ones(name: str, n: int, value: float = 1.0) -> Vector:
    return Vector(name, np.full(n, value, dtype=np.float32))
