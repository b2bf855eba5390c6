"""``python -m benchmarks.int4_sweep``: times every configuration of products with int4 weights, over rotating operands in graphs.

Each line of the file is one problem: the weight, the tokens, and of each configuration what was predicted and what it took.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .harness import Bench
from .int4_rows import SERVING, Weight, int4_operands
from .operands import Kit
from .results import Record, write_line
from .stats import repeats_for, rotation

LAUNCHES, PASS_US, COLD_BYTES, MOST_SETS = 8, 3000.0, 120_000_000, 32
FAR = 3.0  # what is predicted so much slower than the best is not timed
SQUARE = Weight(8192, 8192)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.int4_sweep", description=__doc__)
    parser.add_argument("--tokens", nargs="*", type=int, default=[1, 4, 8, 16, 32, 64, 128, 256, 512])
    parser.add_argument(
        "--weights", nargs="*", default=[], metavar="NxK", help="by default 8192x8192 and the serving set"
    )
    parser.add_argument("--group", type=int, default=128)
    parser.add_argument("--file", type=Path, required=True)
    return parser.parse_args()


def timed(bench: Bench, plans: Sequence[Any], sets: Sequence[dict[str, Any]]) -> list[Record]:
    """Microseconds of plans, the fastest first, but of those that are predicted to be FAR slower than the first."""
    found: list[Record] = []
    for plan in plans:
        if plan.cost.seconds > FAR * plans[0].cost.seconds:
            continue
        name = {"variant": plan.sku.variant, "config": plan.sku.config, "predicted_us": plan.cost.seconds * 1e6}
        try:
            calls: list[Any] = [plan.bind(**operands) for operands in sets]
            contender = bench.contender(str(plan.sku), calls, launches=LAUNCHES)
            repeats = repeats_for(bench.replay_us(contender) * contender.launches, PASS_US)
            found.append({**name, "us": bench.replay_us(contender, repeats=repeats), "limit": plan.cost.limit})
        except Exception as error:
            found.append({**name, "error": f"{type(error).__name__}: {error}".splitlines()[0]})
    return sorted(found, key=lambda record: float(record.get("us", float("inf"))))


def swept(bench: Bench, weight: Weight, m: int) -> Record:
    """Microseconds of every admissible configuration."""
    import baracuda_py as bp
    from baracuda_py.plan.about.tune import admissible
    from baracuda_py.runtime.device import spec_of

    sets = [int4_operands(bench.kit, weight, m) for _ in range(rotation(weight.bytes, COLD_BYTES, MOST_SETS))]
    desc = bp.Int4MatmulDescriptor.of(**sets[0], shape=(weight.k, weight.n), group_size=weight.group_size)
    plans = admissible(bp.Int4MatmulPlan, desc, bp.PlanPreference(), spec_of(None))
    return {"n": weight.n, "k": weight.k, "group": weight.group_size, "m": m, "timed": timed(bench, plans, sets)}


def main() -> None:
    """Runs what the command line asks for."""
    given = _arguments()
    asked = [Weight(*map(int, text.split("x")), given.group) for text in given.weights]
    bench = Bench(Kit(use_torch=False))
    bench.warm_up(0.6)
    for weight in asked or (SQUARE, *SERVING):
        for m in given.tokens:
            record = swept(bench, weight, m)
            write_line(given.file, record)
            best = record["timed"][0] if record["timed"] else {}
            print(
                f"{weight} M={m}: {best.get('us', 0):.1f} us, {best.get('variant')} [{best.get('config')}]", flush=True
            )
            bench.kit.release()


if __name__ == "__main__":
    main()
