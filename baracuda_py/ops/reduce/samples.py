"""Samples of the reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from ...samples.sample import Sample, adversarial, layouts, strided_like, values
from ...types import ElementKind

__all__ = ["aminmax", "backward", "reduce", "var_mean"]

Array: TypeAlias = np.ndarray[Any, Any]
FLOATS = (ElementKind.BF16, ElementKind.F32, ElementKind.F16, ElementKind.F64)
INTEGERS = (ElementKind.I32, ElementKind.U8, ElementKind.I64, ElementKind.U64)
LOGICAL = ("any", "all", "count_nonzero")
TAKES_INTEGERS = ("sum", "max", "min", "argmax", "argmin", "prod", *LOGICAL)
POWERS = (
    (3.0, (5, 1024), 1, ElementKind.F32), (0.5, (7, 33), 0, ElementKind.BF16), (-1.5, (6, 17, 40), (0, 2), ElementKind.F16),
    (2.5, (3, 130), 1, ElementKind.F64), (7.0, (1100, 70), 0, ElementKind.F32), (1.0 / 3.0, (40_003,), 0, ElementKind.F32),
)  # fmt: skip
NOT_OF_NOTHING = ("max", "min", "argmax", "argmin", "nanmax", "nanmin")
SHAPES = ((1, 1), (3, 5), (2, 130), (5, 1024), (0, 8), (2, 3, 72), (1, 4104), (7, 33), (40, 3))


def reduce(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Those of `_problems`, with values that suit the reduction."""
    rng = np.random.default_rng(seed + 9)
    name = dict(fixed or {}).get("name", "sum")
    for place, sample in enumerate(_problems(name, seed, full)):
        x, options = sample.operands["x"], dict(sample.options)
        exact = "corners" in sample.label or "infinities" in sample.label
        if name == "norm":
            empty = "nothing" in sample.label
            options["p"] = (2.0, 1.0, 0.0)[place % 3] if empty else (2.0, 1.0, np.inf, -np.inf, 0.0)[place % 5]
        elif not exact and name in VALUES:
            x = strided_like(VALUES[name](rng, x), x)
        yield Sample(sample.label, {"x": x}, options)
    if name == "norm":
        for p, shape, along, element in POWERS:
            yield Sample(f"{element}{list(shape)} p={p}", {"x": values(rng, shape, element)}, {"axis": along, "p": p})
    if name in LOGICAL:
        for shape, axis in (((5, 1024), 1), ((7, 33), 0), ((6, 17, 40), (0, 2)), ((40_003,), 0), ((2, 5), None)):
            yield Sample(f"bool{list(shape)} {axis}", {"x": rng.random(shape) < 0.99}, {"axis": axis})


def aminmax(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Those of max."""
    return reduce({"name": "max"}, seed, full=full)


def var_mean(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Those of var."""
    return reduce({"name": "var"}, seed, full=full)


def _near_one(rng: np.random.Generator, x: Array) -> Array:
    """Of whose products few leave the range: signs, and magnitudes about 1. Integers are odd: products of others are soon 0."""
    if x.dtype.kind in "iu":
        return np.asarray(x | x.dtype.type(1))
    return np.asarray(np.sign(rng.standard_normal(x.shape)) * np.exp(rng.standard_normal(x.shape) / 512)).astype(
        x.dtype
    )


def _rare(share: float) -> Callable[[np.random.Generator, Array], Array]:
    """0 but for a share of the places."""
    return lambda rng, x: np.where(rng.random(x.shape) < share, np.where(x == 0, 1, x), 0).astype(x.dtype)


def _gaps(rng: np.random.Generator, x: Array) -> Array:
    """NaN in a quarter of the places, and all of the first row."""
    if x.dtype.kind in "iu" or not x.size:
        return x
    holes = np.asarray(rng.random(x.shape) < 0.25)
    holes[0] |= x.ndim > 1
    return np.where(holes, np.array(np.nan, x.dtype), x)


VALUES: dict[str, Callable[[np.random.Generator, Array], Array]] = {
    "prod": _near_one, "any": _rare(0.004), "all": _rare(0.996), "count_nonzero": _rare(0.5),
    **dict.fromkeys(("nansum", "nanmean", "nanmax", "nanmin"), _gaps),
}  # fmt: skip


def _problems(name: str, seed: int, full: bool) -> Iterator[Sample]:
    """Rows and columns of every length class and dtype, sets of axes, layouts, ties, corners, long rows in chunks."""
    rng = np.random.default_rng(seed)
    axes: tuple[Any, ...] = (0, 1, -1, None) if name in ("argmax", "argmin") else ((0, 2), 1, (1, 2), None)
    for element in (*FLOATS, *(INTEGERS if name in TAKES_INTEGERS else ())):
        for shape in SHAPES if full or element is ElementKind.BF16 else SHAPES[2:4]:
            yield Sample(f"{element}{list(shape)} rows", {"x": values(rng, shape, element)}, {"axis": -1})
            if shape[0]:
                yield Sample(f"{element}{list(shape)} columns", {"x": values(rng, shape, element)}, {"axis": 0})
        for axis in axes:
            options = {"axis": axis, "keepdims": True}
            yield Sample(f"{element} axes {axis}", {"x": values(rng, (6, 17, 40), element)}, options)
        corners = adversarial(element)
        rows = [
            corners,
            corners[::-1],
            np.full(len(corners), corners[-2]),
            np.where(np.isfinite(corners.astype(float)), corners, 0),
        ]
        yield Sample(f"{element} corners", {"x": np.stack(rows).astype(element.dtype)}, {"axis": 1})
        if element.is_float:
            infinite = np.array([[np.inf, 0, 2], [np.inf, 1, -np.inf], [-np.inf, 3, 3], [-np.inf, -np.inf, -np.inf]])
            yield Sample(f"{element} infinities", {"x": infinite.astype(element.dtype)}, {"axis": 1})
        for view_name, view in layouts(values(rng, (6, 40), element)).items():
            yield Sample(f"{element} {view_name}", {"x": view}, {"axis": int(view_name in ("padded", "stepped"))})
            yield Sample(f"{element} {view_name}, all", {"x": view}, {"axis": None})
    ties = rng.integers(-2, 3, (9, 300)).astype(np.float32)
    yield Sample("f32 ties", {"x": ties}, {"axis": 1})
    yield Sample("f32 ties down", {"x": ties}, {"axis": 0})
    yield Sample("f32 far from zero", {"x": values(rng, (3, 5000), ElementKind.F32) + np.float32(1000)}, {"axis": 1})
    yield Sample("bf16 long row", {"x": values(rng, (100_003,), ElementKind.BF16)}, {"axis": 0})
    yield Sample("f32 long rows", {"x": values(rng, (40, 33_000), ElementKind.F32)[:, 1:]}, {"axis": 1})
    yield Sample("bf16 long columns", {"x": values(rng, (1100, 70), ElementKind.BF16)}, {"axis": 0})
    if name not in NOT_OF_NOTHING:
        yield Sample("f32 nothing", {"x": values(rng, (4, 0), ElementKind.F32)}, {"axis": 1})
    if name in ("var", "std"):
        yield Sample("f32 corrected", {"x": values(rng, (4, 50), ElementKind.F32)}, {"axis": 1, "correction": 1})
        yield Sample("f32 corrected away", {"x": values(rng, (4, 1), ElementKind.F32)}, {"axis": 1, "correction": 1})


def backward(
    forward: str,
    result: Callable[[Array, dict[str, Any]], Array],
    takes_result: bool,
    fixed: Any,  # noqa: ARG001
    seed: int = 0,
    *,
    full: bool = False,
) -> Iterator[Sample]:
    """Those of `forward` in floats, with a gradient of the result; without `full` the long ones, and a third of the others.
    `result` computes the forward result of a sample."""
    rng = np.random.default_rng(seed + 5)
    for place, sample in enumerate(reduce({"name": forward}, seed, full=full)):
        x, options = sample.operands["x"], dict(sample.options)
        element = ElementKind.of(x.dtype)
        if not element.is_float or not (
            full or "long" in sample.label or "ties" in sample.label or "p=" in sample.label or place % 3 == 0
        ):
            continue
        y = result(x, options)
        operands = {"grad": values(rng, y.shape, element), "x": x}
        yield Sample(sample.label, operands | ({"y": y} if takes_result else {}), options)
