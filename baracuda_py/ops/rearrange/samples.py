"""Samples of elements at other places: every width, odd extents, short and long rows, layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...samples.sample import Sample, layouts, values
from ...types import ElementKind

__all__ = ["cut", "diag", "flip", "join", "of_copies", "pad", "repeat_interleave", "roll", "tile", "triangle"]

F32, U8, BF16 = ElementKind.F32, ElementKind.U8, ElementKind.BF16
WIDTHS = (F32, BF16, ElementKind.F64, U8, ElementKind.COMPLEX128)  # 4, 2, 8, 1 and 16 bytes an element
OTHERS = tuple(kind for kind in ElementKind if not kind.packed and kind not in WIDTHS)
Problems = Sequence[tuple[tuple[int, ...], dict[str, Any]]]  # x's shape, options


def _samples(seed: int, problems: Problems, full: bool, layout: dict[str, Any]) -> Iterator[Sample]:
    """The first problem of every width (with `full` every problem), the others of one each; every kind, every layout."""
    rng = np.random.default_rng(seed)
    for i, (shape, options) in enumerate(problems):
        for kind in WIDTHS if full or not i else (WIDTHS[i % len(WIDTHS)],):
            said = " ".join(f"{name}={value}" for name, value in options.items())
            yield Sample(f"{kind}{list(shape)} {said}", {"x": values(rng, shape, kind)}, options)
    for kind in OTHERS if full else OTHERS[:1]:
        yield Sample(f"{kind}{list(problems[0][0])}", {"x": values(rng, problems[0][0], kind)}, problems[0][1])
    for name, view in layouts(values(rng, (6, 40), BF16)).items():
        yield Sample(f"x {name}", {"x": view}, layout)


def roll(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Along the last axis, the first, both, in C order, by more than an extent."""
    problems: Problems = (
        ((5, 37), {"shift": 3, "axis": 1}), ((9, 32), {"shift": (2, -70), "axis": (0, -1)}),
        ((4, 3, 40), {"shift": -1, "axis": 1}),
        ((7, 33), {"shift": 50}), ((130,), {"shift": (5, 6), "axis": (0, 0)}), ((0, 4), {"shift": 1, "axis": 0}),
        ((3, 700), {"shift": 16, "axis": 1}), ((), {"shift": 1}), ((2, 3, 4, 5), {"shift": (1, 1, 1, 1), "axis": (0, 1, 2, 3)}),
    )  # fmt: skip
    yield from _samples(seed, problems, full, {"shift": 5, "axis": 1})


def flip(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """All axes, one, several, rows of whole chunks and others."""
    problems: Problems = (
        ((5, 37), {}), ((9, 64), {"axis": 1}), ((4, 3, 40), {"axis": (0, 1)}), ((7, 33), {"axis": 0}), ((130,), {"axis": -1}),
        ((0, 4), {}), ((3, 701), {"axis": 1}), ((), {}), ((2, 3, 4, 5), {"axis": (1, 3)}),
    )  # fmt: skip
    yield from _samples(seed, problems, full, {"axis": 1})


def tile(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Along each axis, along new ones, not at all."""
    problems: Problems = (
        ((5, 37), {"reps": (2, 3)}), ((3, 32), {"reps": (4, 1)}), ((40,), {"reps": (3, 2, 1)}), ((4, 3, 5), {"reps": 2}),
        ((3, 1), {"reps": (1, 70)}), ((2, 3), {"reps": (0, 2)}), ((0, 3), {"reps": 2}), ((), {"reps": 5}), ((7, 9), {"reps": ()}),
    )  # fmt: skip
    yield from _samples(seed, problems, full, {"reps": (1, 2)})


def repeat_interleave(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Along the last axis, the first, in C order, never, once."""
    problems: Problems = (
        ((5, 37), {"repeats": 2, "axis": 1}), ((3, 64), {"repeats": 3, "axis": 0}), ((4, 9), {"repeats": 5}),
        ((2, 3, 4), {"repeats": 2, "axis": -2}), ((5, 6), {"repeats": 0, "axis": 0}), ((70,), {"repeats": 1, "axis": 0}),
        ((), {"repeats": 3}),
    )  # fmt: skip
    yield from _samples(seed, problems, full, {"repeats": 2, "axis": 0})


def of_copies(name: str) -> Callable[..., Iterator[Sample]]:
    """Samples of the gradient of `tile` or `repeat_interleave`: the forward op's, those of other kinds in f32."""

    def backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
        rng, forward = np.random.default_rng(seed + 1), {"tile": tile, "repeat_interleave": repeat_interleave}[name]
        for sample in forward(fixed, seed, full=full):
            x, options = sample.operands["x"], dict(sample.options)
            element = ElementKind.of(x.dtype)
            if not element.is_float:
                element, x = F32, values(rng, x.shape, F32)
            moved = (
                np.tile(x, options["reps"]) if name == "tile" else np.repeat(x, options["repeats"], options.get("axis"))
            )
            yield Sample(sample.label, {"grad": values(rng, moved.shape, element), "x": x}, options)
        for view_name, view in layouts(values(rng, (6, 80), BF16)).items():
            options = {"reps": (1, 2)} if name == "tile" else {"repeats": 2, "axis": 1}
            yield Sample(f"grad {view_name}", {"grad": view, "x": values(rng, (6, 40), BF16)}, options)
        if name == "repeat_interleave":
            grad = values(rng, (36,), F32)[::2]
            yield Sample(
                "f32 grad stepped, without axis", {"grad": grad, "x": values(rng, (2, 3), F32)}, {"repeats": 3}
            )
        many = {"reps": 40_000} if name == "tile" else {"repeats": 40_000}
        yield Sample("f32 many copies", {"grad": values(rng, (120_000,), F32), "x": values(rng, (3,), F32)}, many)

    return backward


def triangle(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Diagonals inside and far outside, wide and tall matrices, batches."""
    problems: Problems = (
        ((37, 45), {}), ((2, 40, 64), {"k": 3}), ((64, 9), {"k": -5}), ((3, 2, 5, 7), {"k": 1}), ((6, 40), {"k": 10**6}),
        ((6, 40), {"k": -(10**6)}), ((0, 4), {}), ((1, 1), {"k": 1}),
    )  # fmt: skip
    yield from _samples(seed, problems, full, {"k": 1})


def diag(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Diagonals on both sides, far from the main one, of one element, of none."""
    problems: Problems = (
        ((37,), {}), ((32,), {"k": 3}), ((21,), {"k": -16}), ((1,), {"k": 40}), ((0,), {"k": 2}), ((0,), {}), ((5,), {"k": -1}),
    )  # fmt: skip
    for sample in _samples(seed, problems, full, {"k": 1}):
        x = sample.operands["x"]
        yield Sample(sample.label, {"x": x if x.ndim == 1 else x[:, 0]}, sample.options)


def pad(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every mode, widths beyond the extent, cuts, an empty x, numbers of several kinds."""
    modes = ("edge", "reflect", "symmetric", "wrap", "replicate", "circular")
    problems: Problems = (
        ((5, 37), {"pad_width": ((1, 2), (3, 4))}), ((3, 64), {"pad_width": (0, 16), "constant_values": 7}),
        ((2, 3, 40), {"pad_width": ((0, 0), (2, 1), (0, 0))}), ((9, 9), {"pad_width": ((-1, 2), (3, -4))}),
        ((0, 4), {"pad_width": 1}), ((), {"pad_width": ()}), ((5,), {"pad_width": ((-2, -3),)}),
        *(((3, 20), {"pad_width": ((2, 1), (9, 18)), "mode": mode}) for mode in modes),
        *(((3, 4), {"pad_width": ((0, 0), (11, 9)), "mode": mode}) for mode in modes[1:4]),
        ((1, 5), {"pad_width": ((2, 2), (0, 0)), "mode": "reflect"}),
    )  # fmt: skip
    yield from _samples(seed, problems, full, {"pad_width": ((0, 1), (2, 3))})
    rng = np.random.default_rng(seed)
    for kind, number in (
        (F32, float("nan")),
        (BF16, -1.5),
        (ElementKind.I64, -(2**62) - 1),
        (ElementKind.COMPLEX64, 2.5),
    ):
        options = {"pad_width": 1, "constant_values": number}
        yield Sample(f"{kind} {number}", {"x": values(rng, (3, 5), kind)}, options)


def cut(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """What `pad` adds, of one axis and of several; sums, in every mode, over several turns, over many places of few elements."""
    problems: Problems = (
        ((9, 45), {"pad_width": ((1, 2), (3, 4))}), ((3, 64), {"pad_width": ((0, 0), (16, 0))}), ((40,), {"pad_width": 4}),
        ((4, 4), {"pad_width": 2}),
    )  # fmt: skip
    yield from _samples(seed, problems, full, {"pad_width": ((0, 1), (2, 3))})
    rng, summed = np.random.default_rng(seed), (F32, BF16, ElementKind.F64, ElementKind.F16)
    sums: Problems = (
        ((5, 46), {"pad_width": ((2, 1), (9, 17)), "mode": "reflect"}),
        ((5, 46), {"pad_width": ((2, 1), (9, 17)), "mode": "edge"}),
        ((3, 28), {"pad_width": ((0, 1), (11, 9)), "mode": "symmetric"}),
        ((3, 28), {"pad_width": ((0, 1), (11, 9)), "mode": "wrap"}),
        ((2, 3, 40), {"pad_width": ((0, 0), (1, 1), (0, 0)), "mode": "replicate"}),
        ((5, 5), {"pad_width": 2, "mode": "circular"}), ((5, 4), {"pad_width": ((2, 2), (1, 1)), "mode": "reflect"}),
        ((), {"pad_width": (), "mode": "edge"}), ((2000,), {"pad_width": ((1000, 997),), "mode": "symmetric"}),
    )  # fmt: skip
    for i, (shape, options) in enumerate(sums):
        for kind in summed if full or not i else (summed[i % len(summed)],):
            yield Sample(f"{kind}{list(shape)} {options}", {"x": values(rng, shape, kind)}, options)
    for name, view in layouts(values(rng, (6, 40), BF16)).items():
        yield Sample(f"sums of x {name}", {"x": view}, {"pad_width": ((1, 0), (2, 3)), "mode": "edge"})


def join(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Each axis, one piece to sixteen, empty ones, a new axis, rows with gaps, rows that are repeated."""
    rng = np.random.default_rng(seed)

    def sample(label: str, pieces: Sequence[Any], **options: Any) -> Sample:
        return Sample(label, {f"x{i}": x for i, x in enumerate(pieces)}, options)

    def made(kind: ElementKind, shapes: Sequence[tuple[int, ...]], **options: Any) -> Sample:
        return sample(f"{kind}{[list(s) for s in shapes]} {options}", [values(rng, s, kind) for s in shapes], **options)

    problems: tuple[tuple[list[tuple[int, ...]], dict[str, Any]], ...] = (
        ([(5, 37), (5, 8), (5, 3)], {"axis": 1}), ([(3, 32), (3, 64)], {"axis": -1}), ([(5, 7), (2, 7)], {"axis": 0}),
        ([(2, 3, 4), (2, 5, 4), (2, 0, 4), (2, 1, 4), (2, 2, 4)], {"axis": 1}), ([(70,)], {"axis": 0}),
        ([(3, 5)] * 3, {"axis": 0, "stacked": True}), ([(3, 5)] * 2, {"axis": -1, "stacked": True}),
        ([(4, i + 1) for i in range(16)], {"axis": 1}), ([(0, 3), (0, 2)], {"axis": 1}), ([()] * 9, {"stacked": True}),
    )  # fmt: skip
    for i, (shapes, options) in enumerate(problems):
        for kind in WIDTHS if full or not i else (WIDTHS[i % len(WIDTHS)],):
            yield made(kind, shapes, **options)
    for kind in OTHERS if full else OTHERS[:1]:
        yield made(kind, problems[0][0], axis=1)
    wide, tall = values(rng, (4, 90), BF16), values(rng, (9, 40), F32)
    yield sample("bf16 rows with gaps", [wide[:, :33], wide[:, 40:81], wide], axis=1)
    yield sample("bf16 transposed", [wide[:, :33].T, wide[:, 40:81].T, wide.T], axis=0)
    yield sample("f32 stepped, stacked", [tall[:, ::2], tall[:, 20:], tall[:, 1::2]], axis=1, stacked=True)
    yield sample("f32 rows in reverse, and repeated", [tall[::-1], np.broadcast_to(tall[:1], (9, 40))], axis=1)
