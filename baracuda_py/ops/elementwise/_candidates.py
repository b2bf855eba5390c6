"""The two ways to launch kernels/elementwise/map.cu: along operands that are dense in one order, and along any strides."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...plan.candidate import OK, Candidate, Change, Cost, Feasibility, no
from ...plan.grammar import Config, term
from ...runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Run, Step, Struct
from ...tensor.axes import c_strides
from ...types import BackendKind, DeviceSpec, ElementKind, PrecisionGuarantee
from .._fitted import Fitted
from .._launch import grid_of, index_scalar, index_type, pack_dims
from ._descriptor import MapDescriptor

__all__ = ["CANDIDATES", "OF_GRADIENTS", "ContiguousGradients", "StridedGradients", "argument_of"]


@dataclass(frozen=True)
class MapConfig(Config):
    """How threads go through the operands."""

    vector: int = term("elements an access")
    unroll: int = term("accesses of each operand that a thread has in flight")
    threads: int = term("threads a CTA")


class _Map(Candidate[MapDescriptor]):
    backend = BackendKind.BESPOKE

    def guarantee(self, desc: MapDescriptor, device: DeviceSpec, config: MapConfig) -> PrecisionGuarantee:
        return desc.guarantee()

    def _bytes(self, desc: MapDescriptor) -> int:
        layouts = [desc.layout(n) for n in (*desc.outputs, *desc.arrays)]
        return sum(lay.element.nbytes(math.prod(lay.shape)) for lay in layouts)

    def _cost(self, desc: MapDescriptor, device: DeviceSpec, efficiency: float, extra: float) -> Cost:
        count = math.prod(desc.out_shape)
        spent = (_instructions(desc) + extra) * count
        return Cost.streaming(device, self._bytes(desc), flops=count, instructions=spent, efficiency=efficiency)

    def _kernel(self, desc: MapDescriptor, entry: str, config: MapConfig, extra: str, index: str) -> Kernel:
        row = desc.row
        types = desc.computed()
        stored = [t if n in desc.arrays else f"Value<{t}>" for n, t in zip(desc.inputs, types.inputs)]
        stored += [f"Value<{types.type}>" for _ in row.params]
        functors, headers = desc.functors()
        headers = (*headers, "elementwise/value.cuh" if "Value<" in "".join(stored) else "")
        prelude = "".join(f'#include "{header}"\n' for header in headers if header) + "\n".join(functors.values())
        several = len(functors) > 1
        functor = f"Functors<{', '.join(functors)}>" if several else next(iter(functors))
        shape = f"{config.vector}, {config.unroll}, {config.threads}"
        operands = ", ".join((types.out, *((str(len(functors)),) if several else ()), *stored))
        entry = f"several_{entry}" if several else entry
        name = f"map_{entry}<{functor}, {types.type}, {types.digits}, {shape}, {extra}{index}, {operands}>"
        return Kernel("elementwise/map.cu", name, prelude)


def _written(desc: MapDescriptor) -> Arg:
    """The kernel's argument for the outputs."""
    addresses = tuple(Ptr(name) for name in desc.outputs)
    return addresses[0] if len(addresses) == 1 else Struct(addresses)


def argument_of(desc: MapDescriptor, name: str) -> Arg:
    """A kernel's argument for an input or a param: an address, or a number in eight bytes in its place."""
    if name in desc.arrays:
        return Ptr(name)
    kind = desc.kind_of(name)
    if name not in desc.numbered:  # absent
        number = desc.stands_in(name)
        return np.float64(number) if kind.is_float else Struct((number, Packed(bytes(8 - number.itemsize), 1)))
    if kind.is_float:  # rounded to its kind by the kernel
        return Run(name, "float64")
    spare = Packed(bytes(8 - kind.dtype.itemsize), 1)
    return Struct((Run(name, kind.dtype.name), spare)) if kind.bits < 64 else Run(name, kind.dtype.name)


def _align_in_elements(desc: MapDescriptor, name: str) -> int:
    layout = desc.layout(name)
    return max(1, layout.align // layout.natural)  # an empty operand may be anywhere


def _widest(desc: MapDescriptor) -> int:
    """Elements in 16 bytes of the widest operand."""
    return max(1, 16 // max(desc.layout(n).element.dtype.itemsize for n in (*desc.outputs, *desc.arrays)))


# Measured on an H200: one access per thread in CTAs of 128 streams fastest. For 16-bit results that take at least this many
# instructions per element, a second access hides the arithmetic's latency.
HEAVY = 14.0
LARGE = 1 << 24


class Costs(Fitted, table="rows.elementwise"):
    other_config_ratio: float
    least_vector_ratio: float
    strided_bandwidth_efficiency: float
    strided_unrolled_bandwidth_efficiency: float
    strided_least_vector_ratio: float
    scattered_ratio: float


def _unrolls(desc: MapDescriptor, vector: int) -> tuple[int, ...]:
    """Accesses per thread worth trying. At 2, f64 functions spill; bytes already come 16 per access."""
    return (1,) if desc.kind_of("out") is ElementKind.F64 or vector > 8 else (1, 2)


def _instructions(desc: MapDescriptor) -> float:
    return desc.instructions[desc.kind_of("out").bits <= 16]


class Contiguous(_Map):
    """All operands dense in one order: a flat stream of 16-byte accesses."""

    variant = "contiguous"
    launches: ClassVar[tuple[str, ...]] = ("elementwise/map.cu:map_contiguous",)

    def supports(self, desc: MapDescriptor, device: DeviceSpec) -> Feasibility:
        shape, strides = desc.problem()
        if len(shape) > 1 or any(s not in ((), (1,)) for s in strides):
            return no("the operands are not dense in one common order", *_dense(desc))
        return OK

    def configs(self, desc: MapDescriptor, device: DeviceSpec) -> Iterable[MapConfig]:
        vector = min(_widest(desc), *(_align_in_elements(desc, n) for n in (*desc.outputs, *desc.arrays)))
        return [MapConfig(vector, unroll, threads) for threads in (128, 256) for unroll in _unrolls(desc, vector)]

    def cost(self, desc: MapDescriptor, device: DeviceSpec, config: MapConfig) -> Cost:
        full = config.vector / _widest(desc)
        narrow = desc.kind_of("out") in (ElementKind.F16, ElementKind.BF16)
        large = math.prod(desc.out_shape) >= LARGE
        unroll = 2 if narrow and large and _instructions(desc) >= HEAVY else 1
        costs = Costs.of(device)
        rank = 1.0 if (config.unroll, config.threads) == (unroll, 128) else costs.other_config_ratio
        return self._cost(desc, device, rank * max(costs.least_vector_ratio, full), 3.0 / config.vector)

    def lower(self, desc: MapDescriptor, device: DeviceSpec, config: MapConfig) -> tuple[Step, ...]:
        count = math.prod(desc.out_shape)
        index = index_type(count)
        kernel = self._kernel(desc, "contiguous", config, "", index)
        numbers = (argument_of(desc, name) for name in (*desc.inputs, *desc.row.params))
        args: tuple[Arg, ...] = (index_scalar(count, index), _written(desc), *numbers)
        grid = grid_of(count, config.threads * config.vector * config.unroll)
        return (Launch(kernel, grid, (config.threads, 1, 1), args),)


def _dense(desc: MapDescriptor) -> tuple[str, Change]:
    """The fix that makes all operands dense in C order: in words, and as changed fields."""
    shape = desc.out_shape
    said: list[str] = []
    changed: dict[str, tuple[Any, ...]] = {}
    for name in (*desc.outputs, *desc.arrays):
        x = desc.layout(name)
        if x.shape != shape:
            said.append(f"pass contiguize(cupy.broadcast_to({name}, {shape})) for {name}")
            changed[name] = shape, c_strides(shape)
        elif x.strides != c_strides(shape):
            said.append(f"pass {name} in C order" if name in desc.outputs else f"contiguize {name}")
            changed[name] = None, c_strides(shape)
    return " and ".join(said), Change(desc.relaid(changed))


class Strided(_Map):
    """Any strides, 0 to broadcast: axes collapsed, the widest access the innermost one allows."""

    variant = "strided"
    launches: ClassVar[tuple[str, ...]] = ("elementwise/map.cu:map_strided",)

    def supports(self, desc: MapDescriptor, device: DeviceSpec) -> Feasibility:
        return OK

    def configs(self, desc: MapDescriptor, device: DeviceSpec) -> Iterable[MapConfig]:
        shape, strides = desc.problem()
        names = (*desc.outputs, *desc.arrays)
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
            splat = steps[-1] == 0 and name not in desc.outputs
            if steps[-1] != 1 and not splat:
                return False
            if not splat and (_align_in_elements(desc, name) < vector or any(s % vector for s in steps[:-1])):
                return False
        return True

    def cost(self, desc: MapDescriptor, device: DeviceSpec, config: MapConfig) -> Cost:
        shape, strides = desc.problem()
        tidy = all(s[-1:] in ((), (0,), (1,)) for s in strides)
        costs = Costs.of(device)
        whole, unrolled = costs.strided_bandwidth_efficiency, costs.strided_unrolled_bandwidth_efficiency
        vector = max(costs.strided_least_vector_ratio, config.vector / _widest(desc))
        efficiency = (whole if config.unroll == 1 else unrolled) * vector * (1.0 if tidy else costs.scattered_ratio)
        return self._cost(desc, device, efficiency, (8.0 + 12.0 * len(shape)) / config.vector)

    def lower(self, desc: MapDescriptor, device: DeviceSpec, config: MapConfig) -> tuple[Step, ...]:
        shape, strides = desc.problem()
        walked = dict(zip((*desc.outputs, *desc.arrays), strides))
        vectors = math.prod(shape) // config.vector
        index = index_type(vectors)
        extents = [*shape[:-1], shape[-1] // config.vector] if shape else []
        names = (*desc.outputs, *desc.inputs, *desc.row.params)
        packed = [_in_bytes(desc, name, walked.get(name, (0,) * len(shape)), config.vector) for name in names]
        mask = 0
        for place, name in enumerate(desc.inputs):  # the inputs that are broadcast along a vector
            mask |= (config.vector > 1 and tuple(walked.get(name, ()))[-1:] == (0,)) << place
        kernel = self._kernel(desc, "strided", config, f"{len(extents)}, {mask}, ", index)
        args: tuple[Arg, ...] = (
            index_scalar(vectors, index),
            pack_dims(extents, packed, index),
            _written(desc),
            *(argument_of(desc, name) for name in names[len(desc.outputs) :]),
        )
        return (Launch(kernel, grid_of(vectors, config.threads * config.unroll), (config.threads, 1, 1), args),)


def _in_bytes(desc: MapDescriptor, name: str, steps: Sequence[int], vector: int) -> list[int]:
    """An operand's strides in bytes, along the innermost axis from vector to vector; a number's are ignored."""
    size = desc.kind_of(name).dtype.itemsize
    return [*(s * size for s in steps[:-1]), steps[-1] * size * vector] if steps else []


class ContiguousGradients(Contiguous):
    """The same for one output or several."""

    launches = (*Contiguous.launches, "elementwise/map.cu:map_several_contiguous")


class StridedGradients(Strided):
    """The same for one output or several."""

    launches = (*Strided.launches, "elementwise/map.cu:map_several_strided")


CANDIDATES: tuple[Candidate[Any], ...] = (Contiguous(), Strided())
OF_GRADIENTS: tuple[Candidate[Any], ...] = (ContiguousGradients(), StridedGradients())
