"""The long way from operands to a launch: intake, every check, allocation, loading; leaves a recipe for the next time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..runtime.device import default_device, spec_of
from ..runtime.driver import device_count, require_gpu
from ..runtime.streams import is_capturing, stream_pointer
from ..runtime.untraced import untraced
from ..tensor import Tensor, intake, ordinal_of, overlaps
from ..types import (
    DeviceMismatchError,
    DeviceSpec,
    InvalidProblemError,
    MisalignedOperandError,
    OperandTypeError,
    OverlapError,
    UnsupportedError,
    WorkspaceTooSmallError,
)
from .allocate import allocate, take_workspace
from .recipe import Recipe, array_type, framework_stream, key_of, written_stream
from .validate import check_operands

if TYPE_CHECKING:
    from ..plan.plan import Plan

__all__ = ["Resolved", "device_for", "refuse_unknown", "resolve", "take"]

SCRATCH_ALIGN = 16  # bytes: what kernels take vectors of, and TMA a tensor's address


class Resolved(NamedTuple):
    """A call that is ready: what to launch on which addresses and stream, and what must stay alive meanwhile."""

    recipe: Recipe
    pointers: list[int]
    values: Mapping[str, Any]
    given: dict[str, Any]  # with the outputs that were allocated
    scratch: Any
    stream: int
    keep: Any  # what keeps the operands' memory alive, which may be more than the operands themselves

    @property
    def scratch_pointer(self) -> int:
        return 0 if self.scratch is None else int(self.scratch.ptr)

    @untraced
    def fire(self) -> None:
        self.recipe.fire(self.pointers, self.values, self.scratch_pointer, self.stream)


@untraced
def resolve(plan: Plan[Any], given: Mapping[str, Any], workspace: Any, stream: Any) -> Resolved:
    """Validates, allocates and loads; launches nothing."""
    refuse_unknown(plan, given)
    desc = plan.desc.at(given)
    cupy = require_gpu(desc.op)
    ordinal = ordinal_of(given.values())
    if ordinal is None:
        ordinal = int(cupy.cuda.runtime.getDevice())
    if 0 < device_count() <= ordinal:
        raise DeviceMismatchError(
            f"{desc.op}: an operand is on CUDA device {ordinal}, and CUDA devices 0 to {device_count() - 1} are usable here",
            "copy it to one of them",
        )
    with cupy.cuda.Device(ordinal):  # streams, events and memory are a device's own
        handle = written_stream(desc, given) if stream is None else stream_pointer(stream)
        if handle is None:
            handle = int(cupy.cuda.get_current_stream().ptr)
        capturing = is_capturing(handle)
        if capturing:
            _check_foreign(plan, given, handle)
        tensors = take(plan, given, handle)
        check_operands(desc, plan._canonical, tensors, plan.device)
        if capturing:
            _check_capture(plan, tensors, ordinal, workspace)
        whole = _with_outputs(plan, given, tensors, handle)
        executable = plan._executable(ordinal)
        taken = {n: t for n, t in tensors.items() if t is not None}
        scratch = _scratch(plan, workspace, handle, ordinal, taken)
    feet = {n: desc.footprint(n, t) for n, t in taken.items()}
    recipe = Recipe(desc, executable, ordinal, taken, feet, plan.workspace_size)
    pointers = [feet[n].pointer if n in feet else 0 for n in plan._names]
    ndarray = array_type()
    if all(type(whole[n]) is ndarray for n in feet):
        key: list[Any] = []
        for name, pointer in zip(plan._names, pointers):
            key += key_of(whole[name], pointer) if name in feet else (None,)
        plan._remember(tuple(key), recipe, ndarray)
    keep = tuple(t.keep for t in taken.values())
    return Resolved(recipe, pointers, desc.resolve(given)[1], whole, scratch, handle, keep)


def device_for(device: Any, operands: Iterable[Any]) -> DeviceSpec:
    """The DeviceSpec that `device` means; where nothing says (None, outside ``with bp.device(...)``), that of the CUDA device
    on which the operands lie."""
    if device is None and default_device() is None and device_count():
        device = ordinal_of(operands)
    return spec_of(device)


def refuse_unknown(plan: Plan[Any], given: Mapping[str, Any]) -> None:
    """Raises InvalidProblemError for a name that is neither an operand nor a run-time value."""
    for name in given:
        if name not in plan._names and name not in plan._values:
            known = ", ".join(dict.fromkeys((*plan._names, *plan._values)))
            raise InvalidProblemError(f"{plan.desc.op}: there is no operand {name!r}", f"it takes {known}")


def take(plan: Plan[Any], given: Mapping[str, Any], stream: int | None) -> dict[str, Tensor | None]:
    """Every operand as a Tensor, None for an optional or allocated one that was not given."""
    tensors: dict[str, Tensor | None] = {}
    for name, role, optional in plan.desc.operands:
        x = given.get(name)
        if x is None and role != "out" and not optional:
            raise InvalidProblemError(f"{plan.desc.op}: operand {name!r} is missing", f"pass {name}=...")
        what = f"{plan.desc.op}: {name}"
        tensors[name] = None if x is None else intake(x, what=what, stream=stream, host=plan.device.host_memory)
    return tensors


def _with_outputs(
    plan: Plan[Any], given: Mapping[str, Any], tensors: dict[str, Tensor | None], stream: int
) -> dict[str, Any]:
    whole = dict(given)
    for name, role, optional in plan.desc.operands:
        if role == "out" and tensors[name] is None and not optional:
            whole[name] = allocate(plan._canonical.layout(name), stream)
            tensors[name] = intake(whole[name], what=name)
    return whole


def _scratch(plan: Plan[Any], workspace: Any, stream: int, ordinal: int, taken: Mapping[str, Tensor]) -> Any:
    needed = plan.workspace_size
    if not needed:
        return None
    if workspace is None:
        return take_workspace(plan.desc.op, needed, stream)
    kind: Any = array_type()
    if kind is None or not isinstance(workspace, kind) or not workspace.flags.c_contiguous:
        raise OperandTypeError(
            f"{plan.desc.op}: workspace must be a C-contiguous CuPy array, got {type(workspace).__name__}",
            "pass cupy.empty(plan.workspace_size, 'u1')",
        )
    space = intake(workspace, what=f"{plan.desc.op}: workspace")
    if space.ordinal != ordinal:
        raise DeviceMismatchError(
            f"{plan.desc.op}: workspace is on CUDA device {space.ordinal} and the operands are on device {ordinal}",
            f"allocate it on device {ordinal}",
        )
    for name, tensor in taken.items():
        if overlaps(space, tensor):
            raise OverlapError(
                f"{plan.desc.op}: workspace shares memory with {name}", "pass an array of its own as workspace"
            )
    got = int(workspace.nbytes)
    if got < needed:
        raise WorkspaceTooSmallError(
            f"{plan.desc.op}: workspace holds {got} bytes and the plan needs {needed}",
            needed,
            got,
            "pass plan.workspace_size bytes",
        )
    if int(workspace.data.ptr) % SCRATCH_ALIGN:
        raise MisalignedOperandError(
            f"{plan.desc.op}: workspace does not begin on a multiple of {SCRATCH_ALIGN} bytes",
            "pass a whole array: CuPy's lie on multiples of 512",
        )
    return workspace.data


def _check_capture(plan: Plan[Any], tensors: Mapping[str, Tensor | None], ordinal: int, workspace: Any) -> None:
    """Refuses, before anything is launched, what a CUDA graph that is being captured cannot hold."""
    op = plan.desc.op
    if not plan.capture_safe:
        raise UnsupportedError(f"{op}: {plan.sku} cannot be captured in a CUDA graph", "run it outside the capture")
    for name, role, optional in plan.desc.operands:
        if role == "out" and tensors[name] is None and not optional:
            raise UnsupportedError(f"{op}: a capture allocates nothing, and {name} was not passed", f"pass {name}=...")
    if plan.workspace_size and workspace is None:
        raise UnsupportedError(f"{op}: a capture allocates nothing, and workspace was not passed", "pass workspace=...")
    if ordinal not in plan._executables:
        raise UnsupportedError(
            f"{op}: a capture loads nothing, and {plan.sku} is not loaded", "call plan.load() or bind before it"
        )


def _check_foreign(plan: Plan[Any], given: Mapping[str, Any], stream: int) -> None:
    """A capture cannot wait for a stream outside it: foreign operands must come from the capturing stream itself."""
    for name in plan._names:
        x = given.get(name)
        own = x is None or type(x) is array_type() or hasattr(x, "__baracuda_tensor__") or isinstance(x, np.ndarray)
        if not own and framework_stream(x) != stream:
            raise UnsupportedError(
                f"{plan.desc.op}: a graph is being captured, and {name} belongs to {type(x).__module__} on another stream",
                "capture on that framework's stream, or pass a CuPy array",
            )
