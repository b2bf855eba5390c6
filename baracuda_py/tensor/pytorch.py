"""PyTorch tensors, read by their attributes: a tenth of what a DLPack export costs, and no dtype or flag is hidden.

torch is never imported here: only where a program has imported it can it have made a tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..runtime.driver import cupy
from ..runtime.streams import fence, foreign_stream
from ..types import DeviceMismatchError, ElementKind, OperandTypeError, UnsupportedError
from .operand import HOST_ORDINAL, NO_MEMORY, Tensor

__all__ = ["dtype_of", "empty_tensors", "is_grad_enabled", "is_tensor", "on_stream", "read", "torch_allocator"]

RAW_EMPTY = "_empty_strided_cuda"  # of torch._C._dynamo.guards


def is_tensor(x: Any) -> bool:
    """Whether `x` is a torch.Tensor or of a class derived from it."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(x, kind)


def is_grad_enabled() -> bool:
    """Whether torch records autograd here: not under no_grad and inference_mode."""
    asked = getattr(sys.modules.get("torch"), "is_grad_enabled", None)
    return asked is None or bool(asked())


def read(x: Any, what: str, stream: int | None) -> Tensor:
    """A tensor's address and layout; with `stream`, what torch's current stream holds is ordered before it.

    A meta or fake tensor has a layout alone. Raises OperandTypeError for what has no strided memory of its own meaning:
    sparse and nested tensors, lazy conjugates and negatives; and for those whose gradient autograd would record.
    """
    if x.layout is not sys.modules["torch"].strided or x.is_nested:
        layout = "nested" if x.is_nested else str(x.layout).removeprefix("torch.")
        raise OperandTypeError(f"{what}: the torch tensor is {layout}", "make it dense, x.to_dense() or x.values()")
    if x.requires_grad and is_grad_enabled() and not _is_layout(x):
        raise OperandTypeError(
            f"{what}: the torch tensor requires a gradient, and no autograd is recorded here",
            f"pass {what.rpartition(': ')[2]}.detach(), or call it under torch.no_grad()",
        )
    for lazy, resolve in ((x.is_neg(), "resolve_neg"), (x.is_conj(), "resolve_conj")):
        if lazy:
            raise OperandTypeError(
                f"{what}: the torch tensor is a lazy view, whose memory holds other values", f"pass x.{resolve}()"
            )
    element = _kind_of(x.dtype)
    if element is None:
        raise OperandTypeError(f"{what}: {x.dtype} has no element kind here", "cast it to a supported dtype")
    pointer, ordinal = _place(x, what)
    if stream is not None and ordinal >= 0:
        current = foreign_stream("torch", ordinal)
        if current is not None:
            fence(current, stream)
    return Tensor(pointer, tuple(x.shape), x.stride(), element, ordinal, "torch", False, 0, None, x, x)


@lru_cache(maxsize=64)
def _kind_of(dtype: Any) -> ElementKind | None:
    try:
        return ElementKind.of(str(dtype))
    except OperandTypeError:
        return None


@lru_cache(maxsize=64)
def dtype_of(element: ElementKind) -> Any:
    """torch's dtype of that kind, None where it has none. torch is imported already."""
    torch = sys.modules["torch"]
    return next((d for d in vars(torch).values() if isinstance(d, torch.dtype) and _kind_of(d) is element), None)


def empty_tensors(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, ordinal: int) -> Callable[[], Any]:
    """What makes fresh tensors of that layout on the CUDA device `ordinal`, which is then current, or on the host (-1), from
    torch's allocator in the order of torch's current stream.

    Code that torch.compile writes allocates on torch's current device without the dispatcher, in half the time. Which device
    that is torch may see in another way than the CUDA runtime, so that it is looked at.
    """
    torch = sys.modules["torch"]
    device = torch.device("cpu" if ordinal < 0 else f"cuda:{ordinal}")
    raw: Any = getattr(getattr(getattr(getattr(torch, "_C", None), "_dynamo", None), "guards", None), RAW_EMPTY, None)

    def dispatched() -> Any:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    def direct() -> Any:
        made = raw(shape, strides, dtype)
        return made if made.get_device() == ordinal else dispatched()

    return dispatched if raw is None or ordinal < 0 else direct


def on_stream(stream: int, ordinal: int) -> Any:
    """A context in which torch allocates for work on the stream of that handle."""
    cuda = sys.modules["torch"].cuda
    return cuda.stream(cuda.ExternalStream(stream, device=ordinal))


def torch_allocator(stream: int, ordinal: int) -> Callable[[int], Any]:
    """An allocator, as CuPy takes one, of torch's memory for work on `stream`. While torch captures a graph, that is memory of
    the graph's private pool."""
    torch = sys.modules["torch"]

    def alloc(nbytes: int) -> Any:
        with on_stream(stream, ordinal):
            held = torch.empty(nbytes, dtype=torch.uint8, device=torch.device(f"cuda:{ordinal}"))
        memory = cupy().cuda
        return memory.MemoryPointer(memory.UnownedMemory(held.data_ptr(), nbytes, held, ordinal), 0)

    return alloc


def _is_layout(x: Any) -> bool:
    """Whether there is a layout without memory, which may describe a problem and cannot be run."""
    return bool(x.is_meta) or type(x).__name__ == "FakeTensor"


def _place(x: Any, what: str) -> tuple[int, int]:
    """The first element's address and the device's ordinal."""
    if _is_layout(x):
        return 0, NO_MEMORY
    if not (x.is_cuda or x.is_cpu):
        raise DeviceMismatchError(
            f'{what}: the torch tensor is on {x.device}, and only CUDA devices (and the host, with device="cpu") are supported',
            "copy it there first",
        )
    try:
        pointer = x.data_ptr()
    except RuntimeError as error:  # torch.func's wrappers
        raise UnsupportedError(
            f"{what}: the torch tensor has no memory of its own ({error})", "call it outside torch.func's transforms"
        ) from None
    if not pointer and x.numel():
        raise OperandTypeError(
            f"{what}: the {type(x).__name__} of shape {tuple(x.shape)} has no memory",
            "pass a tensor whose storage is there",
        )
    return pointer, x.device.index if x.is_cuda else HOST_ORDINAL
