"""The elementwise machinery: NumPy's type and broadcast rules, and one kernel (elementwise/map.cu) for every row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ...plan.candidate import OK, Candidate, Change, Cost, Feasibility, no
from ...plan.descriptor import Descriptor, Layout, Operand, resolved_strides
from ...runtime.steps import Arg, Kernel, Launch, Ptr, Step
from ...tensor.axes import broadcast_strides, c_strides, collapse
from ...types import (
    BackendKind,
    DeviceSpec,
    ElementKind,
    Exact,
    InvalidProblemError,
    MathPrecision,
    OperandTypeError,
    PrecisionGuarantee,
    Ulp,
)
from .._launch import grid_of, index_scalar, index_type, pack_dims

__all__ = [
    "CANDIDATES",
    "FLOATS",
    "INTEGERS",
    "MapDescriptor",
    "Row",
    "check_output",
    "checked_layout",
    "guarantee_of",
    "keep_order",
    "result_kind",
]

FLOATS = (ElementKind.F16, ElementKind.BF16, ElementKind.F32, ElementKind.F64)
INTEGERS = tuple(k for k in ElementKind if k.is_integer and not k.packed)


@dataclass(frozen=True)
class Row:
    """One elementwise op.

    `cuda` is an expression of the arguments (``x``, or ``a`` and ``b``) of type C with `digits` the result's significand, and
    `header` the file under kernels/include of the functions in it.
    `ulps` bounds the error of the f32 and f64 computation, before the rounding to the result's own type;
    `absolute` is what it may add where results fall below the normal range. `integers` says whether integers stay
    integers (``"same"``), become floats as NumPy has it (``"float"``), or are refused (``""``).
    `instructions` an element, read off the SASS, in f32 and for 16-bit results.
    """

    name: str
    cuda: str
    numpy: Callable[..., Any]
    doc: str
    ulps: tuple[float, float] = (0.0, 0.0)
    absolute: float = 0.0
    integers: str = "same"
    instructions: tuple[float, float] = (1, 1)
    narrow_ulps: float = 0.0
    header: str = ""


@dataclass(frozen=True)
class MapDescriptor(Descriptor):
    """Base of the elementwise descriptors: inputs by name, an output of the broadcast shape."""

    @property
    def row(self) -> Row:
        raise NotImplementedError

    @property
    def inputs(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def op(self) -> str:
        return self.row.name

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (Operand("out", "out"), *(Operand(name) for name in self.inputs))

    def in_place(self, written: str, read: str) -> bool:
        return True

    def problem(self) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
        """The collapsed shape, and the strides of `out` and each input in it."""
        out = self.layout("out")
        strides = [out.strides]
        for name in self.inputs:
            layout = self.layout(name)
            strides.append(broadcast_strides(layout.shape, layout.strides, out.shape))
        return collapse(out.shape, strides)  # type: ignore[return-value]


def keep_order(shape: tuple[int, ...], like: tuple[int, ...]) -> tuple[int, ...]:
    """Dense strides in the axis order of `like` (widest first; CuPy's order="K")."""
    order = sorted(range(len(shape)), key=lambda a: (-abs(like[a]), a))
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


@lru_cache(maxsize=1024)
def result_kind(row: Row, *kinds: ElementKind) -> ElementKind:
    """The element NumPy gives for these input kinds; OperandTypeError where the row does not take them."""
    for kind in kinds:
        if kind not in FLOATS and (kind not in INTEGERS or not row.integers):
            fix = "cast it to f32" if row.integers == "" or kind.packed else "cast it to an integer or floating type"
            raise OperandTypeError(f"{row.name}: {kind} is not supported", fix)
    if len(kinds) == 1 and (kinds[0] in FLOATS or row.integers == "same"):
        return kinds[0]
    rule = np.exp if len(kinds) == 1 else row.numpy if row.integers == "float" else np.add
    with np.errstate(all="ignore"):
        return ElementKind.of(rule(*(np.ones(1, kind.dtype) for kind in kinds)).dtype)


def check_output(op: str, result: ElementKind, out: ElementKind | None) -> None:
    """Refuses an output element other than NumPy's result type: no silent cast."""
    if out is not None and out is not result:
        raise OperandTypeError(f"{op}: the result is {result} and out holds {out}", f"pass an out of {result}")


def compute_type(out: ElementKind) -> tuple[str, int]:
    """The C++ type computed in, and the result's significand digits (24 and 53 for integers, which ignore them)."""
    if out.is_float:
        return ("double", 53) if out is ElementKind.F64 else ("float", out.digits)
    return out.number, 24


def guarantee_of(row: Row, out: ElementKind) -> PrecisionGuarantee:
    """Half an ulp for the final rounding and what the computation adds; exact for integers."""
    if not out.is_float:
        return PrecisionGuarantee(MathPrecision.EXACT, out, True, True, True, False, Exact())
    wide = out is ElementKind.F64
    accumulator = ElementKind.F64 if wide else ElementKind.F32
    if out.digits < 24:
        ulps = 0.5 + row.narrow_ulps + (row.ulps[0] + 0.5) * 2.0 ** (out.digits - 24)
    else:
        ulps = row.ulps[1] if wide else row.ulps[0]
    absolute = row.absolute if not wide else row.absolute * 2.0**-896
    math_precision = MathPrecision.F64 if wide else MathPrecision.F32
    bound = Ulp(max(ulps, 0.5), absolute)
    return PrecisionGuarantee(math_precision, accumulator, True, True, True, absolute > 0.0, bound)


@dataclass(frozen=True)
class MapConfig:
    """Elements an access, accesses an operand in flight per thread, and threads a CTA."""

    vector: int
    unroll: int
    threads: int

    def __str__(self) -> str:
        return f"v{self.vector}u{self.unroll}t{self.threads}"


class _Map(Candidate[MapDescriptor]):
    backend = BackendKind.BESPOKE

    def guarantee(self, desc: MapDescriptor, device: DeviceSpec, config: MapConfig) -> PrecisionGuarantee:
        return guarantee_of(desc.row, desc.layout("out").element)

    def _bytes(self, desc: MapDescriptor) -> int:
        layouts = [desc.layout(n) for n in ("out", *desc.inputs)]
        return sum(lay.element.nbytes(math.prod(lay.shape)) for lay in layouts)

    def _cost(self, desc: MapDescriptor, device: DeviceSpec, efficiency: float, extra: float) -> Cost:
        count = math.prod(desc.layout("out").shape)
        spent = (_instructions(desc) + extra) * count
        return Cost.streaming(device, self._bytes(desc), flops=count, instructions=spent, efficiency=efficiency)

    def _kernel(self, desc: MapDescriptor, entry: str, config: MapConfig, extra: str, index: str) -> Kernel:
        out = desc.layout("out").element
        compute, digits = compute_type(out)
        types = ", ".join(desc.layout(name).element.number for name in ("out", *desc.inputs))
        arguments = "C x" if len(desc.inputs) == 1 else "C a, C b"
        included = f'#include "{desc.row.header}"\n' if desc.row.header else ""
        functor = (
            f"{included}struct Op {{  // {desc.row.name}\n  template <int digits, class C> static __device__ __forceinline__ C "
            f"apply({arguments}) {{ return C({desc.row.cuda}); }}\n}};"
        )
        shape = f"{config.vector}, {config.unroll}, {config.threads}"
        name = f"map_{entry}<Op, {compute}, {digits}, {shape}, {extra}{index}, {types}>"
        return Kernel("elementwise/map.cu", name, functor)


def _align_in_elements(desc: MapDescriptor, name: str) -> int:
    layout = desc.layout(name)
    return max(1, layout.align // layout.natural)  # an empty operand may lie anywhere


def _widest(desc: MapDescriptor) -> int:
    """Elements in 16 bytes of the widest operand."""
    return max(1, 16 // max(desc.layout(n).element.dtype.itemsize for n in ("out", *desc.inputs)))


# On an H200 one access a thread in CTAs of 128 streams fastest; for many 16-bit results from this many instructions an
# element on, a second access hides the arithmetic's latency.
HEAVY = 14.0
LARGE = 1 << 24


def _unrolls(desc: MapDescriptor, vector: int) -> tuple[int, ...]:
    """Accesses a thread worth trying: f64 functions spill at 2, and bytes come 16 an access as it is."""
    return (1,) if desc.layout("out").element is ElementKind.F64 or vector > 8 else (1, 2)


def _instructions(desc: MapDescriptor) -> float:
    return desc.row.instructions[desc.layout("out").element.bits <= 16]


class Contiguous(_Map):
    """All operands dense in one order: a flat stream of 16-byte accesses."""

    variant = "contiguous"
    launches = ("elementwise/map.cu:map_contiguous",)

    def supports(self, desc: MapDescriptor, device: DeviceSpec) -> Feasibility:
        shape, strides = desc.problem()
        if len(shape) > 1 or any(s not in ((), (1,)) for s in strides):
            return no("the operands are not dense in one common order", *_dense(desc))
        return OK

    def configs(self, desc: MapDescriptor, device: DeviceSpec) -> Iterable[MapConfig]:
        vector = min(_widest(desc), *(_align_in_elements(desc, n) for n in ("out", *desc.inputs)))
        return [MapConfig(vector, unroll, threads) for threads in (128, 256) for unroll in _unrolls(desc, vector)]

    def cost(self, desc: MapDescriptor, device: DeviceSpec, config: MapConfig) -> Cost:
        full = config.vector / _widest(desc)
        out = desc.layout("out")
        narrow, large = out.element in (ElementKind.F16, ElementKind.BF16), math.prod(out.shape) >= LARGE
        unroll = 2 if narrow and large and _instructions(desc) >= HEAVY else 1
        rank = 1.0 if (config.unroll, config.threads) == (unroll, 128) else 0.97
        return self._cost(desc, device, rank * max(0.3, full), 3.0 / config.vector)

    def lower(self, desc: MapDescriptor, device: DeviceSpec, config: MapConfig) -> tuple[Step, ...]:
        count = math.prod(desc.layout("out").shape)
        index = index_type(count)
        kernel = self._kernel(desc, "contiguous", config, "", index)
        args: tuple[Arg, ...] = (index_scalar(count, index), Ptr("out"), *(Ptr(name) for name in desc.inputs))
        return (
            Launch(
                kernel, grid_of(count, config.threads * config.vector * config.unroll), (config.threads, 1, 1), args
            ),
        )


def _dense(desc: MapDescriptor) -> tuple[str, Change]:
    """What makes all operands dense in C order: in words, and the fields that change."""
    shape = desc.layout("out").shape
    said: list[str] = []
    changed: dict[str, Any] = {}
    for name in ("out", *desc.inputs):
        x = desc.layout(name)
        if x.shape != shape:
            said.append(f"pass contiguize(cupy.broadcast_to({name}, {shape})) for {name}")
            changed |= {f"{name}_shape": shape, f"{name}_strides": c_strides(shape)}
        elif x.strides != c_strides(shape):
            said.append("pass out in C order" if name == "out" else f"contiguize {name}")
            changed |= {f"{name}_strides": c_strides(shape)}
    return " and ".join(said), Change(changed)


class Strided(_Map):
    """Any strides, 0 to broadcast: axes collapsed, the widest access the innermost one allows."""

    variant = "strided"
    launches = ("elementwise/map.cu:map_strided",)

    def supports(self, desc: MapDescriptor, device: DeviceSpec) -> Feasibility:
        return OK

    def configs(self, desc: MapDescriptor, device: DeviceSpec) -> Iterable[MapConfig]:
        shape, strides = desc.problem()
        names = ("out", *desc.inputs)
        vector = _widest(desc)
        while vector > 1 and not self._vector_fits(desc, names, shape, strides, vector):
            vector //= 2
        return [MapConfig(vector, unroll, 256) for unroll in _unrolls(desc, vector)]

    @staticmethod
    def _vector_fits(
        desc: MapDescriptor, names: Sequence[str], shape: Sequence[int], strides: Sequence[Sequence[int]], vector: int
    ) -> bool:
        if not shape or shape[-1] % vector:
            return False
        for name, steps in zip(names, strides):
            splat = steps[-1] == 0 and name != "out"
            if steps[-1] != 1 and not splat:
                return False
            if not splat and (_align_in_elements(desc, name) < vector or any(s % vector for s in steps[:-1])):
                return False
        return True

    def cost(self, desc: MapDescriptor, device: DeviceSpec, config: MapConfig) -> Cost:
        shape, strides = desc.problem()
        tidy = all(s[-1:] in ((), (0,), (1,)) for s in strides)
        efficiency = (
            (0.9 if config.unroll == 1 else 0.88) * max(0.35, config.vector / _widest(desc)) * (1.0 if tidy else 0.4)
        )
        return self._cost(desc, device, efficiency, (8.0 + 12.0 * len(shape)) / config.vector)

    def lower(self, desc: MapDescriptor, device: DeviceSpec, config: MapConfig) -> tuple[Step, ...]:
        shape, strides = desc.problem()
        names = ("out", *desc.inputs)
        sizes = [desc.layout(name).element.dtype.itemsize for name in names]
        splats = (
            [int(bool(steps) and steps[-1] == 0) for steps in strides[1:]]
            if config.vector > 1
            else [0] * len(desc.inputs)
        )
        vectors = math.prod(shape) // config.vector
        index = index_type(vectors)
        extents = [*shape[:-1], shape[-1] // config.vector] if shape else []
        packed = [
            [*(s * size for s in steps[:-1]), steps[-1] * size * config.vector] if steps else []
            for steps, size in zip(strides, sizes)
        ]
        rank = len(extents)
        mask = sum(bit << i for i, bit in enumerate(splats))
        extra = f"{rank}, {mask}, "
        kernel = self._kernel(desc, "strided", config, extra, index)
        args: tuple[Arg, ...] = (
            index_scalar(vectors, index),
            pack_dims(extents, packed, index),
            *(Ptr(name) for name in names),
        )
        return (Launch(kernel, grid_of(vectors, config.threads * config.unroll), (config.threads, 1, 1), args),)


CANDIDATES: tuple[Candidate[Any], ...] = (Contiguous(), Strided())


def checked_layout(
    desc: MapDescriptor, name: str, shape: tuple[int, ...], strides: tuple[int, ...] | None, kind: ElementKind
) -> Layout:
    """An operand's layout, refusing strides whose rank is not the shape's."""
    if strides is not None and len(strides) != len(shape):
        raise InvalidProblemError(
            f"{desc.op}: {name}_strides {strides} has {len(strides)} axes and {name} has {len(shape)}",
            "give one stride an axis",
        )
    return Layout(shape, resolved_strides(shape, strides, kind), kind, desc.align_of(name))
