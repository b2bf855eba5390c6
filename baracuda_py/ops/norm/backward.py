"""The gradients of rms_norm and layer_norm, from x, the statistics that the forward op saved, and the gradient of its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...plan.candidate import OK, Candidate, Cost, Feasibility
from ...plan.descriptor import Slot, described, integers
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...reference import norm as oracle
from ...runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Scratch, Step
from ...samples import norm as samples
from ...types import DeviceSpec, ElementKind, InvalidProblemError, OpCategory, PrecisionGuarantee
from .._function import Asked, function_of
from .._launch import grid_of, index_scalar
from .._rows import FLOATS, RowConfig, Rows, computed_in, row_cost, share
from . import _guarantee
from ._problem import TABLE, Normed

__all__ = ["NormBackwardDescriptor", "NormBackwardPlan", "layer_norm_backward", "rms_norm_backward"]


@described(
    Slot("grad_x", "out", takes=FLOATS),
    Slot("grad_weight", "out", optional=True, shape="normalized_shape", strided=False),
    Slot("grad_bias", "out", optional=True, shape="normalized_shape", strided=False),
    Slot("grad", takes=FLOATS),
    Slot("x", takes=FLOATS),
    Slot("weight", optional=True, takes=FLOATS, shape="normalized_shape"),
    Slot("mean", optional=True, shape="row_shape"),
    Slot("rstd", shape="row_shape", element="rstd_element"),
)
class NormBackwardDescriptor(Normed):
    """The gradient of `name` without its ``_backward``. With a weight there is a grad_weight, and of layer_norm a grad_bias;
    `grad_bias_element` asks for that without a weight."""

    shape: tuple[int, ...]
    element: ElementKind
    normalized_shape: tuple[int, ...] | None = None
    name: str = "rms_norm_backward"
    rstd_element: ElementKind | None = None

    def __post_init__(self) -> None:
        self._names_op(tuple(f"{name}_backward" for name in TABLE), "name")
        super().__post_init__()
        self.has_also("rstd", computed_in(self.element).element)
        if self.centered:
            self.has_also("mean", computed_in(self.element).element)
        weight = self.kind("weight")
        if weight is not None:
            self.has_also("grad_weight", weight)
            if self.centered:
                self.has_also("grad_bias", weight)

    def check(self) -> None:
        super().check()
        computed, weight = computed_in(self.element).element, self.kind("weight")
        for name in ("mean", "rstd"):
            self.holds(name, computed)
        if weight not in (None, self.element, computed):
            self.holds("weight", self.element)
        for name, there in (("grad_weight", weight is not None), ("grad_bias", self.centered)):
            self.holds(name, weight or self.element)
            if self.kind(name) is not None and not there:
                raise InvalidProblemError(f"{self.op}: there is no {name}", "leave it out")
        if self.kind("mean") is not None and not self.centered:
            raise InvalidProblemError(f"{self.op}: it takes no mean", "leave it out")

    def in_place(self, written: str, read: str) -> bool:
        """grad_x may be grad or x itself."""
        return written == "grad_x" and read in ("grad", "x")

    @property
    def flags(self) -> int:
        """The kernels' WITH."""
        return self.has("grad_weight") + 2 * self.has("grad_bias")


KERNEL = "norm/backward.cu"
LANES = 512  # threads that share a row at most
DOWN = 8  # warps that go down columns side by side
ADDERS = 32  # warps that add stripes up
STAGES = 4  # rows in shared memory at most


class RowsNormBackward(Candidate[NormBackwardDescriptor]):
    """Persistent CTAs, each a stripe of rows, whose sums over rows a second kernel adds up in order. Rows too long for registers
    are streamed, and columns gone down in a kernel of their own."""

    variant = "rows"
    launches = (f"{KERNEL}:norm_backward", f"{KERNEL}:norm_weight_backward", f"{KERNEL}:sum_stripes")

    def supports(self, desc: NormBackwardDescriptor, device: DeviceSpec) -> Feasibility:
        return OK

    def configs(self, desc: NormBackwardDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        return _configs(desc.length, _problem(desc).vector(desc.element), desc.element)

    def guarantee(self, desc: NormBackwardDescriptor, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        return _guarantee.backward(desc, config, _down(desc, device, config))

    def cost(self, desc: NormBackwardDescriptor, device: DeviceSpec, config: RowConfig) -> Cost:
        rows = _problem(desc)
        nbytes = desc.nbytes if config.resident or not desc.flags else desc.nbytes * 5 // 3
        return row_cost(device, rows, nbytes, config, desc.element, instructions=20.0)

    def lower(self, desc: NormBackwardDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        rows, computed = _problem(desc), computed_in(desc.element)
        stripes, parts = _stripes(desc, device, config), desc.flags.bit_count()
        weight = (desc.kind("weight") or desc.kind("grad_bias") or desc.element).number
        centered, index = str(desc.centered).lower(), rows.index
        count, length = index_scalar(rows.count, index), index_scalar(rows.length, index)
        partial: Arg = (
            Scratch(0, max(1, stripes * parts * rows.length) * computed.element.bits // 8)
            if parts
            else Packed(bytes(8))
        )
        grad_x, *read = rows.pointers()
        entry = (
            f"norm_backward<{desc.element.number}, {weight}, {computed.cuda}, {config.template}, {_ctas(config)}, "
            f"{_stages(desc, device, config)}, {rows.template}, {centered}, {desc.flags}>"
        )
        shared = _stages(desc, device, config) * _row_bytes(desc, config) if config.resident else 0
        grid = stripes if config.resident else -(-rows.count // config.rows)
        steps: list[Step] = [
            Launch(Kernel(KERNEL, entry), (grid, 1, 1), (config.threads, 1, 1),
                   (count, length, rows.places(), grad_x, partial, *read), shared)
        ]  # fmt: skip
        if parts and not config.resident:  # first, since grad_x may be what it reads
            vector = config.vector
            entry = (
                f"norm_weight_backward<{desc.element.number}, {computed.cuda}, {vector}, {DOWN}, {rows.template}, {centered}, "
                f"{desc.flags}>"
            )
            grid_columns = grid_of(rows.length, 32 * vector)[0]
            args = (count, length, index_scalar(-(-rows.count // stripes), index), rows.places(), partial, *read[:-1])
            steps.insert(0, Launch(Kernel(KERNEL, entry), (grid_columns, stripes, 1), (32 * DOWN, 1, 1), args))
        if parts:
            entry = f"sum_stripes<{computed.cuda}, {weight}, {ADDERS}, {index}>"
            outs = [Ptr(n) for n in ("grad_weight", "grad_bias") if desc.has(n)]
            args = (np.uint32(stripes), length, partial, outs[0], outs[-1])
            grid_sums = (grid_of(rows.length, 32)[0], parts, 1)
            steps.append(Launch(Kernel(KERNEL, entry), grid_sums, (32 * ADDERS, 1, 1), args, overlapped=True))
        return tuple(steps)


def _problem(desc: NormBackwardDescriptor) -> Rows:
    """Sums over rows are counted by column, as they lie in grad_weight: in C order."""
    return desc.rows("grad_x", "grad", "x", "mean", "rstd", "weight", ordered=bool(desc.flags))


def _configs(length: int, vector: int, element: ElementKind) -> Iterator[RowConfig]:
    """How a row may be shared out, the best known first: two vectors a thread up to 256 threads, then up to 64 bytes of an
    operand (in accesses of 2 bytes, 32), and what does not fit 512 threads is streamed."""
    access = vector * element.bits // 8
    deep = {16: 4, 8: 8}.get(access, 16)
    vectors = max(1, -(-length // vector))
    lanes = max(min(share(-(-vectors // 2)), LANES // 2), share(-(-vectors // deep)))
    for more in (lanes, 2 * lanes, 4 * lanes):  # fewer vectors a thread
        if more <= LANES and (more == lanes or (lanes >= 32 and vectors >= more)):
            yield RowConfig(vector, -(-vectors // more), more, True)
    if lanes > 32:
        yield RowConfig(vector, deep, LANES)


def _row_bytes(desc: NormBackwardDescriptor, config: RowConfig) -> int:
    """Bytes of a CTA's share of x and grad; its sums over rows take no more."""
    return 2 * config.threads * config.items * config.vector * desc.element.bits // 8


def _ctas(config: RowConfig) -> int:
    """CTAs an SM that registers leave room for."""
    return max(1, (768 if config.items <= 2 else 512) // config.threads)


def _stages(desc: NormBackwardDescriptor, device: DeviceSpec, config: RowConfig) -> int:
    """Rows of x and grad that a group has in shared memory."""
    narrow = config.vector * desc.element.bits < 32  # which cp.async cannot bring
    fit = (device.shared_bytes // _ctas(config) - 2048) // _row_bytes(desc, config)
    return 1 if narrow else max(1, min(STAGES, fit))


def _stripes(desc: NormBackwardDescriptor, device: DeviceSpec, config: RowConfig) -> int:
    """Stripes of rows: as many CTAs as run at once; down columns, as many as keep the device busy, of 32 rows at least."""
    count = _problem(desc).count
    if config.resident:
        return max(1, min(-(-count // config.rows), device.sms * _ctas(config)))
    across = -(-desc.length // (32 * config.vector))
    return max(1, min(-(-count // 32), -(-device.sms * 8 // across), 65535))


def _down(desc: NormBackwardDescriptor, device: DeviceSpec, config: RowConfig) -> int:
    """Additions that a term of a sum over rows goes through at most."""
    count, stripes = _problem(desc).count, _stripes(desc, device, config)
    side = config.rows if config.resident else DOWN
    return -(-count // (stripes * side)) + side + -(-stripes // ADDERS) + ADDERS


class NormBackwardPlan(Plan[NormBackwardDescriptor]):
    """A norm's gradient: operands `grad`, `x`, `rstd`, `grad_x`, and as the problem has them `weight`, `mean`, `grad_weight`,
    `grad_bias`."""

    descriptor = NormBackwardDescriptor
    category = OpCategory.NORM
    candidates = (RowsNormBackward(),)
    measures = oracle.BACKWARD_MEASURES
    probes = (
        *(
            {"shape": (300, n), "element": e, "weight_element": e}
            for e in ("f32", "bf16", "f64")
            for n in (100, 4096, 50257)
        ),
        {"shape": (40, 8192), "element": "f16", "weight_element": "f32"},
        {"shape": (6, 40), "element": "f32", "x_strides": (1, 6)},
    )

    @classmethod
    def reference(cls, desc: NormBackwardDescriptor, **arrays: Any) -> Any:
        return oracle.backward(desc, **arrays)

    @classmethod
    def reference_guarantee(cls, desc: NormBackwardDescriptor) -> PrecisionGuarantee:
        return oracle.guarantee(_guarantee.backward(desc, RowConfig(1, 1, 1, True), 1))


def _asked(name: str, operands: dict[str, Any], normalized_shape: Sequence[int] | None) -> Asked:
    """What a gradient's function asks for."""
    axes = None if normalized_shape is None else integers(normalized_shape, f"{name}: normalized_shape")
    made = {"grad_x", "grad", "x", "mean", "rstd"} | (
        {"grad_weight", "grad_bias"} if operands["weight"] is not None else set()
    )
    given = {n: x for n, x in operands.items() if x is not None or n in made}

    def describe() -> NormBackwardDescriptor:
        options: dict[str, Any] = {} if axes is None else {"normalized_shape": axes}
        return NormBackwardDescriptor.of_tensors(NormBackwardDescriptor.taken(name, given), name=name, **options)

    return given, describe, (name, axes, tuple(given)), None, None


@function_of(NormBackwardPlan)
def rms_norm_backward(
    grad: Any, x: Any, weight: Any = None, rstd: Any = None, *, normalized_shape: Sequence[int] | None = None, grad_x: Any = None,
    grad_weight: Any = None,
) -> Asked:  # fmt: skip
    """The gradients of `rms_norm` with respect to x (or the residual, which has the same) and weight.

    grad, x: [..., *normalized_shape], of one dtype (f16, bf16, f32, f64), any strides; x is what was normalised, with a
    residual the forward op's `residual_out`. weight: [*normalized_shape] or None. rstd: [...], f32 (f64 for f64), of the
    forward op.
    Returns the named tuple (grad_x, grad_weight), or grad_x alone where weight is None; each is allocated if not given, and
    grad_x may be grad or x. Sums over rows go in a fixed order, which the number of rows and of SMs decides.
    """
    operands = {"grad_x": grad_x, "grad_weight": grad_weight, "grad": grad, "x": x, "weight": weight, "rstd": rstd}
    return _asked("rms_norm_backward", operands, normalized_shape)


@function_of(NormBackwardPlan)
def layer_norm_backward(
    grad: Any, x: Any, weight: Any = None, mean: Any = None, rstd: Any = None, *, normalized_shape: Sequence[int] | None = None,
    grad_x: Any = None, grad_weight: Any = None, grad_bias: Any = None,
) -> Asked:  # fmt: skip
    """The gradients of `layer_norm` with respect to x, weight and bias.

    As `rms_norm_backward`. mean: like rstd. Returns the named tuple (grad_x, grad_weight, grad_bias), or grad_x alone where
    weight is None and no grad_bias is given.
    """
    operands = {
        "grad_x": grad_x, "grad_weight": grad_weight, "grad_bias": grad_bias, "grad": grad, "x": x, "weight": weight, "mean":
        mean, "rstd": rstd,
    }  # fmt: skip
    return _asked("layer_norm_backward", operands, normalized_shape)


for _name, _function in (("rms_norm_backward", rms_norm_backward), ("layer_norm_backward", layer_norm_backward)):
    register(Op(_name, NormBackwardPlan, _function, samples.norm_backward, {"name": _name}))
