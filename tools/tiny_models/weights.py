"""Turns planned matrices into numbers: seeded by name, in bounded memory, as F32 or Q8_0."""

import zlib
from collections.abc import Iterator
from functools import lru_cache

import gguf
import numpy as np
import numpy.typing as npt

from .plan import FloatArray, Matrix

Stored = npt.NDArray[np.float32] | npt.NDArray[np.uint8]

Q8_0_BLOCK = 32
Q8_0_BLOCK_BYTES = 34
# A matrix with more entries than this repeats the rows of one random block in random order and with random signs:
# drawing every weight of a large model would take longer than using it.
DRAWN_ENTRIES_MAX = 1 << 20
BLOCK_ROWS = 1024
CHUNK_ENTRIES = 1 << 24


def generator(*names: str) -> np.random.Generator:
    """The same names give the same numbers, whatever else is in the model."""
    return np.random.Generator(np.random.PCG64([zlib.crc32(name.encode()) for name in names]))


def stored_shape(matrix: Matrix, quantized: bool) -> tuple[int, int]:
    """Rows and columns as stored: in entries for F32, in bytes for Q8_0."""
    if not quantized:
        return matrix.n_rows, matrix.n_cols
    if matrix.n_cols % Q8_0_BLOCK:
        raise ValueError(f"{matrix.name}: rows of {matrix.n_cols} entries are no multiple of {Q8_0_BLOCK}")
    return matrix.n_rows, matrix.n_cols // Q8_0_BLOCK * Q8_0_BLOCK_BYTES


def stored(matrix: Matrix, seed: str, quantized: bool) -> Stored:
    if not quantized:
        return np.concatenate(list(rows(matrix, seed)))
    packed = np.empty(stored_shape(matrix, quantized), dtype=np.uint8)
    at = 0
    for chunk in rows(matrix, seed):
        packed[at : at + len(chunk)] = gguf.quants.quantize(chunk, gguf.GGMLQuantizationType.Q8_0)
        at += len(chunk)
    return packed


def rows(matrix: Matrix, seed: str) -> Iterator[FloatArray]:
    """The matrix from top to bottom, a bounded number of entries at a time."""
    rng = generator(seed, matrix.name)
    n_drawn = matrix.n_rows if matrix.n_rows_drawn is None else matrix.n_rows_drawn
    scale = np.float32(matrix.gain / np.sqrt(matrix.n_cols))
    chunk_rows = max(1, CHUNK_ENTRIES // matrix.n_cols)
    for start in range(0, matrix.n_rows, chunk_rows):
        end = min(start + chunk_rows, matrix.n_rows)
        chunk = np.zeros((end - start, matrix.n_cols), dtype=np.float32)
        n_random = min(max(n_drawn - start, 0), end - start)
        if matrix.rows_drawn is not None:
            drawn = matrix.rows_drawn[start:end]
            chunk[: len(drawn)] = drawn
        elif n_random:
            chunk[:n_random] = _random_rows(rng, n_random, n_drawn, matrix.n_cols) * scale
        if matrix.first_column is not None:
            chunk[:, 0] = matrix.first_column[start:end]
        if matrix.silent_first_row:
            n_each = matrix.n_rows // (matrix.n_experts or 1)
            chunk[-start % n_each :: n_each] = 0
        yield chunk


def _random_rows(rng: np.random.Generator, n_rows: int, n_rows_all: int, n_cols: int) -> FloatArray:
    if n_rows_all * n_cols <= DRAWN_ENTRIES_MAX:
        return rng.standard_normal((n_rows, n_cols), dtype=np.float32)
    signs = rng.choice(np.array([-1, 1], dtype=np.float32), (n_rows, 1))
    drawn: FloatArray = _block(n_cols)[rng.integers(0, BLOCK_ROWS, n_rows)] * signs
    return drawn


@lru_cache(maxsize=4)
def _block(n_cols: int) -> FloatArray:
    return generator("block", str(n_cols)).standard_normal((BLOCK_ROWS, n_cols), dtype=np.float32)
