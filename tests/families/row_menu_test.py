"""Row kernels of 16-bit elements on both sides of every length at which another configuration serves, in every alignment."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op
from baracuda_py.plan.about.verify import outcome_of
from baracuda_py.runtime.gpu.device import spec_of
from baracuda_py.samples import Sample

BF16, F16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
LENGTHS = (1023, 2049, 4097, 8191, 8192, 8193, 9001, 16385, 33000)
LAYOUTS = ("C", "odd start", "odd pitch", "stride 2")
ROWS = (1, 3)
# Operands of a row's shape, of its columns' and of the rows', by op; the rest are options.
OPS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], dict[str, Any]]] = {
    "softmax": (("x",), (), (), {}), "log_softmax": (("x",), (), (), {}),
    "softmax_backward": (("grad", "y"), (), (), {}), "log_softmax_backward": (("grad", "y"), (), (), {}),
    "rms_norm": (("x",), ("weight",), (), {}), "layer_norm": (("x",), ("weight", "bias"), (), {}),
    "rms_norm_backward": (("grad", "x"), ("weight",), ("rstd",), {}),
    "layer_norm_backward": (("grad", "x"), ("weight",), ("mean", "rstd"), {}),
    **{name: (("x",), (), (), {"axis": -1}) for name in ("sum", "mean", "max", "min", "argmax", "var", "logsumexp")},
    "cumsum": (("x",), (), (), {"axis": -1}), "topk": (("x",), (), (), {"k": 3}),
}  # fmt: skip
CASES = [
    (op, kind, layout, n, rows)
    for op in OPS
    for kind in (F16, BF16)
    for layout in LAYOUTS
    for n in LENGTHS
    for rows in ROWS
]


def laid(x: Any, layout: str) -> Any:
    """The same values in a view of that layout."""
    rows, columns = x.shape
    start, pitch, step = {"C": (0, columns, 1), "odd start": (1, columns + columns % 2, 1),
                          "odd pitch": (0, columns + 1 + columns % 2, 1), "stride 2": (0, 2 * columns, 2)}[layout]  # fmt: skip
    memory = np.zeros(start + rows * pitch + 1, x.dtype)
    view = np.lib.stride_tricks.as_strided(
        memory[start:], x.shape, (pitch * x.itemsize, step * x.itemsize), writeable=True
    )
    view[...] = x
    return view


@pytest.mark.parametrize(("op", "kind", "layout", "n", "rows"), CASES, ids=lambda x: str(x))
def test_row_menu(op: str, kind: Any, layout: str, n: int, rows: int) -> None:
    along, columns, across, options = OPS[op]
    rng = np.random.default_rng(n)
    operands = {name: laid(rng.standard_normal((rows, n)).astype(kind), layout) for name in along}
    operands |= {name: rng.standard_normal(n).astype(kind) for name in columns}
    operands |= {name: np.abs(rng.standard_normal(rows)).astype(np.float32) + 0.1 for name in across}
    outcome = outcome_of(get_op(op), Sample("", operands, options), bp.PlanPreference(), spec_of("ptx"))
    if outcome.error is not None:
        raise outcome.error
