"""The gradients of norms over channels, from x, the statistics that the forward op saved, and the gradient of its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Descriptor, Layout, Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Run, Scratch, Step
from ....types import DeviceSpec, ElementKind, InvalidProblemError, OpCategory, PrecisionGuarantee
from ..._function import CallArgs, function_of
from ..._launch import grid_of, index_scalar
from ..._rows import FLOATS, WARP, RowConfig, clustered, computed_in, row_cost, share
from .. import _guarantee
from .._problem import Part
from . import oracle, samples
from ._problem import ChannelNormed, ChannelRows, channel_rows

__all__ = [
    "SLOTS", "GroupNormBackwardDescriptor", "GroupNormBackwardPlan", "RowsGroupNormBackward", "batch_norm_backward",
    "gradients_asked", "group_norm_backward",
]  # fmt: skip

FILE, KERNEL = "norm/channels_backward.cu", "norm_channels_backward"
SUMS = "reduce/stripes.cu"
FIXED = 4  # bit of the kernel's WITH
LANES = 512  # threads that share a channel at most
ADDERS = 32  # warps that add stripes up


SLOTS = (
    Slot("grad_x", "out", takes=FLOATS),
    Slot("grad_weight", "out", optional=True, shape="channel_shape", strided=False),
    Slot("grad_bias", "out", optional=True, shape="channel_shape", strided=False),
    Slot("grad", takes=FLOATS),
    Slot("x", takes=FLOATS),
    Slot("weight", optional=True, takes=FLOATS, shape="channel_shape"),
)


@described(
    *SLOTS,
    Slot("mean", shape="row_shape", element="mean_element"),
    Slot("rstd", shape="row_shape", element="rstd_element"),
)
class GroupNormBackwardDescriptor(ChannelNormed):
    """The gradient of group_norm and instance_norm, or of batch_norm. With a weight there are grad_weight and grad_bias;
    `grad_bias_element` asks for that without a weight."""

    shape: tuple[int, ...]
    element: ElementKind
    num_groups: int | None = None
    name: str = "group_norm_backward"
    mean_element: ElementKind | None = None
    rstd_element: ElementKind | None = None

    suffix: ClassVar[str] = "_backward"
    names: ClassVar[tuple[str, ...]] = ("group_norm_backward", "batch_norm_backward")
    flagged = ("grad_weight", "grad_bias")
    statistics: ClassVar[tuple[str, str]] = ("mean", "rstd")

    @classmethod
    def of(
        cls, grad: Any, x: Any, weight: Any = None, mean: Any = None, rstd: Any = None, grad_x: Any = None,
        grad_weight: Any = None, grad_bias: Any = None, *, needs: Sequence[str] = (), name: str = "group_norm_backward",
    ) -> GroupNormBackwardDescriptor:  # fmt: skip
        """The descriptor of arrays of any layout; the statistics have an axis of groups."""
        return cls._read(
            name, needs, grad=grad, x=x, weight=weight, mean=mean, rstd=rstd, grad_x=grad_x, grad_weight=grad_weight,
            grad_bias=grad_bias,
        )  # fmt: skip

    @classmethod
    def _read(
        cls, name: str, needs: Sequence[str], options: Mapping[str, Any] = MappingProxyType({}), **operands: Any
    ) -> Self:
        """Of all operands that a call may have."""
        tensors, options = cls.taken(name, operands), dict(options)
        groups = tensors["mean"].shape[1:2] if name == "group_norm_backward" else ()
        options |= {"num_groups": groups[0]} if groups else {}
        if needs and "weight" not in tensors and "grad_bias" not in tensors:
            options["grad_bias_element"] = tensors["x"].element
        return cls.of_tensors(tensors, name=name, **options)

    def parts(self) -> Mapping[str, Part]:
        given, weight = self.kind("weight") is not None, self.kind("weight") or self.element
        return {
            **{name: Part(self.computed, True) for name in self.statistics},
            "weight": Part(weight if weight is self.computed else self.element), "grad_weight": Part(weight, given),
            "grad_bias": Part(weight, given or None),
        }  # fmt: skip

    @property
    def fixed(self) -> bool:
        """Whether the statistics do not depend on x."""
        return "var" in self.statistics

    def in_place(self, written: str, read: str) -> bool:
        """grad_x may be grad or x itself."""
        return written == "grad_x" and read in ("grad", "x")

    def layout(self, name: str) -> Layout:
        """Of an operand; of "partial" that of a number per channel, which is no operand: its part of the weights' gradients."""
        return Layout((), (), self.computed) if name == "partial" else super().layout(name)

    def rows(self, ctas: int = 1) -> ChannelRows:
        """A row per item and channel, in C order, which is that of the scratch [N, ctas, gradients, C]."""
        steps = (ctas * max(self.flags.bit_count(), 1) * self.channels, self.per_group, 1)
        return channel_rows(self, ("grad_x", "grad", "x", *self.statistics, "weight"), 3, steps)


class RowsGroupNormBackward(Candidate[GroupNormBackwardDescriptor]):
    """A CTA, or a cluster of them, per item and group, a group of threads per channel; a second kernel adds up the channels'
    sums over items. Moves grad, x and grad_x once where the channels of a group stay in registers; else grad and x are read
    again, from L2 where that holds the rows in flight."""

    variant = "rows"
    launches = (f"{FILE}:{KERNEL}", f"{FILE}:{KERNEL}_cluster", f"{SUMS}:sum_stripes")

    def configs(self, desc: GroupNormBackwardDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        """A warp per channel at most, until a thread has 64 bytes of an operand (32 of accesses of less than 16)."""
        vector = desc.rows().vector(desc.element)
        vectors = max(1, -(-desc.positions // vector))
        deep = 4 if vector * desc.element.bits == 128 else 8
        lanes = min(max(min(share(vectors), WARP), share(-(-vectors // deep))), LANES)
        config = RowConfig(vector, min(deep, -(-vectors // lanes)), lanes)
        if vectors <= config.items * lanes and desc.per_group <= config.rows:
            yield replace(config, resident=True)
            return
        split = clustered(config, desc.length, desc.element, device)
        yield split if vectors >= WARP * split.ctas else config

    def guarantee(self, desc: GroupNormBackwardDescriptor, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        """A term goes through the additions of its channel, those of channels, groups of threads and CTAs, and those of items."""
        own = config.depth(desc.positions)
        row = own + -(-desc.per_group // config.rows) + 5 + config.threads // WARP + config.ctas
        return _guarantee.backward(desc, RowConfig(1, row, 1, True), self.down(desc, config))

    def down(self, desc: GroupNormBackwardDescriptor, config: RowConfig) -> int:
        """Additions that a term of a sum over items and positions goes through."""
        return config.depth(desc.positions) + -(-desc.items * config.ctas // ADDERS) + ADDERS

    def cost(self, desc: GroupNormBackwardDescriptor, device: DeviceSpec, config: RowConfig) -> Cost:
        return row_cost(device, desc.rows(), desc.nbytes, config, desc.element, instructions=20.0)

    def lower(self, desc: GroupNormBackwardDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        rows, computed, parts = desc.rows(config.ctas), computed_in(desc.element), desc.flags.bit_count()
        eps: Arg = Run("eps", computed.numpy) if desc.fixed else np.dtype(computed.numpy).type(0)
        held = (desc.kind("weight") or desc.element).number
        items, stripes, index = desc.items * desc.groups, desc.items * config.ctas, rows.index
        partial: Arg = Packed(bytes(8))
        if parts:
            partial = Scratch(0, max(1, stripes * parts * desc.channels) * computed.element.bits // 8)
        flags = desc.flags + FIXED * desc.fixed
        entry = config.entry(KERNEL, f"{desc.element.number}, {held}, {computed.cuda}", rows.template, str(flags))
        counts = (index_scalar(n, index) for n in (items, desc.per_group, desc.channels, desc.positions))
        args = (*counts, eps, rows.places(), partial, *rows.pointers()[1:])
        along = Launch(Kernel(FILE, entry), (max(1, items) * config.ctas, 1, 1), (config.threads, 1, 1), args)
        if not parts:
            return (along,)
        outs = [Ptr(name) for name in desc.flagged if desc.has(name)]
        adder = Kernel(SUMS, f"sum_stripes<{computed.cuda}, {held}, {ADDERS}, {index}>")
        sums = (np.uint32(stripes), index_scalar(desc.channels, index), partial, outs[0], outs[-1])
        across = grid_of(desc.channels, WARP)[0]
        return along, Launch(adder, (across, parts, 1), (WARP * ADDERS, 1, 1), sums, pdl=True)


class GroupNormBackwardPlan(Plan[GroupNormBackwardDescriptor]):
    """The gradient of a norm over groups of channels: operands `grad`, `x`, `mean`, `rstd`, `grad_x`, and as the problem has them
    `weight`, `grad_weight`, `grad_bias`."""

    descriptor = GroupNormBackwardDescriptor
    category = OpCategory.NORM
    candidates = (RowsGroupNormBackward(),)
    measures = oracle.BACKWARD_MEASURES
    probes = (
        *({"shape": (2, 8, n), "element": e, "num_groups": 2, "weight_element": e}
          for e in ("f32", "bf16", "f64") for n in (49, 1024, 50264)),
        {"shape": (2, 8, 64), "element": "f16", "num_groups": 8, "weight_element": "f32"},
        {"shape": (2, 8, 64), "element": "f32", "num_groups": 4},
        {"shape": (2, 8, 64), "element": "bf16", "name": "batch_norm_backward", "weight_element": "f32"},
    )  # fmt: skip
    reference = oracle.backward

    @staticmethod
    def reference_guarantee(desc: GroupNormBackwardDescriptor) -> PrecisionGuarantee:
        return oracle.guarantee(desc, _guarantee.backward(desc, RowConfig(1, 1, 1, True), 1))


def gradients_asked(
    name: str,
    needs: Sequence[str],
    operands: Mapping[str, Any],
    of: Callable[..., Descriptor],
    values: Mapping[str, float] | None = None,
) -> CallArgs:
    """What a function asks for: the operands that are given, and the gradients that are always there."""
    needs = (needs,) if isinstance(needs, str) else tuple(needs)
    if any(one != "bias" for one in needs):
        raise InvalidProblemError(f"{name}: needs={needs!r}", "name 'bias', or leave it out")
    sums = {"grad_weight", "grad_bias"} if operands["weight"] is not None else {f"grad_{one}" for one in needs}
    made = {"grad_x", "grad", "x"} | sums
    given = {operand: array for operand, array in operands.items() if array is not None or operand in made}

    def describe() -> Descriptor:
        return of(**given, needs=needs, name=name)

    return given, describe, (name, needs, tuple(given)), values, None


def _published(name: str, doc: str) -> Callable[..., Any]:
    """The gradient of a norm by the statistics that it saved, which is registered."""

    def body(
        grad: Any, x: Any, weight: Any = None, mean: Any = None, rstd: Any = None, *, needs: Sequence[str] = (),
        grad_x: Any = None, grad_weight: Any = None, grad_bias: Any = None,
    ) -> CallArgs:  # fmt: skip
        operands = {
            "grad_x": grad_x, "grad_weight": grad_weight, "grad_bias": grad_bias, "grad": grad, "x": x, "weight": weight,
            "mean": mean, "rstd": rstd,
        }  # fmt: skip
        return gradients_asked(name, needs, operands, GroupNormBackwardDescriptor.of)

    function = function_of(GroupNormBackwardPlan, called=name, doc=doc)(body)
    register(Op(name, GroupNormBackwardPlan, function, samples.backward, {"name": name}))
    return function


group_norm_backward = _published(
    "group_norm_backward",
    """The gradients of `group_norm` and `instance_norm` with respect to x, weight and bias.

    grad, x: [N, C, *], of one dtype (f16, bf16, f32, f64), any strides; fastest where positions are contiguous. weight: [C] or
    None. mean, rstd: [N, groups], f32 (f64 for f64), of the forward op. needs: "bias" asks for grad_bias without a weight.
    Returns the named tuple (grad_x, grad_weight, grad_bias), or grad_x alone where weight is None and no grad_bias is asked for;
    each is allocated if not given, and grad_x may be grad or x. Sums go in a fixed order, which the shape decides.
    """,
)
batch_norm_backward = _published(
    "batch_norm_backward",
    """The gradients of `batch_norm` with respect to x, weight and bias.

    As `group_norm_backward`; mean, rstd: [C].
    """,
)
