"""From an op's samples to descriptors and plans, and the element kinds an op takes: asked of its family, not listed."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from typing import Any

from ..plan.descriptor import Descriptor
from ..plan.plan import Plan
from ..plan.registry import Op, get_op
from ..types import BaracudaError, DeviceSpec, ElementKind

__all__ = ["compact", "element_of", "kinds_of", "required_fields", "resolve_ops", "sample_descriptors"]


def resolve_ops(names: Sequence[str], default: Sequence[str] | None = None) -> list[Op]:
    """The ops called `names`, in that order and once each; the default ones (None: all) where there are no names."""
    from ..plan.registry import list_ops

    return [get_op(name) for name in dict.fromkeys(names or (list_ops() if default is None else default))]


def sample_descriptors(op: Op) -> Iterator[Descriptor]:
    """The descriptors of the op's samples, those that do not describe left out."""
    accepted = inspect.signature(op.plan.descriptor.of).parameters  # type: ignore[attr-defined]
    for sample in op.samples(op.fixed):
        given = {**sample.operands, **sample.options}
        try:
            yield op.of(**{name: _array(value) for name, value in given.items() if name in accepted})
        except BaracudaError:
            continue


def _array(value: Any) -> Any:
    """A sample's operand as `of` takes it: packed bytes become a GpuBuffer over them."""
    from ..samples import Packed
    from ..tensor import GpuBuffer

    if not isinstance(value, Packed):
        return value
    if value.strides is None:
        return GpuBuffer.view(value.data, value.element, value.shape)
    return GpuBuffer.view(value.data, value.element).strided(value.shape, value.strides, value.offset)


def element_of(desc: Descriptor) -> ElementKind:
    """The kind of the first input: what a caller would say the problem is 'in'."""
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
                if f.default is MISSING and f.default_factory is MISSING and f.name not in op.fixed
            }
    return {}


def kinds_of(op: Op, device: DeviceSpec) -> dict[ElementKind, Plan[Any]]:
    """Every kind the op takes on `device`, with the plan for its example problem in that kind."""
    example = required_fields(op)
    main = next((v for v in example.values() if isinstance(v, ElementKind)), None)
    plans = {}
    for kind in ElementKind if main is not None else ():
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
