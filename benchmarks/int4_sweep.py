"""``python -m benchmarks.int4_sweep``: times every configuration of products with int4 weights, over rotating operands in graphs.

Each line of the file is one problem: the weight, the tokens, what `select` takes, and of each configuration what was predicted
and what it took.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress

from .harness import Bench
from .int4_rows import SERVING, Weight, int4_operands
from .operands import Kit
from .results import Record, write_line
from .stats import repeats_for, rotation
from .sweep import compile_plans

LAUNCHES, PASS_US, COLD_BYTES, MOST_SETS = 8, 3000.0, 120_000_000, 32
FAR = 2.0  # what is predicted so much slower than the best is not timed
SQUARE = Weight(8192, 8192)
TOKENS = [1, 4, 16, 17, 31, 33, 48, 63, 64, 65, 96, 127, 128, 129, 192, 255, 257, 512]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.int4_sweep", description=__doc__)
    parser.add_argument("--tokens", nargs="*", type=int, default=TOKENS)
    parser.add_argument(
        "--weights", nargs="*", default=[], metavar="NxK", help="by default 8192x8192 and the serving set"
    )
    parser.add_argument("--group", type=int, default=128)
    parser.add_argument("--file", type=Path, required=True)
    return parser.parse_args()


def plans_of(weight: Weight, operands: dict[str, Any]) -> list[Any]:
    """The admissible configurations that may be among the fastest, the best predicted first."""
    import baracuda_py as bp
    from baracuda_py.plan.about.tune import admissible
    from baracuda_py.runtime.gpu.device import spec_of

    desc = bp.Int4MatmulDescriptor.of(**operands, shape=(weight.k, weight.n), group_size=weight.group_size)
    plans = admissible(bp.Int4MatmulPlan, desc, bp.PlanPreference(), spec_of(None))
    return [plan for plan in plans if plan.cost.seconds <= FAR * plans[0].cost.seconds]


def compile_all(bench: Bench, weights: Sequence[Weight], tokens: Sequence[int]) -> None:
    """Every kernel that is to be timed, on all cores."""
    plans: list[Any] = []
    for weight in weights:
        for m in tokens:
            plans += plans_of(weight, int4_operands(bench.kit, weight, m))
        bench.kit.release()
    with Progress(transient=True) as progress:
        compile_plans(plans, progress)


def swept(bench: Bench, weight: Weight, m: int) -> Record:
    """Microseconds of every configuration, and of the one that `select` takes."""
    sets = [int4_operands(bench.kit, weight, m) for _ in range(rotation(weight.bytes, COLD_BYTES, MOST_SETS))]
    timed = timed_plans(bench, plans_of(weight, sets[0]), sets)
    selected = min(timed, key=lambda record: record["predicted_us"], default={})
    return {"n": weight.n, "k": weight.k, "group": weight.group_size, "m": m, "selected": selected, "timed": timed}


def timed_plans(
    bench: Bench, plans: Sequence[Any], sets: Sequence[Mapping[str, Any]], far: float = FAR
) -> list[Record]:
    """Microseconds of each plan, over operands in turn, the fastest first; of those that are not predicted `far` times slower."""
    timed: list[Record] = []
    for plan in plans:
        if plan.cost.seconds > far * plans[0].cost.seconds:
            continue
        name = {"variant": plan.sku.variant, "config": plan.sku.config, "predicted_us": plan.cost.seconds * 1e6}
        try:
            calls: list[Any] = [plan.bind(**operands) for operands in sets]
            contender = bench.contender(str(plan.sku), calls, launches=LAUNCHES)
            repeats = repeats_for(bench.replay_us(contender) * contender.launches, PASS_US)
            timed.append({**name, "us": bench.replay_us(contender, repeats=repeats), "limit": plan.cost.limit})
        except Exception as error:
            timed.append({**name, "error": f"{type(error).__name__}: {error}".splitlines()[0]})
    return sorted(timed, key=lambda record: record.get("us", float("inf")))


def main() -> None:
    """Runs what the command line asks for."""
    given = _arguments()
    asked = [Weight(*map(int, text.split("x")), given.group) for text in given.weights]
    bench = Bench(Kit(use_torch=False))
    weights = asked or [SQUARE, *SERVING]
    compile_all(bench, weights, given.tokens)
    bench.warm_up(0.6)
    for weight in weights:
        for m in given.tokens:
            record = swept(bench, weight, m)
            write_line(given.file, record)
            best, chosen = (record["timed"] or [{}])[0], record["selected"]
            said = ", ".join(
                f"{each.get('us', 0):.1f} us {each.get('variant')} [{each.get('config')}]" for each in (best, chosen)
            )
            print(f"{weight} M={m}: best and selected {said}", flush=True)
            bench.kit.release()


if __name__ == "__main__":
    main()
