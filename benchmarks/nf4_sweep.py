"""``python -m benchmarks.nf4_sweep``: times every configuration of products with NF4 weights, over rotating operands in graphs.

Each line of the file is one problem: the weight, the tokens, and of each configuration what was predicted and what it took.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .harness import Bench
from .int4_sweep import COLD_BYTES, MOST_SETS, timed_plans
from .nf4_rows import nf4_arrays, nf4_bytes
from .operands import Kit
from .results import Record, write_line
from .stats import rotation


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nf4_sweep", description=__doc__)
    parser.add_argument("--tokens", nargs="*", type=int, default=[1, 2, 4, 8, 16, 32, 64, 96, 128])
    parser.add_argument(
        "--weights", nargs="*", default=["8192x8192", "28672x4096", "4096x14336", "1536x1536"], metavar="NxK"
    )
    parser.add_argument("--double", action="store_true", help="magnitudes quantised as well")
    parser.add_argument("--file", type=Path, required=True)
    return parser.parse_args()


def swept(bench: Bench, n: int, k: int, m: int, *, double: bool) -> Record:
    """Microseconds of every admissible configuration."""
    import baracuda_py as bp
    from baracuda_py.plan.about.tune import admissible
    from baracuda_py.runtime.device import spec_of

    kit, count = bench.kit, rotation(nf4_bytes(n, k, double=double), COLD_BYTES, MOST_SETS)
    sets = [
        {
            "x": kit.normal((m, k), "bfloat16"),
            **nf4_arrays(kit, n, k, double=double),
            "out": kit.empty((m, n), "bfloat16"),
        }
        for _ in range(count)
    ]
    plans = admissible(bp.Nf4MatmulPlan, bp.Nf4MatmulDescriptor.of(**sets[0]), bp.PlanPreference(), spec_of(None))
    return {"n": n, "k": k, "m": m, "double": double, "timed": timed_plans(bench, plans, sets)}


def main() -> None:
    """Runs what the command line asks for."""
    given = _arguments()
    bench = Bench(Kit(use_torch=False))
    bench.warm_up(0.6)
    for n, k in (map(int, text.split("x")) for text in given.weights):
        for m in given.tokens:
            record = swept(bench, n, k, m, double=given.double)
            write_line(given.file, record)
            best = record["timed"][0] if record["timed"] else {}
            print(
                f"{n}x{k} M={m}: {best.get('us', 0):.1f} us, {best.get('variant')} [{best.get('config')}]", flush=True
            )
            bench.kit.release()


if __name__ == "__main__":
    main()
