"""``python -m benchmarks.rekey h200``: carries the shipped table and the committed sweeps over to digests of what is lowered.

An entry that names its kernels by their sources alone, and whose sources are still those, gets the digest of the present
launches; what has lapsed stays as it is. Needs no GPU.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

from .results import DIRECTORY
from .selection import BACKENDS
from .shapes import ROWS, SHAPES

__all__ = ["rekeyed", "sources_alone"]


def sources_alone(plan: Any) -> str:
    """The hash over the sources of every kernel that a plan launches."""
    from baracuda_py.runtime.sources import source_of
    from baracuda_py.runtime.steps import Launch

    parts = sorted(source_of(s.kernel).digest(s.kernel.prelude) for s in plan._steps if isinstance(s, Launch))
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:24]


def _plans(device: Any) -> Iterator[tuple[str, Any]]:
    """Every plan that a product of the sweeps may get, with the product's name."""
    from baracuda_py import MatmulPlan, PlanPreference
    from baracuda_py.plan.tune import admissible

    for shape in (*SHAPES, *ROWS):
        for plan in admissible(MatmulPlan, shape.product.descriptor(), PlanPreference(), device):
            yield shape.name, plan


def rekeyed(held: dict[str, str], plan: Any) -> bool:
    """Puts the present digest into a record of `plan` whose sources stand; whether its digest is the present one now."""
    from baracuda_py.plan.digest import lowered_digest

    present = lowered_digest(plan._steps)
    if held["sources"] == sources_alone(plan):
        held["sources"] = present
    return held["sources"] == present


def main(gpu: str) -> None:
    """Rewrites the table and the sweeps of one GPU, and says how much of them stands."""
    from baracuda_py import PlanPreference
    from baracuda_py.plan.tuned import key_of, shipped_path
    from baracuda_py.runtime.libraries import FILES
    from baracuda_py.types import DeviceSpec

    device = DeviceSpec.named(gpu).with_libraries(frozenset(FILES))
    table_path = shipped_path(device)
    table = json.loads(table_path.read_text())
    sweeps = {p: [json.loads(line) for line in p.read_text().splitlines()] for p in DIRECTORY.glob("sweeps/*.jsonl")}
    timed: dict[tuple[str, str, str], list[Any]] = {}
    for record in (r for records in sweeps.values() for r in records):
        for held in record.get("timed", ()):
            timed.setdefault((record["name"], held["variant"], held["config"]), []).append(held)
    standing = {"table": 0, "sweeps": 0}
    for name, plan in _plans(device):
        named = plan.sku.variant, plan.sku.config
        for backend in BACKENDS:
            winner = table.get(key_of(type(plan), plan._canonical, PlanPreference(backend=backend)))  # type: ignore[arg-type]
            if winner is not None and (winner["variant"], winner["config"]) == named:
                standing["table"] += rekeyed(winner, plan)
        standing["sweeps"] += sum(rekeyed(held, plan) for held in timed.get((name, *named), ()))
    table_path.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    for path, records in sweeps.items():
        path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))
    print(f"{standing['table']} of {len(table)} entries of {table_path} stand")
    print(f"{standing['sweeps']} of {sum(map(len, timed.values()))} timings of the sweeps stand")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "h200")
