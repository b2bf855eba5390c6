"""Runs rows and records them: the session behind ``python -m benchmarks``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from . import results
from .attention_backward import ATTENTION_BACKWARD_ROWS
from .attention_decode import DECODE_ROWS
from .attention_fp8_rows import ATTENTION_FP8_ROWS
from .attention_rows import ATTENTION_ROWS
from .bridge import BRIDGE_ROWS
from .cascade_rows import CASCADE_ROWS
from .floor import matched
from .fused_rows import FUSED_ROWS
from .gemm_rows import GEMM_ROWS
from .gguf_rows import GGUF_ROWS
from .gpu import Sensor, machine, made_by
from .harness import BURST_US, COLD_BYTES, OURS, WARM_SECONDS, Alone, Bench, Contender
from .host import HOST_ROWS, HostRow
from .indexing_rows import INDEXING_ROWS
from .int4_rows import INT4_ROWS
from .int8_rows import INT8_ROWS
from .model_rows import MODEL_ROWS
from .nf4_rows import NF4_ROWS
from .norm_rows import NORM_ROWS
from .operands import Call, Kit
from .optimizer_rows import OPTIMIZER_ROWS
from .position_rows import POSITION_ROWS
from .preference_rows import PREFERENCE_ROWS
from .rearrange_rows import REARRANGE_ROWS
from .results import Record, best_peer
from .row import Row
from .row_families import ROW_FAMILIES
from .rows import ROWS
from .scan_rows import SCAN_ROWS
from .segment_rows import SEGMENT_ROWS
from .sort_rows import SORT_ROWS
from .stats import paired, rotation
from .target import BEST, FLOOR
from .training_rows import TRAINING_ROWS
from .unit_rows import UNIT_ROWS

__all__ = ["FULL", "QUICK", "Effort", "Session", "chosen"]


@dataclass(frozen=True)
class Effort:
    """How often things are repeated."""

    rounds: int
    host_batches: int
    alone_seconds: float = 3.0  # a block of the leg in which a large product runs by itself; 0: no such leg


GRAPH_FLOPS = 60e9
"""Less than this is under 100 us on the fastest cards, where a launch is what it costs in a graph."""

FULL = Effort(rounds=12, host_batches=40)
QUICK = Effort(rounds=4, host_batches=8, alone_seconds=0.0)


def chosen(patterns: Sequence[str]) -> list[Row | HostRow]:
    """The rows whose key holds one of `patterns`; every row where there are none."""
    rows: list[Row | HostRow] = [
        *ROWS,
        *ROW_FAMILIES,
        *NORM_ROWS,
        *UNIT_ROWS,
        *SORT_ROWS,
        *INDEXING_ROWS,
        *SEGMENT_ROWS,
        *SCAN_ROWS,
        *FUSED_ROWS,
        *REARRANGE_ROWS,
        *TRAINING_ROWS,
        *OPTIMIZER_ROWS,
        *POSITION_ROWS,
        *GEMM_ROWS,
        *ATTENTION_ROWS,
        *ATTENTION_FP8_ROWS,
        *ATTENTION_BACKWARD_ROWS,
        *DECODE_ROWS,
        *CASCADE_ROWS,
        *MODEL_ROWS,
        *INT8_ROWS,
        *INT4_ROWS,
        *GGUF_ROWS,
        *NF4_ROWS,
        *PREFERENCE_ROWS,
        *HOST_ROWS,
        *BRIDGE_ROWS,
    ]
    return [r for r in rows if not patterns or any(p in r.key for p in patterns)]


class Session:
    """One run on the current device."""

    def __init__(
        self, effort: Effort, *, use_torch: bool = True, use_compile: bool = False, commit: str | None = None
    ) -> None:
        self.effort = effort
        self.commit = commit
        self.kit = Kit(use_torch=use_torch, use_compile=use_compile)
        self.bench = Bench(self.kit)
        self.sensor = Sensor()

    def meta(self) -> Record:
        """The line that says where and with what the run was made."""
        return machine(self.sensor, self.kit.torch, self.commit) | {
            "rounds": self.effort.rounds,
            "cold_bytes": COLD_BYTES,
        }

    def run(self, rows: Sequence[Row | HostRow], path: Path | None) -> Iterator[Record]:
        """Writes the meta line and measures row after row; each is written as soon as it is done. A row that fails is a line with
        its error."""
        meta = self.begin(path)
        yield from self.measure(rows, path, meta)

    def begin(self, path: Path | None) -> Record:
        """Writes the meta line, and keeps the memory busy until clocks are up."""
        meta = self.meta()
        results.write_line(path, meta)
        self.bench.warm_up(0.6)
        return meta

    def measure(self, rows: Iterable[Row | HostRow], path: Path | None, meta: Record) -> Iterator[Record]:
        """The rows' lines, without a meta line."""
        for row in rows:
            began = perf_counter()
            record: Record = {"kind": "row", "row": row.key, "group": row.group, "name": row.name}
            try:
                record = results.judged(record | self._measured(row), row.targets)
            except Exception as error:
                record |= {"error": f"{type(error).__name__}: {error}"}
            self.kit.release()
            record |= {"seconds": round(perf_counter() - began, 2), "made": made_by(meta)}
            results.write_line(path, record)
            yield record

    def _measured(self, row: Row | HostRow) -> Record:
        if isinstance(row, HostRow):
            return row.measure(self.kit, self.effort.host_batches)
        sets = [row.make(self.kit) for _ in range(rotation(row.bytes, COLD_BYTES))]
        return self._compute(row, sets) if row.flops else self._memory(row, sets)

    def _memory(self, row: Row, sets: Sequence[Mapping[str, Call]]) -> Record:
        contenders, failed = self.bench.contenders(sets)
        contenders = self.bench.fastest(contenders)
        stream = matched(row.read, row.written)
        floor, shape = self.bench.matched_floor(stream)
        timings = self.bench.compare([*contenders, floor], self.effort.rounds, self.sensor.sample)
        ours = timings[OURS]
        against: dict[str, Record] = {name: {"error": text} for name, text in failed.items()}
        for name, timing in timings.items():
            if name != OURS:
                against[name] = {
                    "us": timing.us,
                    "event_us": median(timing.event_us),
                    **ours.against(timing)._asdict(),
                }
        clock, power = self.sensor.take()[""]
        return {
            **described(row, sets[0][OURS]),
            "discipline": f"graph of {contenders[0].launches} over {len(sets)} sets, clean read before each graph",
            "us": ours.us,
            "figure": "graph" if ours.by_graph else "event",
            "graph_us": median(ours.graph_us),
            "event_us": median(ours.event_us),
            "tbps": row.bytes / ours.us / 1e6,
            "floor": against.pop(FLOOR) | {"stream": str(stream), "shape": str(shape)},
            "peers": against,
            "clock_mhz": clock,
            "power_w": power,
        }

    def _compute(self, row: Row, sets: Sequence[Mapping[str, Call]]) -> Record:
        graph = row.flops < GRAPH_FLOPS
        contenders, failed = self.bench.contenders(sets, graph=graph)
        contenders = self.bench.fastest(contenders)
        timings = self.bench.bursts(contenders, self.effort.rounds, self.sensor.sample)
        record = described(row, sets[0][OURS]) | compared(row.flops, timings, self.sensor.take())
        for contender in contenders:
            if contender.variant:
                record["peers"][contender.name]["variant"] = contender.variant
            if contender.name != OURS and (plan := getattr(contender.calls[0], "plan", None)) is not None:
                record["peers"][contender.name]["sku"] = str(plan.sku)
        record["peers"] |= {name: {"error": text} for name, text in failed.items()}
        record |= self._alone(row, record, contenders)
        how = f"graphs of {contenders[0].launches}" if graph else "calls"
        warm = f"{WARM_SECONDS} s of warm load, then bursts of about {BURST_US / 1e3:g} ms in ABBA order"
        return record | {"discipline": f"{warm}: {how} over {len(sets)} sets, clean read before each burst"}

    def _alone(self, row: Row, record: Record, contenders: Sequence[Contender]) -> Record:
        """Ours and the peer of the row's target, each by itself, where a target asks for it."""
        against = next((target.against for target in row.targets if target.kind == "alone"), None)
        if against == BEST:
            against = (best_peer(record) or (None,))[0]
        pair = [c for c in contenders if c.name in (OURS, against)]
        if len(pair) < 2 or not self.effort.alone_seconds:
            return {}
        timed = self.bench.alone(pair, self.effort.alone_seconds, self.sensor.take, self.sensor.sample)
        return {"alone": {name: settled(row.flops, leg) for name, leg in timed.items()}}


def settled(flops: int, leg: Alone) -> Record:
    """The figures of one contender by itself."""
    return {
        "us": leg.us,
        "tflops": flops / leg.us / 1e6,
        "clock_mhz": median(leg.clocks_mhz) if leg.clocks_mhz else None,
        "power_w": round(median(leg.watts)) if leg.watts else None,
        "blocks_us": leg.blocks_us,
    }


def described(row: Row, ours: Any) -> Record:
    """What the row is, and which kernel serves it where our contender is a bound plan."""
    plan = getattr(ours, "plan", None)
    return {
        "op": row.op,
        "shape": row.shape,
        "dtype": row.dtype,
        "read_bytes": row.read,
        "written_bytes": row.written,
        "flops": row.flops,
        "sku": None if plan is None else str(plan.sku),
        "variant": None if plan is None else plan.sku.variant,
        "config": None if plan is None else plan.sku.config,
    }


def compared(
    flops: int, timings: Mapping[str, Sequence[float]], sensed: Mapping[str, Sequence[float | None]]
) -> Record:
    """The figures of a compute-bound row from each contender's rounds, its clock and its power.

    As everywhere in these records a peer's `ratio` is our time over its time; `speedup` is its time over ours, the median
    of the per-round quotients.
    """

    def own(name: str) -> Record:
        clock, power = sensed.get(name, (None, None))
        us = median(timings[name])
        return {"us": us, "tflops": flops / us / 1e6, "clock_mhz": clock, "power_w": power}

    ours = timings[OURS]
    peers = {
        name: own(name) | paired(ours, theirs)._asdict() | {"speedup": paired(theirs, ours).ratio}
        for name, theirs in timings.items()
        if name != OURS
    }
    return own(OURS) | {"figure": "burst", "peers": peers}
