"""Lists the ops: category, element kinds, variants, error bound, where each was verified, and what it computes."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..plan.registry import Op

__all__ = ["SUMMARY", "arguments", "describe", "run"]

SUMMARY = "list the ops: kinds, variants, bounds, verified where"
DEVICE = "h200"
_WIDE = 130  # a narrower terminal is spared the variants, which `explain` shows with their reasons
_SHOWN = ("f32", "bf16")  # the kinds whose bounds the table shows; --json has them all


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pattern", nargs="?", help="a part of a name, category or summary (default: every op)")
    parser.add_argument("--json", action="store_true", help="JSON, with the bound of every kind")
    parser.add_argument("--device", default=DEVICE, help=f"the device that plans are selected for (default: {DEVICE})")


def run(given: argparse.Namespace) -> int:
    from ..plan.registry import all_ops, find
    from ..runtime.device import spec_of
    from ..types import UnsupportedError
    from .terminal import console, device_of, show_table

    ops = all_ops()
    names = list(ops) if given.pattern is None else find(given.pattern)
    if not names:
        raise UnsupportedError(f"no op is like {given.pattern!r}", "ops without a pattern lists them all")
    spec = spec_of(device_of(given.device))
    found = [describe(ops[name], spec) for name in names]
    if given.json:
        print(json.dumps(found, indent=2))
        return 0
    screen = console()
    head = ("op", "takes", f"bound {' / '.join(_SHOWN)}", "verified on", "what it computes", "variants")
    columns = len(head) if screen.width >= _WIDE else len(head) - 1
    for category in dict.fromkeys(op["category"] for op in found):
        rows = [_cells(op)[:columns] for op in found if op["category"] == category]
        show_table(screen, head[:columns], rows, title=category)
    screen.print(f"\n{len(found)} ops; bounds are those of plans for {spec}. `explain OP` shows one at work.")
    return 0


def describe(op: Op, spec: Any) -> dict[str, Any]:
    """What the table and the JSON say of one op: asked of its family, never written down here."""
    from .problems import compact, kinds_of

    plans = kinds_of(op, spec)
    return {
        "op": op.name,
        "category": op.plan.category.value,
        "summary": op.summary,
        "elements": [kind.value for kind in plans],
        "takes": compact(list(plans)),
        "variants": [candidate.variant for candidate in op.plan.candidates],
        "bounds": {kind.value: str(plan.precision_guarantee.bound) for kind, plan in plans.items()},
        "verified_on": verified(op),
        "peers": dict(op.peers),
        "backward": op.gradient.op if op.gradient else None,
    }


def verified(op: Op) -> str:
    """The GPU on which the op's present kernels passed the device tests; empty where there is none."""
    try:
        from ..plan.about.ledger import verified_on  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return ""
    return str(verified_on(op))


def _cells(op: dict[str, Any]) -> tuple[Any, ...]:
    from rich.text import Text

    bounds = [op["bounds"].get(kind, "-") for kind in _SHOWN]
    where = op["verified_on"]
    return (
        Text(op["op"], style="bold cyan"),
        op["takes"],
        bounds[0] if len(set(bounds)) == 1 else " / ".join(bounds),
        Text(where, style="green") if where else Text("unverified", style="yellow"),
        op["summary"],
        " ".join(op["variants"]),
    )
