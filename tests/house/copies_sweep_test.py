"""The sweep of windows: its plans are those of its arrays, its sets are disjoint, and it says what was lost."""

from __future__ import annotations

import io
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import baracuda_py as bp
from baracuda_py.types import DeviceSpec
from benchmarks import copies
from benchmarks.operands import dtype_of

H200 = DeviceSpec.named("h200")


def aligned(nbytes: int) -> Any:
    memory = np.zeros(nbytes + 512, np.uint8)
    start = -memory.ctypes.data % 512
    return memory[start : start + nbytes]


def test_a_plan_is_that_of_the_arrays() -> None:
    """Else it would not bind them."""
    for case in copies.CASES[::37]:
        rows = min(case.extents[0], 5)
        case = replace(case, whole=(case.starts[0] + rows, *case.whole[1:]), extents=(rows, *case.extents[1:]))
        (plan,) = copies.plans_of(case, [], H200)
        dtype = dtype_of(case.dtype)
        whole = aligned(prod(case.whole) * case.itemsize).view(dtype).reshape(case.whole)
        plain = aligned(prod(case.extents) * case.itemsize).view(dtype).reshape(case.extents)
        window = whole[tuple(slice(*r) for r in case.ranges)]
        assert window.shape == case.extents
        if case.reads:
            of = bp.WriteSliceDescriptor.of(plain, window, [(0, n) for n in case.extents])
        else:
            of = bp.WriteSliceDescriptor.of(whole, plain, case.ranges)
        assert plan.desc.canonical() == of.canonical(), case


def test_what_is_held_out_is_in_no_other_group() -> None:
    kept = {replace(c, group="") for c in copies.CASES if c.group == "held-out"}
    others = {replace(c, group="") for c in copies.CASES if c.group != "held-out"}
    assert len(kept) > 60
    assert not kept & others
    widths = {c.extents[-1] for c in copies.CASES if c.group == "float16"}
    assert widths == set(range(1, 65))


def test_configurations_are_named_by_patterns() -> None:
    case = next(c for c in copies.CASES if c.group == "float16" and c.extents[-1] == 31 and c.starts[-1] == 1)
    labels = [
        f"{p.sku.variant}:{p.sku.config}" for p in copies.plans_of(case, ["short_runs:*", "vectorised:*unroll=1"], H200)
    ]
    assert len(labels) == len(set(labels))
    for flags in ("", " fetch", " sectors", " sectors fetch"):
        assert f"short_runs:width=2 unroll=4{flags}" in labels
    assert any(label.startswith("vectorised") for label in labels)


def test_losses_are_reported_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    records = []
    for n, case in enumerate(copies.CASES[::29]):
        up = 0.5 if n == 3 else 1.5
        records.append(
            {
                "group": case.group, "name": case.name, "itemsize": case.itemsize, "starts": case.starts,
                "extents": case.extents, "us": 10.0, "torch_us": 10.0 * up, "predicted_us": 9.0, "tbps": 2.0, "speedup": up,
                "variant": "short_runs", "config": "width=2 unroll=8",
                "configs": {"short_runs:width=2 unroll=8": {"us": 10.0, "speedup": up}},
            }
        )  # fmt: skip
    console = Console(record=True, width=200, quiet=False, file=io.StringIO())
    for table in copies.summary([*records, {"error": "it failed", "group": "float16"}]):
        console.print(table)
    said = console.export_text()
    assert records[3]["name"] in said
    assert "0.500" in said
    copies.drawn(records, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 20_000
