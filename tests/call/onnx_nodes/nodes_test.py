"""ONNX's node test cases, which come with the `onnx` package: every case of an op type that maps to functions of this library.

``nodes.toml`` says of the other op types, and of cases that are refused, why.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp

from .cases import Node, cases_of, op_types
from .mapping import MAPPED, run

LISTED = tomllib.loads(Path(__file__).with_name("nodes.toml").read_text())
UNMAPPED = [op for entry in LISTED["unmapped"] for op in entry["ops"]]
REFUSED = [pattern for entry in LISTED["refused"] for pattern in entry["cases"]]
ULPS = 2  # of a result of 16 bits: ONNX's references round between their steps, and their tolerance is below an ulp of bf16

EMULATED = {"Attention": 4}  # op types of many long cases, of which every so many is emulated


def is_refused(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in REFUSED)


def complaint(node: Node, got: Sequence[Any]) -> str:
    """What differs from the expected outputs; "" where nothing does."""
    if len(got) != len(node.outputs):
        return f"{node.name}: {len(got)} outputs of {len(node.outputs)}"
    for i, (x, wanted) in enumerate(zip(map(np.asarray, got), map(np.asarray, node.outputs))):
        if (x.shape, x.dtype) != (wanted.shape, wanted.dtype):
            return f"{node.name}: output {i} is {x.dtype}{x.shape}, not {wanted.dtype}{wanted.shape}"
        half = wanted.dtype in (np.float16, ml_dtypes.bfloat16)
        rtol = max(node.rtol, ULPS * float(ml_dtypes.finfo(wanted.dtype).eps)) if half else node.rtol
        if wanted.dtype.kind in "iub":
            same = np.array_equal(x, wanted)
        else:
            same = np.allclose(x.astype(np.float64), wanted.astype(np.float64), rtol, node.atol, equal_nan=True)
        if not same:
            return f"{node.name}: output {i} is\n{x}\nnot\n{wanted}"
    return ""


def complaints(op_type: str, device: str) -> Iterator[str]:
    every = EMULATED.get(op_type, 1) if device == "ptx" else 1
    for node in cases_of(op_type)[::every]:
        with bp.device(device), np.errstate(all="ignore"):
            if is_refused(node.name):
                with pytest.raises(bp.BaracudaError):
                    run(op_type, node)
            elif said := complaint(node, run(op_type, node)):
                yield said


@pytest.mark.parametrize("op_type", sorted(MAPPED))
def test_onnx_node_cases_hold_in_kernels(op_type: str) -> None:
    pytest.importorskip("onnx")
    assert list(complaints(op_type, "ptx")) == []


@pytest.mark.parametrize("op_type", sorted(MAPPED))
def test_onnx_node_cases_hold_for_oracles(op_type: str) -> None:
    pytest.importorskip("onnx")
    assert list(complaints(op_type, "cpu")) == []


def test_onnx_wrong_results_are_noticed() -> None:
    pytest.importorskip("onnx")
    node = next(node for node in cases_of("Transpose") if node.outputs[0].size > 1)
    (right,) = node.outputs
    assert complaint(node, [right]) == ""
    for wrong in (np.negative(right), right[..., None], right.astype(np.float64), np.full_like(right, np.nan)):
        assert complaint(node, [wrong])
    assert complaint(node, [])


def test_onnx_every_op_type_is_mapped_or_has_a_reason() -> None:
    pytest.importorskip("onnx")
    assert sorted([*MAPPED, *UNMAPPED]) == sorted(op_types())


def test_onnx_every_refused_pattern_names_a_case() -> None:
    pytest.importorskip("onnx")
    names = [node.name for op in ("Attention", "Cast", "CastLike", "Equal", "Identity", "ReduceMax", "ReduceMin")
             for node in cases_of(op)]  # fmt: skip
    assert [pattern for pattern in REFUSED if not any(fnmatchcase(name, pattern) for name in names)] == []
