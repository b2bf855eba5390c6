"""Lists the ops, one per line: name, element kinds, what it computes. With an op's name, it shows the op's details."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...plan.registry import Op

__all__ = ["SUMMARY", "arguments", "describe", "run"]

SUMMARY = "list the ops; of one: kinds, variants, bounds, verified where"
DEVICE = "h200"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "pattern", nargs="?", help="an op, or a part of a name, category or summary (default: every op)"
    )
    parser.add_argument("--json", action="store_true", help="JSON, with the bound of every kind")
    parser.add_argument("--device", default=DEVICE, help=f"the device that plans are selected for (default: {DEVICE})")


def run(given: argparse.Namespace) -> int:
    from ...plan.registry import all_ops, composed_functions, find, summary
    from ...runtime.gpu.device import spec_of
    from ...types import UnsupportedError
    from ...types.layout import folded
    from ..terminal import device_of

    ops = all_ops()
    pattern = given.pattern
    names = list(ops) if pattern is None else [pattern] if pattern in ops else find(pattern)
    if not names:
        raise UnsupportedError(f"no op is like {given.pattern!r}", "ops without a pattern lists them all")
    called = {name: function for name, function in composed_functions().items() if name in names}
    names = [name for name in names if name in ops]
    spec = spec_of(device_of(given.device))
    details = describe if given.json or pattern in ops else _listed
    found = [details(ops[name], spec) for name in names]
    if given.json:
        print(json.dumps(found, indent=2))
        return 0
    if pattern in ops:
        print("\n".join(_details(found[0], spec)))
        return 0
    for category in dict.fromkeys(op["category"] for op in found):
        print(f"\n{category}")
        own = [op for op in found if op["category"] == category]
        widths = [max(len(op[key]) for op in own) for key in ("op", "takes")]
        for op in own:
            print(_line(op, *widths))
    for name, function in called.items():
        print(f"bp.{name}: {summary(function)}")
    print(
        "\n".join(
            ["", *folded(f"{len(found)} ops. `ops OP` says all that is known of one, `explain OP` shows it at work.")]
        )
    )
    return 0


def _listed(op: Op, spec: Any) -> dict[str, Any]:
    """The data of one op for its line. That its record stands is not in it: to say so takes a digest of all that it launches."""
    from ..problems import compact, kinds_of

    return {
        "op": op.name,
        "category": op.plan.category.value,
        "summary": op.summary,
        "takes": compact([*kinds_of(op, spec)]),
    }


def describe(op: Op, spec: Any) -> dict[str, Any]:
    """The data of one op for its page and the JSON, read from its family."""
    from ..problems import compact, kinds_of

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
        "backward": (op.gradient.op or "views") if op.gradient else None,
    }


def verified(op: Op) -> str:
    """The GPU on which the op's present kernels passed the device tests; empty where there is none."""
    try:
        from ...plan.about.ledger import verified_on  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return ""
    return str(verified_on(op))


def _line(op: dict[str, Any], names: int, takes: int) -> str:
    """One line; its summary is cut between words at the terminal's width."""
    import textwrap

    from ...types.layout import screen_width

    lead, width = f"  {op['op']:{names}}  {op['takes']:{takes}}  ", screen_width()
    if width is None:
        return lead + str(op["summary"])
    return lead + textwrap.shorten(op["summary"], max(width - len(lead), 4), placeholder=" …")


def _details(op: dict[str, Any], spec: Any) -> list[str]:
    """The details of an op; kinds with the same bound share a line."""
    from ...types.layout import folded

    kinds: dict[str, list[str]] = {}
    for kind, bound in op["bounds"].items():
        kinds.setdefault(bound, []).append(kind)
    facts = [
        ("category", op["category"]),
        ("takes", op["takes"]),
        ("variants", " ".join(op["variants"])),
        *(("bound", f"{', '.join(of)}: {bound}") for bound, of in kinds.items()),
        ("verified on", op["verified_on"] or "unverified"),
        ("gradient", op["backward"] or ""),
        ("elsewhere", ", ".join(f"{where}: {name}" for where, name in op["peers"].items())),
    ]
    lines = [*folded(f"{op['op']}: {op['summary']}"), ""]
    for name, text in facts:
        lines += folded(text, f"  {name:11}  ", " " * 15) if text else []
    return [
        *lines,
        "",
        *folded(f"Bounds are those of plans for {spec}. `explain {op['op']}` lists the fields of a problem."),
    ]
