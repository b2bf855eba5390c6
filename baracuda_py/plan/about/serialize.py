"""Plans as JSON: the choice is restored without selecting again, and everything in the text is checked.

A saved plan may have been cut short, edited, or written by another version. So its descriptor is validated as `select`
does, and must equal what would be saved again; the device must be a possible one; and the candidate must serve the problem.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from ...types import ArchSku, BaracudaError, DeviceSpec, InvalidProblemError, PlanPreference, UnsupportedError
from ...types.deprecated import present_config, present_variant
from ..family import Family
from ..registry import all_ops
from ..select import assess, checked
from ..selection import Selection, selected

if TYPE_CHECKING:
    from ..descriptor import Descriptor

__all__ = ["from_json", "to_json"]

T = TypeVar("T")
ASKED_FOR = "asked for"
_OPS = re.compile(r"(baracuda_py\.ops(?:\.\w+)+):(\w+)", re.ASCII)


@dataclass(frozen=True)
class _Saved:
    """The fields of a saved plan, all of them required."""

    plan: str
    descriptor: Any
    preference: Any
    device: Any
    variant: str
    config: str
    provenance: str


@dataclass
class _Reader:
    """Reads fields from JSON objects, and collects the names of those that this version does not know."""

    unknown: list[str] = field(default_factory=list)

    def take(self, kind: type[Any], data: Any, what: str) -> dict[str, Any]:
        """The fields of a dataclass in `data`; raises InvalidProblemError if one is missing."""
        if not isinstance(data, dict):
            raise _unreadable(f"{what} is a {type(data).__name__}, not an object")
        known = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(kind)}
        self.unknown += [f"{what}.{name}" for name in data if name not in known]
        if missing := [name for name, needed in known.items() if needed and name not in data]:
            raise _unreadable(f"{what} has no {', '.join(missing)}")
        return {name: value for name, value in data.items() if name in known}


def _unreadable(reason: str) -> InvalidProblemError:
    return InvalidProblemError(f"Plan.from_json: this is no saved plan: {reason:.200}", "pass what plan.to_json() gave")


def to_json(plan: Selection) -> str:
    kind = plan.family
    data = {
        "plan": f"{kind.__module__}:{kind.__qualname__}",
        "descriptor": plan.desc.to_dict(),
        "preference": {k: getattr(v, "value", v) for k, v in asdict(plan.pref).items()},
        "device": _device_to_dict(plan.device),
        "variant": plan.candidate.variant,
        "config": str(plan.config),
        "provenance": plan.provenance,
    }
    return json.dumps(data, allow_nan=False)


def from_json(text: str) -> Selection:
    reader = _Reader()
    saved = _Saved(**reader.take(_Saved, _parsed(text), "plan"))
    for name in ("plan", "variant", "config", "provenance"):
        value = getattr(saved, name)
        if not isinstance(value, str) or not value.isprintable():
            raise _unreadable(f"its {name} is no line of text")
    kind = _family(saved.plan)
    described = reader.take(kind.descriptor, saved.descriptor, "descriptor")
    desc, canonical = _understood(lambda: _described(kind, described))
    pref = PlanPreference(**reader.take(PlanPreference, saved.preference, "preference"))
    device = _understood(lambda: _device_from_dict(reader.take(DeviceSpec, saved.device, "device")))
    if reader.unknown:
        raise UnsupportedError(
            f"{desc.op}: the saved plan says {', '.join(reader.unknown)!s:.200}, of which this version knows nothing",
            _alternative(kind, desc, pref, device),
        )
    variant, config = present_variant("Plan.from_json", saved.variant), present_config(saved.config)
    candidates = [c for c in kind.all_candidates() if c.variant == variant]
    for answer in assess(candidates, canonical, pref, device, only=config):
        if answer.feasibility and str(answer.config) == config:
            return _known_truly(Selection.of(kind, desc, pref, device, answer, saved.provenance))
    raise UnsupportedError(
        f"{desc.op}: variant {saved.variant!r:.80} [{saved.config:.80}] of the saved plan does not serve it",
        _alternative(kind, desc, pref, device),
    )


def _known_truly(plan: Selection) -> Selection:
    """The plan, with the provenance "asked for" if its text says that the cost model or the shipped table chose it and they now
    choose another: the text was edited, or is from another version."""
    if plan.provenance not in ("model", "shipped"):
        return plan
    now = selected(plan.family, plan.desc, plan.pref, plan.device)
    same = (now.candidate.variant, str(now.config)) == (plan.candidate.variant, str(plan.config))
    return plan if same else plan.known_as(ASKED_FOR)


def _parsed(text: str) -> Any:
    if not isinstance(text, str):
        raise _unreadable(f"it is a {type(text).__name__}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"it is not JSON ({error})") from None


def _family(name: str) -> type[Family[Any]]:
    """The Plan class of that name. Only classes of registered ops are found, and no other package's module is imported. Where the
    module has none, as in the text of a version that kept it elsewhere, it is found by its own name among all plans."""
    found = _OPS.fullmatch(name)
    if found:
        try:
            kind = getattr(importlib.import_module(found[1]), found[2], None)
        except ImportError:
            kind = None
        if isinstance(kind, type) and issubclass(kind, Family) and f"{kind.__module__}:{kind.__qualname__}" == name:
            return kind
        for op in all_ops().values():
            if op.plan.__qualname__ == found[2]:
                return op.plan
    for op in all_ops().values():  # also those that other packages registered
        if f"{op.plan.__module__}:{op.plan.__qualname__}" == name:
            return op.plan
    raise UnsupportedError(f"{name!r:.80} is not a plan of this library", "save it again with this version")


def _understood(read: Callable[[], T]) -> T:
    """The result of `read` on untrusted fields; any failure becomes an InvalidProblemError."""
    try:
        return read()
    except BaracudaError:
        raise
    except Exception as error:
        raise _unreadable(f"{type(error).__name__}: {error}") from error


def _described(kind: type[Family[Any]], data: dict[str, Any]) -> tuple[Descriptor, Descriptor]:
    """The descriptor and its canonical form. Saving it again must give `data`, up to the type of each number."""
    values = {n: float(v) for n, v in data.items() if n in kind.descriptor.values and v in ("nan", "inf", "-inf")}
    desc = kind.descriptor(**data | values)
    canonical = checked(desc)
    again = desc.to_dict()
    for name, value in data.items():
        if json.dumps(again[name]) != json.dumps(value):
            raise _unreadable(f"descriptor.{name} is not how {again[name]} is written")
    return desc, canonical


def _alternative(kind: Any, desc: Any, pref: PlanPreference, device: DeviceSpec) -> str:
    try:
        return f"select now chooses {selected(kind, desc, pref, device).sku}"
    except BaracudaError as error:
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
    listed = {name: data[name] for name in ("rates", "libraries") if name in data}
    for name, value in listed.items():
        if not isinstance(value, list):
            raise _unreadable(f"device.{name} is no list")
    made: dict[str, Any] = {"tier": ArchSku(data["tier"]), "rates": tuple(tuple(rate) for rate in data["rates"])}
    return DeviceSpec(**data | made | {"libraries": frozenset(data.get("libraries", ()))})
