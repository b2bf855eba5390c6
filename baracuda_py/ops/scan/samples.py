"""Samples of running sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...numerics.rounding import round_to
from ...samples.sample import Sample, adversarial, layouts, strided_like, values
from ...types import ElementKind

__all__ = ["backward", "cumsum", "gradient", "running"]

FLOATS = (ElementKind.BF16, ElementKind.F32, ElementKind.F16, ElementKind.F64)
INTEGERS = (ElementKind.I32, ElementKind.U8, ElementKind.I64, ElementKind.U64)
SHAPES = ((1, 1), (3, 5), (2, 130), (5, 1024), (0, 8), (2, 3, 72), (1, 9000), (7, 33), (40, 3))


def cumsum(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Rows and columns of every length class and dtype, every axis, layouts, corners, long rows and columns in chunks."""
    rng = np.random.default_rng(seed)
    for element in (*FLOATS, *INTEGERS):
        for shape in SHAPES if full or element is ElementKind.BF16 else SHAPES[2:4]:
            yield Sample(f"{element}{list(shape)} rows", {"x": values(rng, shape, element)}, {"axis": -1})
            yield Sample(f"{element}{list(shape)} columns", {"x": values(rng, shape, element)}, {"axis": 0})
        for axis in (0, 1, 2):
            yield Sample(f"{element} axis {axis}", {"x": values(rng, (6, 17, 40), element)}, {"axis": axis})
        corners = adversarial(element)
        finite = np.where(np.isfinite(corners.astype(float)), corners, 0)
        rows = np.stack([corners, corners[::-1], np.full(len(corners), corners[-2]), finite])
        yield Sample(f"{element} corners", {"x": rows.astype(element.dtype)}, {"axis": 1})
        for view_name, view in layouts(values(rng, (6, 40), element)).items():
            for axis in (0, 1):
                yield Sample(f"{element} {view_name}, axis {axis}", {"x": view}, {"axis": axis})
    yield Sample("f32 far from zero", {"x": values(rng, (3, 5000), ElementKind.F32) + np.float32(1000)})
    yield Sample("bf16 long row", {"x": values(rng, (100_003,), ElementKind.BF16)}, {"axis": 0})
    yield Sample("f32 long rows", {"x": values(rng, (3, 33_001), ElementKind.F32)[:, 1:]})
    yield Sample("i32 long row", {"x": values(rng, (40_000,), ElementKind.I32)})
    yield Sample("bf16 long columns", {"x": values(rng, (1100, 72), ElementKind.BF16)}, {"axis": 0})
    yield Sample("f64 long columns", {"x": values(rng, (2, 1030, 5), ElementKind.F64)}, {"axis": 1})
    yield Sample("f32 nothing", {"x": values(rng, (4, 0), ElementKind.F32)})
    for label, shape, element, reverse in (
        ("f32 exclusive", (5, 130), ElementKind.F32, False),
        ("bf16 exclusive reversed", (40, 9), ElementKind.BF16, True),
        ("f32 exclusive of one", (1, 7), ElementKind.F32, True),
        ("f32 exclusive of nothing", (0, 7), ElementKind.F32, False),
        ("i32 exclusive", (5, 70), ElementKind.I32, False),
    ):
        options = {"axis": int(shape[0] == 5), "reverse": reverse, "exclusive": True}
        yield Sample(label, {"x": values(rng, shape, element)}, options)
    yield Sample("f16 reversed", {"x": values(rng, (3, 130), ElementKind.F16)}, {"axis": 1, "reverse": True})


def backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Those of cumsum in floats, whose x is the gradient: without `full` the long ones, and a third of the others."""
    for place, sample in enumerate(cumsum(fixed, seed, full=full)):
        x = sample.operands["x"]
        if ElementKind.of(x.dtype).is_float and (
            full or place % 3 == 0 or any(word in sample.label for word in ("long", "exclusive", "reversed"))
        ):
            yield Sample(sample.label, {"grad": x}, sample.options)


def running(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Those of cumsum, every third from the end on; factors of magnitudes about 1, and odd integers, that few products leave the
    range or are 0."""
    rng = np.random.default_rng(seed + 11)
    name = dict(fixed or {}).get("name", "cumprod")
    for place, sample in enumerate(cumsum(fixed, seed, full=full)):
        x = sample.operands["x"]
        if name == "logcumsumexp" and x.dtype.kind in "iu":
            continue
        if name in ("cummax", "cummin") and "exclusive" in sample.options:
            continue
        if name == "cumprod" and x.dtype.kind in "iu":
            x = strided_like(x | x.dtype.type(1), x)
        elif name == "cumprod" and "corners" not in sample.label:
            near = np.sign(rng.standard_normal(x.shape)) * np.exp(rng.standard_normal(x.shape) / 512)
            x = strided_like(near.astype(x.dtype), x)
        yield Sample(sample.label, {"x": x}, {"reverse": place % 3 == 2, **sample.options})
    infinite = np.array(
        [[np.inf, 0, 2], [0, np.inf, -np.inf], [-np.inf, 3, 3], [-np.inf, -np.inf, -np.inf]], np.float32
    )
    yield Sample("f32 infinities", {"x": infinite}, {"axis": 1})
    yield Sample("f32 infinities down", {"x": infinite.T.copy()}, {"axis": 0})


def gradient(
    forward: str,
    result: Callable[[Any, dict[str, Any]], Any],
    fixed: Any,  # noqa: ARG001
    seed: int = 0,
    *,
    full: bool = False,
) -> Iterator[Sample]:
    """Rows and columns of each dtype, some from the end on; layouts, a line in chunks, equal elements, zeros, corners. `result`
    computes the forward result, which is rounded."""
    rng = np.random.default_rng(seed + 12)

    def sample(label: str, x: Any, axis: int, reverse: bool = False, **more: bool) -> Sample:
        options, element = {"axis": axis, "reverse": reverse, **more}, ElementKind.of(x.dtype)
        with np.errstate(all="ignore"):
            y = round_to(result(x, options), element)
        return Sample(label, {"grad": values(rng, x.shape, element), "x": x, "y": y}, options)

    def terms(shape: tuple[int, ...], element: ElementKind) -> Any:
        """For products, factors of magnitudes about 1."""
        if forward != "cumprod":
            return values(rng, shape, element)
        return (np.sign(rng.standard_normal(shape)) * np.exp(rng.standard_normal(shape) / 512)).astype(element.dtype)

    for place, element in enumerate(FLOATS):
        yield sample(f"{element}[2, 130] rows", terms((2, 130), element), 1, place % 2 == 1)
        yield sample(f"{element}[33, 40] columns", terms((33, 40), element), 0, place % 2 == 0)
        yield sample(f"{element} axis 1", terms((6, 17, 20), element), 1)
    for shape in ((1, 1), (3, 5), (0, 8), (4, 0), (1, 2100)) if full else ((3, 5), (0, 8), (1, 2100)):
        yield sample(f"f32{list(shape)}", terms(shape, ElementKind.F32), 1)
    for view_name, view in layouts(terms((6, 40), ElementKind.BF16)).items():
        yield sample(f"bf16 {view_name}", view, 1, view_name == "reversed")
    yield sample("bf16 long row", terms((9001,), ElementKind.BF16), 0, True)
    if full:
        yield sample("f32 long columns", terms((8200, 3), ElementKind.F32), 0)
    yield sample("f32 small integers", rng.integers(-2, 3, (5, 40)).astype(np.float32), 1)
    zeros = np.array([[2, 0, 3, -4, 5], [0, 0, 2, 1, 3], [1, 2, -0.0, 2, 0], [4, 3, 2, 1, 0]], np.float32)
    yield sample("f32 zeros", zeros, 1)
    yield sample("f32 zeros reversed", zeros, 1, True)
    if forward in ("cumprod", "logcumsumexp"):
        yield sample("f32 exclusive", terms((5, 70), ElementKind.F32), 1, exclusive=True)
        yield sample("bf16 exclusive reversed", terms((40, 9), ElementKind.BF16), 0, True, exclusive=True)
        yield sample("f32 exclusive of one", terms((4, 1), ElementKind.F32), 1, exclusive=True)
    if forward != "cumprod":
        infinite = np.array([[np.inf, 0, 2], [0, np.inf, -np.inf], [-np.inf, 3, 3], [-np.inf, np.nan, 1]], np.float32)
        yield sample("f32 infinities", infinite, 1)
