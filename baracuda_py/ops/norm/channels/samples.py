"""Samples of norms over channels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, adversarial, layouts, strided_like, values
from ....types import ElementKind

__all__ = ["backward", "fixed", "fixed_backward", "norm", "running"]

FLOATS = (ElementKind.BF16, ElementKind.F32, ElementKind.F16, ElementKind.F64)
SHAPES = (
    ((2, 6, 5, 7), 3), ((3, 8, 4, 16), 2), ((1, 4, 1030), 2), ((2, 12), 4), ((1, 1, 1), 1), ((0, 4, 3), 2), ((2, 4, 0), 2),
    ((2, 0, 3), 1), ((2, 40, 8), 1), ((5, 33, 3), 33), ((1, 2, 4104), 2),
)  # fmt: skip
CHANNELS_LAST = ((3, 8, 4, 16), (2, 6, 5, 7))


def channels_last(x: Any) -> Any:
    """The same values with channels contiguous."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


def _statistics_shape(name: str, shape: tuple[int, ...], groups: int) -> tuple[int, ...]:
    if name.startswith("batch"):
        return shape[1:2]
    return (shape[0], shape[1] if name.startswith("instance") else groups)


def _options(name: str, groups: int) -> dict[str, Any]:
    return {"num_groups": groups} if name == "group_norm" else {}


def norm(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Groups of every size class and dtype, layouts, offsets far from zero, corners."""
    rng = np.random.default_rng(seed)
    name = dict(fixed or {}).get("name", "group_norm")

    def weighted(x: Any, element: ElementKind, groups: int, label: str = "", **options: Any) -> Sample:
        parts = {part: values(rng, x.shape[1:2], element) for part in ("weight", "bias")}
        label = label or f"{ElementKind.of(x.dtype)}{list(x.shape)} {groups}"
        return Sample(label, {"x": x, **parts}, {**_options(name, groups), **options})

    for element in FLOATS:
        for shape, groups in SHAPES if full or element is ElementKind.BF16 else SHAPES[:3]:
            yield weighted(values(rng, shape, element), element, groups)
        yield Sample(f"{element} plain", {"x": values(rng, (2, 6, 50), element)}, {**_options(name, 2), "eps": 1e-3})
        corners = np.stack([np.roll(adversarial(element), i) for i in range(4)])[None]
        yield Sample(f"{element} corners", {"x": corners}, _options(name, 2))
        for shape in CHANNELS_LAST:
            yield weighted(
                channels_last(values(rng, shape, element)), element, 2, f"{element}{list(shape)} channels last"
            )
        for view, x in layouts(values(rng, (2, 4, 6, 8), element)).items():
            yield weighted(x, element, 2, f"{element} {view}")
    for element in (ElementKind.F32, ElementKind.F64):
        yield weighted(
            values(rng, (2, 4, 100), element) + element.dtype.type(1000), element, 2, f"{element} offset", eps=0.0
        )
    yield weighted(values(rng, (2, 8, 40), ElementKind.BF16), ElementKind.F32, 4, "bf16 weighted by f32")
    x = values(rng, (2, 6, 40), ElementKind.F16)
    statistics = {s: np.zeros(_statistics_shape(name, x.shape, 3), np.float32) for s in ("mean", "rstd")}
    given = {"x": x, "bias": values(rng, (6,), ElementKind.F16), **statistics}
    yield Sample("f16 bias and statistics", given, _options(name, 3))
    yield weighted(values(rng, (1, 2, 20000), ElementKind.BF16), ElementKind.BF16, 1, "bf16 streamed")
    yield weighted(values(rng, (1, 3, 5461), ElementKind.F32), ElementKind.F32, 1, "f32 odd positions, streamed")


def backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """As `norm`; the statistics are some, not x's own."""
    rng = np.random.default_rng(seed)
    name = dict(fixed or {}).get("name", "group_norm_backward")

    def sample(
        shape: tuple[int, ...], groups: int, element: ElementKind, weighted: bool | ElementKind = True, view: str = "C",
        **options: Any,
    ) -> Sample:  # fmt: skip
        computed = ElementKind.F64 if element is ElementKind.F64 else ElementKind.F32
        given = (values(rng, shape, element) for _ in range(2))
        grad, x = map(channels_last, given) if view == "channels last" else (layouts(a)[view] for a in given)
        operands = {"grad": grad, "x": x}
        if weighted:
            operands["weight"] = values(rng, shape[1:2], element if weighted is True else weighted)
        statistics = [values(rng, _statistics_shape(name, shape, groups), computed) for _ in range(2)]
        operands |= {"mean": statistics[0], "rstd": np.abs(statistics[1]) + computed.dtype.type(0.1)}
        return Sample(
            f"{element}{list(shape)} {groups} {view} {'weighted' if weighted else 'plain'}", operands, options
        )

    for element in FLOATS:
        for shape, groups in SHAPES if full or element is ElementKind.BF16 else SHAPES[:3]:
            yield sample(shape, groups, element)
        yield sample((2, 6, 24), 2, element, weighted=False)
        for view in ("padded", "stepped", "reversed", "F", "channels last"):
            yield sample((2, 4, 6, 8), 2, element, view=view)
    given = sample((2, 4, 6, 8), 2, ElementKind.F32, view="F")
    x = given.operands["x"]
    yield Sample(f"{given.label} to its layout", {**given.operands, "grad_x": strided_like(np.zeros_like(x), x)})
    biased = sample((3, 6, 10), 3, ElementKind.F32, weighted=False)
    yield Sample("f32 bias alone", {**biased.operands, "grad_bias": np.zeros(6, np.float32)})
    yield sample((70, 4, 9), 2, ElementKind.F16, ElementKind.F32)
    yield sample((1, 12, 1032), 2, ElementKind.BF16)
    yield sample((1, 2, 20000), 1, ElementKind.BF16)
    yield sample((2, 3, 4099), 3, ElementKind.F32)


def _by_channel(rng: Any, channels: int, element: ElementKind, names: tuple[str, str]) -> dict[str, Any]:
    """A mean and a variance of each channel."""
    computed = ElementKind.F64 if element is ElementKind.F64 else ElementKind.F32
    return {names[0]: values(rng, (channels,), computed), names[1]: np.abs(values(rng, (channels,), computed))}


BATCHES = ((2, 6, 5, 7), (3, 8, 4, 16), (5, 12), (1, 4, 1030))


def running(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Channels of every size class and dtype, momentum of 0 and of 1, layouts, an offset far from zero."""
    rng = np.random.default_rng(seed)

    def sample(x: Any, element: ElementKind, label: str, *, weighted: bool = True, **options: Any) -> Sample:
        channels = x.shape[1]
        parts = {part: values(rng, (channels,), element) for part in ("weight", "bias")} if weighted else {}
        return Sample(
            f"{element}{list(x.shape)} {label}",
            {"x": x, **parts, **_by_channel(rng, channels, element, ("running_mean", "running_var"))}, options,
        )  # fmt: skip

    for element in FLOATS:
        for shape in BATCHES if full or element is ElementKind.BF16 else BATCHES[:1]:
            yield sample(values(rng, shape, element), element, "")
        yield sample(values(rng, (2, 3, 4), element), element, "plain", weighted=False, momentum=1.0, eps=1e-3)
        yield sample(channels_last(values(rng, (2, 8, 3, 5), element)), element, "channels last", momentum=0.0)
    yield sample(values(rng, (2, 4, 100), ElementKind.F32) + np.float32(1000), ElementKind.F32, "offset")
    yield sample(values(rng, (1, 2, 20000), ElementKind.BF16), ElementKind.BF16, "streamed")
    yield sample(values(rng, (0, 0, 3), ElementKind.F32), ElementKind.F32, "empty")


def fixed(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Shapes, dtypes and layouts, corners, elements of more than a CTA."""
    rng = np.random.default_rng(seed)

    def sample(x: Any, element: ElementKind, label: str, held: ElementKind | None = None, **options: Any) -> Sample:
        channels = x.shape[1]
        parts = {part: values(rng, (channels,), held or element) for part in ("weight", "bias")}
        statistics = _by_channel(rng, channels, element, ("mean", "var"))
        return Sample(f"{element}{list(x.shape)} {label}", {"x": x, **statistics, **parts}, options)

    for element in FLOATS:
        for shape in (
            (*BATCHES, (0, 4, 3), (1, 1, 1), (2, 0, 3)) if full or element is ElementKind.BF16 else BATCHES[:2]
        ):
            yield sample(values(rng, shape, element), element, "")
        corners = np.stack([np.roll(adversarial(element), i) for i in range(4)])[None]
        yield sample(corners, element, "corners")
        yield sample(channels_last(values(rng, (3, 8, 4, 16), element)), element, "channels last")
        for view, x in layouts(values(rng, (2, 4, 6, 8), element)).items():
            yield sample(x, element, view)
    plain = values(rng, (2, 6, 40), ElementKind.F32)
    yield Sample("f32 plain", {"x": plain, **_by_channel(rng, 6, ElementKind.F32, ("mean", "var"))}, {"eps": 1e-3})
    yield sample(values(rng, (2, 8, 40), ElementKind.F16), ElementKind.F16, "weighted by f32", ElementKind.F32)
    yield sample(values(rng, (3, 5, 1999), ElementKind.F32), ElementKind.F32, "CTAs")


def fixed_backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """As `fixed`."""
    rng = np.random.default_rng(seed)

    def sample(shape: tuple[int, ...], element: ElementKind, view: str = "C", *, weighted: bool = True) -> Sample:
        given = (values(rng, shape, element) for _ in range(2))
        grad, x = map(channels_last, given) if view == "channels last" else (layouts(a)[view] for a in given)
        parts = {"weight": values(rng, shape[1:2], element)} if weighted else {}
        statistics = _by_channel(rng, shape[1], element, ("mean", "var"))
        return Sample(f"{element}{list(shape)} {view}", {"grad": grad, "x": x, **parts, **statistics})

    for element in FLOATS:
        for shape in BATCHES if full or element is ElementKind.BF16 else BATCHES[:1]:
            yield sample(shape, element)
        for view in ("padded", "reversed", "channels last"):
            yield sample((2, 4, 6, 8), element, view)
    biased = sample((3, 6, 10), ElementKind.F32, weighted=False)
    yield Sample("f32 bias alone", {**biased.operands, "grad_bias": np.zeros(6, np.float32)}, {"eps": 0.5})
    yield Sample("f32 plain", biased.operands)
    yield sample((1, 2, 20000), ElementKind.BF16)
