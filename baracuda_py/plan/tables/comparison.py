"""What differs between two plans, and one problem on several devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from ...runtime.gpu.device import spec_of
from ...types import BaracudaError, InvalidProblemError, PlanPreference
from ...types.units import bytes_text, time_text
from ..about.exactness import exactness
from ..descriptor import Descriptor
from ..registry import get_op
from ..selection import Selection, selected
from .table import Table

__all__ = ["Comparison", "Difference", "compare", "difference"]

DEVICES = ("a100", "h100", "h200", "l40s", "b200", "rtx4090", "rtx5090")


@dataclass(frozen=True)
class Change:
    """A fact that differs: its name, and what either plan has."""

    fact: str
    before: str
    after: str

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True, repr=False)
class Difference(Table):
    """The facts in which two plans differ; falsy where there is none."""

    title: str
    rows: tuple[Change, ...]
    head = ("fact", "", "")

    def cells(self, row: Change) -> tuple[str, ...]:
        return row.fact, "", f"{row.before or '-'}  ->  {row.after or '-'}"


def difference(mine: Selection, theirs: Selection) -> Difference:
    before, after = _facts(mine), _facts(theirs)
    names = dict.fromkeys([*before, *after])
    rows = [Change(n, before.get(n, ""), after.get(n, "")) for n in names if before.get(n) != after.get(n)]
    what = f"{mine.desc.op}: {mine.candidate.variant}  ->  {theirs.desc.op}: {theirs.candidate.variant}"
    return Difference(what if rows else f"{what}: no difference", tuple(rows))


def _facts(one: Selection) -> dict[str, str]:
    cost, guarantee = one.cost, one.guarantee
    found = {
        "variant": one.candidate.variant,
        "config": str(one.config),
        "back end": str(one.candidate.backend),
        "device": str(one.device),
        "predicted": time_text(cost.seconds),
        "limited by": cost.limit,
        "moves": bytes_text(cost.bytes),
        "FLOPs": f"{cost.flops:.4g}",
        "workspace": bytes_text(one.workspace_size),
        "math": str(guarantee.math_precision),
        "accumulator": str(guarantee.accumulator),
        "chosen by": one.provenance,
    }
    flags = ("deterministic", "bit_stable_on_same_hardware", "batch_invariant", "flushes_subnormals", "exact_weights")
    found |= {name: str(getattr(guarantee, name)) for name in flags}
    found |= {f"error of {name}": said for name, said in exactness(one).items()}
    for i, launch in enumerate(one.launches):
        found[f"launch {i}"] = (
            f"{launch.kernel.entry}, grid {launch.grid}, block {launch.block}, {bytes_text(launch.shared_bytes)} shared"
        )
    found |= {f"desc.{name}": str(value) for name, value in one.desc.to_dict().items() if value is not None}
    found |= {f"pref.{f.name}": str(getattr(one.pref, f.name)) for f in fields(one.pref)}
    return found


@dataclass(frozen=True)
class Served:
    """A problem on one device. `refused` says why nothing serves it there; the figures are then None."""

    device: str
    nominal: bool
    variant: str
    config: str
    microseconds: float | None
    limit: str
    bytes: int | None
    flops: int | None
    exactness: str
    refused: str

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True, repr=False)
class Comparison(Table):
    """One problem on several devices."""

    title: str
    rows: tuple[Served, ...]
    head = ("device", "time", "limited by", "variant")

    def cells(self, row: Served) -> tuple[str, ...]:
        if row.microseconds is None:
            return row.device, "", "", row.refused
        name = row.device + (" (nominal)" if row.nominal else "")
        return name, time_text(row.microseconds * 1e-6), row.limit, row.variant

    def below(self, row: Served) -> str:
        first = next((other for other in self.rows if other.exactness == row.exactness), row)
        error = f"error {row.exactness}" if row.exactness and first is row else ""
        return "; ".join(filter(None, (row.config, error)))


def compare(desc: Any, devices: Sequence[Any] = DEVICES, pref: PlanPreference | None = None) -> Comparison:
    """What serves `desc` on each of `devices` (names, arches or ordinals), and its predicted time there. Needs no GPU.

    Figures of a device that was not measured are nominal, and marked so. A device that serves nothing has the reason.
    """
    if not isinstance(desc, Descriptor):
        raise InvalidProblemError(
            f"compare: expected a descriptor, got {type(desc).__name__}",
            "bp.MatmulDescriptor.of(a, b), or another op's",
        )
    if isinstance(devices, str) or not isinstance(devices, Sequence) or not devices:
        raise InvalidProblemError(f"compare: devices={devices!r:.80}", 'give a list, such as ["a100", "h100"]')
    family = get_op(desc.op).plan
    rows = [_served(family, desc, PlanPreference.of(pref), device) for device in devices]
    return Comparison(f"{desc.op} on {len(rows)} device{'s' * (len(rows) != 1)}", tuple(rows))


def _served(family: Any, desc: Any, pref: PlanPreference, device: Any) -> Served:
    spec = spec_of(device)  # an unknown name is the caller's mistake, and raises
    try:
        one = selected(family, desc, pref, spec)
    except InvalidProblemError:
        raise
    except BaracudaError as error:
        return Served(spec.name, spec.nominal, "", "", None, "", None, None, "", str(error))
    cost = one.cost
    return Served(
        spec.name, spec.nominal, one.candidate.variant, str(one.config), cost.seconds * 1e6, cost.limit, cost.bytes, cost.flops,
        exactness(one)[one.written[0]], "",
    )  # fmt: skip
