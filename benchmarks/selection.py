"""What a sweep found: how near to the best the selection comes, and the table of winners that the package ships."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from .results import Record
from .shapes import ROWS, SHAPES
from .stats import geometric_mean

__all__ = [
    "MARGIN", "admitted", "best_of", "predicted", "read_sweep", "report", "slowdown", "table_entries", "update_table",
]  # fmt: skip

MARGIN = 1.02  # a model that errs by less is left alone
BACKENDS = (None, "bespoke")  # preferences a table is written for: any back end, and our own kernels
WORST = 12


def read_sweep(path: Path) -> list[Record]:
    """The shapes of a sweep's file."""
    lines = (json.loads(line) for line in path.read_text().splitlines() if line.strip())
    return [line for line in lines if line["kind"] == "shape"]


# ---- how good the selection is -------------------------------------------------------------------------------


def admitted(record: Record, backend: str | None) -> list[Record]:
    return [t for t in record["timed"] if backend in (None, t["backend"])]


def best_of(timed: Iterable[Record]) -> Record:
    return min(timed, key=lambda t: float(t["us"]))


def _model(timed: Iterable[Record]) -> Record:
    """What the cost model takes: the least prediction, ties to the earlier."""
    return min(timed, key=lambda t: float(t["predicted_us"]))


def _same(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    return (first["variant"], first["config"]) == (second["variant"], second["config"])


def slowdown(record: Record, chosen: Mapping[str, Any]) -> float | None:
    """The time of `chosen` over the best one's; None where it was not timed."""
    held = next((t for t in record["timed"] if _same(t, chosen)), None)
    return None if held is None else held["us"] / best_of(record["timed"])["us"]


def report(records: Sequence[Record]) -> str:
    """Fractions within 5 % and 15 % of the best, the worst shapes, our kernels against cuBLAS, predictions against times."""
    timed = [r for r in records if r.get("timed")]
    lines = [f"{len(timed)} of {len(records)} shapes timed, {sum(len(r['timed']) for r in timed)} candidates."]
    for title, chosen in (("select", lambda r: r["selected"]), ("the cost model", lambda r: _model(r["timed"]))):
        held = [(s, r) for r in timed if (s := slowdown(r, chosen(r))) is not None]
        if held:
            lines.append(f"{title}: {_fractions([s for s, _ in held])}")
    ours = [r for r in timed if admitted(r, "bespoke")]
    if ours:
        lines.append(f"the cost model among our own kernels: {_fractions(list(map(_own_slowdown, ours)))}")
    both = [r for r in ours if admitted(r, "cublas")]
    if both:
        ratios = [best_of(admitted(r, "cublas"))["us"] / best_of(admitted(r, "bespoke"))["us"] for r in both]
        lines.append(
            f"our best kernel against cuBLAS: geometric mean {geometric_mean(ratios):.3f}×, "
            f"faster on {sum(q > 1 for q in ratios)} of {len(ratios)} shapes."
        )
    lines += ["", "measured ÷ predicted, by variant:", *_calibration(timed), "", "worst choices of select:"]
    worst = sorted(timed, key=lambda r: -(slowdown(r, r["selected"]) or 0.0))[:WORST]
    lines += [_worst_line(r) for r in worst if (slowdown(r, r["selected"]) or 0.0) > MARGIN]
    failed = [f"{r['name']}: {f['variant']}[{f['config']}] {f['error']}" for r in records for f in r.get("failed", ())]
    failed += [f"{r['name']}: {r['error']}" for r in records if "error" in r]
    return "\n".join([*lines, *(["", "failed:", *failed] if failed else [])])


def _own_slowdown(record: Record) -> float:
    own = admitted(record, "bespoke")
    return float(_model(own)["us"] / best_of(own)["us"])


def _fractions(slowdowns: Sequence[float]) -> str:
    within = {limit: sum(s <= 1 + limit / 100 for s in slowdowns) / len(slowdowns) for limit in (5, 15)}
    parts = ", ".join(f"within {limit} % of the best on {share:.1%}" for limit, share in within.items())
    return f"{parts} of {len(slowdowns)} shapes; geometric mean {geometric_mean(slowdowns):.3f}, worst {max(slowdowns):.2f}"


def _calibration(records: Iterable[Record]) -> list[str]:
    ratios: dict[str, list[float]] = defaultdict(list)
    for record in records:
        for t in record["timed"]:
            ratios[t["variant"]].append(t["us"] / t["predicted_us"])
    return [
        f"  {variant:16} median {median(found):.2f}, from {min(found):.2f} to {max(found):.2f} ({len(found)})"
        for variant, found in sorted(ratios.items())
    ]


def _worst_line(record: Record) -> str:
    best, chosen = best_of(record["timed"]), record["selected"]
    return (
        f"  {record['name']:32} {slowdown(record, chosen):.2f}× : {chosen['variant']}[{chosen['config']}], best "
        f"{best['variant']}[{best['config']}] {best['us']:.2f} µs"
    )


def predicted(records: Iterable[Record], device: Any) -> list[Record]:
    """The same times, with what the present costs predict for each candidate and what `select` now takes; candidates that
    are on no menu any more are put aside as "withdrawn"."""
    from baracuda_py import MatmulPlan
    from baracuda_py.plan.about.tune import admissible

    products = {shape.name: shape.product for shape in (*SHAPES, *ROWS)}
    again = []
    for record in records:
        desc = products[record["name"]].descriptor()
        plans = {
            (p.sku.variant, p.sku.config): p.cost.seconds * 1e6
            for p in admissible(MatmulPlan, desc, _preference(None), device)
        }
        chosen = MatmulPlan.select(desc, device=device)
        timed, withdrawn = [], []
        for t in (*record["timed"], *record.get("withdrawn", ())):
            if (us := plans.get((t["variant"], t["config"]))) is None:
                withdrawn.append(t)
            else:
                timed.append(t | {"predicted_us": us})
        selected = {"variant": chosen.sku.variant, "config": chosen.sku.config, "provenance": chosen.provenance}
        again.append(
            {k: v for k, v in record.items() if k != "withdrawn"}
            | {"timed": timed, "selected": selected, "predicted_us": chosen.cost.seconds * 1e6}
            | ({"withdrawn": withdrawn} if withdrawn else {})
        )
    return again


# ---- the shipped table ---------------------------------------------------------------------------------------


def table_entries(records: Iterable[Record], device: Any, provenance: str = "shipped") -> dict[str, dict[str, str]]:
    """Table entries where the cost model's choice is slower than the winner by more than `MARGIN`, or was not timed.

    A winner whose kernels' source has changed since the sweep is left out: what was timed is gone.
    """
    from baracuda_py import MatmulPlan
    from baracuda_py.plan.about.tune import admissible
    from baracuda_py.plan.about.tuned import entry

    products = {shape.name: shape.product for shape in (*SHAPES, *ROWS)}
    entries = {}
    for record in records:
        for backend in BACKENDS:
            timed = admitted(record, backend)
            if not timed:
                continue
            winner = best_of(timed)
            plans = admissible(MatmulPlan, products[record["name"]].descriptor(), _preference(backend), device)
            first = {"variant": plans[0].sku.variant, "config": plans[0].sku.config}
            held = next((t for t in timed if _same(t, first)), None)
            if held is not None and held["us"] <= MARGIN * winner["us"]:
                continue
            for plan in plans:
                key, won = entry(plan.selection, provenance)
                if _same(won, winner) and won["sources"] == winner["sources"]:
                    entries[key] = won
    return entries


def update_table(path: Path, records: Sequence[Record], device: Any) -> tuple[int, int]:
    """Writes the winners of a sweep into the table at `path`, in the place of what it held for the same problems; entries of
    other problems stay. Returns how many were written and how many the table now holds."""
    from baracuda_py import MatmulPlan
    from baracuda_py.plan.about.tuned import key_of

    products = {shape.name: shape.product for shape in (*SHAPES, *ROWS)}
    swept = {
        key_of(MatmulPlan, products[r["name"]].descriptor().canonical(), _preference(b))
        for r in records
        for b in BACKENDS
    }
    before = json.loads(path.read_text()) if path.exists() else {}
    fresh = table_entries(records, device)
    table = {key: winner for key, winner in before.items() if key not in swept} | fresh
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    return len(fresh), len(table)


def _preference(backend: str | None) -> Any:
    from baracuda_py import PlanPreference

    return PlanPreference(backend=backend)
