"""Results files: JSON lines, a meta line and then a line a row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .target import FLOOR, Target

__all__ = ["DIRECTORY", "Results", "best_peer", "judged", "read", "write_line"]

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


def write_line(path: Path | None, record: Mapping[str, Any]) -> None:
    """Appends one line; nothing where there is no file."""
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def judged(record: Record, targets: Sequence[Target]) -> Record:
    """The record with its targets and whether all were met (None: not asked, or one not measured and none missed)."""
    if not targets:
        return record | {"target": None, "met": None}
    answers = [_met(record, target) for target in targets]
    met = False if False in answers else None if None in answers else True
    text = ", ".join(map(str, targets))
    return record | {"target": asdict(targets[0]) | {"text": text}, "met": met}


def _met(record: Record, target: Target) -> bool | None:
    theirs = record.get("floor") if target.against == FLOOR else record["peers"].get(target.against)
    theirs = theirs or {}
    return target.met(record["us"], theirs.get("us"), theirs.get("ratio"))


def best_peer(record: Record) -> tuple[str, float] | None:
    """The peer that comes nearest to us or beats us, and how many times its time is ours; None without one."""
    peers: Iterable[tuple[str, float]] = (
        (name, 1 / peer["ratio"])
        for name, peer in record.get("peers", {}).items()
        if name not in BASELINES and "ratio" in peer
    )
    return min(peers, key=lambda p: p[1], default=None)
