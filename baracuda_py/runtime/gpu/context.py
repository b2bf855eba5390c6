"""The driver's contexts and errors, through cuda.bindings: the primary context of a device is that of CUDA's runtime, which
PyTorch uses."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from .bindings import bindings
from .handles import torch_with_streams

__all__ = ["CudaError", "checked", "current_ordinal", "make_current"]


class CudaError(RuntimeError):
    """An answer of the driver that is not success: its text begins with the error's name."""

    def __init__(self, code: int) -> None:
        d = bindings()
        self.status = code
        try:
            error = d.CUresult(code)
            text = d.cuGetErrorString(error)[1]
        except Exception:  # a code that cuda.bindings does not know
            super().__init__(f"CUDA_ERROR_{code}")
            return
        super().__init__(f"{error.name}: {text.decode() if text else 'unknown error'}")


def checked(answer: tuple[Any, ...]) -> Any:
    """What the driver answered beside its code; raises CudaError unless that is success."""
    code, *rest = answer
    if int(code):
        raise CudaError(int(code))
    return rest[0] if rest else None


def current_ordinal() -> int:
    """torch's current device; without torch that of the current context, or 0."""
    torch = torch_with_streams()
    if torch is not None:
        return int(torch.cuda.current_device())
    code, device = bindings().cuCtxGetDevice()
    return 0 if int(code) else int(device)


def make_current(ordinal: int) -> None:
    """Makes the primary context of a device the current one of this thread."""
    checked(bindings().cuCtxSetCurrent(_primary(ordinal)))


@lru_cache(maxsize=64)
def _primary(ordinal: int) -> Any:
    d = bindings()
    checked(d.cuInit(0))
    return checked(d.cuDevicePrimaryCtxRetain(checked(d.cuDeviceGet(ordinal))))
