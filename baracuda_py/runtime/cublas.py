"""cuBLAS's GEMM through ctypes, on handles of our own.

CuPy's binding is not used: it moves its handle to CuPy's current stream at every call, refuses a stream that is being captured,
cannot set a workspace, and shares the handle's math mode and pointer mode with its other users.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, NamedTuple

from ..types import DriverError, ElementKind, UnsupportedError
from .gpu.driver import require_gpu
from .steps import WORKSPACE
from .system.locks import new_lock
from .system.toolchain import install_hint

__all__ = ["COMPUTE_32F", "COMPUTE_32F_TF32", "COMPUTE_64F", "DATA_TYPES", "OP_N", "OP_T", "Gemm", "gemm", "prepare"]

# Numbers of cublas_api.h and library_types.h.
OP_N, OP_T = 0, 1
COMPUTE_32F, COMPUTE_32F_TF32, COMPUTE_64F = 68, 77, 70
DATA_TYPES = {ElementKind.F32: 0, ElementKind.F64: 1, ElementKind.F16: 2, ElementKind.BF16: 14}
_DEFAULT_ALGORITHM = -1
# CUBLAS_DEFAULT_MATH, so that f32 is f32, and no partial sums in the output's 16-bit type.
_MATH_MODE = 0 | 16
_STATUS = {
    1: "CUBLAS_STATUS_NOT_INITIALIZED", 3: "CUBLAS_STATUS_ALLOC_FAILED", 7: "CUBLAS_STATUS_INVALID_VALUE",
    8: "CUBLAS_STATUS_ARCH_MISMATCH", 11: "CUBLAS_STATUS_MAPPING_ERROR", 13: "CUBLAS_STATUS_EXECUTION_FAILED",
    14: "CUBLAS_STATUS_INTERNAL_ERROR", 15: "CUBLAS_STATUS_NOT_SUPPORTED", 16: "CUBLAS_STATUS_LICENSE_ERROR",
}  # fmt: skip

_int, _long, _ptr = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
_SCALARS = {COMPUTE_32F: ctypes.c_float, COMPUTE_32F_TF32: ctypes.c_float, COMPUTE_64F: ctypes.c_double}
_SIGNATURES = {
    "cublasCreate_v2": (_ptr,),
    "cublasSetMathMode": (_ptr, _int),
    "cublasSetStream_v2": (_ptr, _ptr),
    "cublasSetWorkspace_v2": (_ptr, _ptr, ctypes.c_size_t),
    "cublasGemmStridedBatchedEx": (
        _ptr, _int, _int, _int, _int, _int, _ptr, _ptr, _int, _int, _long, _ptr, _int, _int, _long, _ptr, _ptr, _int, _int,
        _long, _int, _int, _int,
    ),
}  # fmt: skip


class Gemm(NamedTuple):
    """``C = alpha op(A) op(B)`` for `matrices` matrices, column-major, as cuBLAS words it: C is m x n.

    `a`, `b` and `c` name the operands that hold them; strides, like leading dimensions, count elements.
    """

    transa: int
    transb: int
    m: int
    n: int
    k: int
    a: str
    lda: int
    stride_a: int
    b: str
    ldb: int
    stride_b: int
    c: str
    ldc: int
    stride_c: int
    matrices: int
    inputs: ElementKind
    output: ElementKind
    compute: int
    workspace_bytes: int


class _Handle:
    """cuBLAS's handle on one device. Calls hold the lock, because stream and workspace are the handle's state."""

    def __init__(self) -> None:
        self._cublas = library()
        self._pointer = ctypes.c_void_p()
        self._lock = new_lock()
        _check(self._cublas.cublasCreate_v2(ctypes.byref(self._pointer)), "creating a handle")
        _check(self._cublas.cublasSetMathMode(self._pointer, _MATH_MODE), "setting the math mode")

    def gemm(self, problem: Gemm, pointers: dict[str, int], alpha: float, stream: int) -> None:
        p, kind = problem, DATA_TYPES[problem.inputs]
        scalar = _SCALARS[p.compute]
        one, zero = scalar(alpha), scalar(0.0)
        cublas, handle = self._cublas, self._pointer
        with self._lock:
            # Setting the stream resets the workspace. With a workspace of its own, a call shares scratch with no other stream,
            # allocates nothing during a capture, and chooses the same algorithm whatever else runs.
            _check(cublas.cublasSetStream_v2(handle, stream), "setting the stream")
            _check(
                cublas.cublasSetWorkspace_v2(handle, pointers[WORKSPACE], p.workspace_bytes), "setting the workspace"
            )
            status = cublas.cublasGemmStridedBatchedEx(
                handle, p.transa, p.transb, p.m, p.n, p.k, ctypes.byref(one), pointers[p.a], kind, p.lda, p.stride_a,
                pointers[p.b], kind, p.ldb, p.stride_b, ctypes.byref(zero), pointers[p.c], DATA_TYPES[p.output], p.ldc,
                p.stride_c, p.matrices, p.compute, _DEFAULT_ALGORITHM,
            )  # fmt: skip
        _check(status, "a matrix product")


_handles: dict[int, _Handle] = {}
_creating = new_lock()


def gemm(problem: Gemm, pointers: dict[str, int], values: Any, stream: int) -> None:
    """One product on the current device, as a `Call` step calls it."""
    handle = _handles.get(_ordinal()) or prepare()
    handle.gemm(problem, pointers, values["alpha"], stream)


def prepare() -> _Handle:
    """Creates the handle on the current device on first use. This synchronises and allocates, so it must not happen in a
    capture."""
    ordinal = _ordinal()
    with _creating:
        if ordinal not in _handles:
            _handles[ordinal] = _Handle()
        return _handles[ordinal]


@lru_cache(maxsize=1)
def library() -> Any:
    """The shared library, the one that CuPy would load."""
    try:
        from cuda import pathfinder

        cublas = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)
    except Exception as error:  # pathfinder is missing or finds nothing, or the loader refuses the library
        reason = " ".join(str(error).split())[:200]
        raise UnsupportedError(f"cuBLAS cannot be loaded ({reason})", install_hint("full")) from None
    for name, types in _SIGNATURES.items():
        getattr(cublas, name).argtypes = types
    return cublas


def _ordinal() -> int:
    return int(require_gpu("cuBLAS").cuda.runtime.getDevice())


def _check(status: int, doing: str) -> None:
    if status:
        name = _STATUS.get(status, f"status {status}")
        raise DriverError(f"cuBLAS, {doing}: it answered {name}", status, name)
