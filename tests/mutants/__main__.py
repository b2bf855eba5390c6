"""Whether the suite notices careless edits: ``python -m tests.mutants`` tries every mutant of the list that has no result yet.

``--list`` shows the list, ``--survivors`` what the suite did not notice so far, ``--only NAME`` tries some (a pattern; again,
even if there is a result), ``--tiers`` says how far to ask. No GPU is used. It may be stopped and goes on where it was.
Exit status 1 where fewer than 95 % were noticed, a survivor is not explained in survivors.toml, or one explained was noticed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import queue
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .catalogue import CONTROLS, ROOT, Mutant, catalogue, survivors
from .workshop import TIERS, Outcome, Workshop

ENOUGH = 0.95
RESULTS = ROOT / "build" / "mutants.jsonl"
console = Console()


def digest_of(mutant: Mutant) -> str:
    """What a result is of: the file as it is, and the edit."""
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    return hashlib.sha256("\0".join([text, mutant.old, mutant.new, str(mutant.occurrence)]).encode()).hexdigest()[:16]


def kept(path: Path) -> dict[str, Outcome]:
    """The latest result of each mutant, by its name."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {found["name"]: Outcome(**found) for found in map(json.loads, lines)}


def present(results: dict[str, Outcome], mutants: Iterable[Mutant]) -> dict[str, Outcome]:
    """Those results that are of the present mutants."""
    digests = {mutant.name: digest_of(mutant) for mutant in mutants}
    whole = {name: found for name, found in results.items() if found.outcome != "broken"}
    return {name: found for name, found in whole.items() if digests.get(name) == found.digest}


def run(mutants: Sequence[Mutant], tiers: Sequence[str], workers: int, scratch: Path, path: Path) -> None:
    """Tries mutants in so many copies of the checkout at once; a line of JSON for each in `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shops: queue.Queue[Workshop] = queue.Queue()
    for i in range(min(workers, len(mutants))):
        shops.put(Workshop(scratch / f"worker{i}"))

    def one(mutant: Mutant) -> Outcome:
        shop = shops.get()
        try:
            return shop.try_on(mutant, digest_of(mutant), tiers)
        finally:
            shops.put(shop)

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
        ThreadPoolExecutor(workers) as pool,
        path.open("a", encoding="utf-8") as file,
    ):
        bar = progress.add_task("mutants", total=len(mutants))
        waiting = [pool.submit(one, mutant) for mutant in mutants]
        try:
            for done in as_completed(waiting):
                outcome = done.result()
                file.write(json.dumps(asdict(outcome)) + "\n")
                file.flush()
                progress.console.print(line_of(outcome), highlight=False, markup=False, soft_wrap=True)
                progress.advance(bar)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def line_of(outcome: Outcome) -> str:
    by = f"by {outcome.by.removeprefix('tests/')}: {outcome.why}" if outcome.by else ""
    return f"{outcome.outcome:9}{outcome.seconds:7.1f} s {outcome.tier:9} {outcome.name} {by:.160}"


def summary(mutants: Sequence[Mutant], results: dict[str, Outcome]) -> int:
    """Prints what was noticed, by kind; 0 where it is enough and every survivor is explained."""
    tried = [mutant for mutant in mutants if mutant.name in results]
    table = Table("kind", "where", "mutants", *TIERS, "survived", "of them explained")
    for where in ("kernels", "host"):
        for kind in dict.fromkeys(m.kind for m in tried):
            mine = [m for m in tried if m.kind == kind and m.in_kernel is (where == "kernels")]
            if mine:
                table.add_row(kind, where, *_counts(mine, results))
    table.add_section()
    table.add_row("all", "", *_counts(tried, results))
    console.print(table)
    alive = {m.name for m in tried if results[m.name].lives}
    noticed = sum(results[m.name].outcome in ("noticed", "hung") for m in tried)
    for name in sorted(alive - survivors().keys()):
        console.print(f"survived, and is not explained: {name}")
    stale = sorted(name for name in survivors() if name in results and name not in alive)
    for name in stale:
        console.print(f"is explained in survivors.toml, and was noticed: {name}")
    console.print(f"{noticed} of {len(tried)} noticed, {len(mutants) - len(tried)} not tried")
    return 0 if tried and noticed >= ENOUGH * len(tried) and not stale and not alive - survivors().keys() else 1


def _wanted(mutant: Mutant, results: dict[str, Outcome], given: argparse.Namespace) -> bool:
    """Whether a mutant is to be tried: one that was asked for, or one of which it is not known what the last tier says."""
    if given.only:
        return any(fnmatchcase(mutant.name, pattern) for pattern in given.only)
    found = results.get(mutant.name)
    return found is None or (found.lives and TIERS.index(found.tier) < max(map(TIERS.index, given.tiers)))


def _counts(mutants: Sequence[Mutant], results: dict[str, Outcome]) -> list[str]:
    found = [results[m.name] for m in mutants]
    noticed = [sum(r.tier == tier and not r.lives for r in found) for tier in TIERS]
    alive = [r.name for r in found if r.lives]
    return [str(n) for n in (len(mutants), *noticed, len(alive), sum(name in survivors() for name in alive))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--list", action="store_true", help="show the list")
    parser.add_argument("--survivors", action="store_true", help="show what was not noticed so far")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="try these, though they have results")
    parser.add_argument(
        "--controls", action="store_true", help="try edits that change nothing, which no test may notice"
    )
    parser.add_argument("--tiers", nargs="+", choices=TIERS, default=list(TIERS), help="which tests to ask")
    parser.add_argument("--workers", type=int, default=2, help="copies of the checkout at work")
    parser.add_argument("--results", type=Path, default=RESULTS, help="a file of JSON lines")
    parser.add_argument("--scratch", type=Path, help="a folder for the copies; a temporary one by default")
    given = parser.parse_args()
    mutants = CONTROLS if given.controls else catalogue()
    if given.list:
        for mutant in mutants:
            console.print(f"{mutant.name}  [{mutant.kind}] {mutant.file} {mutant.note}", markup=False, highlight=False)
        return 0
    results = present(kept(given.results), mutants)
    if not given.survivors:
        chosen = [m for m in mutants if _wanted(m, results, given)]
        if given.only and not chosen:
            parser.error(
                f"no mutant is called {' or '.join(given.only)}: give a name of --list, or a pattern such as 'gemv-*'"
            )
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            run(chosen, given.tiers, given.workers, given.scratch or Path(folder), given.results)
        results = present(kept(given.results), mutants)
    else:
        for outcome in results.values():
            if outcome.lives:
                console.print(line_of(outcome), survivors().get(outcome.name, ""), markup=False, highlight=False)
    if given.controls:
        return 1 if any(not found.lives for found in results.values()) else 0
    return summary(mutants, results)


if __name__ == "__main__":
    sys.exit(main())
