"""Launches over arrays each of whose elements has the random word at its position: dropout.cu, stochastic_cast.cu."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from ...plan.candidate import Candidate, Cost
from ...runtime.steps import Arg, Kernel, Launch, Ptr, Step
from ...types import DeviceSpec
from .._launch import THREADS, index_scalar, index_type, pack_dims
from ._drawn import CHUNK, PHILOX_INSTRUCTIONS, Positioned, grid_stride, merged, place

__all__ = ["ByPosition"]

WORDS = 4  # of a Philox block, one per element


class ByPosition(Candidate[Any]):
    """One launch: a thread has chunks of one Philox block or two, in accesses of 16 bytes; or of single elements where an operand
    is not contiguous or not aligned to 16 bytes."""

    variant = "philox"
    instructions: ClassVar[
        float
    ]  # of an element, beside Philox, and further ones of a single one; estimated from the source
    single_instructions: ClassVar[float]

    def arrays(self, desc: Any) -> tuple[str, ...]:
        """The operands whose elements have positions, in the kernel's order."""
        raise NotImplementedError

    def configs(self, desc: Positioned, device: DeviceSpec) -> Iterable[int]:
        layouts = [desc.layout(name) for name in self.arrays(desc)]
        sizes = tuple(one.natural for one in layouts)
        whole = merged(desc, self.arrays(desc))[1] == tuple((size,) for size in sizes)
        aligned = all(one.align >= CHUNK for one in layouts)
        return (max(WORDS, CHUNK // min(sizes)) if whole and aligned else -WORDS,)

    def cost(self, desc: Positioned, device: DeviceSpec, config: int) -> Cost:
        single = 0 if config > 0 else self.single_instructions
        element = self.instructions + PHILOX_INSTRUCTIONS / WORDS + single
        return Cost.streaming(device, desc.nbytes, instructions=desc.count * element)

    def launch(
        self,
        desc: Positioned,
        device: DeviceSpec,
        config: int,
        types: Sequence[str],
        flags: Sequence[str] = (),
        *given: Arg,
    ) -> tuple[Step, ...]:
        """The launch: `types` follow the index's among the kernel's template arguments, `flags` are the last ones, and what is
        `given` is ahead of the strides."""
        index, width, names = index_type(desc.count), abs(config), self.arrays(desc)
        extents, strides = ((), ((),) * len(names)) if config > 0 else merged(desc, names)
        args = (
            *map(Ptr, names),
            index_scalar(desc.count, index),
            *place(desc),
            *given,
            pack_dims(extents, strides, index),
        )
        file, name = self.launches[0].split(":")
        entry = ", ".join((index, *types, str(width), str(len(extents)), *flags))
        grid = grid_stride(desc.count, width, device)
        return (Launch(Kernel(file, f"{name}<{entry}>"), grid, (THREADS, 1, 1), args),)
