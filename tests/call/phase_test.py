"""Packed views that begin inside a byte: a kernel is chosen for where, so other operands are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.tensor import intake

from .simulated import Gpus, simulated


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    yield from simulated(monkeypatch, "h200")


def nibbles(gpus: Gpus, count: int, phase: int) -> bp.GpuBuffer:
    memory = gpus.array(np.zeros(count // 2 + 1, np.uint8))
    return bp.GpuBuffer.view(memory, bp.S4).strided((count,), (1,), phase)


@pytest.mark.parametrize("selected", [0, 1])
@pytest.mark.parametrize("passed", [0, 1])
def test_a_plan_takes_views_of_its_own_phase_alone(gpus: Gpus, selected: int, passed: int) -> None:
    desc = bp.ContiguizeDescriptor.of(nibbles(gpus, 6, selected))
    plan = bp.ContiguizePlan.select(desc, device=0)
    operands = {"x": nibbles(gpus, 6, passed), "out": nibbles(gpus, 6, 0)}
    assert bool(plan.can_implement(**operands)) == (selected == passed)
    if selected != passed:
        with pytest.raises(
            bp.InvalidProblemError, match=f"x's first .* element {selected} of its byte, got {passed}.*x_phase={passed}"
        ):
            plan.run(**operands)
        assert not gpus.work


def write(dest_phase: int, source_phase: int, start: int) -> Callable[[Gpus], Any]:
    def run(gpus: Gpus) -> Any:
        dest, source = nibbles(gpus, 9, dest_phase), nibbles(gpus, 4, source_phase)
        return bp.write_slice(dest, source, [(start, start + 4)])

    return run


REFUSED = [
    *(write(1, 0, start) for start in (0, 1, 2)),
    write(0, 1, 0),
    lambda gpus: bp.contiguize(nibbles(gpus, 6, 0), out=nibbles(gpus, 6, 1)),
]


@pytest.mark.parametrize("call", REFUSED)
def test_phase_that_no_kernel_takes_is_refused(gpus: Gpus, call: Callable[[Gpus], Any]) -> None:
    with pytest.raises(bp.InvalidProblemError, match="of its byte"):
        call(gpus)
    assert not gpus.work


@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_a_window_may_begin_inside_a_byte(gpus: Gpus, start: int) -> None:
    write(0, 0, start)(gpus)
    assert len(gpus.work) == 1


def test_window_inside_a_byte_overlaps_its_last_byte(gpus: Gpus) -> None:
    dest = nibbles(gpus, 16, 0)
    with pytest.raises(bp.OverlapError):
        bp.write_slice(dest, dest.strided((2,), (1,), 2), [(1, 3)])
    bp.write_slice(dest, dest.strided((2,), (1,), 4), [(1, 3)])


@pytest.mark.parametrize(
    ("columns", "step", "window", "disjoint"),
    [
        (
            3,
            2,
            (1, 3),
            False,
        ),  # end to end from the middle of a byte: a row's last nibble and the next one's first share one
        (3, 2, (0, 2), True),
        (3, 2, (1, 2), True),
        (5, 4, (1, 5), False),
        (5, 4, (1, 4), True),
        (3, 4, (1, 3), True),  # the layout of packed arrays
        (4, 4, (0, 4), True),
        (4, 4, (1, 4), True),
    ],
)
def test_rows_of_a_window_share_no_byte(
    gpus: Gpus, columns: int, step: int, window: tuple[int, int], disjoint: bool
) -> None:
    dest = nibbles(gpus, 40, 0).strided((8, columns), (step, 1))
    width = window[1] - window[0]
    source = nibbles(gpus, 40, 0).strided((8, width), (4, 1))
    if disjoint:
        bp.write_slice(dest, source, [(0, 8), window])
    else:
        with pytest.raises(bp.OverlapError, match=r"dest is written, and .* interleave"):
            bp.write_slice(dest, source, [(0, 8), window])
    assert len(gpus.work) == disjoint


@pytest.mark.parametrize("phase", [0, 1])
@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_a_window_of_a_destination_that_begins_inside_a_byte(gpus: Gpus, phase: int, start: int) -> None:
    desc = bp.WriteSliceDescriptor((9,), ((start, start + 4),), bp.S4, dest_phase=phase)  # type: ignore[arg-type]
    plan = bp.WriteSlicePlan.select(desc, device=0)
    dest, source = nibbles(gpus, 9, phase), nibbles(gpus, 4, 0)
    whole = intake(dest, what="dest")
    first = desc.footprint("dest", whole)
    assert (first.pointer - whole.pointer, first.phase) == divmod(phase + start, 2)
    assert desc.displacement() == (phase + start) // 2
    plan.run(dest=dest, source=source)
    plan.bind(dest=dest, source=source)
    assert len(gpus.work) == 1
    wanted = (phase + start) % 2
    says = f"element {wanted} of its byte, got {1 - wanted}: .* element {phase} .* dest_phase={1 - phase}"
    with pytest.raises(bp.InvalidProblemError, match=says):
        plan.run(dest=nibbles(gpus, 9, 1 - phase), source=source)
