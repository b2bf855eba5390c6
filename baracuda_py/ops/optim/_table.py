"""The chunks of arrays, and the rows of a table that names them: elements, number of the first, and its place in each array; and
where an array's rows belong together, the number of these in its first row, and 0 in others."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ...tensor import Tensor
from ...types import InvalidProblemError

__all__ = ["BLOCK", "LEAD", "THREADS", "check_table", "chunk_of", "depth_of", "refuse_rows", "rows_of"]

THREADS = 256  # of a CTA, as in the kernels
BLOCK = 256  # elements that share an absmax of 8-bit states, as in the kernel; chunks are whole blocks
LEAD = 2  # columns of a row ahead of the arrays' places
SHORT_CHUNK, LONGEST, CTAS = 2048, 8, 1056  # elements of a short chunk, that times it at most, chunks that are enough

Array = np.ndarray[Any, Any]


def chunk_of(count: int) -> int:
    """Elements of a CTA, where there are so many in all: no device changes it, and so no order of additions."""
    return SHORT_CHUNK * min(LONGEST, 1 << max(count // (SHORT_CHUNK * CTAS), 1).bit_length() - 1)


def depth_of(count: int, chunks: int, threads: int) -> int:
    """Additions at most that a square of so many elements goes through, of which a CTA of `threads` adds up the chunks' sums."""
    return -(-count // THREADS) + -(-chunks // threads) + 10 + (THREADS + threads) // 32


def rows_of(
    lengths: Sequence[int], begins: Sequence[Sequence[int]], sizes: Sequence[int], pers: Sequence[int] = (), *,
    counted: bool = False,
) -> Array:  # fmt: skip
    """The rows of the chunks of arrays with so many elements, which begin at these bytes, in each list; `sizes` are the bytes of
    an entry of each, and `pers` the elements that share it, 1 by default. `counted` appends the rows of an array to its first."""
    counts = np.asarray(lengths, np.int64)
    chunk = chunk_of(int(counts.sum()))
    chunks = -(-counts // chunk)
    of = np.repeat(np.arange(len(counts)), chunks)
    within = (np.arange(len(of)) - np.repeat(np.cumsum(chunks) - chunks, chunks)) * chunk
    firsts = np.cumsum(counts) - counts
    columns = [np.minimum(counts[of] - within, chunk), firsts[of] + within]
    columns += [
        np.asarray(begin, np.int64)[of] + within // per * size
        for begin, size, per in zip(begins, sizes, pers or [1] * len(sizes))
    ]
    columns += [np.where(within == 0, chunks[of], 0)] if counted else []
    return np.stack(columns, axis=1)


def check_table(desc: Any, *, counted: bool = False) -> None:
    """Raises InvalidProblemError for a table of another number of columns."""
    table, columns = desc.shape_of("table"), LEAD + len(desc.arrays) + counted
    if table is not None and (len(table) != 2 or table[1] != columns):
        raise InvalidProblemError(
            f"{desc.op}: table has shape {table}",
            f"give rows of {columns}: elements, number of the first, and where it begins in {', '.join(desc.arrays)}"
            + (", and the rows of an array in its first, 0 in others" if counted else ""),
        )


def refuse_rows(
    desc: Any, tensors: Mapping[str, Tensor], written: Mapping[str, bool], *, counted: bool = False,
    blocks: Collection[str] = (),
) -> None:  # fmt: skip
    """Raises for rows in host memory that reach out of an array, or of one that is written name an element twice; where they are
    `counted`, for rows that are of no array. BLOCK elements share an entry of the arrays `blocks`."""
    if "table" not in tensors:
        return
    rows = tensors["table"].array()
    for column, name in enumerate(desc.arrays):
        size, begin = desc.layout(name).element.bits // 8, rows[:, LEAD + column]
        end = begin - -rows[:, 0] // (BLOCK if name in blocks else 1) * size
        bad = (rows[:, 0] < 0) | (begin < 0) | (begin % size != 0) | (end > size * math.prod(desc.layout(name).shape))
        order = np.argsort(begin, kind="stable")
        if written[name]:
            bad[order[1:]] |= (begin[order[1:]] < end[order[:-1]]) & (rows[order[1:], 0] > 0)
        if bad.any():
            raise InvalidProblemError(
                f"{desc.op}: row {int(np.flatnonzero(bad)[0])} of table reaches out of {name}, is not at an element of it, or "
                "overlaps another row",
                "give each element to one row",
            )
    if counted:
        _refuse_counts(desc, rows[:, -1].tolist())


def _refuse_counts(desc: Any, counts: Sequence[int]) -> None:
    expected = 0
    for i, count in enumerate(counts):
        if (count <= 0 or i + count > len(counts)) if i == expected else count:
            raise InvalidProblemError(
                f"{desc.op}: row {i} of table counts {count} rows of its array",
                "give the rows of an array in its first one, and 0 in the others",
            )
        expected += count
