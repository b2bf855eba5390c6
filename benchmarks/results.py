"""Results files: JSON lines, a meta line and then a line a row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .target import BEST, FLOOR, OPEN, Answer, Target

__all__ = ["DIRECTORY", "Results", "added", "best_peer", "judged", "read", "write", "write_line"]

DIRECTORY = Path(__file__).parent / "results"
BASELINES = (FLOOR, "empty kernel", "memcpyAsync", "cupy RawKernel", "select")
"""What is measured to set a mark, and is no peer that does the same job; `select` is what we choose ourselves."""

Record = dict[str, Any]


@dataclass(frozen=True)
class Results:
    """What one run wrote."""

    meta: Record
    rows: tuple[Record, ...]

    def group(self, name: str) -> list[Record]:
        """The rows of one group, in the order they ran."""
        return [r for r in self.rows if r["group"] == name]

    @property
    def groups(self) -> list[str]:
        """The groups, in the order they ran."""
        return list(dict.fromkeys(r["group"] for r in self.rows))


def read(path: Path) -> Results:
    """Reads a results file."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    meta = next((line for line in lines if line["kind"] == "meta"), {"kind": "meta"})
    return Results(meta, tuple(line for line in lines if line["kind"] == "row"))


def write(path: Path, results: Results) -> None:
    """Writes a whole results file."""
    lines = (json.dumps(record, ensure_ascii=False) for record in (results.meta, *results.rows))
    path.write_text("\n".join(lines) + "\n")


def added(old: Results, new: Results, order: Sequence[str]) -> Results:
    """`old` with the rows of `new` in the place of its own of the same name, in the order of the names given."""
    held = {row["row"]: row for row in (*old.rows, *new.rows)}
    places = {name: place for place, name in enumerate(order)}
    rows = sorted(held.values(), key=lambda row: places.get(row["row"], len(places)))
    return Results(old.meta if old.rows else new.meta, tuple(rows))


def write_line(path: Path | None, record: Mapping[str, Any]) -> None:
    """Appends one line; nothing where there is no file."""
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def judged(record: Record, targets: Sequence[Target]) -> Record:
    """The record with its targets and whether all were met: None where nothing was asked, or one was not measured, or is
    open, and none was missed."""
    if not targets:
        return record | {"target": None, "met": None, "open": False}
    answers = [_met(record, target) for target in targets]
    met = False if False in answers else True if all(a is True for a in answers) else None
    text = ", ".join(map(str, targets))
    return record | {"target": asdict(targets[0]) | {"text": text}, "met": met, "open": met is None and OPEN in answers}


def _met(record: Record, target: Target) -> Answer:
    name = target.against
    if name == BEST:
        name = (best_peer(record) or ("", 0.0))[0]
    if target.kind == "alone":
        ours, theirs = (record.get("alone", {}).get(who) for who in ("ours", name))
        if not (ours and theirs):
            return None
        ends = [a / b for a in ours["blocks_us"] for b in theirs["blocks_us"]]
        return target.met(ours["us"], theirs["us"], None, (min(ends), max(ends)))
    theirs = (record.get("floor") if name == FLOOR else record["peers"].get(name)) or {}
    return target.met(record["us"], theirs.get("us"), theirs.get("ratio"), theirs.get("interval"))


def best_peer(record: Record) -> tuple[str, float] | None:
    """The peer that comes nearest to us or beats us, and how many times its time is ours; None without one, or where a peer
    was withdrawn, for that might have been it."""
    if any("withdrawn" in peer for peer in record.get("peers", {}).values()):
        return None
    peers: Iterable[tuple[str, float]] = (
        (name, 1 / peer["ratio"])
        for name, peer in record.get("peers", {}).items()
        if name not in BASELINES and "ratio" in peer
    )
    return min(peers, key=lambda p: p[1], default=None)
