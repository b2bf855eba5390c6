"""``python -m benchmarks.held_out --file FILE``: ops of rows at shapes that were drawn, and to which nothing is tuned.

Every shape is timed as a row of the tables is: in graphs over rotating operands, beside torch in the same rounds, and beside
torch.compile, which compiles for each shape, until ``--compile-seconds`` are spent. The order of shapes is random: a run that
``--seconds`` ends has measured a sample of the whole, and ``--first`` continues it. Each line of the file is one shape. Quantiles
of the time over the floor F and of the best peer's time over ours are printed; ``--report`` prints a file's, without a GPU.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import exp, log
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from .results import Record, best_peer, read
from .row import Row
from .row_families import (
    norm_backward_row,
    norm_row,
    reduction_backward_row,
    reduction_row,
    softmax_backward_row,
    softmax_row,
)
from .run import QUICK, Session
from .scan_rows import cumsum_row

__all__ = ["OPS", "drawn", "quantiles", "report"]

COUNT, SEED = 300, 20261128
FIRST = ((7, 999_999), (1_000_000, 33))  # the ends of the range
ELEMENTS = (1 << 18, 1 << 26)  # of a shape
EXTENTS = (33, 1_000_000)
DTYPES = ("bfloat16", "float32")
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
TARGET = 0.95  # of the best peer's speed

Shape = tuple[int, int]


def _along(make: Callable[..., Row], op: str, shape: Shape, dtype: str, axis: int) -> Row:
    return make(op, shape, dtype, axis, None)


def _rows(make: Callable[..., Row], op: str, shape: Shape, dtype: str, _axis: int) -> Row:
    return make(op, shape, dtype, None)


OPS: dict[str, Callable[[Shape, str, int], Row]] = {
    **{op: partial(_along, reduction_row, op) for op in ("sum", "argmax", "var", "logsumexp")},
    **{f"{op}_backward": partial(_along, reduction_backward_row, f"{op}_backward") for op in ("var", "logsumexp")},
    **{op: partial(_rows, softmax_row, op) for op in ("softmax", "log_softmax")},
    **{op: partial(_rows, softmax_backward_row, op) for op in ("softmax_backward", "log_softmax_backward")},
    **{op: partial(_rows, norm_row, op) for op in ("rms_norm", "layer_norm")},
    **{op: partial(_rows, norm_backward_row, op) for op in ("rms_norm_backward", "layer_norm_backward")},
    "cumsum": lambda shape, dtype, axis: cumsum_row(shape, dtype, axis, None),
}


def drawn(count: int = COUNT, seed: int = SEED) -> list[Row]:
    """Rows of `count` shapes: extents are uniform in their logarithm, ops have equal numbers of shapes, and a third of those
    that take an axis take the first."""
    rng = random.Random(seed)
    names: list[str] = []
    rows = []
    for place in range(count):
        if not names:
            names = rng.sample(list(OPS), len(OPS))
        shape = FIRST[place] if place < len(FIRST) else _shape(rng)
        rows.append(OPS[names.pop()](shape, rng.choice(DTYPES), 0 if rng.random() < 1 / 3 else 1))
    return rows


def _shape(rng: random.Random) -> Shape:
    """Two extents, whose product is within `ELEMENTS`."""
    columns = round(exp(rng.uniform(*map(log, EXTENTS))))
    least, most = (max(1, n // columns) for n in ELEMENTS)
    return min(round(exp(rng.uniform(log(least), log(most)))), 1_000_000), columns


class Figures(NamedTuple):
    """Of one shape: the time over the floor's, and the best peer's time over ours."""

    floor: float
    peer: float | None


def _figures(record: Record) -> Figures:
    best = best_peer(record)
    return Figures(record["us"] / record["floor"]["us"], None if best is None else best[1])


class Summary(NamedTuple):
    """Quantiles of both figures, and how many shapes are below `TARGET`."""

    floor: tuple[float, ...]
    peer: tuple[float, ...]
    below: int


def quantiles(values: Sequence[float], at: Sequence[float] = QUANTILES) -> tuple[float, ...]:
    """Values of the sorted ones at those places, between neighbours in proportion; nothing of none."""
    ordered = sorted(values)
    places = [q * (len(ordered) - 1) for q in at] if ordered else []
    return tuple(
        ordered[int(p)] + (p - int(p)) * (ordered[min(int(p) + 1, len(ordered) - 1)] - ordered[int(p)]) for p in places
    )


def summary(records: Sequence[Record]) -> Summary:
    """What the measured ones of the records say together."""
    found = [_figures(record) for record in records if "us" in record]
    peers = [each.peer for each in found if each.peer is not None]
    return Summary(quantiles([each.floor for each in found]), quantiles(peers), sum(p < TARGET for p in peers))


def report(records: Sequence[Record]) -> str:
    """The quantiles of all shapes and of each op, the slowest shapes beside their peers, and those that failed."""
    ops: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        ops[record.get("op", "failed")].append(record)
    head = f"{'quantile':24}" + "".join(f"{q:>8.2f}" for q in QUANTILES)
    lines = [head]
    for name, held in (("all", list(records)), *sorted(ops.items())):
        made = summary(held)
        if not made.floor:
            continue
        lines.append(f"{name + ' × F':24}" + "".join(f"{v:8.2f}" for v in made.floor))
        if made.peer:
            below = f"  {made.below} of {len(held)} below {TARGET}"
            lines.append(f"{'  best peer / ours':24}" + "".join(f"{v:8.2f}" for v in made.peer) + below)
    slow = sorted((r for r in records if "us" in r and best_peer(r)), key=lambda r: _figures(r).peer or 0.0)[:20]
    for record in slow:
        figures, (peer, _) = _figures(record), best_peer(record) or ("", 0.0)
        lines.append(f"{record['row']:52} {figures.floor:6.2f} F {figures.peer or 0.0:6.2f} × {peer}")
    lines += [f"{record['row']}: {record['error']}" for record in records if "error" in record]
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.held_out", description=__doc__)
    parser.add_argument("--file", type=Path, help="JSON lines; with --first above 0 they are appended to it")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--first", type=int, default=0, help="the shape to begin with")
    parser.add_argument("--ops", nargs="*", default=[], help="only these")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no shape is begun after so many")
    parser.add_argument("--compile-seconds", type=float, default=120.0, help="torch.compile is a peer for so many")
    parser.add_argument("--commit", help="what is measured, where this is no git checkout")
    parser.add_argument("--list", action="store_true", help="list the shapes and stop; needs no GPU")
    parser.add_argument("--report", action="store_true", help="print the quantiles of the file and stop; needs no GPU")
    return parser.parse_args()


def measured(
    session: Session, rows: Sequence[Row], path: Path | None, seconds: float, compiling: float
) -> Iterator[Record]:
    """Row after row, until `seconds` are spent; torch.compile is a peer until `compiling` are spent on rows that it is in. The
    meta line is written where `path` does not exist yet."""
    began, with_compile = perf_counter(), 0.0
    meta = session.begin(None if path is None or path.exists() else path)
    for row in rows:
        if perf_counter() - began >= seconds:
            return
        session.kit.use_compile = with_compile < compiling
        (record,) = session.measure([row], path, meta)
        with_compile += record["seconds"] if session.kit.use_compile else 0.0
        yield record


def main() -> None:
    """Runs what the command line asks for."""
    given = _arguments()
    rows = [row for row in drawn(given.count, given.seed)[given.first :] if not given.ops or row.op in given.ops]
    if given.list:
        for place, row in enumerate(rows, given.first):
            print(f"{place:4} {row.key:52} {row.bytes / 1e6:8.1f} MB")
        return
    if given.report:
        print(report(read(given.file).rows))
        return
    session = Session(QUICK, commit=given.commit)
    if given.file is not None:
        given.file.parent.mkdir(parents=True, exist_ok=True)
        if not given.first:
            given.file.unlink(missing_ok=True)
    records = []
    for place, record in enumerate(
        measured(session, rows, given.file, given.seconds, given.compile_seconds), given.first
    ):
        records.append(record)
        said = record.get("error") or "{:.1f} us, {:.2f} F, best peer / ours {:.2f}".format(
            record["us"], *(figure or float("nan") for figure in _figures(record))
        )
        print(f"{place:4} {record['row']}: {said}", flush=True)
    print(report(records))


if __name__ == "__main__":
    main()
