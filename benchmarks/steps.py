"""``python -m benchmarks.steps FILE``: quantised products at every number of tokens M, to see where time jumps; and a plot.

Each line of the file is one product by the kernel that `select` takes, over rotating weights in graphs, beside cuBLAS in bf16.
``--plot`` draws a finished file; it needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from baracuda_py.types import GgufFormat

from .gguf_rows import Weights
from .gpu import Sensor, machine
from .harness import Bench
from .int4_rows import BF16, Weight, int4_operands
from .operands import Call, Kit, TorchCall
from .results import Record, write_line
from .stats import repeats_for, rotation
from .sweep import compile_plans

__all__ = ["SERIES", "TOKENS", "Series", "by_series", "drawn", "inversions", "jumps", "of_rows"]

LAUNCHES, PASS_US, COLD_BYTES, MOST_SETS, ROUNDS = 8, 2500.0, 120_000_000, 16, 3
TOKENS = (*range(1, 81), *range(81, 521, 8))
CLEAR = 1.05  # times; what is less is noise
PEERS = (("cublas_us", "-", "cuBLAS, bf16"), ("first_us", ":", "dequantised first"))


@dataclass(frozen=True)
class Series:
    """Products with one weight [n, k]; `kind` is how it is stored."""

    kind: str
    n: int
    k: int

    @property
    def name(self) -> str:
        return f"{self.kind} {self.n}×{self.k}"

    @property
    def nbytes(self) -> int:
        return (
            Weight(self.n, self.k).bytes
            if self.kind == "W4A16"
            else Weights(GgufFormat(self.kind), self.n, self.k).nbytes
        )

    def weights(self, kit: Kit) -> dict[str, Any]:
        """One set of them."""
        if self.kind == "W4A16":
            operands = int4_operands(kit, Weight(self.n, self.k), 1)
            return {name: operands[name] for name in ("codes", "scales")}
        return {"w": Weights(GgufFormat(self.kind), self.n, self.k).made(kit)}

    def plan(self, operands: dict[str, Any], device: Any = None) -> Any:
        """What `select` takes."""
        import baracuda_py as bp

        if self.kind == "W4A16":
            size = Weight(self.n, self.k).group_size
            desc = bp.Int4MatmulDescriptor.of(**operands, shape=(self.k, self.n), group_size=size)
            return bp.Int4MatmulPlan.select(desc, device=device)
        return bp.GgufMatmulPlan.select(
            bp.GgufMatmulDescriptor.of(**operands, format=GgufFormat(self.kind)), device=device
        )


SERIES = (
    Series("W4A16", 8192, 8192),
    Series("W4A16", 28672, 4096),
    Series("W4A16", 6144, 4096),
    Series("q4_k", 8192, 8192),
    Series("q8_0", 10240, 8192),
)


# ---- on the device -------------------------------------------------------------------------------------------------


def _timed(bench: Bench, name: str, calls: Sequence[Call]) -> float:
    contender = bench.contender(name, calls, launches=LAUNCHES)
    repeats = repeats_for(bench.replay_us(contender) * contender.launches, PASS_US)
    return median(bench.replay_us(contender, repeats=repeats) for _ in range(ROUNDS))


def _peer(kit: Kit, series: Series) -> Callable[[int], list[Call]]:
    """cuBLAS in bf16 over as many dense weights as are cold."""
    sets = rotation(2 * series.n * series.k, COLD_BYTES, MOST_SETS)
    dense = [kit.as_torch(kit.normal((series.n, series.k), BF16)) for _ in range(sets)]

    def calls(m: int) -> list[Call]:
        x, out = (kit.as_torch(made) for made in (kit.normal((m, series.k), BF16), kit.empty((m, series.n), BF16)))
        return [TorchCall(lambda w=w: kit.torch.mm(x, w.T, out=out)) for w in dense]

    return calls


def _swept(bench: Bench, series: Series, tokens: Sequence[int], progress: Progress) -> Iterator[Record]:
    kit = bench.kit
    weights = [series.weights(kit) for _ in range(rotation(series.nbytes, COLD_BYTES, MOST_SETS))]
    peer = _peer(kit, series) if kit.torch is not None else None

    def operands(m: int) -> dict[str, Any]:
        return {"x": kit.normal((m, series.k), BF16), "out": kit.empty((m, series.n), BF16)}

    plans = [series.plan({**weights[0], **operands(m)}) for m in tokens]
    compile_plans(plans, progress)
    for m, plan in zip(tokens, plans):
        given = operands(m)
        record = {"series": series.name, "m": m, "variant": plan.sku.variant, "config": plan.sku.config}
        record |= {"us": _timed(bench, str(plan.sku), [plan.bind(**w, **given) for w in weights])}
        yield record | ({"cublas_us": _timed(bench, "cublas", peer(m))} if peer else {})


# ---- committed rows ------------------------------------------------------------------------------------------------


SERVED = {
    "int4 serving": ("W4A16", "cublas", "dequantise first"),
    "gguf served": ("q4_k", "cublas bf16", "dequantised first"),
}


def of_rows(rows: Sequence[Record]) -> list[Record]:
    """The rows of served models' weights, as what is drawn here."""
    found = []
    for row in rows:
        if row["group"] not in SERVED or "error" in row:
            continue
        kind, dense, first = SERVED[row["group"]]
        m, name = row["shape"][0], re.sub(r" ?(g\d+|q4_k|M=\d+)", "", row["name"]).strip()
        weight = re.sub(r"N=(\d+) K=(\d+)", r"\1×\2", name)
        peers = {"cublas_us": row["peers"][dense]["us"], "first_us": row["peers"][first]["us"]}
        found.append({"series": f"{kind} {weight}", "m": m, "us": row["us"], "variant": row["variant"]} | peers)
    return found


# ---- what is shown -------------------------------------------------------------------------------------------------


def by_series(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each, by M."""
    found: dict[str, list[Record]] = defaultdict(list)
    for record in sorted((r for r in records if "us" in r), key=lambda r: r["m"]):
        found[record["series"]].append(record)
    return dict(found)


def jumps(line: Sequence[Record]) -> list[tuple[float, Record, Record]]:
    """Neighbours in M by how many times the second takes the time of the first, the greatest first."""
    return sorted(((b["us"] / a["us"], a, b) for a, b in pairwise(line)), key=lambda j: -j[0])


def inversions(line: Sequence[Record]) -> list[tuple[float, Record, Record]]:
    """Where more tokens take clearly less time, so that padding would have been faster: how many times, the slower, the other."""
    found = []
    for i, record in enumerate(line):
        least = min(line[i:], key=lambda r: r["us"])
        if record["us"] > CLEAR * least["us"]:
            found.append((record["us"] / least["us"], record, least))
    return sorted(found, key=lambda j: -j[0])


def summary(records: Sequence[Record]) -> Table:
    """A line a series: its greatest jumps, and where more tokens are faster."""
    table = Table("products", "greatest steps", "more tokens are faster", title="time against tokens")
    for name, line in by_series(records).items():
        steps = ", ".join(f"{t:.2f}× at {a['m']}→{b['m']}" for t, a, b in jumps(line)[:3])
        back = ", ".join(f"{t:.2f}× at {a['m']} ({b['m']})" for t, a, b in inversions(line)[:4])
        table.add_row(name, steps, back or "nowhere")
    return table


def drawn(records: Sequence[Record], path: Path, where: str, *, logarithmic: bool = False) -> None:
    """Microseconds against M, a panel a series; a dot is coloured by the variant that served."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    lines = by_series(records)
    figure = Figure(figsize=(8, 2.9 * -(-len(lines) // 2)), layout="constrained")
    panels = figure.subplots(-(-len(lines) // 2), 2, squeeze=False).ravel()
    variants = list(dict.fromkeys(r["variant"] for line in lines.values() for r in line))
    for panel, (title, line) in zip(panels, lines.items()):
        for name, style, label in PEERS:
            if name in line[0]:
                panel.plot([r["m"] for r in line], [r[name] for r in line], style, color="#888888", label=label)
        panel.plot([r["m"] for r in line], [r["us"] for r in line], color="#cccccc", linewidth=0.8, zorder=1)
        for i, variant in enumerate(variants):
            if of := [r for r in line if r["variant"] == variant]:
                panel.scatter([r["m"] for r in of], [r["us"] for r in of], s=7, color=f"C{i}", label=variant, zorder=2)
        panel.set_title(title, fontsize=11, loc="left")
        if logarithmic:
            panel.set_xscale("log", base=2)
            panel.set_yscale("log", base=2)
            panel.xaxis.set_major_formatter("{x:g}")
            panel.yaxis.set_major_formatter("{x:g}")
        else:
            panel.set_ylim(bottom=0)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.2)
        panel.set_xlabel("tokens M")
        panel.set_ylabel("µs")
    for panel in panels[len(lines) :]:
        panel.set_visible(False)
    shown = {label: handle for panel in panels for handle, label in zip(*panel.get_legend_handles_labels())}
    figure.legend(
        shown.values(), shown, loc="outside lower center", ncols=4, frameon=False, fontsize=9, handletextpad=0.3
    )
    figure.suptitle(where, fontsize=9, color="#555555", x=0.01, ha="left")
    figure.savefig(path, dpi=120, metadata={"Software": None})


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steps", description=__doc__)
    parser.add_argument("file", type=Path, help="results file, replaced; the plot beside it ends in .png")
    parser.add_argument("--plot", action="store_true", help="draw a finished file")
    parser.add_argument(
        "--series", nargs="*", default=[], metavar="TEXT", help="only those whose name holds one of these"
    )
    parser.add_argument("--tokens", nargs="*", type=int, default=list(TOKENS))
    parser.add_argument("--commit", help="what is measured, where this is no git checkout")
    given = parser.parse_args()
    if not given.plot:
        bench = Bench(Kit())
        bench.warm_up(0.6)
        given.file.unlink(missing_ok=True)
        write_line(given.file, machine(Sensor(), bench.kit.torch, given.commit))
        with Progress(console=Console(stderr=True), transient=True) as progress:
            for series in SERIES:
                if not given.series or any(text in series.name for text in given.series):
                    for record in progress.track(_swept(bench, series, given.tokens, progress), len(given.tokens)):
                        write_line(given.file, record)
                    bench.kit.release()
    head, *records = map(json.loads, given.file.read_text().splitlines())
    Console(width=160).print(summary(records))
    where = f"{head['gpu']}, driver {head['driver']}, {head['date']}; weights rotate, graphs of {LAUNCHES}"
    drawn(records, given.file.with_suffix(".png"), where)


if __name__ == "__main__":
    main()
