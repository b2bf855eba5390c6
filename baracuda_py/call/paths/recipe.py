"""The short path: operands whose layouts were validated before are launched after a few comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...plan.descriptor import Descriptor
from ...runtime.gpu.driver import require_gpu
from ...runtime.gpu.streams import LEGACY
from ...runtime.launch import Executable
from ...tensor import Tensor
from ...tensor.arrays import allocation_bounds
from ...tensor.axes import span
from ...types import UnsupportedError
from ..operands.key import array_type
from ..results.allocate import take_workspace

__all__ = ["Recipe", "not_passed"]


def not_passed(op: str, name: str) -> UnsupportedError:
    """The error of `plan.run` during a capture, when it must not allocate."""
    return UnsupportedError(
        f"{op}: plan.run allocates nothing during a capture, and {name} was not passed",
        f"pass {name}=..., or call the function",
    )


class Recipe:
    """An executable, with the comparisons that a set of validated operand layouts still needs: each operand must fit into its
    allocation, and footprints that are written must not overlap others. `tensors` are the operands that were passed,
    `footprints` the parts of them that are touched. With `may_allocate`, memory may be allocated during a capture, as the
    functions do."""

    __slots__ = (
        "_alloc",
        "_device",
        "_execute",
        "_op",
        "_pairs",
        "_reaches",
        "_restore",
        "_workspace",
        "executable",
        "is_capturing",
        "may_allocate",
        "ordinal",
        "stream_of",
    )

    def __init__(
        self,
        desc: Descriptor,
        executable: Executable,
        ordinal: int,
        tensors: Mapping[str, Tensor],
        footprints: Mapping[str, Tensor],
        workspace: int = 0,
        may_allocate: bool = False,
    ) -> None:
        cupy = require_gpu("running a plan")
        self._op, self._workspace = desc.op, workspace
        self.executable, self.may_allocate = executable, may_allocate
        self.ordinal = ordinal
        self._execute = executable.run
        self.stream_of, self._alloc = cupy.cuda.get_current_stream, cupy.cuda.alloc
        self._device, self._restore = cupy.cuda.runtime.getDevice, cupy.cuda.runtime.setDevice
        # The handle must not be that of the legacy stream.
        self.is_capturing: Callable[[int], bool] = cupy.cuda.runtime.streamIsCapturing
        self._pairs = _pairs(desc, footprints)
        # Only a CuPy array can be longer than its allocation: others check this themselves, or their allocation is unknown.
        own = [(n, t) for n, t in tensors.items() if type(t.source) is array_type()]
        self._reaches = tuple((n, *span(t.shape, t.strides, t.element, t.phase)) for n, t in own)

    def refuses(self, pointers: Sequence[int], operands: Mapping[str, Any]) -> bool:
        """Whether these arrays must take the long path: a CuPy array exceeds its allocation, or two operands may overlap."""
        for name, low, high in self._reaches:
            memory = operands[name].data
            whole = memory.mem
            before = memory.ptr - whole.ptr
            if (before + high > whole.size or before < -low) and allocation_bounds(memory) is not None:
                return True
        for written, other, low, high, in_place in self._pairs:
            distance = pointers[other] - pointers[written]
            if low < distance < high and (distance or not in_place):
                return True
        return False

    def current_stream(self) -> int:
        """CuPy's current stream on the current device."""
        return self.stream_of().ptr

    def elsewhere(self) -> bool:
        """Whether the current device is not the operands' device."""
        return self._device() != self.ordinal

    def launch(self, pointers: Sequence[int], values: Mapping[str, Any], scratch: int, stream: int | None) -> None:
        """Launches on `stream`, or on CuPy's current one, with the operands' device current.

        If scratch is needed and `scratch` is 0, it is allocated from the pool in the stream's order and returned once the
        launches are queued.
        """
        here = self._device()
        if here != self.ordinal:
            self._restore(self.ordinal)
            try:
                self.launch(pointers, values, scratch, stream)
            finally:
                self._restore(here)
            return
        self.launch_on_current_device(pointers, values, scratch, self.stream_of().ptr if stream is None else stream)

    def launch_on_current_device(
        self, pointers: Sequence[int], values: Mapping[str, Any], scratch: int, stream: int
    ) -> None:
        """`launch`, when the operands' device is current."""
        if self._workspace and not scratch:
            capturing = stream > LEGACY and self.is_capturing(stream)
            if capturing and not self.may_allocate:
                raise not_passed(self._op, "workspace")
            usual = stream == self.stream_of().ptr and not capturing
            allocation = self._alloc(self._workspace) if usual else take_workspace(self._workspace, stream)
            scratch = allocation.ptr  # held until this returns
        self._execute(pointers, values, scratch, stream)


def _pairs(desc: Descriptor, footprints: Mapping[str, Tensor]) -> tuple[tuple[int, int, int, int, bool], ...]:
    """For each written operand and each other one: their positions, the open interval of distances in bytes (from the first to
    the second) at which they may overlap, and whether both may be the same view."""
    spans = {name: span(f.shape, f.strides, f.element) for name, f in footprints.items()}
    index = {operand.name: i for i, operand in enumerate(desc.operands)}
    pairs: list[tuple[int, int, int, int, bool]] = []
    for operand in desc.operands:
        if not operand.written or operand.name not in footprints:
            continue
        for other in footprints:
            twice = any(p[:2] == (index[other], index[operand.name]) for p in pairs)
            if other == operand.name or twice or spans[operand.name][1] == spans[operand.name][0]:
                continue
            mine, theirs = footprints[operand.name], footprints[other]
            alike = mine.shape == theirs.shape and mine.strides == theirs.strides and mine.element is theirs.element
            in_place = alike and desc.in_place(operand.name, other)
            (low, high), (other_low, other_high) = spans[operand.name], spans[other]
            pairs.append((index[operand.name], index[other], low - other_high, high - other_low, in_place))
    return tuple(pairs)
