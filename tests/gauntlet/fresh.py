"""A problem's operands once more, at new addresses: the same bytes between the same guards, as arrays of any framework.

A call that was made before is launched on addresses alone, so that only other addresses tell whether each went to its place.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from baracuda_py.tensor.pytorch import dtype_of

from ..arena import Slot
from .problem import Problem, named, parameters

__all__ = ["KINDS", "CudaHome", "Fresh", "Home", "HostHome", "mixed", "repeats", "torch_over"]

Array = np.ndarray[Any, Any]
KINDS = ("plain", "torch", "mixed")  # NumPy's or CuPy's arrays, torch's, and both in one call
TURNS = 4
ALIGN = 16


class Home(Protocol):
    """Where arrays are: host memory, a GPU's, or what stands for it."""

    def place(self, slot: Slot, kind: str) -> tuple[Any, Callable[[], Array]]:
        """An operand of the slot's layout and first bytes at a new address, and what gives its memory's present bytes. The
        kind is "plain" or "torch"; what torch has no array for is plain."""
        ...


def torch_over(memory: Any, slot: Slot) -> Any:
    """A torch tensor of the slot's layout over a tensor of its bytes, which begins on a multiple of 16; None where torch has no
    such tensor."""
    dtype = None if slot.packed is not None else dtype_of(slot.element)
    if dtype is None or min(slot.strides, default=0) < 0 or slot.offset % slot.dtype.itemsize:
        return None
    item = slot.dtype.itemsize
    if any(stride % item for stride in slot.strides):
        return None
    whole = memory[: memory.numel() // item * item].view(dtype)
    return whole.as_strided(slot.shape, [stride // item for stride in slot.strides], slot.offset // item)


def aligned_copy(image: Array) -> Array:
    """The bytes in fresh memory that begins on a multiple of 16."""
    memory = np.empty(image.size + ALIGN, np.uint8)
    held = memory[-memory.ctypes.data % ALIGN :][: image.size]
    held[...] = image
    return held


class HostHome:
    """Host memory, for `device="cpu"` and the emulator."""

    def place(self, slot: Slot, kind: str) -> tuple[Any, Callable[[], Array]]:
        held = aligned_copy(slot.initial)
        torch = sys.modules.get("torch")
        tensor = torch_over(torch.from_numpy(held), slot) if kind == "torch" and torch is not None else None
        return slot.over(slot.view(held)) if tensor is None else tensor, held.copy


class CudaHome:
    """A GPU's memory, from CuPy's allocator or from torch's."""

    def place(self, slot: Slot, kind: str) -> tuple[Any, Callable[[], Array]]:
        import cupy

        torch = sys.modules.get("torch")
        if kind == "torch" and torch is not None:
            held = torch.from_numpy(slot.initial.copy()).cuda()
            if (tensor := torch_over(held, slot)) is not None:
                return tensor, lambda: held.cpu().numpy()
        memory = cupy.empty(slot.initial.size, np.uint8)
        memory.set(slot.initial)
        dtype = np.dtype(np.uint8) if "float8" in slot.dtype.name else slot.dtype
        array = cupy.ndarray(slot.shape, dtype, memory.data + slot.offset, slot.strides)
        return slot.over(array), memory.get


def mixed(names: list[str]) -> dict[str, str]:
    """The kind of each operand where both are mixed: torch's first, then in turn."""
    return dict(zip(names, itertools.cycle(("torch", "plain"))))


class Fresh:
    """The operands of one call at new addresses: those that the sample gives, and with `out` those that a call would allocate and
    the function takes."""

    def __init__(
        self, problem: Problem, home: Home, kinds: Mapping[str, str] | str, *, out: bool, every: bool = False
    ) -> None:
        self.problem, known = problem, parameters(problem.op.function)
        asked = [n for n in problem.slots if n in problem.given or every or (out and n in known)]
        self.made = [n for n in problem.plan.selection.written if n not in asked]
        if kinds == "mixed":
            kinds = mixed(asked)
        placed = {n: home.place(problem.slots[n], kinds if isinstance(kinds, str) else kinds[n]) for n in asked}
        self.operands = {name: operand for name, (operand, _) in placed.items()}
        self._images = {name: image for name, (_, image) in placed.items()}

    def check(self, result: Any) -> None:
        """Inputs and guards as they were, outputs within the guarantee: all work is done."""
        for name, image in self._images.items():
            self.problem.check_image(name, image())
        made = result if isinstance(result, tuple) else (result,)
        for name, array in zip(self.problem.plan.selection.written, made):
            if name in self.made:
                self.problem.check_result(name, array)
            elif name in self.operands:
                assert array is self.operands[name], f"the call returns something else than {name}"


def repeats(
    problem: Problem,
    home: Home,
    kinds: Sequence[str],
    *,
    synchronise: Callable[[], Any] = lambda: None,
    stream: Any = None,
) -> None:
    """The public function, four times for each kind of array, with and without its outputs; the last turn on `stream`."""
    for kind in kinds:
        for out in (False, True):
            for turn in range(TURNS):
                fresh = Fresh(problem, home, kind, out=out)
                synchronise()
                extra = {"stream": stream} if stream is not None and turn == TURNS - 1 else {}
                with named(f"{kind}, {'with' if out else 'without'} out, call {turn + 1}"):
                    result = problem.call_function(**fresh.operands, **extra)
                    synchronise()
                    fresh.check(result)
