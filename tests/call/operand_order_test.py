"""Public functions gather their operands in the descriptor's order, which later calls take their pointers in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py import functional
from baracuda_py.plan import all_ops, get_op
from baracuda_py.tensor.arrays import described_for

from ..gauntlet import SAMPLES, Problem, named, samples_of

PART = 6  # samples of an op in the bounded suite


class _Gathered(Exception):
    """Ends a call where the long path begins."""


@pytest.mark.parametrize("op", list(all_ops()))
def test_every_function_gathers_in_descriptor_order(op: str, monkeypatch: pytest.MonkeyPatch, bounded: bool) -> None:
    """And calls of one key gather the same operands."""
    seen: list[tuple[Any, tuple[str, ...], tuple[str, ...]]] = []

    def noted(
        kind: Any, head: list[Any], operands: Mapping[str, Any], describe: Any, describe_args: Any, *_rest: Any
    ) -> Any:
        with described_for(True):
            described = tuple(operand.name for operand in describe(*describe_args).operands)
        absent = tuple(x is None for x in operands.values())
        seen.append(((kind, head[1], absent), tuple(operands), described))
        raise _Gathered

    monkeypatch.setattr(functional, "_call_checked", noted)
    by_key: dict[Any, tuple[str, ...]] = {}
    for sample in samples_of(get_op(op), count=PART if bounded else SAMPLES):
        with named(sample.label), pytest.raises(_Gathered):
            Problem(get_op(op), sample, "cpu").call_function()
        key, gathered, described = seen[-1]
        assert gathered == described, f"[{sample.label}] gathers {gathered}, and the descriptor has {described}"
        assert by_key.setdefault(key, gathered) == gathered, (
            f"[{sample.label}] shares a key with a call of {by_key[key]}"
        )


@pytest.mark.parametrize("planted", ["order", "extra", "missing"])
def test_a_wrong_gatherer_is_an_internal_error(planted: str) -> None:
    x, out = np.ones((3, 4), np.float32), np.full((3, 4), 7, np.float32)
    gathered = {
        "order": {"x": x, "out": out},
        "extra": {"out": out, "x": x, "status": None},
        "missing": {"x": x},
    }[planted]
    with pytest.raises(bp.InternalError, match=r"contiguize: its function gathers .*defect of the library"):
        functional.call(bp.ContiguizePlan, gathered, lambda: bp.ContiguizeDescriptor.of(x), device="cpu")
    assert (out == 7).all(), "something ran"


def test_function_refuses_an_operand_that_the_problem_lacks() -> None:
    x, indices, status = np.ones((3, 4), np.float32), np.zeros((3, 1), np.int64), np.zeros((), np.int32)
    with pytest.raises(bp.InvalidProblemError, match="there is no operand 'status'"):
        bp.take_along_axis(x, indices, mode="clip", status=status, device="cpu")
