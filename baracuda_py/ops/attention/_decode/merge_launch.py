"""The launch that makes one attention of several parts (kernels/attention/merge.cu), and how such parts are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....plan.descriptor import Layout
from ....runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Struct
from ....tensor.axes import alignment_of
from ....types import DeviceSpec, ElementKind
from .._problem.attended import OperandStrides

__all__ = ["Lines", "merge_launch", "rows_align"]

ROWS_PER_SM_FOR_TEAMS = 8  # an SM, for which a row is a whole CTA's
WARPS = 4


@dataclass(frozen=True)
class Lines:
    """`parts` results of [batch, heads, rows, columns] each and their lse, and where they are merged to. Steps in elements."""

    element: ElementKind
    out_element: ElementKind
    shape: tuple[int, int, int]  # batch, heads, rows
    columns: int
    parts: int
    out_strides: OperandStrides
    lse_strides: OperandStrides
    outs_strides: OperandStrides
    lses_strides: OperandStrides
    part_steps: tuple[int, int]  # of results and of lse
    has_lse: bool
    align: int  # bytes that every row begins on a multiple of

    @staticmethod
    def of_parts(desc: Any, parts: int) -> Lines:
        """What decode.cu leaves: f32, [batch, head, row, part]."""
        heads, rows, sequences = desc.heads, desc.total_q, 1 if desc.ragged else desc.batch
        steps = (heads * rows * parts, rows * parts, parts)
        return Lines(
            ElementKind.F32, desc.layout("out").element, (sequences, heads, rows), desc.d_v, parts, desc.strides_of("out"),
            desc.stats_strides("lse"), OperandStrides(*(n * desc.d_v for n in steps)),
            OperandStrides(*steps), (desc.d_v, 1), desc.has("lse"),
            rows_align(desc.layout("out")),
        )  # fmt: skip

    @property
    def vector(self) -> int:
        """Adjacent columns per lane."""
        sizes = [e.bits // 8 for e in (self.element, self.out_element)]
        fits = (v for v in (4, 2, 1) if self.columns % v == 0 and self.align % (v * max(sizes)) == 0)
        return next(fits, 1)


def rows_align(*layouts: Layout) -> int:
    """Bytes, 16 at most, that every row of these begins on a multiple of."""
    strides = (x.element.nbytes(abs(s)) for x in layouts for n, s in zip(x.shape[:-1], x.strides) if n > 1)
    return min(16, *(x.align for x in layouts), *map(alignment_of, strides))


def merge_launch(lines: Lines, outs: Arg, lses: Arg, device: DeviceSpec) -> Launch:
    """`outs` and `lses` hold the parts; the results are the operands `out` and `lse`."""
    count = int(np.prod(lines.shape))
    team = WARPS if count <= ROWS_PER_SM_FOR_TEAMS * device.sms and lines.parts >= WARPS else 1
    entry = f"attention_merge<{lines.element.number}, {lines.out_element.number}, {lines.vector}, {team}>"
    all_strides = [
        n
        for strides_of in (lines.out_strides, lines.lse_strides, lines.outs_strides, lines.lses_strides)
        for n in strides_of
    ]
    steps = np.array([*all_strides, *lines.part_steps], np.int64).tobytes()
    extents = np.array([*lines.shape[1:], count, lines.parts, lines.columns], np.uint32).tobytes()
    lse = Ptr("lse") if lines.has_lse else Packed(bytes(8))
    args = Struct((Ptr("out"), lse, outs, lses, Packed(steps, 8), Packed(extents, 4)))  # type: ignore[arg-type]
    grid = (max(1, -(-count * team // WARPS)), 1, 1)
    return Launch(Kernel("attention/merge.cu", entry), grid, (32 * WARPS, 1, 1), (args,), pdl=True)
