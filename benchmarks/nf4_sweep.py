"""``python -m benchmarks.nf4_sweep``: times every configuration of products with NF4 weights, over rotating operands in graphs.

Each line of the file is one problem: the weight, the tokens, and of each configuration what was predicted and what it took.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

from rich.progress import Progress

from .harness import Bench
from .int4_sweep import COLD_BYTES, FAR, MOST_SETS, timed_plans
from .nf4_rows import nf4_arrays, nf4_bytes
from .operands import Kit
from .results import Record, write_line
from .stats import rotation
from .sweep import compile_plans


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nf4_sweep", description=__doc__)
    parser.add_argument("--tokens", nargs="*", type=int, default=[1, 2, 4, 8, 16, 32, 64, 96, 128])
    parser.add_argument(
        "--weights", nargs="*", default=["8192x8192", "28672x4096", "4096x14336", "1536x1536"], metavar="NxK"
    )
    parser.add_argument("--double", action="store_true", help="magnitudes quantised as well")
    parser.add_argument("--far", type=float, default=FAR, help="times the best prediction that is timed")
    parser.add_argument("--file", type=Path, required=True)
    return parser.parse_args()


def plans_of(desc: Any) -> list[Any]:
    """Every admissible configuration, the best predicted first."""
    import baracuda_py as bp
    from baracuda_py.plan.about.tune import admissible
    from baracuda_py.runtime.gpu.device import spec_of

    return admissible(bp.Nf4MatmulPlan, desc, bp.PlanPreference(), spec_of(None))


def compile_all(shapes: Iterable[tuple[int, int]], tokens: Iterable[int], *, double: bool) -> None:
    """Every kernel that is to be timed, on all cores."""
    import baracuda_py as bp

    held = {"absmax_element": "u8", "scales_element": "f32", "offset_element": "f32"} if double else {}
    plans = [
        plan
        for (n, k), m in product(shapes, tokens)
        for plan in plans_of(bp.Nf4MatmulDescriptor((m, k), n, "bf16", **held))
    ]
    with Progress(transient=True) as progress:
        compile_plans(plans, progress)


def swept(bench: Bench, n: int, k: int, m: int, *, double: bool, far: float) -> Record:
    """Microseconds of every admissible configuration that is not predicted `far` times slower than the best."""
    import baracuda_py as bp

    kit, count = bench.kit, rotation(nf4_bytes(n, k, double=double), COLD_BYTES, MOST_SETS)
    sets = [
        {
            "x": kit.normal((m, k), "bfloat16"),
            **nf4_arrays(kit, n, k, double=double),
            "out": kit.empty((m, n), "bfloat16"),
        }
        for _ in range(count)
    ]
    plans = plans_of(bp.Nf4MatmulDescriptor.of(**sets[0]))
    return {"n": n, "k": k, "m": m, "double": double, "timed": timed_plans(bench, plans, sets, far)}


def main() -> None:
    """Runs what the command line asks for."""
    given = _arguments()
    bench = Bench(Kit(use_torch=False))
    shapes = [(int(n), int(k)) for n, k in (text.split("x") for text in given.weights)]
    compile_all(shapes, given.tokens, double=given.double)
    bench.warm_up(0.6)
    for n, k in shapes:
        for m in given.tokens:
            record = swept(bench, n, k, m, double=given.double, far=given.far)
            write_line(given.file, record)
            best = record["timed"][0] if record["timed"] else {}
            print(
                f"{n}x{k} M={m}: {best.get('us', 0):.1f} us, {best.get('variant')} [{best.get('config')}]", flush=True
            )
            bench.kit.release()


if __name__ == "__main__":
    main()
