"""Plans as JSON: what was chosen is restored, never ranked again."""

from __future__ import annotations

import importlib
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from ..types import ArchSku, DeviceSpec, PlanPreference, UnsupportedError
from .select import assess

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["plan_from_dict", "plan_to_dict"]


def plan_to_dict(plan: Plan[Any]) -> dict[str, Any]:
    kind = type(plan)
    return {
        "plan": f"{kind.__module__}:{kind.__qualname__}",
        "descriptor": plan.desc.to_dict(),
        "preference": {k: getattr(v, "value", v) for k, v in asdict(plan.pref).items()},
        "device": _device_to_dict(plan.device),
        "variant": plan.sku.variant,
        "config": plan.sku.config,
        "provenance": plan.provenance,
    }


def plan_from_dict(data: dict[str, Any]) -> Plan[Any]:
    module, _, name = data["plan"].partition(":")
    if not module.startswith("baracuda_py."):
        raise UnsupportedError(f"{data['plan']!r} is not a plan of this library")
    kind: type[Plan[Any]] = getattr(importlib.import_module(module), name)
    desc = kind.descriptor(**data["descriptor"])
    pref = PlanPreference(**data["preference"])
    device = _device_from_dict(data["device"])
    answers = assess(kind._all_candidates(), desc.canonical(), pref, device)
    for answer in answers:
        if (answer.candidate.variant, str(answer.config)) == (data["variant"], data["config"]) and answer.feasibility:
            return kind._make(desc, pref, device, answer, data["provenance"])
    raise UnsupportedError(
        f"{desc.op}: variant {data['variant']!r} [{data['config']}] of the saved plan no longer serves it",
        _alternative(kind, desc, pref, device),
    )


def _alternative(kind: Any, desc: Any, pref: PlanPreference, device: DeviceSpec) -> str:
    try:
        return f"select now chooses {kind.select(desc, pref, device=device).sku}"
    except UnsupportedError as error:
        return f"select finds nothing either ({error})"


def _device_to_dict(device: DeviceSpec) -> dict[str, Any]:
    data = {f.name: getattr(device, f.name) for f in fields(device)}
    return {
        **data,
        "tier": device.tier.value,
        "libraries": sorted(device.libraries),
        "rates": [list(r) for r in device.rates],
    }


def _device_from_dict(data: dict[str, Any]) -> DeviceSpec:
    return DeviceSpec(
        **{
            **data,
            "tier": ArchSku(data["tier"]),
            "libraries": frozenset(data["libraries"]),
            "rates": tuple((str(k), float(v)) for k, v in data["rates"]),
        }
    )
