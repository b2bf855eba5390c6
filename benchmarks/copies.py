"""``python -m benchmarks.copies OUT``: windows written and read beside torch's assignment, JSON lines and a plot.

Rows of every width from 1 to 64 elements at many offsets, of every element size; others that no constant was ever chosen by
(``held-out``); and long rows, which other kernels serve. ``--configs`` times more kernels than the one that `select` takes.
``--plot FILE`` draws a finished file; it needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .gpu import Sensor, machine
from .harness import COLD_BYTES, GRAPH_LIMIT_US, OURS, Bench, Contender
from .operands import Call, Kit, dtype_of
from .results import Record, write_line
from .stats import alternated, geometric_mean, paired, paired_ratio, rotation
from .sweep import compile_plans

__all__ = ["CASES", "HEADINGS", "Case", "by_group", "drawn", "summary", "timed"]

PEER = "assignment"  # torch's, launched on CuPy's current stream
ROUNDS = 6
LAUNCHES = 16  # of a graph under 100 us; above, each set once
MOST_SETS = 24
STRETCH = 1 << 29  # bytes
SECTOR = 32
LOG_WIDTH = 160
Pair = tuple[int, int]


@dataclass(frozen=True)
class Case:
    """A window at `starts` of an array of shape `whole`, `extents` wide, written from a contiguous array, or read into one."""

    group: str
    dtype: str
    whole: tuple[int, ...]
    starts: tuple[int, ...]
    extents: tuple[int, ...]
    reads: bool = False

    @property
    def name(self) -> str:
        at = ", ".join(f"{a}:{a + n}" for a, n in zip(self.starts, self.extents))
        return f"{'read ' if self.reads else ''}{self.dtype} {self.whole} [{at}]"

    @property
    def ranges(self) -> tuple[Pair, ...]:
        return tuple((a, a + n) for a, n in zip(self.starts, self.extents))

    @cached_property
    def itemsize(self) -> int:
        return int(dtype_of(self.dtype).itemsize)

    @property
    def touched(self) -> int:
        """About how many bytes of memory one copy touches: whole sectors of the window, and the other side."""
        run = self.extents[-1] * self.itemsize
        return prod(self.extents[:-1]) * (-(-run // SECTOR) * SECTOR + run)


def _rows(itemsize: int) -> int:
    """Rows of 64 elements that take 256 MB or more, so that a few sets are cold."""
    return (1 << 22) // max(1, itemsize // 2)


def _widths() -> Iterator[Case]:
    def case(dtype: str, width: int, offset: int, reads: bool = False) -> Case:
        rows = _rows(dtype_of(dtype).itemsize)
        group = f"{'read ' if reads else ''}{dtype}"
        return Case(group, dtype, (rows, 64), (0, offset), (rows, width), reads)

    for width in range(1, 65):
        for offset in sorted({o for o in (0, 1, 2, 3, 5, 7, 8, 64 - width) if o + width <= 64}):
            yield case("float16", width, offset)
    some = (1, 2, 3, 5, 6, 8, 12, 16, 17, 24, 31, 32, 33, 47, 48, 56, 63)
    for dtype in ("uint8", "float32", "float64", "complex128"):
        for width in some:
            for offset in (0, 1, 3, 8):
                if width + offset <= 64:
                    yield case(dtype, width, offset)
    for width in some[1::2]:
        for offset in (0, 1, 8):
            if width + offset <= 64:
                yield case("float16", width, offset, reads=True)


def _held_out() -> Iterator[Case]:
    """Pitches, offsets, widths and ranks that are in no other group."""
    rng = np.random.default_rng(20261122)
    dtypes = ("uint8", "float16", "float32", "float64", "complex128")
    for pitch in (112, 90, 333, 44, 77):
        for dtype in dtypes:
            rows = (_rows(dtype_of(dtype).itemsize) * 64 // pitch) - 3
            for reads in (False, False, True):
                width = int(rng.integers(1, min(pitch, 96)))
                offset = int(rng.integers(0, pitch - width + 1))
                yield Case("held-out", dtype, (rows, pitch), (0, offset), (rows, width), reads)
    for shape in ((3989, 71, 127), (50021, 7, 233), (601, 433, 206)):
        for dtype in dtypes[:3]:
            extents = tuple(int(rng.integers(n // 2 + 1, n)) for n in shape)
            starts = tuple(int(rng.integers(0, n - m + 1)) for n, m in zip(shape, extents))
            yield Case("held-out", dtype, shape, starts, extents)


def _long() -> Iterator[Case]:
    """Rows that are not short, and those of the write_slice table."""
    for dtype in ("uint8", "float16", "float32"):
        for width in (100, 200, 400, 800, 1600, 3200, 6400):
            for offset in (1, 8) if dtype == "float16" else (1,):
                pitch = -(-(width + 8) // 64) * 64
                rows = _rows(dtype_of(dtype).itemsize) * 64 // pitch
                yield Case("long", dtype, (rows, pitch), (0, offset), (rows, width))
    yield Case("long", "float16", (16384, 8192), (0, 1024), (16384, 6144))
    yield Case("long", "float16", (16384, 8192), (0, 1001), (16384, 6144))
    yield Case("long", "float16", (8, 32, 4096, 128), (0, 0, 1024, 0), (8, 32, 2048, 128))


CASES: tuple[Case, ...] = (*_widths(), *_held_out(), *_long())


# ---- on the device -------------------------------------------------------------------------------------------


class Pool:
    """Memory for the sets of all cases: `count` stretches, of which every case takes views. What they hold is noise."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self._held: dict[str, list[Any]] = defaultdict(list)

    def take(self, kind: str, index: int, nbytes: int) -> Any:
        """Bytes of stretch `index` of those that are ``"read"`` or ``"written"``, the same for every case that they hold."""
        import cupy

        held = self._held[kind]
        while len(held) <= index:
            held.append(cupy.empty(0, np.uint8))
        if held[index].nbytes < nbytes:
            held[index] = None  # frees it first
            held[index] = self.kit.normal((max(nbytes, STRETCH) // 4 + 1,), "float32").view(np.uint8)
        return held[index][:nbytes]

    def arrays(self, case: Case, index: int) -> tuple[Any, Any]:
        """The whole and the contiguous array, as bytes."""
        kinds = ("read", "written") if case.reads else ("written", "read")
        shapes = (case.whole, case.extents)
        whole, plain = (self.take(kind, index, prod(s) * case.itemsize) for kind, s in zip(kinds, shapes))
        return whole, plain


def _calls(case: Case, plans: Sequence[Any], pool: Pool, index: int) -> dict[str, Call]:
    """Torch's assignment and every plan, over set `index`."""
    torch, window = pool.kit.torch, tuple(slice(*r) for r in case.ranges)
    whole, plain = pool.arrays(case, index)
    theirs = [torch.from_dlpack(x).view(getattr(torch, case.dtype)) for x in (whole, plain)]
    torch_window, torch_plain = theirs[0].reshape(case.whole)[window], theirs[1].reshape(case.extents)
    to, source = (torch_plain, torch_window) if case.reads else (torch_window, torch_plain)

    def assign() -> None:
        import cupy

        with torch.cuda.stream(torch.cuda.ExternalStream(cupy.cuda.get_current_stream().ptr)):
            to.copy_(source)

    ours, ours_plain = whole.view(dtype_of(case.dtype)).reshape(case.whole), plain.view(dtype_of(case.dtype))
    ours_plain = ours_plain.reshape(case.extents)
    dest, given = (ours_plain, ours[window]) if case.reads else (ours, ours_plain)
    calls: dict[str, Call] = {PEER: assign}
    for n, plan in enumerate(plans):
        calls[OURS if n == 0 else _label(plan)] = plan.bind(dest=dest, source=given)
    return calls


def _label(plan: Any) -> str:
    return f"{plan.sku.variant}:{plan.sku.config}"


def plans_of(case: Case, patterns: Sequence[str], device: Any) -> list[Any]:
    """What `select` takes, and the others whose ``variant:config`` one of `patterns` matches. No memory is needed."""
    import baracuda_py as bp
    from baracuda_py.plan.about.tune import admissible
    from baracuda_py.types import ElementKind

    element = ElementKind.of(dtype_of(case.dtype))
    strides = tuple(prod(case.whole[i + 1 :]) for i in range(len(case.whole)))
    start = sum(a * s for a, s in zip(case.starts, strides)) * case.itemsize
    align = min(16, start & -start) if start else 16
    if case.reads:
        desc = bp.WriteSliceDescriptor(
            case.extents, tuple((0, n) for n in case.extents), element, source_strides=strides, source_align=align
        )
    else:
        desc = bp.WriteSliceDescriptor(case.whole, case.ranges, element, dest_align=align)
    chosen = bp.WriteSlicePlan.select(desc, device=device)
    if not patterns:
        return [chosen]
    rivals = admissible(bp.WriteSlicePlan, desc, bp.PlanPreference(), device)
    return [chosen, *(p for p in rivals if p != chosen and any(fnmatch(_label(p), t) for t in patterns))]


def measured(bench: Bench, case: Case, plans: Sequence[Any], pool: Pool, rounds: int) -> Record:
    """Medians of ours, of torch's assignment and of every other plan, a launch in a graph, and the paired quotients."""
    import cupy

    sets = [_calls(case, plans, pool, i) for i in range(rotation(case.touched, COLD_BYTES, MOST_SETS))]
    with bench.stream:  # torch takes the null stream's handle for a new stream
        wrong = _wrong(case, sets[0], pool)
    contenders: list[Contender] = []
    for name in sets[0]:
        calls = [s[name] for s in sets]
        contender = bench.contender(name, calls, launches=len(calls))
        if bench.replay_us(contender) < GRAPH_LIMIT_US:
            contender = bench.contender(name, calls, launches=LAUNCHES)
        bench.replay_us(contender)
        contenders.append(contender)
    times: dict[str, list[float]] = {c.name: [] for c in contenders}
    for index in range(rounds):
        for contender in alternated(contenders, index):
            times[contender.name].append(bench.replay_us(contender))
    cupy.cuda.Device().synchronize()
    theirs = times[PEER]
    configs = {
        (_label(plans[0]) if name == OURS else name): {"us": median(each), "speedup": paired_ratio(theirs, each)}
        for name, each in times.items()
        if name != PEER
    }
    nbytes = 2 * prod(case.extents) * case.itemsize
    speedup, spread, interval = paired(theirs, times[OURS])
    return {
        "us": median(times[OURS]), "torch_us": median(theirs), "speedup": speedup,
        "spread": spread, "interval": interval, "tbps": nbytes / median(times[OURS]) / 1e6,
        "predicted_us": plans[0].cost.seconds * 1e6, "variant": plans[0].sku.variant, "config": plans[0].sku.config,
        "sets": len(sets), "wrong": wrong, "configs": configs,
    }  # fmt: skip


def _wrong(case: Case, calls: dict[str, Call], pool: Pool) -> list[str]:
    """The kernels that do not leave the whole destination as torch's assignment does."""
    target = pool.arrays(case, 0)[1 if case.reads else 0]

    def left_by(call: Call) -> Any:
        target.fill(0x5A)
        call()
        return target

    wanted = left_by(calls[PEER]).copy()
    return [name for name in calls if name != PEER and not bool((left_by(calls[name]) == wanted).all())]


# ---- what is shown -------------------------------------------------------------------------------------------


HEADINGS = ("rows", "windows", "× torch, mean", "least", "slower than torch", "by more than 3 %", "TB/s, median")


def by_group(records: Sequence[Record]) -> Iterator[tuple[str, ...]]:
    """A line a group, and one for all: how many, our speed over torch's (geometric mean and least), losses, useful bytes."""
    good = [r for r in records if "error" not in r]
    for group in [*dict.fromkeys(r["group"] for r in good), ""]:
        mine = [r for r in good if group in ("", r["group"])]
        ups = [r["speedup"] for r in mine]
        if ups:
            yield (
                group or "all", str(len(ups)), f"{geometric_mean(ups):.3f}", f"{min(ups):.3f}", str(sum(u < 1 for u in ups)),
                str(sum(u < 0.97 for u in ups)), f"{median(r['tbps'] for r in mine):.2f}",
            )  # fmt: skip


def summary(records: Sequence[Record]) -> list[Table]:
    """A line a group; a line a configuration, where several were timed; the slowest cases."""
    good = [r for r in records if "error" not in r]
    groups = Table(*HEADINGS, title="x torch")
    for line in by_group(good):
        groups.add_row(*line)
    by_config: dict[tuple[str, str], list[float]] = defaultdict(list)
    best: dict[str, list[float]] = defaultdict(list)
    for group in [*dict.fromkeys(r["group"] for r in good), ""]:
        mine = [r for r in good if group in ("", r["group"])]
        for r in mine:
            best[group].append(max(c["speedup"] for c in r["configs"].values()))
            for name, c in r["configs"].items():
                by_config[group, name].append(c["speedup"])
    tables = [groups]
    if any(len(r["configs"]) > 1 for r in good):
        configs = Table("group", "configuration", "cases", "geometric mean", "least", title="configurations, x torch")
        for (group, name), ups in sorted(by_config.items()):
            if group:
                configs.add_row(group, name, str(len(ups)), f"{geometric_mean(ups):.3f}", f"{min(ups):.3f}")
        for group, ups in best.items():
            configs.add_row(
                group or "all", "the best of each", str(len(ups)), f"{geometric_mean(ups):.3f}", f"{min(ups):.3f}"
            )
        tables.append(configs)
    slow = Table("case", "kernel", "us", "predicted", "torch us", "x torch", "best", title="slowest beside torch")
    for r in sorted(good, key=lambda r: r["speedup"])[:24]:
        top = max(r["configs"], key=lambda name: r["configs"][name]["speedup"])
        slow.add_row(
            r["name"], f"{r['variant']}:{r['config']}", f"{r['us']:.1f}", f"{r['predicted_us']:.1f}", f"{r['torch_us']:.1f}",
            f"{r['speedup']:.3f}", f"{top} {r['configs'][top]['speedup']:.3f}",
        )  # fmt: skip
    return [*tables, slow]


def drawn(records: Sequence[Record], path: Path) -> None:
    """Speed-up over torch against the row's bytes, a panel a group, a line an alignment of the offset; losses red."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    good = [r for r in records if "error" not in r]
    names = list(dict.fromkeys(r["group"] for r in good))
    figure = Figure(figsize=(11, 3.2 * -(-len(names) // 2)), layout="constrained")
    panels = figure.subplots(-(-len(names) // 2), 2, squeeze=False).ravel()
    for panel, name in zip(panels, names):
        mine = [r for r in good if r["group"] == name]
        lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for r in mine:
            offset = r["starts"][-1] * r["itemsize"]
            lines[f"{min(offset & -offset, 32)} B" if offset else "0"].append(
                (r["extents"][-1] * r["itemsize"], r["speedup"])
            )
        loose = name in ("held-out", "long")
        for label in sorted(lines, key=lambda t: int(t.split()[0]) or 1 << 9):
            points: dict[float, list[float]] = defaultdict(list)
            for x, y in lines[label]:
                points[x].append(y)
            xs = sorted(points)
            ys = [min(points[x]) for x in xs]
            (line,) = panel.plot(xs, ys, "." if loose else ".-", lw=1, ms=4, label=label)
            line.set_alpha(0.8)
        lost = [(x, y) for each in lines.values() for x, y in each if y < 1]
        panel.plot([x for x, _ in lost], [y for _, y in lost], "o", color="#c0392b", ms=5, zorder=5)
        panel.axhline(1, color="#888888", lw=1)
        panel.set(
            xscale="log",
            yscale="log",
            xlabel="bytes a row",
            ylabel="x torch",
            title=f"{name}: {len(lost)} of {len(mine)} below 1",
        )
        ticks = [t for t in (0.5, 0.7, 1, 1.5, 2, 3, 4, 6) if t < 1.2 * max(r["speedup"] for r in mine)]
        panel.set_yticks(ticks, [f"{t:g}" for t in ticks])
        panel.minorticks_off()
        panel.legend(title="offset divisible by", fontsize=7, title_fontsize=7, ncols=3)
    for panel in panels[len(names) :]:
        panel.set_axis_off()
    figure.savefig(path, dpi=110)


def timed(path: Path) -> list[Record]:
    """The windows of a results file."""
    return [r for r in map(json.loads, path.read_text().splitlines()) if r.get("kind") == "copy"]


# ---- the command ---------------------------------------------------------------------------------------------


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.copies", description=__doc__)
    parser.add_argument("out", type=Path, help="results file, replaced; the plot beside it ends in .png")
    parser.add_argument(
        "--groups", nargs="*", default=[], metavar="TEXT", help="only groups whose name holds one of these"
    )
    parser.add_argument(
        "--configs", nargs="*", default=[], metavar="GLOB", help="also kernels such as 'short_runs:*unroll=8 sectors'"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only one in N of a group's cases")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=600.0, help="start no case after so long")
    parser.add_argument("--plot", action="store_true", help="draw and sum up `out` as it is, and stop")
    return parser.parse_args()


def _chosen(groups: Sequence[str], every: int) -> list[Case]:
    """One in `every` of each group's cases, at random but always the same."""
    cases = []
    for group in dict.fromkeys(c.group for c in CASES):
        mine = [c for c in CASES if c.group == group]
        if not groups or any(g in group for g in groups):
            drawn_lots = np.random.default_rng(0).permutation(len(mine))
            cases += [c for c, lot in zip(mine, drawn_lots) if lot % every == 0]
    return cases


def _timed(given: argparse.Namespace, clock: Callable[[], float]) -> Iterator[Record]:
    from baracuda_py.runtime.gpu.device import spec_of

    kit = Kit()
    if kit.torch is None:
        raise SystemExit("copies are timed beside torch: install it with CUDA")
    cases, device = _chosen(given.groups, given.every), spec_of(None)
    bench, pool = Bench(kit), Pool(kit)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.unlink(missing_ok=True)
    write_line(given.out, machine(Sensor(), kit.torch) | {"rounds": given.rounds, "cold_bytes": COLD_BYTES})
    columns = (TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        plans = {case: plans_of(case, given.configs, device) for case in progress.track(cases, description="ranking")}
        compile_plans([p for each in plans.values() for p in each], progress)
        bench.warm_up(0.6)
        began = clock()
        for case in progress.track(cases, description="timing"):
            if clock() - began > given.seconds:
                break
            record: Record = {
                "kind": "copy", "group": case.group, "name": case.name, "dtype": case.dtype, "itemsize": case.itemsize,
                "whole": case.whole, "starts": case.starts, "extents": case.extents, "reads": case.reads,
            }  # fmt: skip
            try:
                record |= measured(bench, case, plans[case], pool, given.rounds)
            except Exception as error:
                record |= {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
            write_line(given.out, record)
            yield record


def main() -> None:
    """Runs what the command line asks for."""
    from time import perf_counter

    given, console = _arguments(), Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
    if given.plot:
        records = timed(given.out)
    else:
        records = list(_timed(given, perf_counter))
    for table in summary(records):
        console.print(table)
    for r in records:
        if "error" in r or r["wrong"]:
            console.print(
                f"{r['name']}: {r.get('error') or 'another result: ' + ', '.join(r['wrong'])}",
                style="red",
                highlight=False,
            )
    plot = given.out.with_suffix(".png")
    try:
        drawn(records, plot)
    except ImportError:
        console.print("no plot: pip install matplotlib, then --plot", highlight=False)
    console.print(f"written: {given.out}", highlight=False)


if __name__ == "__main__":
    main()
