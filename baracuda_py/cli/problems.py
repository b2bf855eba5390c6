"""Derives descriptors, plans and supported element kinds of an op from its samples and its family."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from ..plan.about.verify import placed
from ..plan.descriptor import Descriptor, Layout
from ..plan.plan import Plan
from ..plan.registry import Op, get_op
from ..samples.sample import values
from ..tensor import GpuBuffer, intake
from ..tensor.axes import span
from ..types import BaracudaError, DeviceSpec, ElementKind

__all__ = [
    "compact",
    "element_of",
    "kinds_of",
    "random_operands",
    "required_fields",
    "resolve_ops",
    "sample_descriptors",
]

PAGE, ALIGNED = 512, 16  # bytes: the alignment of CuPy's allocations, and the largest alignment of a layout


def resolve_ops(names: Sequence[str], default: Sequence[str] | None = None) -> list[Op]:
    """The ops with these names, in that order and once each; without names the default ones (None: all)."""
    from ..plan.registry import list_ops

    return [get_op(name) for name in dict.fromkeys(names or (list_ops() if default is None else default))]


def sample_descriptors(op: Op) -> Iterator[Descriptor]:
    """The descriptors of the op's samples, without samples that have no valid descriptor."""
    accepted = inspect.signature(op.plan.descriptor.of).parameters
    for sample in op.samples(op.fixed):
        given = {**sample.operands, **sample.options}
        try:
            yield op.of(**{name: placed(value, on_host=True) for name, value in given.items() if name in accepted})
        except BaracudaError:
            continue


def random_operands(desc: Descriptor, seed: int) -> dict[str, Any]:
    """A host array or GpuBuffer of random values for every operand that a run needs, with the layout in `desc`.

    Integers of another kind than the problem's are positions, so they are small.
    """
    rng, canonical, main = np.random.default_rng(seed), desc.canonical(), element_of(desc)
    operands = {}
    for name in (o.name for o in desc.operands if o.role != "out" and not o.optional):
        layout = canonical.layout(name)
        operands[name] = x = _laid(desc, name, layout, rng)
        if layout.element.is_integer and layout.element is not main:
            x[...] = rng.integers(0, 4, layout.shape)
        elif layout.element.is_float and layout.element.bits == 8:  # not random bits, because some are NaN
            x[...] = rng.standard_normal(layout.shape).astype(x.dtype)
        elif not layout.element.packed:
            x[...] = values(rng, layout.shape, layout.element)
    return operands


def _laid(desc: Descriptor, name: str, layout: Layout, rng: np.random.Generator) -> Any:
    """An operand over random bytes, whose first touched element has exactly the alignment in `layout`."""
    element, per = layout.element, layout.element.per_byte
    low, high = span(layout.shape, layout.strides, element)
    memory = rng.integers(0, 256, high - low + PAGE + ALIGNED, dtype=np.uint8)
    start = -memory.ctypes.data % PAGE - low
    for shift in range(ALIGNED * per):
        if element.packed:
            x: Any = GpuBuffer(memory, element, layout.shape, layout.strides, start * per + shift)
        else:
            strides = [s * element.dtype.itemsize for s in layout.strides]
            x = np.ndarray(layout.shape, element.dtype, memory.data, start + shift, strides)
        footprint = desc.footprint(name, intake(x, what=name))
        if (footprint.align, footprint.phase) == (layout.align, layout.phase):
            break
    return x


def element_of(desc: Descriptor) -> ElementKind:
    """The kind of the first input, which names the kind of the problem."""
    inputs = [o for o in desc.operands if o.role == "in"] or list(desc.operands)
    return desc.layout(inputs[0].name).element


def required_fields(op: Op) -> dict[str, Any]:
    """The fields without a default of the op's first sample with elements in it: an example to show or to vary."""
    for desc in sample_descriptors(op):
        shapes = [desc.layout(o.name).shape for o in desc.operands if not o.optional]
        if all(0 not in shape and shape for shape in shapes[:1]):
            return {
                f.name: getattr(desc, f.name)
                for f in fields(desc)
                if f.name in getattr(desc, "needed", ())
                or (f.default is MISSING and f.default_factory is MISSING and f.name not in op.fixed)
            }
    return {}


def kinds_of(op: Op, device: DeviceSpec) -> dict[ElementKind, Plan[Any]]:
    """Every kind the op takes on `device`, with the plan for its example problem in that kind."""
    example = required_fields(op)
    held = [v for v in example.values() if isinstance(v, ElementKind)]
    plans = {}
    if not held:  # it supports one kind, that of the samples
        with contextlib.suppress(BaracudaError):
            desc = op.describe(**example)
            plans[element_of(desc)] = op.plan.select(desc, device=device)
        return plans
    main = max(held, key=held.count)  # not a mask's
    for kind in ElementKind:
        changed = {name: kind if value is main else value for name, value in example.items()}
        with contextlib.suppress(BaracudaError):
            plans[kind] = op.plan.select(op.describe(**changed), device=device)
    return plans


_GROUPS = {
    "floats": ("f16", "bf16", "f32", "f64"),
    "ints": ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"),
    "fp8": ("fp8_e4m3", "fp8_e5m2"),
    "complex": ("complex64", "complex128"),
}


def compact(kinds: Sequence[ElementKind]) -> str:
    """Kinds as a short text: whole groups by name, ``all but bin`` where that is shorter."""
    names = [k.value for k in kinds]
    missing = [k.value for k in ElementKind if k.value not in names]
    if len(missing) <= 2 and names:
        return f"all but {' '.join(missing)}" if missing else "all"
    words: list[str] = []
    for name in names:
        group = next((g for g, members in _GROUPS.items() if name in members and set(members) <= set(names)), name)
        if group not in words:
            words.append(group)
    return " ".join(words)
