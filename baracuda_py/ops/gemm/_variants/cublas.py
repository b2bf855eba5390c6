"""Variant `cublas`: NVIDIA's library, where it is installed and the problem is a plain product."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

from ....plan.candidate import OK, Candidate, Change, Cost, Feasibility, no
from ....runtime import cublas
from ....runtime.steps import Call, Scratch, Step
from ....runtime.system.toolchain import install_hint
from ....types import Activation, ArchSku, BackendKind, DeviceSpec, ElementKind, MathPrecision, PrecisionGuarantee
from ..._fitted import Fitted
from ...products.checks import cast, fixed, relaid
from ...products.gemm import ADDENDS, Gemm, Matrix
from ...products.guarantee import ROUNDED, TRUNCATED, guarantee_of

__all__ = ["Cublas", "Side", "blas_gemm", "side_of"]

_PLAIN = Change(
    {
        "activation": Activation.IDENTITY,
        "beta": 1.0,
        **{f"{n}_{what}": None for n in ADDENDS for what in ("shape", "element", "strides")},
    }
)
_LARGEST = 2**31 - 1  # extents and leading dimensions are ints
_HALVES = (ElementKind.F16, ElementKind.BF16)
# cuBLAS 12.8 to 13.1 loses the last K mod 64 products of some sums of 16-bit operands (facebookexperimental/triton#2767; of
# 387,827 random shapes on an H200, 231 by 13.1.0, none of them with K a multiple of 64). No release is known to be free of it.
_WHOLE_K = 64
_COMPUTE = {MathPrecision.TF32: cublas.COMPUTE_32F_TF32, MathPrecision.F64: cublas.COMPUTE_64F}
# What NVIDIA recommends (cuBLAS documentation, cublasSetWorkspace).
_WORKSPACE = {ArchSku.SM90A: 32 << 20, ArchSku.SM100A: 32 << 20, ArchSku.SM120: 12 << 20}
_SMALLEST_WORKSPACE = 4 << 20

# Tiles it has to choose from, each with the share of the largest one's rate that it reaches.
_TILES = ((128, 256, 1.0), (128, 128, 0.9), (64, 128, 0.75), (64, 64, 0.55))
_CHUNKS = (1, 2, 4, 8)  # parts that K may be split in
_SHORTEST_CHUNK = 512


class Costs(Fitted, table="gemm.cublas"):
    compute_efficiency: float
    unaligned_compute_efficiency: float
    unaligned_bandwidth_efficiency: float
    latency_s: float


class Side(NamedTuple):
    """One matrix as cuBLAS takes it: op N where its rows are contiguous, T where its columns are."""

    op: int
    leading: int


def side_of(matrix: Matrix, rows: int, cols: int) -> Side | None:
    """How a `rows` x `cols` matrix goes in, seen as the column-major matrix of its transpose; None where it cannot.

    A stride along an extent of 1 is never stepped, so it counts neither as contiguous nor as a pitch.
    """
    for op, unit, pitch, along, across in (
        (cublas.OP_N, matrix.col, matrix.row, cols, rows),
        (cublas.OP_T, matrix.row, matrix.col, rows, cols),
    ):
        if (along == 1 or unit == 1) and (across == 1 or pitch >= along):
            return Side(op, pitch if across > 1 else along)
    return None


def blas_gemm(gemm: Gemm, compute: int, workspace_bytes: int) -> cublas.Gemm | None:
    """The call that computes `gemm`, or None where a matrix has no unit stride or the batch more than one axis.

    Row-major out = A·B is column-major outᵀ = Bᵀ·Aᵀ: what cuBLAS calls A is our B, and its m our n.
    """
    if len(gemm.batch) > 1:
        return None
    for g in (gemm, gemm.swapped):  # a result of one row or column is both row-major and column-major
        a, b, out = side_of(g.a, g.m, g.k), side_of(g.b, g.k, g.n), side_of(g.out, g.m, g.n)
        if a is None or b is None or out is None or out.op != cublas.OP_N:
            continue
        steps = [x.batch[0] if x.batch else 0 for x in (g.b, g.a, g.out)]
        if min(steps) < 0 or (g.batches > 1 and not steps[2]):
            continue
        return cublas.Gemm(
            b.op, a.op, g.n, g.m, g.k, g.b.operand, b.leading, steps[0], g.a.operand, a.leading, steps[1],
            g.out.operand, out.leading, steps[2], g.batches, g.a.element, g.out.element, compute, workspace_bytes,
        )  # fmt: skip
    return None


class Cublas(Candidate[Any]):
    """``cublasGemmStridedBatchedEx`` on a handle of our own: no epilogue, every accumulation in f32 (f64 for f64)."""

    variant = "cublas"
    backend = BackendKind.CUBLAS

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (named := fixed(desc, self.variant)):
            return named
        if "cublas" not in device.libraries:
            beside = Change(device=device.chip.with_libraries(device.libraries | {"cublas"}))
            if device.emulated:
                return no("it is a library, and only kernels are emulated", "a GPU to run it on", beside)
            return no("cuBLAS is not installed, or the device was only named", install_hint("full"), beside)
        gemm = desc.gemm
        if gemm.a.element.bits == 8:
            return no("cublasGemmEx does not multiply fp8, and cublasLt is not bound", *cast(desc))
        if gemm.addends or desc.activation is not Activation.IDENTITY:
            return no("cuBLAS fuses no epilogue", "leave out c, bias, residual and activation", _PLAIN)
        wanted = gemm.out.element
        if wanted is not gemm.a.element and not (gemm.a.element in _HALVES and wanted is ElementKind.F32):
            own = gemm.a.element
            change = Change({"out_element": own, "out_align": None})
            return no(f"cuBLAS writes no product of {own} as {wanted}", f"out_dtype={str(own)!r}", change)
        if gemm.k < 1:
            return no("K is 0")
        if len(gemm.batch) > 1:
            reason = f"its batch {gemm.batch} is more than one axis apart"
            return no(reason, *relaid(desc, lambda moved: len(moved.gemm.batch) <= 1))
        call = blas_gemm(gemm, cublas.COMPUTE_32F, 0)
        if call is None:
            reason = "a matrix is contiguous along neither rows nor columns"
            return no(reason, *relaid(desc, lambda moved: blas_gemm(moved.gemm, cublas.COMPUTE_32F, 0) is not None))
        if max(call.m, call.n, call.k, call.lda, call.ldb, call.ldc, call.matrices) > _LARGEST:
            return no("an extent or pitch is 2**31 or more")
        if gemm.a.element in _HALVES and gemm.k % _WHOLE_K:
            return no(
                f"cuBLAS 12.8 to 13.1 was seen to lose the end of K where that is no multiple of {_WHOLE_K}, and K is {gemm.k}",
                f"pad K to {-(-gemm.k // _WHOLE_K) * _WHOLE_K} with zeros",
            )
        return OK

    def cost(self, desc: Any, device: DeviceSpec, config: Any) -> Cost:
        gemm, costs = desc.gemm, Costs.of(device)
        pitches = [x.row if x.col == 1 else x.col for x in (gemm.a, gemm.b, gemm.out)]
        aligned = desc.precision is MathPrecision.F32 or all(
            p * x.itemsize % 16 == 0 for p, x in zip(pitches, (gemm.a, gemm.b, gemm.out))
        )
        efficiency = costs.compute_efficiency if aligned else costs.unaligned_compute_efficiency
        rate = _rate(device, desc.precision) * efficiency
        times = {
            "compute": gemm.flops / (rate * _occupancy(gemm, device.sms)),
            "bandwidth": gemm.nbytes / (device.bandwidth * (1.0 if aligned else costs.unaligned_bandwidth_efficiency)),
        }
        limit = max(times, key=lambda name: times[name])
        return Cost(gemm.nbytes, gemm.flops, device.overhead + costs.latency_s + times[limit], limit)

    def floor(self, desc: Any, device: DeviceSpec) -> float:
        if "cublas" not in device.libraries:
            return math.inf
        gemm, costs = desc.gemm, Costs.of(device)
        compute = gemm.flops / (_rate(device, desc.precision) * costs.compute_efficiency)
        return float(device.overhead + costs.latency_s + max(compute, gemm.nbytes / device.bandwidth))

    def guarantee(self, desc: Any, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        exact_products = desc.precision in (MathPrecision.F32, MathPrecision.F64)
        each = ROUNDED if exact_products else TRUNCATED
        return guarantee_of(desc, desc.precision, desc.gemm.k, each=each, batch_invariant=False)

    def lower(self, desc: Any, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        workspace = _WORKSPACE.get(device.tier, _SMALLEST_WORKSPACE)
        call = blas_gemm(desc.gemm, _COMPUTE.get(desc.precision, cublas.COMPUTE_32F), workspace)
        assert call is not None  # otherwise `supports` refused it
        function = partial(cublas.gemm, call)
        return (Call("cublas", function, capturable=True, scratch=Scratch(0, workspace), load=cublas.prepare),)


def _occupancy(gemm: Gemm, sms: int) -> float:
    """The best tile's and split's share of the largest tile's rate, idle SMs of the last wave included."""
    best = 0.0
    for rows, cols, share in _TILES:
        for chunks in _CHUNKS:
            if chunks > 1 and gemm.k < chunks * _SHORTEST_CHUNK:
                continue
            tiles = -(-gemm.m // rows) * -(-gemm.n // cols) * gemm.batches
            waves = -(-tiles * chunks // sms)
            useful = gemm.m * gemm.n * gemm.batches / (rows * cols)
            best = max(best, share * useful * chunks / (max(waves, 1) * sms))
    return best or 1.0


def _rate(device: DeviceSpec, math: MathPrecision) -> float:
    """FLOP/s, from the nearest figure where the device has none for this precision."""
    rates = dict(device.rates)
    double = rates["f32"] / (1 if device.tier in (ArchSku.SM80, ArchSku.SM90A) else 64)
    return rates.get(
        math.value, {MathPrecision.TF32: rates["bf16"] / 2, MathPrecision.F64: double}.get(math, rates["f32"])
    )
