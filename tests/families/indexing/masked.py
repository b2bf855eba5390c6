"""Elements under a mask by other means: Python's own lists, element after element. No oracle code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...arena import as_bytes
from ...gauntlet import Problem

__all__ = ["CHECKS"]


def _cells(x: Any, shape: tuple[int, ...]) -> list[bytes]:
    """The bytes of each element of x, broadcast to a shape, in C order."""
    lead = len(shape) - x.ndim

    def place(at: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(0 if n == 1 else i for i, n in zip(at[lead:], x.shape))

    return [x[place(at)].tobytes() for at in np.ndindex(*shape)]


def _shape(problem: Problem, *names: str) -> tuple[int, ...]:
    return np.broadcast_shapes(*(problem.slots[name].host().shape for name in names))


def _same(problem: Problem, name: str, wanted: list[bytes]) -> None:
    got = np.ascontiguousarray(problem.wide[name])
    assert as_bytes(got).tobytes() == b"".join(wanted), name


def _operands(problem: Problem, first: str, *others: str) -> Iterator[list[bytes]]:
    """The bytes of the elements of `first` and of the mask, and of the others in their own shapes."""
    shape = _shape(problem, first if first != "grad" or "x" not in problem.slots else "x", "mask")
    for name in (first, "mask", *others):
        x = problem.slots[name].host()
        yield _cells(x, shape if name in (first, "mask") else x.shape)


def _select(problem: Problem) -> None:
    x, mask = _operands(problem, "x")
    found = [cell for cell, under in zip(x, mask) if under != b"\0"]
    size = problem.sample.options.get("size", len(x))
    zero = bytes(problem.slots["x"].host().itemsize)
    _same(problem, "out", [*found, *[zero] * len(x), *[zero] * size][:size])
    assert problem.wide["count"].tolist() == [len(found)]


def _sent(base: list[bytes], mask: list[bytes], source: list[bytes]) -> tuple[list[bytes], bool]:
    """`base` with the next cell of the source for each element under the mask, and whether the source ended before."""
    rest, short, made = iter(source), False, []
    for cell, under in zip(base, mask):
        taken = next(rest, None) if under != b"\0" else cell
        short |= taken is None
        made.append(cell if taken is None else taken)
    return made, short


def _select_backward(problem: Problem) -> None:
    shape, grad = _shape(problem, "x", "mask"), problem.slots["grad"].host()
    mask = _cells(problem.slots["mask"].host(), shape)
    made, _ = _sent([bytes(grad.itemsize)] * len(mask), mask, _cells(grad, grad.shape))
    _same(problem, "grad_x", made)


def _scatter(problem: Problem) -> None:
    x, mask, source = _operands(problem, "x", "source")
    made, short = _sent(x, mask, source)
    _same(problem, "out", made)
    if "status" in problem.wide:
        assert int(problem.wide["status"]) == short


def _scatter_backward(problem: Problem) -> None:
    grad, mask = _operands(problem, "grad")
    zero, size = bytes(problem.slots["grad"].host().itemsize), problem.slots["source"].host().size
    _same(problem, "grad_x", _sent(grad, mask, [zero] * size)[0])
    under_mask = [cell for cell, under in zip(grad, mask) if under != b"\0"]
    _same(problem, "grad_source", [*under_mask, *[zero] * size][:size])


CHECKS: dict[str, Callable[[Problem], None]] = {
    "masked_select": _select, "masked_select_backward": _select_backward,
    "masked_scatter": _scatter, "masked_scatter_backward": _scatter_backward,
}  # fmt: skip
