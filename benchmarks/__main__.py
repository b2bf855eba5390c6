"""``python -m benchmarks``: runs the rows, prints a table, writes ``benchmarks/results/<gpu>.jsonl``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .results import DIRECTORY, Record, read
from .run import FULL, QUICK, Session, chosen
from .stats import slug
from .tables import cells, headings

LOG_WIDTH = 160


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", nargs="*", default=[], metavar="TEXT", help="only rows whose key holds one of these")
    parser.add_argument(
        "--stale",
        action="store_true",
        help="only rows that RESULTS.md marks with †: committed figures of another kernel",
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds: to try things, not to quote")
    parser.add_argument("--compile", action="store_true", help="torch.compile as one more peer (seconds a row)")
    parser.add_argument("--no-torch", action="store_true", help="leave torch out")
    parser.add_argument(
        "--no-alone", action="store_true", help="leave out the leg of large products by themselves (12 s each)"
    )
    parser.add_argument("--commit", help="what is measured, where this is no git checkout")
    parser.add_argument("--list", action="store_true", help="list the rows and stop; needs no GPU")
    parser.add_argument(
        "--out", type=Path, help="results file, replaced; without it only a full run writes, to results/<gpu>.jsonl"
    )
    return parser.parse_args()


def main() -> None:
    """Runs what the command line asks for."""
    given, console = arguments(), Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
    rows = chosen(given.rows)
    if given.stale:
        marked = {
            record["row"] for file in DIRECTORY.glob("*.jsonl") for record in read(file).rows if record.get("stale")
        }
        rows = [row for row in rows if row.key in marked]
    if given.list:
        for row in rows:
            console.print(f"{row.key:48} {', '.join(map(str, row.targets))}", highlight=False)
        return
    effort = QUICK if given.quick else replace(FULL, alone_seconds=0.0) if given.no_alone else FULL
    session = Session(effort, use_torch=not given.no_torch, use_compile=given.compile, commit=given.commit)
    path: Path | None = given.out
    if path is None and not (given.rows or given.stale or given.quick):
        path = DIRECTORY / f"{slug(session.meta()['gpu'])}.jsonl"
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)

    records: list[Record] = []
    columns = (TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(rows))
        progress.update(task, description=rows[0].key if rows else "")
        for done, record in enumerate(session.run(rows, path), 1):
            records.append(record)
            progress.update(task, advance=1, description=rows[min(done, len(rows) - 1)].key)

    for group in dict.fromkeys(r["group"] for r in records):
        table = Table(*headings(group), title=group, title_justify="left")
        for record in records:
            if record["group"] == group:
                table.add_row(*cells(record))
        console.print(table)
    if path is not None:
        console.print(f"written: {path}", highlight=False)


if __name__ == "__main__":
    main()
