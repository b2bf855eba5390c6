"""``python -m benchmarks.sweep``: times the likeliest kernels of every variant on each shape of the selection set.

Each line of the file holds what was timed for one shape and what `select` takes. ``--report`` sums a file up, ``--table``
writes its winners into the table that the package ships; neither needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .gpu import Sensor, machine
from .harness import WARM_SECONDS, Bench
from .operands import Kit
from .results import DIRECTORY, Record, write_line
from .run import GRAPH_FLOPS
from .selection import predicted, read_sweep, report, update_table
from .shapes import ROWS, SHAPES, Shape
from .stats import alternated, repeats_for, rotation, slug

__all__ = ["compile_plans", "measured", "rivals"]

SWEEPS = DIRECTORY / "sweeps"
PER_VARIANT = 6  # configurations of each variant, the best predicted
FAR = 4.0  # what is predicted so much slower than the best is not timed, but for each variant's best
LAUNCHES = 8
COLD_BYTES, MOST_SETS = 120_000_000, 32  # twice an L2 that is large today; what is smaller than 4 MB stays warm
PASSES, PASS_US = 2, 7000.0  # a candidate is timed in passes of so long, in alternating orders
PAIRED_FLOPS = 1e10  # from here on power sets the clock, and what ran just before would decide: pairs take turns
LOG_WIDTH = 160


def rivals(shape: Shape, device: Any, per_variant: int = PER_VARIANT) -> tuple[list[Any], Any]:
    """The plans to be timed, the best predicted first, and the one that `select` takes, which is among them."""
    import baracuda_py as bp
    from baracuda_py.plan.about.tune import admissible

    desc = shape.product.descriptor()
    plans = admissible(bp.MatmulPlan, desc, bp.PlanPreference(), device, per_variant=per_variant)
    first = {p.sku.variant: p for p in reversed(plans)}
    plans = [p for p in plans if p.cost.seconds <= FAR * plans[0].cost.seconds or p is first[p.sku.variant]]
    chosen = bp.MatmulPlan.select(desc, device=device)
    return (plans if chosen in plans else [*plans, chosen]), chosen


def compile_plans(plans: Sequence[Any], progress: Progress) -> None:
    """Fills the kernel cache on every core; a kernel that does not compile is found again when its turn comes."""
    from baracuda_py.runtime.compile.compiler import compile_kernels
    from baracuda_py.runtime.steps import Launch
    from baracuda_py.types import CompileError

    kernels = {s.kernel: plan.device.arch for plan in plans for s in plan.selection.steps if isinstance(s, Launch)}

    def build(kernel: Any, arch: str) -> None:
        try:
            compile_kernels([kernel], arch)
        except CompileError as error:
            progress.console.print(f"{error}", style="red", highlight=False)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(build, kernel, arch) for kernel, arch in kernels.items()]
        for job in progress.track(jobs, description="compiling"):
            job.result()


def measured(bench: Bench, shape: Shape, plans: Sequence[Any], passes: int = PASSES) -> Record:
    """Microseconds a launch of every plan, over rotating operands; one that fails is listed with its error.

    Of work that draws the card's full power the figure is cuBLAS's median times the median ratio to cuBLAS (without it, the
    plan predicted best) in turns with it.
    """
    from baracuda_py.plan.about.tuned import entry

    product = shape.product
    count = rotation(product.read + product.written, COLD_BYTES, MOST_SETS)
    sets = [product.operands(bench.kit) for _ in range(count)]
    graph = product.flops < GRAPH_FLOPS
    contenders, failed = [], []
    for plan in plans:
        named = {"variant": plan.sku.variant, "config": plan.sku.config}
        try:
            calls = [plan.bind(**operands) for operands in sets]
            contender = bench.contender(str(plan.sku), calls, graph=graph, launches=LAUNCHES)
            contenders.append((contender, repeats_for(bench.replay_us(contender) * contender.launches, PASS_US), plan))
        except Exception as error:
            failed.append(named | {"error": f"{type(error).__name__}: {error}".splitlines()[0]})
    if not graph:  # power and clocks settle under such work, and not every kernel draws as much
        bench.load([c for c, _, _ in contenders], {c.name: repeats for c, repeats, _ in contenders}, WARM_SECONDS)
    reference = next((i for i, (_, _, plan) in enumerate(contenders) if plan.sku.variant == "cublas"), 0)
    paired = product.flops >= PAIRED_FLOPS
    times: dict[int, list[float]] = {i: [] for i in range(len(contenders))}
    ratios: dict[int, list[float]] = {i: [] for i in times}
    for index in range(passes):
        for i in alternated(list(times), index):
            pair = alternated([reference, i], index) if paired and i != reference else [i]
            for j in pair:
                contender, repeats, _ = contenders[j]
                times[j].append(bench.replay_us(contender, repeats=repeats))
            if len(pair) > 1:
                ratios[i].append(times[i][-1] / times[reference][-1])
    figures = {i: median(ratios[i]) * median(times[reference]) if ratios[i] else median(times[i]) for i in times}
    timed = [
        {
            "variant": plan.sku.variant,
            "config": plan.sku.config,
            "backend": str(plan.sku.backend),
            "sources": entry(plan.selection, "")[1]["sources"],
            "predicted_us": plan.cost.seconds * 1e6,
            "us": figures[i],
        }
        for i, (_, _, plan) in enumerate(contenders)
    ]
    return {"timed": timed, "failed": failed}


def sweep(
    bench: Bench, shapes: Sequence[Shape], path: Path, progress: Progress, *, per_variant: int, passes: int
) -> Iterator[Record]:
    """Shape after shape; each is written as soon as it is done."""
    from baracuda_py.runtime.gpu.device import spec_of

    device = spec_of(None)
    found = {shape: rivals(shape, device, per_variant) for shape in progress.track(shapes, description="ranking")}
    compile_plans([plan for plans, _ in found.values() for plan in plans], progress)
    bench.warm_up(0.6)
    for shape in progress.track(shapes, description="timing"):
        plans, chosen = found[shape]
        product = shape.product
        record: Record = {
            "kind": "shape", "name": shape.name, "source": shape.source, "m": product.m, "n": product.n, "k": product.k,
            "dtype": product.dtype, "layout": product.layout,
            "selected": {"variant": chosen.sku.variant, "config": chosen.sku.config, "provenance": chosen.provenance},
            "predicted_us": chosen.cost.seconds * 1e6,
        }  # fmt: skip
        try:
            record |= measured(bench, shape, plans, passes)
        except Exception as error:
            record |= {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        bench.kit.release()
        write_line(path, record)
        yield record


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=__doc__)
    parser.add_argument(
        "--shapes", nargs="*", default=[], metavar="TEXT", help="only shapes whose name or source has one"
    )
    parser.add_argument("--rows", action="store_true", help="the products of the benchmark rows instead of the set")
    parser.add_argument(
        "--per-variant",
        type=int,
        default=PER_VARIANT,
        metavar="N",
        help=f"configurations of each variant ({PER_VARIANT})",
    )
    parser.add_argument(
        "--passes",
        type=int,
        default=PASSES,
        metavar="N",
        help=f"how often each is timed, {PASS_US / 1e3:g} ms each ({PASSES})",
    )
    parser.add_argument("--limit", type=int, help="only the first so many shapes")
    parser.add_argument(
        "--file", type=Path, help="the sweep's file; without it results/sweeps/<gpu>-matmul.jsonl, or -rows.jsonl"
    )
    parser.add_argument("--list", action="store_true", help="list the shapes and stop")
    parser.add_argument(
        "--predict",
        metavar="GPU",
        help="put what the present costs and table predict and select into the file, and stop",
    )
    parser.add_argument("--report", action="store_true", help="sum up the file and stop")
    parser.add_argument(
        "--table", metavar="GPU", help="write the file's winners into the table shipped for this GPU (h200)"
    )
    return parser.parse_args()


def _existing(given: Path | None, kind: str) -> Path:
    if given is not None:
        return given
    newest = max(SWEEPS.glob(f"*-{kind}.jsonl"), key=lambda p: p.stat().st_mtime, default=None)
    if newest is None:
        raise SystemExit(
            f"no sweep in {SWEEPS}: run python -m benchmarks.sweep{' --rows' if kind == 'rows' else ''} on a GPU first"
        )
    return newest


def _predict_again(path: Path, gpu: str) -> None:
    from baracuda_py.runtime.system.libraries import FILES
    from baracuda_py.types import DeviceSpec

    head = json.loads(path.read_text().splitlines()[0])
    records = predicted(read_sweep(path), DeviceSpec.named(gpu).with_libraries(frozenset(FILES)))
    path.write_text("")
    for record in (head | {"predicted": str(date.today())}, *records):
        write_line(path, record)


def _write_table(path: Path, gpu: str, console: Console) -> None:
    from baracuda_py.plan.about.tuned import shipped_path
    from baracuda_py.runtime.system.libraries import FILES
    from baracuda_py.types import DeviceSpec

    device = DeviceSpec.named(gpu).with_libraries(frozenset(FILES))
    table = shipped_path(device, "matmul")
    if table is None:
        raise SystemExit(f"{device} has no figures in the package, and so no table")
    written, held = update_table(table, predicted(read_sweep(path), device), device)
    console.print(f"{table}: {written} winners of this sweep, {held} entries", highlight=False)


def main() -> None:
    """Runs what the command line asks for."""
    given, console = _arguments(), Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
    every, kind = (ROWS, "rows") if given.rows else (SHAPES, "matmul")
    shapes = [s for s in every if not given.shapes or any(t in s.name or t in s.source for t in given.shapes)]
    shapes = shapes[: given.limit]
    if given.list:
        for shape in shapes:
            console.print(f"{shape.name:32} {shape.source}", highlight=False)
        return
    if given.report or given.table or given.predict:
        path = _existing(given.file, kind)
        if given.predict:
            _predict_again(path, given.predict)
        if given.report:
            console.print(report(read_sweep(path)), highlight=False)
        if given.table:
            _write_table(path, given.table, console)
        return
    bench = Bench(Kit(use_torch=False))
    meta = machine(Sensor(), None) | {
        "per_variant": given.per_variant,
        "passes": given.passes,
        "far": FAR,
        "launches": LAUNCHES,
        "cold_bytes": COLD_BYTES,
        "paired_flops": PAIRED_FLOPS,
    }
    path = given.file or SWEEPS / f"{slug(meta['gpu'])}-{kind}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    write_line(path, meta)
    columns = (TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        records = list(sweep(bench, shapes, path, progress, per_variant=given.per_variant, passes=given.passes))
    console.print(report(records), highlight=False)
    console.print(f"written: {path}", highlight=False)


if __name__ == "__main__":
    main()
