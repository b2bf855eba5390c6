"""Checks operands against a descriptor: dtype, shape, strides, size, device, alignment, overlap."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from ...plan.descriptor import Descriptor, resolved_strides
from ...plan.registry import all_ops
from ...runtime.gpu.device import check_arch
from ...tensor import HOST_ORDINAL, NO_MEMORY, Tensor, how_to_copy, overlaps, same_view
from ...tensor.axes import rows_may_overlap, self_overlapping, span
from ...types import (
    BufferTooSmallError,
    DeviceMismatchError,
    DeviceSpec,
    ElementKind,
    InternalError,
    InvalidProblemError,
    MisalignedOperandError,
    OperandTypeError,
    OverlapError,
)

__all__ = ["check_gathered", "check_operands", "common_device"]

Tensors = Mapping[str, "Tensor | None"]

_MOVES = {"torch": ".cuda() or cupy.asarray(...)", "jax": "jax.device_put(...) or cupy.asarray(...)"}


def check_gathered(desc: Descriptor, operands: Mapping[str, Any]) -> None:
    """Raises InternalError unless a function gathered its operands as the descriptor orders them: later calls of the same
    layouts are launched on the addresses in that order, without names. An operand that was given and is unknown, and one that
    every such problem needs and that was not given, are the caller's mistakes, which `refuse_unknown` and `take` report."""
    gathered = tuple(operands)
    described = tuple(o.name for o in desc.operands if o.name in operands or o.optional or o.role == "out")
    if gathered != described and all(name in described for name, x in operands.items() if x is not None):
        raise InternalError(
            f"{desc.op}: its function gathers the operands ({', '.join(gathered)}), and its descriptor orders them "
            f"({', '.join(described)})",
            "this is a defect of the library: please report it; plan.run(...) takes operands by name and is not affected",
        )


def check_operands(desc: Descriptor, canonical: Descriptor, tensors: Tensors, device: DeviceSpec) -> int:
    """Raises unless `tensors` fit (None stands for an operand that is absent or will be allocated). Returns the common ordinal.

    `canonical` has the layouts and alignments that the plan was selected for, `desc` the run-time values, which decide which
    bytes are touched.
    """
    present = [(operand, tensors[operand.name]) for operand in desc.operands if tensors.get(operand.name) is not None]
    for operand, tensor in present:
        assert tensor is not None
        _check_layout(canonical, operand.name, tensor, written=operand.written)
        if operand.written and tensor.readonly:
            raise OperandTypeError(
                f"{desc.op}: {operand.name} is written and the {tensor.framework} array is read-only",
                "JAX arrays are immutable, pass a CuPy array" if tensor.framework == "jax" else "pass a writable array",
            )
    ordinal = common_device(desc, [(o.name, t) for o, t in present if t is not None], device)
    whole = {o.name: t for o, t in present if t is not None}
    footprints = {name: desc.footprint(name, tensor) for name, tensor in whole.items()}
    _check_phase(canonical, footprints, whole)  # first, because the phase decides which bytes are touched
    _check_alignment(canonical, footprints)
    _check_overlap(desc, footprints, whole, device)
    return ordinal


def _check_layout(desc: Descriptor, name: str, tensor: Tensor, *, written: bool) -> None:
    wanted = desc.layout(name)
    if tensor.element is not wanted.element:
        raise OperandTypeError(
            f"{desc.op}: {name} must hold {wanted.element}, got {tensor.element}",
            f"cast it to {wanted.element}" + _holding(desc, name, tensor.element),
        )
    if tensor.shape != wanted.shape:
        raise InvalidProblemError(
            f"{desc.op}: {name} must have shape {wanted.shape}, got {tensor.shape}",
            "pass an array of that shape, or select a plan for this one",
        )
    if resolved_strides(tensor.shape, tensor.strides, tensor.element) != wanted.strides:
        raise InvalidProblemError(
            f"{desc.op}: {name} must have strides {wanted.strides} (elements), got {tensor.strides}",
            # What a call writes to a copy of an operand is not in the operand itself.
            (f"pass {name} with those strides" if written else "contiguize it") + _described(desc, f"{name}_strides"),
        )
    if tensor.bounds is not None:
        low, high = span(tensor.shape, tensor.strides, tensor.element, tensor.phase)
        before, after = tensor.bounds
        if high > after or -low > before:
            raise BufferTooSmallError(
                f"{desc.op}: {name} of shape {tensor.shape} and strides {tensor.strides} reaches {high - low} bytes, "
                f"and its buffer holds {before + after}",
                high - low,
                before + after,
                "allocate a larger one",
            )


def common_device(desc: Descriptor, present: Sequence[tuple[str, Tensor]], device: DeviceSpec) -> int:
    """The CUDA ordinal that the tensors share (-1 on the host), which must be of the arch that the plan was selected for."""
    if not present:
        return HOST_ORDINAL
    for name, tensor in present:
        if tensor.ordinal == NO_MEMORY:
            raise OperandTypeError(
                f"{desc.op}: {name} is a {tensor.framework} {type(tensor.source).__name__} with a shape and no memory",
                "it can describe a problem for select; run it on an array",
            )
        if tensor.on_host and not device.host_memory:
            move = _MOVES.get(tensor.framework, "cupy.asarray(...)")
            raise OperandTypeError(
                f"{desc.op}: {name} is a {tensor.framework} array on the host and the plan is for {device}",
                f'move it with {move}, or pass device="cpu" (or use `with bp.device("cpu"):`)',
            )
        if not tensor.on_host and device.host_memory:
            raise OperandTypeError(
                f"{desc.op}: {name} is a {tensor.framework} array on CUDA device {tensor.ordinal} and the plan is for "
                f"{'the host' if device.is_host else device}",
                f"copy it to the host, {how_to_copy(tensor.source, tensor.framework, name)}, or select the plan for the GPU",
            )
    first, ordinal = present[0][0], present[0][1].ordinal
    for name, tensor in present[1:]:
        if tensor.ordinal != ordinal:
            raise DeviceMismatchError(
                f"{desc.op}: {first} is on CUDA device {ordinal} and {name} on device {tensor.ordinal}",
                f"copy {name} to device {ordinal}",
            )
    if ordinal != HOST_ORDINAL:
        check_arch(desc.op, device, ordinal)
    return ordinal


def _check_alignment(desc: Descriptor, footprints: Mapping[str, Tensor]) -> None:
    for name, footprint in footprints.items():
        wanted = desc.layout(name).align
        if footprint.align < wanted and 0 not in footprint.shape:
            raise MisalignedOperandError(
                f"{desc.op}: {name}'s first touched element must be aligned to {wanted} bytes, got {footprint.align}",
                f"pass {name} at an address that is a multiple of {wanted}" + _described(desc, f"{name}_align"),
            )


def _check_phase(desc: Descriptor, footprints: Mapping[str, Tensor], whole: Mapping[str, Tensor]) -> None:
    """Checks the phase of each operand (the position of its first element inside a byte), which is fixed at selection."""
    for name, footprint in footprints.items():
        wanted = desc.layout(name).phase
        if footprint.phase != wanted and 0 not in footprint.shape:
            got, field = whole[name].phase, f"{name}_phase"
            raise InvalidProblemError(
                f"{desc.op}: {name}'s first touched element must be element {wanted} of its byte, got {footprint.phase}",
                f"pass {name} from an element {(got + wanted - footprint.phase) % footprint.element.per_byte} of a byte"
                + (f", or select with {field}={got}" if hasattr(desc, field) else ""),
            )


def _holding(desc: Descriptor, name: str, element: ElementKind) -> str:
    """An alternative fix, if a field of the descriptor sets the operand's element kind and this kind is supported."""
    slot = desc.slot_of.get(name)
    if slot is None or not isinstance(slot.element, str) or (slot.takes and element not in slot.takes):
        return ""
    field, op = slot.element, all_ops().get(desc.op)
    argument = field.replace("element", "dtype")  # of the op's function, which says the kind of what a call allocates
    called = slot.role == "out" and op is not None and argument in inspect.signature(op.function).parameters
    of_call = f" (of a call, {argument}={element.value!r})" if called else ""
    return f", or describe the problem with {field}={element.value!r}{of_call}"


def _described(desc: Descriptor, field: str) -> str:
    """An alternative fix, if the descriptor has a field for the operand's layout."""
    return f", or select with {type(desc).__name__}.of(...) on these arrays" if hasattr(desc, field) else ""


def _interleaved(written: Tensor, device: DeviceSpec) -> bool:
    """Whether two threads of a kernel may write to the same byte of a view. Rows of packed kinds can share bytes."""
    shape, strides, element = written.shape, written.strides, written.element
    shared = element.packed and not device.is_host and rows_may_overlap(shape, strides, element, written.phase)
    return shared or self_overlapping(shape, strides)


def _check_overlap(
    desc: Descriptor, footprints: Mapping[str, Tensor], whole: Mapping[str, Tensor], device: DeviceSpec
) -> None:
    written_to = whole if device.is_host else footprints  # the oracle writes whole operands
    outputs = {operand.name for operand in desc.operands if operand.written}
    for operand in desc.operands:
        if not operand.written or operand.name not in footprints:
            continue
        written = footprints[operand.name]
        if _interleaved(written_to[operand.name], device):
            raise OverlapError(
                f"{desc.op}: {operand.name} is written, and its strides {written.strides} interleave, share bytes, or reach one "
                "element by several indices",
                "pass an array that is not broadcast and whose rows do not interleave",
            )
        for other, footprint in footprints.items():
            if other == operand.name or (desc.in_place(operand.name, other) and same_view(written, footprint)):
                continue
            if overlaps(written, footprint):
                fix = f"pass an array of its own for {other}" if other in outputs else f"pass a copy of {other}"
                raise OverlapError(f"{desc.op}: {operand.name} is written and shares memory with {other}", fix)
