"""Where arrays come from that were made during a recording by something else than a recorded call: a replay would not make them
again, so that what reads them would read old values.

NumPy's and CuPy's allocations are found by `tracemalloc`, which says at which line an object was made; torch's by a mode that
sees torch's functions.
"""

from __future__ import annotations

import math
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from ...tensor import GpuBuffer, Tensor, intake, overlaps
from ...tensor.pytorch import is_tensor
from ...types import BaracudaError

__all__ = ["Watch"]

FRAMES = 16  # of a call of torch that are looked at: enough to tell the library's own calls from others
PACKAGE = str(Path(__file__).resolve().parents[2])
_LIBRARIES = "site-packages"


class Watch:
    """Knows the arrays that are made while it is entered."""

    def __init__(self) -> None:
        self._tracing = False
        self._torch: dict[int, str] = {}  # address of a tensor's memory -> where it was made
        self._changed: list[tuple[Tensor, str]] = []  # tensors that torch wrote in place, and where

    @contextmanager
    def entered(self) -> Iterator[Watch]:
        # Where the program traces by itself, objects that are older look like new ones.
        self._tracing = not tracemalloc.is_tracing()
        if self._tracing:
            tracemalloc.start(1)  # the innermost line: more would slow emulated kernels tenfold
        try:
            with self._torch_watch():
                yield self
        finally:
            if self._tracing:
                tracemalloc.stop()

    def place(self, x: Any) -> str:
        """Where the memory of an array was made since, in words; "" if it is older, or the library's own."""
        if is_tensor(x):
            return self._torch.get(x.untyped_storage().data_ptr(), "")
        owner = _owner(x)
        found = tracemalloc.get_object_traceback(owner) if self._tracing and owner is not None else None
        if found is None or found[0].filename.startswith(PACKAGE):
            return ""
        return _said(found[0].filename, found[0].lineno)

    def change(self, x: Tensor) -> str:
        """Where torch wrote to the memory of a tensor since, in words; "" if it did not."""
        return next((place for changed, place in self._changed if overlaps(changed, x)), "")

    def forget_change(self, x: Tensor) -> None:
        """Notes that a recorded call has written all of `x`: changes of memory that it fills are no more."""
        low, high = x.interval()
        if high - low == x.element.nbytes(math.prod(x.shape)):
            kept = [one for one in self._changed if not (low <= one[0].interval()[0] and one[0].interval()[1] <= high)]
            self._changed = kept

    def _torch_watch(self) -> AbstractContextManager[Any]:
        """A mode in which torch reports the tensors that its functions make, and those that they change."""
        overrides: Any = sys.modules.get("torch.overrides")
        if overrides is None:
            return nullcontext()

        class Noted(overrides.TorchFunctionMode):  # type: ignore[misc]
            def __torch_function__(mode, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                given = [x for x in (*args, *(kwargs or {}).values()) if is_tensor(x)]
                before = [_count_of_writes(x) for x in given]
                result = func(*args, **(kwargs or {}))
                made = [x for x in (result if isinstance(result, (tuple, list)) else (result,)) if is_tensor(x)]
                if made:
                    self._note(made, given)
                changed = [x for x, count in zip(given, before) if _count_of_writes(x) != count]
                if changed and (place := _caller(sys._getframe(1))):
                    for x in changed:
                        with suppress(BaracudaError):  # sparse tensors, say, of which no call reads the memory
                            self._changed.append((intake(x.detach(), what="x"), place))
                return result

        return Noted()

    def _note(self, made: list[Any], given: list[Any]) -> None:
        """Notes new memory among the results of a function of torch."""
        import torch

        with torch._C.DisableTorchFunction():
            known = {x.untyped_storage().data_ptr() for x in given}
            for x in made:
                address = x.untyped_storage().data_ptr()
                if address not in known:
                    self._torch[address] = _caller(sys._getframe(2))


def _count_of_writes(x: Any) -> int:
    """torch's count of the changes of a tensor's memory; 0 for tensors without one."""
    return 0 if x.is_inference() else int(x._version)


def _owner(x: Any) -> Any:
    """The object that was made together with an array's memory, None where there is none to ask."""
    if isinstance(x, GpuBuffer):
        return _owner(x.array)
    if isinstance(x, np.ndarray):
        while isinstance(x.base, np.ndarray):
            x = x.base
        return x if x.base is None else None
    return getattr(getattr(x, "data", None), "mem", None)  # CuPy's allocation


def _caller(frame: FrameType | None) -> str:
    """The line of the program from which torch was called; "" for a call of the library."""
    place = ""
    for _ in range(FRAMES):
        if frame is None:
            break
        name = frame.f_code.co_filename
        if name.startswith(PACKAGE):
            return ""
        if not place and _LIBRARIES not in name:
            place = _said(name, frame.f_lineno)
        frame = frame.f_back
    return place


def _said(file: str, line: int | None) -> str:
    return "by another library" if _LIBRARIES in file else f"at {file}:{line}"
