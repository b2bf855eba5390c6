"""Samples of the elementwise families."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...samples.sample import Sample, adversarial, layouts, values
from ...types import ElementKind

__all__ = ["binary", "cast", "floats_and_integers", "gated", "scaled_cast", "ternary", "unary"]

FLOATS = (ElementKind.F32, ElementKind.BF16, ElementKind.F16, ElementKind.F64)
INTEGERS = (
    ElementKind.I32,
    ElementKind.U8,
    ElementKind.I64,
    ElementKind.I8,
    ElementKind.I16,
    ElementKind.U16,
    ElementKind.U32,
    ElementKind.U64,
)
NUMBERS = (*FLOATS, *INTEGERS)
SHAPES = ((), (1,), (0,), (1023,), (7, 33), (3, 0, 5), (2, 3, 129), (64, 256), (5, 1, 4, 8))


def unary(
    fixed: Any,  # noqa: ARG001
    seed: int = 0,
    *,
    full: bool = False,
    kinds: Sequence[ElementKind] = NUMBERS,
    params: Mapping[str, float] | None = None,
) -> Iterator[Sample]:
    """Every dtype at odd sizes, every layout, and the corners; each with params of its own, their defaults among them."""
    takes = [k for k in (*NUMBERS, ElementKind.BOOL) if k in kinds]
    for index, sample in enumerate(_unary(np.random.default_rng(seed), full, takes)):
        yield _with_params(sample, index, params)


def _with_params(sample: Sample, index: int, params: Mapping[str, float] | None) -> Sample:
    """The sample with numbers near the defaults; of bools the default every other time."""
    factor, more = ((1, 0), (0.5, -0.125), (2.25, 0.5))[index % 3]
    given = {n: x != index % 2 if isinstance(x, bool) else x * factor + more for n, x in (params or {}).items()}
    return Sample(sample.label, sample.operands, {**sample.options, **given})


def _unary(rng: np.random.Generator, full: bool, kinds: Sequence[ElementKind]) -> Iterator[Sample]:
    for element in (k for k in kinds if k is not ElementKind.BOOL):
        yield Sample(f"{element} corners", {"x": adversarial(element)})
        for shape in SHAPES if full or element in (ElementKind.F32, ElementKind.BF16) else SHAPES[3:5]:
            yield Sample(f"{element}{list(shape)}", {"x": values(rng, shape, element)})
        for name, view in layouts(values(rng, (6, 40), element)).items():
            yield Sample(f"{element} {name}", {"x": view})
    if ElementKind.BOOL in kinds:
        yield Sample("bool", {"x": values(rng, (7, 33), ElementKind.BOOL)})
    for element in (k for k in (ElementKind.BF16, ElementKind.F16) if k in kinds):  # every value there is
        codes = np.arange(1 << 16, dtype=np.uint16).view(element.dtype)
        yield Sample(f"{element} all codes", {"x": codes})
    if ElementKind.F32 not in kinds:
        return
    yield Sample(
        "f32 range", {"x": (rng.standard_normal(4096) * 10.0 ** rng.uniform(-30, 30, 4096)).astype(np.float32)}
    )
    yield Sample("f32 moderate", {"x": rng.uniform(-20, 20, 20000).astype(np.float32)})
    for element in (ElementKind.F32, ElementKind.F64):  # where functions have roots, and their formulas cancel
        near = rng.integers(-1, 2, 20000) + rng.standard_normal(20000) * 2.0 ** -rng.integers(2, 24, 20000)
        yield Sample(f"{element} near -1, 0 and 1", {"x": near.astype(element.dtype)})
    broadcast = np.broadcast_to(values(rng, (1, 40), ElementKind.F32), (5, 40))
    yield Sample("f32 broadcast rows", {"x": broadcast})


PAIRS = (
    ((1023,), (1023,)),
    ((7, 33), (33,)),
    ((7, 1), (1, 33)),
    ((), (5,)),
    ((0, 3), (1, 3)),
    ((4, 8, 16), (8, 1)),
    ((64, 256), (64, 256)),
    ((3, 64), (3, 1)),
)


def binary(
    fixed: Any,
    seed: int = 0,
    *,
    full: bool = False,
    kinds: Sequence[ElementKind] = NUMBERS,
    params: Mapping[str, float] | None = None,
) -> Iterator[Sample]:
    """Broadcasts, mixed dtypes, layouts, every pair of corners, and numbers in the place of an array."""
    for index, sample in enumerate(_binary(fixed, seed, full, kinds)):
        yield _with_params(sample, index, params) if params else sample


def _binary(fixed: Any, seed: int, full: bool, kinds: Sequence[ElementKind]) -> Iterator[Sample]:
    rng = np.random.default_rng(seed)
    power = dict(fixed or {}).get("kind") == "pow"

    def pair(a: tuple[int, ...], b: tuple[int, ...], first: ElementKind, second: ElementKind) -> dict[str, Any]:
        x1, x2 = values(rng, a, first), values(rng, b, second)
        return {"x1": np.asarray(np.abs(x1)) if power and first.is_float else x1, "x2": x2}

    for element in (k for k in NUMBERS if k in kinds):
        corners = adversarial(element)
        yield Sample(f"{element} corners", {"x1": corners[:, None], "x2": corners[None, :]})
        for a, b in PAIRS if full or element in (ElementKind.F32, ElementKind.BF16) else PAIRS[:3]:
            yield Sample(f"{element}{list(a)}{list(b)}", pair(a, b, element, element))
        views = layouts(values(rng, (6, 40), element))
        for name, view in views.items():
            yield Sample(
                f"{element} {name}", {"x1": np.abs(view) if power and element.is_float else view, "x2": views["C"]}
            )
    if ElementKind.BOOL in kinds:
        yield Sample("bool", pair((7, 33), (33,), ElementKind.BOOL, ElementKind.BOOL))
        yield Sample("bool with i16", pair((7, 33), (33,), ElementKind.BOOL, ElementKind.I16))
    for first, second in (
        (ElementKind.BF16, ElementKind.F32),
        (ElementKind.F16, ElementKind.BF16),
        (ElementKind.I32, ElementKind.F32),
        (ElementKind.I8, ElementKind.I64),
        *(((ElementKind.U64, ElementKind.I64),) if {ElementKind.BOOL, ElementKind.F32} <= {*kinds} else ()),
    ):
        if first in kinds and second in kinds:
            yield Sample(f"{first} with {second}", pair((5, 31), (31,), first, second))
    for element, number in (
        (ElementKind.F16, 2.7), (ElementKind.BF16, -3), (ElementKind.F32, 0.1), (ElementKind.F64, 0.1), (ElementKind.I32, 2.5),
        (ElementKind.I8, 7), (ElementKind.U64, 3),
    ):  # fmt: skip
        if element in kinds and (ElementKind.F32 in kinds or isinstance(number, int)):
            operands = pair((7, 33), (1,), element, element)
            yield Sample(f"{element} with {number}", {"x1": operands["x1"]}, {"x2": number})
            yield Sample(f"{number} with {element}", {"x2": operands["x1"]}, {"x1": abs(number)})
    for element in (k for k in (ElementKind.BF16, ElementKind.F16, ElementKind.F32) if k in kinds):
        base = np.exp(rng.uniform(-3, 3, 20000)).astype(element.dtype)
        near = base * np.asarray(1 + rng.standard_normal(20000) / 1024).astype(element.dtype)
        sign = np.where((rng.random(20000) < 0.5) & (not power), -1, 1).astype(element.dtype)
        yield Sample(f"{element} near equals", {"x1": base, "x2": near * sign})
        yield Sample(f"{element} dense", {"x1": base, "x2": rng.uniform(-8, 8, 20000).astype(element.dtype)})
        signed = np.where(rng.random(5000) < 0.5, -1, 1)
        yield Sample(
            f"{element} signed",
            {"x1": (base[:5000] * signed).astype(element.dtype), "x2": rng.integers(-6, 7, 5000).astype(element.dtype)},
        )


def gated(fixed: Any, seed: int = 0, *, full: bool = False, **row: Any) -> Iterator[Sample]:
    """Those of binary functions, and pairs so small and so large that a step between them may leave the range."""
    yield from binary(fixed, seed, full=full, **row)
    rng = np.random.default_rng(seed + 1)
    for element, low, high in (
        (ElementKind.F32, -200, 127),
        (ElementKind.BF16, -200, 127),
        (ElementKind.F64, -1500, 1000),
    ):
        x = rng.uniform(low, 20, 5000).astype(element.dtype)
        y = (rng.uniform(1, 2, 5000) * 2.0 ** rng.integers(high - 40, high, 5000)).astype(element.dtype)
        yield Sample(f"{element} tails", {"x1": x, "x2": y})
        yield Sample(
            f"{element} tiny", {"x1": (x * element.dtype.type(2.0 ** -(high + 5))).astype(element.dtype), "x2": y}
        )


INTEGER_PAIRS = (*PAIRS[:2], ((7, 1), (1, 9)), *PAIRS[3:])  # an example on a page shows the integers of one
EXPONENTS = (0, 1, -1, 5, -9, 24, -24, 100, -100, 127, -127, 149, -149, 278, -278, 1023, -1074, 2098, -2098)


def floats_and_integers(
    fixed: Any,  # noqa: ARG001
    seed: int = 0,
    *,
    full: bool = False,
    kinds: Sequence[ElementKind] = FLOATS,
    params: Mapping[str, float] | None = None,  # noqa: ARG001
) -> Iterator[Sample]:
    """Floats beside exponents of every integer type: corners, broadcasts, layouts, numbers, and results about the ends of the
    range, where they are rounded."""
    rng, few = np.random.default_rng(seed), np.array(EXPONENTS, np.int16)
    for element in (k for k in FLOATS if k in kinds):
        yield Sample(f"{element} corners", {"x1": adversarial(element)[:, None], "x2": few[None, :]})
        for a, b in INTEGER_PAIRS if full or element in (ElementKind.F32, ElementKind.BF16) else INTEGER_PAIRS[:3]:
            x1, x2 = values(rng, a, element), rng.integers(-6, 7, b).astype(np.int32)
            yield Sample(f"{element}{list(a)}{list(b)}", {"x1": x1, "x2": x2})
        for name, view in layouts(values(rng, (6, 40), element)).items():
            laid = layouts(rng.integers(-9, 10, (6, 40)).astype(np.int8))
            yield Sample(f"{element} {name}", {"x1": view, "x2": laid["C"]})
            yield Sample(f"{element} by {name} exponents", {"x1": view, "x2": laid[name]})
        for integer in INTEGERS:
            ends = np.concatenate([adversarial(integer), np.arange(7).astype(integer.dtype)])
            yield Sample(f"{element} by {integer}", {"x1": values(rng, (5, 15), element), "x2": ends})
        x = values(rng, (7, 33), element)
        for number in (3, -130):
            yield Sample(f"{element} by {number}", {"x1": x}, {"x2": number})
        yield Sample(f"-0.75 among {element}", {"x2": rng.integers(-9, 10, (7, 33))}, {"x1": -0.75})
        lowest, highest = {11: (-25, 16), 8: (-134, 128), 24: (-150, 128), 53: (-1075, 1024)}[element.digits]
        exponents, near = rng.integers(-8, 9, 3000), rng.standard_normal(3000).astype(element.dtype)
        for end in (lowest, highest):
            yield Sample(f"{element} results near 2**{end}", {"x1": near, "x2": (exponents + end).astype(np.int32)})
        with np.errstate(over="ignore"):
            ends_of = np.ldexp(rng.uniform(1, 2, 3000), exponents + lowest + 24).astype(element.dtype)
        yield Sample(f"{element} subnormals", {"x1": ends_of, "x2": exponents * 4})


def ternary(
    fixed: Any,
    seed: int = 0,
    *,
    full: bool = False,
    kinds: Sequence[ElementKind] = NUMBERS,
    params: Mapping[str, float] | None = None,
) -> Iterator[Sample]:
    """Broadcasts, mixed dtypes, layouts, corners, numbers, and inputs that are left out."""
    for index, sample in enumerate(_ternary(fixed, seed, full, kinds)):
        if "quant_min" in (params or {}):
            yield _quantized(sample, index)
        else:
            yield _with_params(sample, index, params) if params else sample


QUANTIZED = ((-2.0, 1.0), (-128.0, 127.0), (0.0, 15.0))  # the ends of quantized numbers


def _quantized(sample: Sample, index: int) -> Sample:
    """The sample with a whole zero point, one of these pairs of ends, and no scale of the number 0."""
    ends = dict(zip(("quant_min", "quant_max"), QUANTIZED[index % len(QUANTIZED)]))
    operands, options = dict(sample.operands), {**sample.options, **ends}
    options |= {"x2": options["x2"] or 0.75} if "x2" in options else {}
    held = operands if "x3" in operands else options
    whole = np.asarray(np.rint(held["x3"]))
    held["x3"] = whole.astype(operands["x3"].dtype) if held is operands else float(whole)
    return Sample(sample.label, operands, options)


def _ternary(fixed: Any, seed: int, full: bool, kinds: Sequence[ElementKind]) -> Iterator[Sample]:
    rng, kind = np.random.default_rng(seed), dict(fixed or {}).get("kind")
    masked = kind == "where"

    def first(shape: tuple[int, ...], element: ElementKind) -> Any:
        return values(rng, shape, ElementKind.BOOL if masked else element)

    for element in (k for k in (*NUMBERS, *kinds) if k in kinds):
        for shapes in TRIPLES if full or element in (ElementKind.F32, ElementKind.BF16) else TRIPLES[:2]:
            x2, x3 = (values(rng, shape, element) for shape in shapes[1:])
            label = "".join(str(list(shape)) for shape in shapes)
            yield Sample(f"{element}{label}", {"x1": first(shapes[0], element), "x2": x2, "x3": x3})
        if element in NUMBERS:
            corners = adversarial(element)
            x1 = values(rng, (1, 1, 7), ElementKind.BOOL) if masked else corners[None, None, :]
            yield Sample(f"{element} corners", {"x1": x1, "x2": corners[:, None, None], "x3": corners[None, :, None]})
        views = layouts(values(rng, (6, 40), element))
        for name, view in views.items() if element in (ElementKind.F32, ElementKind.U8) else ():
            yield Sample(f"{element} {name}", {"x1": first((6, 40), element), "x2": view, "x3": views["C"]})
    for a, b in (
        (ElementKind.BF16, ElementKind.F32),
        (ElementKind.I32, ElementKind.F32),
        (ElementKind.I8, ElementKind.I64),
    ):
        if not {a, b} <= {*kinds}:
            continue
        yield Sample(
            f"{a} with {b}", {"x1": first((5, 31), a), "x2": values(rng, (31,), a), "x3": values(rng, (5, 1), b)}
        )
    for element, low, high in (
        (ElementKind.F32, -0.1, 2), (ElementKind.F16, 0.3, -0.3), (ElementKind.BF16, 0, 1.1), (ElementKind.I8, -7, 100),
        (ElementKind.I32, -0.5, 9.25), (ElementKind.F64, -0.1, float("inf")),
    ):  # fmt: skip
        if element not in kinds:
            continue
        x1, x2 = first((7, 33), element), values(rng, (7, 33), element)
        yield Sample(f"{element} {low} {high}", {"x1": x1}, {"x2": low, "x3": high})
        yield Sample(f"{element} array {high}", {"x1": x1, "x2": x2}, {"x3": high})
        yield Sample(f"{element} {low} array", {"x1": x1, "x3": x2}, {"x2": low})
        if kind == "clamp":
            yield Sample(f"{element} from {low}", {"x1": x1}, {"x2": low})
            yield Sample(f"{element} to an array", {"x1": x1, "x3": x2})


TRIPLES = (
    ((1023,), (1023,), (1023,)),
    ((7, 33), (33,), (7, 1)),
    ((), (5,), ()),
    ((0, 3), (1, 3), (3,)),
    ((64, 256), (64, 256), (64, 256)),
    ((3, 64), (3, 1), (64,)),
)


def cast(
    fixed: Any,  # noqa: ARG001
    seed: int = 0,
    *,
    full: bool = False,  # noqa: ARG001
    kinds: Sequence[ElementKind] = NUMBERS,
    params: Mapping[str, float] | None = None,  # noqa: ARG001
) -> Iterator[Sample]:
    """Every kind to every kind: corners and random values; every code of the short ones."""
    rng = np.random.default_rng(seed)
    for of in kinds:
        for to in kinds:
            yield Sample(f"{of} to {to}", {"x": _castable(rng, of)}, {"dtype": to.value})
    for of in (ElementKind.F16, ElementKind.BF16):
        codes = np.arange(1 << 16, dtype=np.uint16).view(of.dtype)
        for to in kinds:
            if to.bits == 8:
                yield Sample(f"{of} all codes to {to}", {"x": codes}, {"dtype": to.value})
    for name, view in layouts(values(rng, (6, 40), ElementKind.F32)).items():
        yield Sample(f"f32 {name} to bf16", {"x": view}, {"dtype": "bf16"})
        yield Sample(f"f32 {name} to u8", {"x": view}, {"dtype": "u8"})
        yield Sample(f"f32 {name} to fp8_e4m3", {"x": view}, {"dtype": "fp8_e4m3"})


def scaled_cast(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every kind with 8-bit floats and back: all codes, corners, and scales per array, per row, per column and as numbers."""
    rng = np.random.default_rng(seed)
    codes = (ElementKind.FP8_E4M3, ElementKind.FP8_E5M2)
    wide = (ElementKind.F32, ElementKind.BF16, ElementKind.F16)
    for of, to in [*itertools.product(wide, codes), *itertools.product(codes, wide)]:
        x = values(rng, (7, 33), of) if of in wide else rng.integers(0, 256, (7, 33), dtype=np.uint8).view(of.dtype)
        yield Sample(f"{of} to {to}", {"x": x, "scale": np.array(0.37, np.float32)}, {"dtype": to.value})
        yield Sample(
            f"{of} to {to} corners",
            {"x": _castable(rng, of), "scale": np.array([0.3], np.float32)},
            {"dtype": to.value},
        )
        yield Sample(f"{of} to {to} by 2.5", {"x": x}, {"dtype": to.value, "scale": 2.5})
        for label, scales_shape in (("rows", (7, 1)), ("columns", (33,))):
            scale = rng.uniform(0.01, 4, scales_shape).astype(np.float32)
            yield Sample(f"{of} to {to} by {label}", {"x": x, "scale": scale}, {"dtype": to.value})
    for name, view in layouts(values(rng, (6, 40), ElementKind.F32)).items():
        yield Sample(f"f32 {name}", {"x": view, "scale": np.array([-0.01], np.float32)}, {"dtype": "fp8_e4m3"})
    scales = np.array([[0.0], [-0.0], [np.inf], [np.nan], [1e-45], [3e38]], np.float32)
    yield Sample("f32 odd scales", {"x": adversarial(ElementKind.F32), "scale": scales}, {"dtype": "fp8_e5m2"})
    for shape in ((), (0,), (3, 0, 5), (64, 256), (5, 1, 4, 8)):
        x = values(rng, shape, ElementKind.BF16)
        yield Sample(f"bf16{list(shape)}", {"x": x, "scale": np.array(0.125, np.float32)}, {"dtype": "fp8_e4m3"})


def _castable(rng: np.random.Generator, kind: ElementKind) -> Any:
    """Values of a kind: its ends, those near other kinds' ends, halves between their numbers, and random ones."""
    if kind is ElementKind.BOOL or kind.bits == 8:
        return np.arange(2 if kind is ElementKind.BOOL else 256, dtype=np.uint8).view(kind.dtype)
    if kind.is_integer:
        spread = rng.integers(0, 2**63, 400, dtype=np.uint64) >> rng.integers(0, 63, 400, dtype=np.uint64)
        near = [2**k + d for k in (7, 8, 15, 16, 24, 31, 32, 53, 62) for d in (-1, 0, 1)]
        made = np.concatenate([spread.astype(np.int64), -spread.astype(np.int64), np.array(near)])
        return np.concatenate([made.astype(kind.dtype), adversarial(kind)])
    grid = rng.integers(0, 512, 400) * 2.0 ** rng.integers(-18, 12, 400)
    near = [2.0**k + d for k in (7, 8, 15, 16, 31, 32, 63, 64) for d in (-1, -0.5, 0, 0.5, 1)]
    ends = [448, 464, 480, 57344, 61440, 65504, 65519, 65520, 2.0**-7, 2.0**-10, 2.0**-17]
    spread = rng.standard_normal(400) * 2.0 ** rng.integers(-30, 70, 400)
    made = np.concatenate([grid, near, ends, spread])
    with np.errstate(over="ignore"):
        return np.concatenate([made, -made]).astype(kind.dtype)
