"""cuBLASLt at its best: each of its first heuristics as a call, of which the harness keeps the fastest.

A few functions of the C interface by ctypes, of 16-bit products with f32 sums. cuBLASLt counts columns first, so that
out = a b is asked for as the product of the transposes, b's first.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from .operands import Call
from .products import Operands, Product

__all__ = ["HEURISTICS", "lt_calls", "takes"]

HEURISTICS = 8
WORKSPACE = 64 << 20
_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}  # cudaDataType
_COMPUTE_32F, _TRANSA, _TRANSB, _MAX_WORKSPACE = 68, 3, 4, 1  # enumerators of cublasLt.h
_size = ctypes.c_size_t


class _Algorithm(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64 * 8)]


class _Heuristic(ctypes.Structure):
    _fields_ = [
        ("algorithm", _Algorithm), ("workspace", _size), ("state", ctypes.c_int), ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]  # fmt: skip


def takes(product: Product) -> bool:
    """Whether it is a product that is asked for here."""
    plain = not (product.batch or product.epilogue or product.scales)
    return plain and product.dtype in ("float16", "bfloat16")


def lt_calls(product: Product, operands: Operands) -> dict[str, Call]:
    """A call for each heuristic, called ``cublaslt/0``, ``cublaslt/1``, …; one that raises where the library is missing."""
    try:
        problem = _Problem.of(product)
    except (ImportError, OSError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {error}"

        def missing() -> None:
            raise RuntimeError(reason)

        return {"cublaslt": missing}
    return {f"cublaslt/{i}": problem.call(h, operands) for i, h in enumerate(problem.heuristics)}


class _Problem:
    """One product: its descriptors, the heuristics for it, and a workspace that its calls share."""

    def __init__(self, product: Product) -> None:
        import cupy
        from cuda import pathfinder

        self._library = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublasLt").abs_path)
        self._handle = self._made("cublasLtCreate")
        self._product = self._made("cublasLtMatmulDescCreate", _COMPUTE_32F, _TYPES["float32"])
        a_columns, b_columns = (order == "c" for order in product.layout)
        for attribute, transposed in ((_TRANSA, b_columns), (_TRANSB, a_columns)):
            self._set("cublasLtMatmulDescSetAttribute", self._product, attribute, ctypes.c_int32(transposed))
        m, n, k = product.m, product.n, product.k
        self._b = self._matrix(product.dtype, *((k, n) if b_columns else (n, k)))
        self._a = self._matrix(product.dtype, *((m, k) if a_columns else (k, m)))
        self._out = self._matrix(product.result, n, m)
        self.heuristics = self._ranked()
        self._workspace = cupy.empty(max(int(h.workspace) for h in self.heuristics) + 16, "uint8")

    @staticmethod
    @lru_cache(maxsize=1)
    def of(product: Product) -> _Problem:
        """The problem that the operand sets of one row share."""
        return _Problem(product)

    def call(self, heuristic: _Heuristic, operands: Operands) -> Call:
        """The product by one heuristic, on CuPy's current stream."""
        import cupy

        one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
        b, a, out = (ctypes.c_void_p(operands[name].data.ptr) for name in ("b", "a", "out"))
        algorithm, workspace_bytes = ctypes.byref(heuristic.algorithm), _size(heuristic.workspace)
        scratch, current = ctypes.c_void_p(self._workspace.data.ptr), cupy.cuda.get_current_stream

        def launch() -> None:
            self._ask(
                "cublasLtMatmul", self._handle, self._product, one, b, self._b, a, self._a, zero, out, self._out, out,
                self._out, algorithm, scratch, workspace_bytes, ctypes.c_void_p(current().ptr),
            )  # fmt: skip

        return launch

    def _ranked(self) -> list[_Heuristic]:
        preference = self._made("cublasLtMatmulPreferenceCreate")
        self._set("cublasLtMatmulPreferenceSetAttribute", preference, _MAX_WORKSPACE, ctypes.c_uint64(WORKSPACE))
        found, count = (_Heuristic * HEURISTICS)(), ctypes.c_int()
        self._ask(
            "cublasLtMatmulAlgoGetHeuristic", self._handle, self._product, self._b, self._a, self._out, self._out,
            preference, HEURISTICS, found, ctypes.byref(count),
        )  # fmt: skip
        return [h for h in found[: count.value] if h.state == 0]

    def _matrix(self, dtype: str, rows: int, columns: int) -> ctypes.c_void_p:
        extents = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)
        return self._made("cublasLtMatrixLayoutCreate", _TYPES[dtype], *extents)

    def _made(self, function: str, *arguments: Any) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._ask(function, ctypes.byref(made), *arguments)
        return made

    def _set(self, function: str, where: ctypes.c_void_p, attribute: int, value: Any) -> None:
        self._ask(function, where, attribute, ctypes.byref(value), _size(ctypes.sizeof(value)))

    def _ask(self, function: str, *arguments: Any) -> None:
        if status := getattr(self._library, function)(*arguments):
            raise RuntimeError(f"{function} answered {status}")
