"""The long path from operands to a launch: reading, every check, allocation, loading. It produces a recipe for later calls."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from ...plan.selection import Selection
from ...runtime.gpu.capture import relaxed, release_pools
from ...runtime.gpu.driver import device_count, require_gpu
from ...runtime.gpu.streams import fence, foreign_stream, is_capturing, stream_pointer
from ...runtime.steps import Call
from ...runtime.untraced import untraced
from ...tensor import Tensor, intake, ordinal_of, overlaps
from ...tensor.pytorch import is_tensor
from ...types import (
    DeviceMismatchError,
    MisalignedOperandError,
    OperandTypeError,
    OverlapError,
    UnsupportedError,
    WorkspaceTooSmallError,
)
from ..operands.intake import refuse_unknown, take
from ..operands.key import array_type, is_cupy_array
from ..operands.stream import framework_stream, stream_of_call
from ..operands.validate import check_operands
from ..results.allocate import take_workspace
from ..results.outputs import Output, kind_of, output
from .recipe import Recipe, not_passed

__all__ = ["Resolved", "outputs_of", "resolve"]

SCRATCH_ALIGN = 16  # bytes: the alignment of 16-byte vectors and of the address of a TMA tensor map


class Resolved(NamedTuple):
    """A call that is ready to launch: the recipe, the addresses, the stream, and the objects that must stay alive until it is
    queued."""

    recipe: Recipe
    pointers: list[int]
    values: Mapping[str, Any]
    given: dict[str, Any]  # with the outputs that were made
    made: Mapping[str, Output]
    tensors: Mapping[str, Tensor]
    scratch: Any
    stream: int
    keep: Any  # keeps the operands' memory alive; an operand alone may not

    @property
    def scratch_pointer(self) -> int:
        return 0 if self.scratch is None else int(self.scratch.ptr)

    @untraced
    def launch(self) -> dict[str, Any]:
        """Launches. Returns the operands, with the allocated outputs as the caller receives them."""
        self.recipe.launch(self.pointers, self.values, self.scratch_pointer, self.stream)
        return self.given | {n: o.finished(self.given[n], self.stream) for n, o in self.made.items()}


class _Workspace(NamedTuple):
    """Scratch that the caller passed, kept alive."""

    ptr: int
    keep: Any


@untraced
def resolve(
    selection: Selection, given: Mapping[str, Any], workspace: Any, stream: Any, *, may_allocate: bool = False
) -> Resolved:
    """Validates, allocates and loads, and launches nothing. `may_allocate` permits allocation during a capture."""
    refuse_unknown(selection, given)
    desc = selection.desc.at(given)
    cupy = require_gpu(f"{desc.op}: running for {selection.device}", for_a_run=True)
    ordinal = ordinal_of(given.values())
    if ordinal is None:
        ordinal = int(cupy.cuda.runtime.getDevice())
    if 0 < device_count() <= ordinal:
        raise DeviceMismatchError(
            f"{desc.op}: an operand is on CUDA device {ordinal}, and CUDA devices 0 to {device_count() - 1} are usable here",
            "copy it to one of them",
        )
    with cupy.cuda.Device(ordinal):  # streams, events and memory belong to a device
        kind = kind_of([given.get(name) for name in selection.names])
        handle = stream_of_call(desc, given, kind, ordinal) if stream is None else stream_pointer(stream)
        if handle is None:
            handle = int(cupy.cuda.get_current_stream().ptr)
        if stream is None:
            _check_bystander(desc.op, handle, ordinal)
        capturing = is_capturing(handle)
        if capturing:
            _check_foreign(selection, given, handle)
        else:
            release_pools()
            if stream is None and any(is_cupy_array(x) for x in given.values()):
                # On another framework's stream, CuPy's queued work has to be waited for.
                fence(cupy.cuda.get_current_stream(), handle)
        tensors = take(selection, given, handle)
        check_operands(desc, selection.canonical, tensors, selection.device)
        if capturing:
            _check_capture(selection, tensors, ordinal, workspace, may_allocate)
        made = outputs_of(selection, kind, tensors, ordinal)
        whole = dict(given) | {name: one.make(handle) for name, one in made.items()}
        tensors |= {name: intake(whole[name], what=name) for name in made}
        with relaxed() if capturing and not selection.is_loaded(ordinal) else nullcontext():
            executable = selection.executable(ordinal)
        present = {n: t for n, t in tensors.items() if t is not None}
        scratch = _scratch(selection, workspace, handle, ordinal, present)
    footprints = {n: desc.footprint(n, t) for n, t in present.items()}
    passed = {n: t for n, t in present.items() if n not in made}  # a new output fits, and overlaps nothing
    touched = {n: footprints[n] for n in passed}
    recipe = Recipe(desc, executable, ordinal, passed, touched, selection.workspace_size, may_allocate)
    pointers = [footprints[n].pointer if n in footprints else 0 for n in selection.names]
    keep = tuple(t.keep for t in present.values())
    return Resolved(recipe, pointers, desc.resolve(given)[1], whole, made, present, scratch, handle, keep)


def outputs_of(
    selection: Selection, kind: str, tensors: Mapping[str, Tensor | None], ordinal: int
) -> dict[str, Output]:
    """The allocator of each output that was not given, for the caller's framework."""
    absent = [
        name for name, role, optional in selection.operands if role == "out" and not optional and tensors[name] is None
    ]
    return {name: output(kind, selection.canonical.layout(name), ordinal) for name in absent}


def _scratch(selection: Selection, workspace: Any, stream: int, ordinal: int, present: Mapping[str, Tensor]) -> Any:
    needed = selection.workspace_size
    if not needed:
        return None
    if workspace is None:
        return take_workspace(needed, stream)
    kind: Any = array_type()
    ours = kind is not None and isinstance(workspace, kind) and workspace.flags.c_contiguous
    if not ours and not (is_tensor(workspace) and workspace.is_cuda and workspace.is_contiguous()):
        raise OperandTypeError(
            f"{selection.desc.op}: workspace must be a C-contiguous CuPy array or torch tensor of a CUDA device, "
            f"got {type(workspace).__name__}",
            "pass cupy.empty(plan.workspace_size, 'u1')",
        )
    space = intake(workspace, what=f"{selection.desc.op}: workspace")
    if space.ordinal != ordinal:
        raise DeviceMismatchError(
            f"{selection.desc.op}: workspace is on CUDA device {space.ordinal} and the operands are on device {ordinal}",
            f"allocate it on device {ordinal}",
        )
    for name, tensor in present.items():
        if overlaps(space, tensor):
            raise OverlapError(
                f"{selection.desc.op}: workspace shares memory with {name}", "pass an array of its own as workspace"
            )
    got = int(workspace.nbytes)
    if got < needed:
        raise WorkspaceTooSmallError(
            f"{selection.desc.op}: workspace holds {got} bytes and the plan needs {needed}",
            needed,
            got,
            "pass plan.workspace_size bytes",
        )
    if space.pointer % SCRATCH_ALIGN:
        raise MisalignedOperandError(
            f"{selection.desc.op}: workspace does not begin on a multiple of {SCRATCH_ALIGN} bytes",
            "pass a whole array: CuPy's and torch's lie on multiples of 512",
        )
    return _Workspace(space.pointer, workspace)


def _check_capture(
    selection: Selection, tensors: Mapping[str, Tensor | None], ordinal: int, workspace: Any, may_allocate: bool
) -> None:
    """Raises, before anything is launched, for a plan that a CUDA graph under capture cannot hold."""
    op = selection.desc.op
    if not selection.capture_safe:
        raise UnsupportedError(
            f"{op}: {selection.sku} cannot be captured in a CUDA graph", "run it outside the capture"
        )
    if not may_allocate:
        for name, role, optional in selection.operands:
            if role == "out" and tensors[name] is None and not optional:
                raise not_passed(op, name)
        if selection.workspace_size and workspace is None:
            raise not_passed(op, "workspace")
    if selection.is_loaded(ordinal):
        return
    if not may_allocate:
        raise UnsupportedError(
            f"{op}: plan.run loads nothing during a capture, and {selection.sku} is not loaded",
            "call plan.load() or bind before it",
        )
    if any(isinstance(step, Call) and step.load is not None for step in selection.steps):
        raise UnsupportedError(
            f"{op}: {selection.sku} calls a library, which cannot be initialised during a capture",
            f"call {op} once before the capture",
        )


def _check_bystander(op: str, stream: int, ordinal: int) -> None:
    """Raises for a call on the current stream of one framework while the other framework's is being captured: the call would
    run immediately, and the graph would lack it."""
    cupy_stream = int(require_gpu(op).cuda.get_current_stream().ptr)
    torch_stream = foreign_stream("torch", ordinal)
    if cupy_stream != stream and is_capturing(cupy_stream):
        raise UnsupportedError(
            f"{op}: CuPy's current stream is being captured, and torch's tensors belong to torch's current stream",
            "capture with torch.cuda.graph, or pass CuPy arrays",
        )
    if torch_stream is not None and torch_stream != stream and is_capturing(torch_stream):
        raise UnsupportedError(
            f"{op}: torch's current stream is being captured, and this call belongs to CuPy's current stream",
            "pass torch tensors, or stream=torch.cuda.current_stream()",
        )


def _check_foreign(selection: Selection, given: Mapping[str, Any], stream: int) -> None:
    """A capture cannot wait for a stream outside it: foreign operands must come from the capturing stream itself."""
    for name in selection.names:
        x = given.get(name)
        own = x is None or type(x) is array_type() or hasattr(x, "__baracuda_tensor__") or isinstance(x, np.ndarray)
        if not own and framework_stream(x) != stream:
            raise UnsupportedError(
                f"{selection.desc.op}: a graph is being captured, and {name} belongs to {type(x).__module__} on another stream",
                "capture on that framework's stream, or pass a CuPy array",
            )
