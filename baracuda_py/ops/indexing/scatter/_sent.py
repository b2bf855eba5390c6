"""The gradients of what sends lines and elements to places: picked by index, or where places are set, from the last of equal
indices (kernels/indexing/last.cu)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ....plan.candidate import Candidate, Cost, Feasibility, no
from ....plan.lowering import Sub
from ....plan.selection import Selection, selected
from ....runtime.steps import Arg, Fill, Kernel, Launch, Ptr, Scratch, Step
from ....tensor.axes import c_strides
from ....types import DeviceSpec
from ..._launch import THREADS, grid_of, pack_dims
from ..._reported import raises_on
from ...shape_layout.contiguize import ContiguizeDescriptor, ContiguizePlan
from .._gather import Gather, GatherAxes, PickedBy, gather
from .._indexed import UNREPORTED
from ..costs import LineCosts
from ..keys import MOST
from ._runs import ScatteredElements, ScatteredLines, ScatteredProblem

__all__ = ["FromLast", "FromSums", "SentElements", "SentLines", "SentProblem"]

FILE = "indexing/last.cu"
WORD = 4  # bytes of a position, and of a place along the axis


class SentProblem(ScatteredProblem):
    """The gradients of x and src, of that of the result: `grad`."""

    result, source, lines = "grad_x", "grad_src", "grad"

    def word_strides(self) -> tuple[Sequence[int], Sequence[int]]:
        """The strides, along the axes of grad_x, of an array of a word per key; along those of grad_src, of one per index."""
        raise NotImplementedError

    def places_strides(self) -> Sequence[int]:
        """The strides of the indices along the axes of grad_src."""
        raise NotImplementedError

    def picked_strides(self) -> Sequence[int]:
        """The strides of grad along the axes of grad_src, 0 where an index says the place."""
        raise NotImplementedError

    def pick(self, name: str, by: PickedBy, index_strides: Sequence[int], strides: Sequence[int]) -> Launch:
        """The launch that picks one of the results from grad; `index_strides` are in bytes, `strides` in elements."""
        grad = self.layout(self.lines)
        step = grad.strides[self.along] * grad.natural
        axes = GatherAxes.of(self.layout(name), grad, step, strides, index_strides)
        return gather(Ptr(name), Ptr(self.lines), by, step, axes)


class SentLines(ScatteredLines, SentProblem):
    """Lines along an axis, each with an index."""

    def _among(self, strides: Sequence[int]) -> Sequence[int]:
        return *(0,) * self.along, *strides, *(0,) * (len(self.lines_shape) - self.along - 1)

    def word_strides(self) -> tuple[Sequence[int], Sequence[int]]:
        return self._among((1,)), self._among(c_strides(self.places_shape))

    def places_strides(self) -> Sequence[int]:
        return self._among(self.layout(self.index).strides)

    def picked_strides(self) -> Sequence[int]:
        strides, at = self.layout(self.lines).strides, self.along
        return *strides[:at], *(0,) * len(self.places_shape), *strides[at + 1 :]


class SentElements(ScatteredElements, SentProblem):
    """Elements, each with an index along the axis."""

    def word_strides(self) -> tuple[Sequence[int], Sequence[int]]:
        return c_strides(self.lines_shape), c_strides(self.places_shape)

    def places_strides(self) -> Sequence[int]:
        return self.layout(self.index).strides

    def picked_strides(self) -> Sequence[int]:
        return [0 if a == self.along else s for a, s in enumerate(self.layout(self.lines).strides)]


class FromLast(Candidate[SentProblem]):
    """The last of equal indices is found by a maximum of positions, then both gradients are picked. Same bits at every call."""

    variant = "last"
    launches = (*(f"{FILE}:{name}" for name in ("mark_last", "pick_last", "keep_rest")), *Gather.launches)

    def supports(self, desc: SentProblem, device: DeviceSpec) -> Feasibility:
        keyed = desc.keyed()
        if desc.reduce != "set":
            return no("places are not set", "variant 'gather'")
        if max(keyed.keys, keyed.count) > MOST:
            return no("places or indices exceed 31 bits", "make several calls")
        return raises_on(desc, device)

    def cost(self, desc: SentProblem, device: DeviceSpec, config: Any) -> Cost:
        keyed = desc.keyed()
        indices = desc.layout(desc.index).element.nbytes(desc.count)
        moved = _moved(desc) + 2 * indices + WORD * (4 * keyed.keys + 4 * keyed.count)
        one = Cost.streaming(device, moved, efficiency=LineCosts.of(device).bandwidth_efficiency)
        return Cost(one.bytes, one.flops, one.seconds + 5 * device.overhead, one.limit)

    def lower(self, desc: SentProblem, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        keyed, grad, along = desc.keyed(), desc.layout(desc.lines), desc.along
        sizes = {name: math.prod(desc.layout(name).shape) for name in (desc.result, desc.source)}
        if not any(sizes.values()):
            return ()
        if not keyed.keys:
            return (Fill(Ptr(desc.source), 0, desc.element.nbytes(sizes[desc.source])),)
        last, picked = Scratch.named("last", WORD * keyed.keys), Scratch.named("picked", WORD * keyed.count)
        steps: list[Step] = [Fill(last, 0, WORD * keyed.keys)]
        own, sent = ([s * WORD for s in strides] for strides in desc.word_strides())
        if keyed.count:
            indices = Ptr(keyed.operand), np.int64(keyed.extent), np.uint32(keyed.key_step), np.uint32(keyed.count)
            dims = pack_dims(keyed.shape, keyed.strides, "u32")
            options = f"<{keyed.number}, {len(keyed.shape)}, {keyed.mode}>"
            steps += [
                _launch(f"mark_last{options}", keyed.count, last, *indices, dims),
                _launch(f"pick_last{options}", keyed.count, picked, last, *indices, dims),
                desc.pick(desc.source, PickedBy(picked, "i32", UNREPORTED, keyed.extent), sent, desc.picked_strides()),
            ]
        rest = [0 if a == along else s for a, s in enumerate(grad.strides)]
        numbers = np.uint32(keyed.extent), np.uint32(keyed.key_step), np.uint32(keyed.keys)
        return (
            *steps,
            _launch(f"keep_rest<{THREADS}>", keyed.keys, last, *numbers),
            desc.pick(desc.result, PickedBy(last, "i32", UNREPORTED, keyed.extent), own, rest),
        )


class FromSums(Candidate[SentProblem]):
    """Where src was added: the gradient of x is a copy of grad, and that of src is picked by index."""

    variant = "gather"
    launches = (*dict.fromkeys(launch for c in ContiguizePlan.candidates for launch in c.launches), *Gather.launches)

    def supports(self, desc: SentProblem, device: DeviceSpec) -> Feasibility:
        return raises_on(desc, device) if desc.reduce == "add" else no("places are not summed", "variant 'last'")

    def configs(self, desc: SentProblem, device: DeviceSpec) -> Iterable[Selection]:
        grad, out = desc.layout(desc.lines), desc.layout(desc.result)
        layouts: dict[str, Any] = {"x_strides": grad.strides, "x_align": grad.align, "out_align": out.align}
        yield selected(ContiguizePlan, ContiguizeDescriptor(grad.shape, desc.element, **layouts), None, device)

    def cost(self, desc: SentProblem, device: DeviceSpec, config: Selection) -> Cost:
        moved = _moved(desc) + desc.layout(desc.index).element.nbytes(desc.count)
        return Cost.streaming(device, moved, efficiency=LineCosts.of(device).bandwidth_efficiency)

    def lower(self, desc: SentProblem, device: DeviceSpec, config: Selection) -> tuple[Step | Sub, ...]:
        copy, index = Sub(config, {"x": Ptr(desc.lines), "out": Ptr(desc.result)}), desc.layout(desc.index)
        if 0 in desc.layout(desc.source).shape:
            return (copy,)
        by = PickedBy(Ptr(desc.index), index.element.number, desc.kernel_mode, desc.extent)
        steps = [s * index.natural for s in desc.places_strides()]
        return copy, desc.pick(desc.source, by, steps, desc.picked_strides())


def _moved(desc: SentProblem) -> int:
    """Bytes of both results, read and written."""
    return 2 * sum(desc.element.nbytes(math.prod(desc.layout(name).shape)) for name in (desc.result, desc.source))


def _launch(entry: str, items: int, *args: Arg) -> Launch:
    return Launch(Kernel(FILE, entry), grid_of(items, THREADS), (THREADS, 1, 1), args)
