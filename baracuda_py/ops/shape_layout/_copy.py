"""The base of copy candidates, and those that the driver runs: device memcpys of one run, or of rows at a pitch."""

from __future__ import annotations

from typing import Any, Protocol

from ...plan.candidate import OK, Candidate, Change, Cost, Feasibility, no
from ...runtime.steps import Copy, Copy2D, Ptr, Step
from ...types import BackendKind, DeviceSpec
from ._copy_cost import BandwidthCosts
from ._walks import CopyProblem

__all__ = ["ContiguousChunk", "CopyCandidate", "HasCopy", "Pitched", "WholeDest", "in_order"]


class HasCopy(Protocol):
    """A descriptor that is a strided copy."""

    def copy(self) -> CopyProblem: ...


class CopyCandidate(Candidate[Any]):
    def supports(self, desc: HasCopy, device: DeviceSpec) -> Feasibility:
        copy = desc.copy()
        if getattr(desc, "dynamic_axis", None) is not None:
            return no("takes its start from the host", change=Change({"dynamic_axis": None}))
        if not copy.bytewise:
            return no("the window cuts through bytes")
        return self.fits(copy, desc)

    def fits(self, copy: CopyProblem, desc: Any) -> Feasibility:
        raise NotImplementedError

    def cost(self, desc: HasCopy, device: DeviceSpec, config: Any) -> Cost:
        copy = desc.copy()
        return Cost.streaming(
            device, 2 * copy.nbytes, efficiency=self.efficiency(copy, config, BandwidthCosts.of(device))
        )

    def efficiency(self, copy: CopyProblem, config: Any, costs: BandwidthCosts) -> float:
        raise NotImplementedError


def in_order(copy: CopyProblem) -> tuple[str, Change]:
    """A fix that puts both sides of a copy into C order (a fresh `out` is already)."""
    names = [name for name in (copy.dest, copy.source) if name != "out"]
    return f"contiguous {' and '.join(names)}", Change({f"{name}_strides": None for name in names})


class ContiguousChunk(CopyCandidate):
    """One run on both sides: one device memcpy."""

    variant = "contiguous_chunk"
    unaligned = True
    backend = BackendKind.MEMCPY

    def fits(self, copy: CopyProblem, desc: Any) -> Feasibility:
        if copy.run != copy.nbytes:
            return no(f"contiguous runs are {copy.run or copy.width} of {copy.nbytes} bytes", *in_order(copy))
        return OK

    def efficiency(self, copy: CopyProblem, config: Any, costs: BandwidthCosts) -> float:
        return 1.0

    def lower(self, desc: HasCopy, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        copy = desc.copy()
        return (Copy(Ptr(copy.dest), Ptr(copy.source), copy.nbytes),)


class WholeDest(ContiguousChunk):
    """The whole destination from one run: one device memcpy."""

    variant = "whole_dest"

    def fits(self, copy: CopyProblem, desc: Any) -> Feasibility:
        if not desc.covers_dest:
            return no("the window is not the whole destination")
        return super().fits(copy, desc)


class Pitched(CopyCandidate):
    """Runs at one pitch on each side: a 2-D device memcpy."""

    variant = "pitched"
    unaligned = True
    backend = BackendKind.MEMCPY

    def fits(self, copy: CopyProblem, desc: Any) -> Feasibility:
        extents, dest, source = copy.outer
        if not copy.run or len(extents) != 1:
            return no(f"the window collapses to {len(copy.collapsed[0])} axes, not to rows of contiguous bytes")
        if dest[0] < copy.run or source[0] < copy.run:
            return no("rows overlap, repeat or run backwards")
        return OK

    def efficiency(self, copy: CopyProblem, config: Any, costs: BandwidthCosts) -> float:
        return costs.pitched_efficiency * min(1.0, copy.run / costs.pitched_run_bytes)

    def lower(self, desc: HasCopy, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        copy = desc.copy()
        (rows,), (dest,), (source,) = copy.outer
        return (Copy2D(Ptr(copy.dest), dest, Ptr(copy.source), source, copy.run, rows),)
