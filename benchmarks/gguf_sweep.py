"""``python -m benchmarks.gguf_sweep``: times every configuration of products with GGUF weights, over rotating operands in graphs.

Each line of the file is one problem: format, shape, tokens, arithmetic, the microseconds that its bytes take at the bandwidth of
a copy, and of each configuration what was predicted and what it took.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.progress import Progress

from baracuda_py.types import GgufFormat

from .gguf_rows import Weights, gguf_operands, large
from .harness import Bench
from .int4_sweep import COLD_BYTES, MOST_SETS, timed_plans
from .operands import Kit
from .results import Record, write_line
from .stats import rotation
from .sweep import compile_plans


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gguf_sweep", description=__doc__)
    parser.add_argument("--formats", nargs="*", type=GgufFormat.of, default=list(GgufFormat))
    parser.add_argument("--tokens", nargs="*", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--math", nargs="*", default=["exact", "int8"], choices=["exact", "int8"])
    parser.add_argument("--weights", metavar="NxK", help="by default 512 MB of them")
    parser.add_argument("--file", type=Path, required=True)
    return parser.parse_args()


def plans_of(weights: Weights, m: int, math: str | None) -> list[Any]:
    """Every admissible configuration of the arithmetic, the best predicted first."""
    import baracuda_py as bp
    from baracuda_py.plan.about.tune import admissible
    from baracuda_py.runtime.gpu.device import spec_of

    w_shape = (weights.n, weights.kind.block.bytes_of(weights.k))
    desc = bp.GgufMatmulDescriptor((m, weights.k), "bf16", w_shape, weights.kind, math=math)
    variant = "q8_activation" if math else "exact_activation"
    return list(admissible(bp.GgufMatmulPlan, desc, bp.PlanPreference(variant=variant), spec_of(None)))


def swept(bench: Bench, weights: Weights, m: int, math: str | None) -> Record:
    """Microseconds of every admissible configuration but dequantised weights."""
    count, plans = rotation(weights.nbytes, COLD_BYTES, MOST_SETS), plans_of(weights, m, math)
    sets = [gguf_operands(weights.made(bench.kit), bench.kit, weights, m) for _ in range(count)]
    problem = {"format": str(weights.kind), "n": weights.n, "k": weights.k, "m": m, "math": math}
    floor = plans[0].desc.nbytes / plans[0].device.bandwidth * 1e6
    return {**problem, "floor_us": floor, "timed": timed_plans(bench, plans, sets)}


def main() -> None:
    """Runs what the command line asks for."""
    given = _arguments()
    bench = Bench(Kit(use_torch=False))
    asked = [Weights(k, *map(int, given.weights.split("x"))) if given.weights else large(k) for k in given.formats]
    maths = [None if math == "exact" else math for math in given.math]
    with Progress(transient=True) as progress:
        compile_plans(
            [p for w in asked for m in given.tokens for math in maths for p in plans_of(w, m, math)], progress
        )
    bench.warm_up(0.6)
    for weights in asked:
        for m in given.tokens:
            for math in maths:
                record = swept(bench, weights, m, math)
                write_line(given.file, record)
                best, math_of = record["timed"][0] if record["timed"] else {}, math or "exact"
                times = best.get("us", 0) / record["floor_us"]
                said = f"{best.get('us', 0):.1f} us, {times:.2f} F [{best.get('config')}]"
                print(f"{weights.kind} M={m} {math_of}: {said}", flush=True)
                bench.kit.release()


if __name__ == "__main__":
    main()
