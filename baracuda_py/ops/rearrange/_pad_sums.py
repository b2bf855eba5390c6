"""sums: the gradient of padding by the source's own elements, sums over their places (kernels/rearrange/pad_sums.cu)."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ...numerics.guarantee import widely
from ...plan.candidate import OK, Candidate, Cost, Feasibility, exact_results, no
from ...runtime.steps import Kernel, Launch, Packed, Ptr, Step
from ...types import Componentwise, DeviceSpec, PrecisionGuarantee, Term
from .._launch import THREADS, divisor, grid_of, index_scalar, index_type
from .._rows import computed_in

__all__ = ["PadSums", "summed_widely"]

SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, section 4.2"
WARP = 32
# Thread instructions, estimated from the source: of an axis of an element, and of a term; the latency of a term's load.
AXIS_INSTRUCTIONS, TERM_INSTRUCTIONS, TERM_LATENCY_S = 45, 30, 4e-7


@dataclass(frozen=True)
class PaddedAxis:
    """An axis of `extent` elements, `before` and `after` which the source is continued as `mode` says ("": not at all). `stride`
    is the padded array's, in elements."""

    extent: int
    before: int
    after: int
    mode: str
    stride: int

    @property
    def padded(self) -> int:
        return self.extent + self.before + self.after

    @property
    def period(self) -> int:
        """The places from an element to the next of the same value; 1 for an edge, which has none."""
        of = {"reflect": 2 * self.extent - 2, "symmetric": 2 * self.extent, "edge": 1}.get(self.mode, self.extent)
        return max(of, 1)

    @property
    def mirror(self) -> int:
        """The sum of the places of an element and of its mirror image; 0 where there is none."""
        return max({"reflect": 2 * self.extent - 2, "symmetric": 2 * self.extent - 1}.get(self.mode, 0), 0)

    @property
    def most_terms(self) -> int:
        """An upper bound of the places that hold one element."""
        if self.mode == "edge":
            return self.padded if self.extent == 1 else 1 + max(self.before, self.after)
        turns, rest = divmod(self.padded, self.period)
        each = 2 if self.mirror else 1
        return min(turns * each + min(rest, each), self.padded)

    def pack(self, width: int, index: str) -> bytes:
        """PaddedAxis<index>, of elements of `width` bytes."""
        edge = self.mode == "edge"
        before = self.before if edge else self.before % self.period
        numbers = struct.pack("<4I" if index == "u32" else "<4Q", before, self.padded, self.mirror, edge)
        divisors = b"".join(divisor(n, index).data for n in (self.extent, self.period))
        return divisors + numbers + struct.pack("<q", self.stride * width)


def _axes_of(desc: Any) -> tuple[PaddedAxis, ...]:
    """The axes of the gradient, at least one; neighbours without padding that are contiguous are one."""
    found: list[PaddedAxis] = []
    for n, (before, after), stride in zip(desc.out_shape, desc.pairs, desc.layout("x").strides):
        axis = PaddedAxis(n, -before, -after, desc.continued if before or after else "", stride)
        outer = found[-1] if found else axis
        if axis.mode == "" and n == 1:
            continue
        if found and not axis.mode and not outer.mode and outer.stride == stride * n:
            found[-1] = PaddedAxis(outer.extent * n, 0, 0, "", stride)
        else:
            found.append(axis)
    return tuple(found) or (PaddedAxis(1, 0, 0, "", 0),)


class PadSums(Candidate[Any]):
    """One launch: a thread per element, or a warp where elements have many terms."""

    variant = "sums"
    launches = ("rearrange/pad_sums.cu:pad_sums",)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        return OK if desc.sums else no("every element has one source: there is nothing to add up", "variant 'gather'")

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[int]:
        return (1, WARP)

    def cost(self, desc: Any, device: DeviceSpec, config: int) -> Cost:
        axes, count = _axes_of(desc), math.prod(desc.out_shape)
        instructions = count * config * AXIS_INSTRUCTIONS * len(axes) + math.prod(desc.shape) * TERM_INSTRUCTIONS * len(
            axes
        )
        cost = Cost.streaming(device, desc.nbytes, instructions=instructions)
        turns = -(-_most_terms(axes) // config)
        return replace(cost, seconds=cost.seconds + (turns - 1) * TERM_LATENCY_S)

    def guarantee(self, desc: Any, device: DeviceSpec, config: int) -> PrecisionGuarantee:
        most = _most_terms(_axes_of(desc))
        return _promised(desc, most if config == 1 else -(-most // config) + config.bit_length() - 1)

    def lower(self, desc: Any, device: DeviceSpec, config: int) -> tuple[Step, ...]:
        axes, count, width = _axes_of(desc), math.prod(desc.out_shape), desc.element.bits // 8
        index = index_type(max(math.prod(desc.shape), *(axis.padded + 2 * axis.period for axis in axes)))
        table = Packed(b"".join(axis.pack(width, index) for axis in axes), 8)
        entry = f"pad_sums<{desc.element.number}, {computed_in(desc.element).cuda}, {index}, {len(axes)}, {config}>"
        args = (Ptr("out"), Ptr("x"), index_scalar(count, index), table)
        return (
            Launch(Kernel("rearrange/pad_sums.cu", entry), grid_of(count, THREADS // config), (THREADS, 1, 1), args),
        )


def _most_terms(axes: Iterable[PaddedAxis]) -> int:
    return math.prod(max(axis.most_terms, 1) for axis in axes)


def _promised(desc: Any, additions: int) -> PrecisionGuarantee:
    computed = computed_in(desc.element)
    bound = Componentwise.rounded(
        (Term(float(additions), computed.element, "abs_sum"),), desc.element, SOURCE, "overflowing"
    )
    return PrecisionGuarantee.fixed_order(computed.math, computed.element, bound)


def summed_widely(desc: Any) -> PrecisionGuarantee:
    """What the oracle promises."""
    return widely(_promised(desc, 1), desc, _most_terms(_axes_of(desc))) if desc.sums else exact_results(desc)
