"""Samples of elements under a mask: every width, broadcasts, tiles and more than one, layouts, and sources that are short."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, layouts, values
from ....types import ElementKind

__all__ = ["masked_scatter", "masked_scatter_backward", "masked_select", "masked_select_backward"]

KINDS = (
    ElementKind.F32, ElementKind.BF16, ElementKind.U8, ElementKind.F64, ElementKind.COMPLEX128, ElementKind.BOOL,
    ElementKind.I16, ElementKind.FP8_E4M3,
)  # fmt: skip
FLOATS = (ElementKind.F32, ElementKind.BF16, ElementKind.F16, ElementKind.F64)
PAIRS = (  # x, mask
    ((7, 33), (7, 33)),
    ((5, 1, 9), (6, 1)),
    ((4097,), (4097,)),
    ((130,), (3, 130)),
    ((67, 129), (129,)),
    ((1,), (1,)),
    ((), (5,)),
    ((2, 3), ()),
    ((0,), (0,)),
    ((3, 0, 5), (3, 1, 5)),
    ((2, 3, 2, 3, 4), (2, 3, 1, 3, 1)),
)
SHARES = (0.4, 0.05, 1.0, 0.0)


class _Maker:
    def __init__(self, seed: int, kinds: tuple[ElementKind, ...], *, full: bool) -> None:
        self.rng, self.kinds, self.full = np.random.default_rng(seed), kinds, full

    def mask(self, shape: tuple[int, ...], share: float) -> Any:
        return np.asarray(self.rng.random(shape) < share)

    def pairs(self) -> Iterator[tuple[str, ElementKind, Any, Any]]:
        """Operands x and mask of every pair of shapes, of one kind or of all, with several shares of elements under the mask."""
        for i, (of_x, of_mask) in enumerate(PAIRS):
            for kind in self.kinds if self.full or not i else (self.kinds[i % len(self.kinds)],):
                mask = self.mask(of_mask, SHARES[i % 2])
                yield f"{kind}{list(of_x)}{list(of_mask)}", kind, values(self.rng, of_x, kind), mask
        for share in SHARES:
            kind, mask = self.kinds[0], self.mask((9001,), share)
            yield f"{kind}[9001] {share}", kind, values(self.rng, (9001,), kind), mask

    def laid_out(self) -> Iterator[tuple[str, Any, Any]]:
        """x and mask in every layout."""
        x, mask = values(self.rng, (37, 130), self.kinds[0]), self.mask((37, 130), 0.3)
        for name, view in layouts(x).items():
            yield f"x {name}", view, mask
        for name, view in layouts(mask).items():
            yield f"mask {name}", x, view


def _count(x: Any, mask: Any) -> int:
    shape = np.broadcast_shapes(x.shape, mask.shape)
    return int(np.count_nonzero(np.broadcast_to(mask, shape)))


def masked_select(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Results of the common shape's size, of fewer elements than are selected, and of more."""
    make, whole = _Maker(seed, KINDS, full=full), {"trim": False}
    for i, (label, _, x, mask) in enumerate(make.pairs()):
        if i % 3 == 0:
            size = _count(x, mask) + (7, -3)[i // 3 % 2]
            yield Sample(f"{label} size {max(size, 0)}", {"x": x, "mask": mask}, {**whole, "size": max(size, 0)})
        yield Sample(label, {"x": x, "mask": mask}, whole)
    for label, x, mask in make.laid_out():
        yield Sample(label, {"x": x, "mask": mask}, whole)
    payloads = np.array([0x7FC00001, 0xFFC12345, 0x80000000, 0x7FC00777], np.uint32).view(np.float32)
    yield Sample("NaN payloads", {"x": payloads, "mask": np.array([True, True, True, False])}, whole)


def masked_select_backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Gradients of results of the common shape's size, of as many elements as are selected, and of fewer."""
    make = _Maker(seed, FLOATS, full=full)
    for i, (label, kind, x, mask) in enumerate(make.pairs()):
        found = _count(x, mask)
        size = (int(np.prod(np.broadcast_shapes(x.shape, mask.shape))), found, max(found - 3, 0))[i % 3]
        grad = values(make.rng, (size,), kind)
        yield Sample(f"{label} grad {size}", {"grad": grad, "mask": mask, "x": x})
    for label, x, mask in make.laid_out():
        grad = values(make.rng, (_count(x, mask),), FLOATS[0])
        yield Sample(label, {"grad": grad, "mask": mask, "x": x})
    x, mask = values(make.rng, (9, 40), FLOATS[0]), make.mask((9, 40), 0.5)
    for name, view in layouts(values(make.rng, (360,), FLOATS[0])).items():
        yield Sample(f"grad {name}", {"grad": view, "mask": mask, "x": x})
    grad, out = values(make.rng, (360,), FLOATS[0]), np.zeros((9, 80), np.float32)[:, ::2]
    yield Sample("grad_x stepped", {"grad": grad, "mask": mask, "x": x, "grad_x": out})


def masked_scatter(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Sources of as many elements as are under the mask, of more and of fewer, with a status and without."""
    make = _Maker(seed, KINDS, full=full)
    for i, (label, kind, x, mask) in enumerate(make.pairs()):
        size = max(_count(x, mask) + (0, 5, -1)[i % 3], 0)
        operands = {"x": x, "mask": mask, "source": values(make.rng, (size,), kind)}
        yield Sample(f"{label} source {size}", operands, {"mode": ("status", "drop")[i % 2]})
    for label, x, mask in make.laid_out():
        operands = {"x": x, "mask": mask, "source": values(make.rng, (37, 130), KINDS[0])}
        yield Sample(label, operands, {})
    x, mask = values(make.rng, (9, 40), KINDS[0]), make.mask((9, 40), 0.5)
    for name, view in layouts(values(make.rng, (20, 18), KINDS[0])).items():
        yield Sample(f"source {name}", {"x": x, "mask": mask, "source": view}, {})
    source, out = values(make.rng, (360,), KINDS[0]), np.zeros((9, 80), np.float32)[:, ::2]
    yield Sample("out stepped", {"x": x, "mask": mask, "source": source, "out": out}, {})
    yield Sample("one too few", {"x": x, "mask": np.ones((9, 40), bool), "source": source[1:]}, {"mode": "status"})


def masked_scatter_backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Sources of more elements than are under the mask and of fewer."""
    make = _Maker(seed, FLOATS, full=full)
    for i, (label, kind, x, mask) in enumerate(make.pairs()):
        shape = np.broadcast_shapes(x.shape, mask.shape)
        source = values(make.rng, (max(_count(x, mask) + (0, 5, -2)[i % 3], 0),), kind)
        grad = values(make.rng, shape, kind)
        yield Sample(f"{label} source {source.size}", {"grad": grad, "mask": mask, "source": source})
    for label, grad, mask in make.laid_out():
        source = values(make.rng, (37, 60), FLOATS[0])
        yield Sample(label.replace("x ", "grad "), {"grad": grad, "mask": mask, "source": source})
    grad, mask = values(make.rng, (9, 40), FLOATS[0]), make.mask((9, 40), 0.5)
    source, out = values(make.rng, (360,), FLOATS[0]), np.zeros((9, 80), np.float32)[:, ::2]
    yield Sample("grad_x stepped", {"grad": grad, "mask": mask, "source": source, "grad_x": out})
