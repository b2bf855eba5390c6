"""Runs rows and records them: the session behind ``python -m benchmarks``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from . import results
from .floor import matched
from .gpu import Sensor, machine
from .harness import COLD_BYTES, OURS, Bench
from .host import HOST_ROWS, HostRow
from .operands import Kit
from .results import Record
from .rows import ROWS, Row
from .stats import rotation
from .target import FLOOR

__all__ = ["FULL", "QUICK", "Effort", "Session", "chosen"]


@dataclass(frozen=True)
class Effort:
    """How often things are repeated."""

    rounds: int
    host_batches: int


FULL = Effort(rounds=12, host_batches=40)
QUICK = Effort(rounds=4, host_batches=8)


def chosen(patterns: Sequence[str]) -> list[Row | HostRow]:
    """The rows whose key holds one of `patterns`; every row where there are none."""
    rows: list[Row | HostRow] = [*ROWS, *HOST_ROWS]
    return [r for r in rows if not patterns or any(p in r.key for p in patterns)]


class Session:
    """One run on the current device."""

    def __init__(self, effort: Effort, *, use_torch: bool = True, use_compile: bool = False) -> None:
        self.effort = effort
        self.kit = Kit(use_torch=use_torch, use_compile=use_compile)
        self.bench = Bench(self.kit)
        self.sensor = Sensor()

    def meta(self) -> Record:
        """The line that says where and with what the run was made."""
        return machine(self.sensor, self.kit.torch) | {"rounds": self.effort.rounds, "cold_bytes": COLD_BYTES}

    def run(self, rows: Sequence[Row | HostRow], path: Path | None) -> Iterator[Record]:
        """Measures row after row; each is written as soon as it is done. A row that fails is a line with its error."""
        results.write_line(path, self.meta())
        self.bench.warm_up(0.6)
        for row in rows:
            began = perf_counter()
            record: Record = {"kind": "row", "row": row.key, "group": row.group, "name": row.name}
            try:
                measured = self._device(row) if isinstance(row, Row) else self._host(row)
                record = results.judged(record | measured, row.target)
            except Exception as error:
                record |= {"error": f"{type(error).__name__}: {error}"}
            self.kit.release()
            record["seconds"] = round(perf_counter() - began, 2)
            results.write_line(path, record)
            yield record

    def _host(self, row: HostRow) -> Record:
        return row.measure(self.kit, self.effort.host_batches)

    def _device(self, row: Row) -> Record:
        sets = [row.make(self.kit) for _ in range(rotation(row.bytes, COLD_BYTES))]
        contenders, failed = self.bench.contenders(sets)
        stream = matched(row.read, row.written)
        floor, shape = self.bench.matched_floor(stream)
        timings = self.bench.compare([*contenders, floor], self.effort.rounds, self.sensor.sample)
        ours = timings[OURS]
        against: dict[str, Record] = {name: {"error": text} for name, text in failed.items()}
        for name, timing in timings.items():
            if name != OURS:
                ratio, spread = ours.against(timing)
                against[name] = {
                    "us": timing.us,
                    "event_us": median(timing.event_us),
                    "ratio": ratio,
                    "spread": spread,
                }
        plan = getattr(sets[0][OURS], "plan", None)
        return {
            "op": row.op,
            "shape": row.shape,
            "dtype": row.dtype,
            "read_bytes": row.read,
            "written_bytes": row.written,
            "sku": None if plan is None else str(plan.sku),
            "discipline": f"graph of {contenders[0].launches} over {len(sets)} sets, clean read before each graph",
            "us": ours.us,
            "figure": "graph" if ours.by_graph else "event",
            "graph_us": median(ours.graph_us),
            "event_us": median(ours.event_us),
            "tbps": row.bytes / ours.us / 1e6,
            "floor": against.pop(FLOOR) | {"stream": str(stream), "shape": str(shape)},
            "peers": against,
            **self.sensor.take(),
        }
