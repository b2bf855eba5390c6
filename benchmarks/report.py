"""``python -m benchmarks.report``: writes RESULTS.md, the README's figures and its pictures from the committed results.

The README and RESULTS.md show the GPU named here; each other GPU with results has a page of its tables (``--gpu``).
"""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import copies
from .classes import ALIGNED, Duel, duels, split, split_rows
from .pictures import draw
from .results import DIRECTORY, Record, Results, added, best_peer, read, write
from .run import chosen
from .selection import read_sweep
from .stale import marked
from .stats import geometric_mean, median, slug
from .steps import drawn, of_rows
from .tables import between_markers, cells, headings, markdown

__all__ = ["committed", "headline", "measured_gpus", "pages", "sections", "summary", "written"]

SQUARES_TARGET = 1.03
GPU = "NVIDIA H200"
ROOT = DIRECTORY.parents[1]
PAGE = DIRECTORY.parent / "RESULTS.md"
HOW_TO_READ = f"[{PAGE.name}]({PAGE.name}) says how to read the tables and how rows are measured."
OTHER_HEADINGS = {"windows": "Windows of short rows", "split": "The selection set"}
TOKENS = "{gpu}, the rows of served weights; weights rotate over 600 MB, in graphs; dates and commits beside the rows"
WIDTH = 125  # of the README's lines
FEW_ROWS = 16  # of a product that memory bounds
SPLIT_HEADINGS = ("products", "how many", "mean", "slower", "worst")


def sections(results: Results, found: Sequence[Duel], swept: Record) -> dict[str, str]:
    """Markdown by marker name: a table a group and `summary`; of a sweep's products, where there are any, `split` and
    `headline`."""
    parts = {g: markdown(headings(g), map(cells, results.group(g))) for g in results.groups}
    parts["summary"], parts["gpu"] = summary(results), _measured_on(results.meta.get("gpu", GPU))
    windows = DIRECTORY / "windows" / f"{slug(results.meta.get('gpu') or GPU)}.jsonl"
    if windows.exists():
        parts["windows"] = markdown(copies.HEADINGS, copies.by_group(copies.timed(windows)))
    if found:
        parts["split"] = markdown(SPLIT_HEADINGS, split_rows(found))
        parts["headline"] = headline(results, found, swept)
    return parts


def _measured_on(gpu: str) -> str:
    """The page's GPU, and links to the pages of the others."""
    links = [f"[{other}]({pages(other)[-1].name})" for other in measured_gpus() if other != gpu]
    return f"Measured on one {gpu}." + (f" Other GPUs: {', '.join(links)}." if links else "")


def headline(results: Results, found: Sequence[Duel], swept: Record) -> str:
    """What the README says, every figure with its circumstances."""
    means = {name: geometric_mean(s) for name, s in split(found)}
    aligned = dict(split(found))[ALIGNED]
    by_rows = ", ".join(f"{means[n]:.2f}× for {n.removeprefix('decode, ')}" for n in means if "M " in n)
    ragged = next(mean for name, mean in means.items() if name.startswith("ragged"))
    slower = [d.speedup for d in found if d.speedup < 1]
    floors = _floors(results)
    lines = [
        f"Measured on one {swept['gpu']} (driver {swept['driver']}, {swept['date']}). Matrix products beside cuBLAS's own first "
        f"choice, geometric means of our best kernel's speed over its: **{means[ALIGNED]:.2f}×** on the {len(aligned)} of "
        f"{len(found)} shapes of 16 bits whose rows are 16-byte aligned ({by_rows}), {ragged:.2f}× on those that are not "
        f"(cuBLAS gets them unpadded), {means['f32']:.2f}× in f32. {len(slower)} of the {len(found)} are slower, the worst "
        f"{min(slower, default=1):.2f}×.",
        f"What memory bounds (products of up to {FEW_ROWS} rows, and all else) takes {median(floors):.2f} times as long as a "
        f"plain streaming kernel over the same bytes (median of {len(floors)} rows, worst {max(floors):.2f}).",
    ]
    if legs := _legs(results, "gemm"):
        texts = ", ".join(f"{name} {speedup:.2f}×" for name, _, speedup in legs)
        lines.append(f"Large products, at the card's power limit, each for seconds beside its best peer: {texts}.")
    return textwrap.fill(" ".join(lines), WIDTH)


def _floors(results: Results) -> list[float]:
    """The time over that of a plain streaming kernel, of each row that was measured beside one; of
    products only those of few rows."""
    measured = [r for r in results.rows if "error" not in r and "floor" in r]
    return [r["floor"]["ratio"] for r in measured if _rows_of_product(r) <= FEW_ROWS]


def _rows_of_product(record: Record) -> int:
    """M, as a row's name says it; 0 where it says none."""
    found = re.search(r"\bM ?= ?(\d+)", record["row"])
    return int(found[1]) if found else 0


def _legs(results: Results, group: str) -> list[tuple[str, str, float]]:
    """Of each row that ran by itself: its name, the peer, and the peer's time over ours."""
    return [
        (record["name"], peer, leg["us"] / record["alone"]["ours"]["us"])
        for record in results.rows
        if record["group"] == group
        for peer, leg in record.get("alone", {}).items()
        if peer != "ours"
    ]


def summary(results: Results) -> str:
    """Where the run was made, how the rows stand to the floor and the best peer, and what is missed."""
    meta = results.meta
    good = [r for r in results.rows if "error" not in r]
    ratios = _floors(results)
    speedups = [best[1] for r in good if _on_device(r) and (best := best_peer(r))]
    squares = [best[1] for r in good if _square(r) and (best := best_peer(r))]
    missed, unclear = [r for r in good if r["met"] is False], [r for r in good if r.get("open")]
    failed = [r["row"] for r in results.rows if "error" in r]
    machine = ", ".join(
        f"{label} {meta[key]}"
        for key, label in (
            ("gpu", ""),
            ("driver", "driver"),
            ("nvrtc", "NVRTC"),
            ("cupy", "CuPy"),
            ("torch", "PyTorch"),
        )
        if meta.get(key)
    ).strip()
    lines = [f"{machine}; {meta.get('date', 'undated')}.", *_runs(results)]
    if ratios:
        lines.append(
            f"What memory bounds against the floor F: median {median(ratios):.3f}, worst {max(ratios):.3f} of {len(ratios)} rows."
        )
    if speedups:
        lines.append(f"Against the best peer of each row: geometric mean {geometric_mean(speedups):.2f}×.")
    if squares:
        lines.append(
            f"Square products in bf16 and f16 against the best peer, in turns: geometric mean {geometric_mean(squares):.3f}× of "
            f"{len(squares)} rows (target {SQUARES_TARGET})."
        )
    for group, label in (("attention", "Attention"), ("attention_backward", "Its backward")):
        if legs := _legs(results, group):
            faster = [speedup for _, _, speedup in legs]
            lines.append(
                f"{label}, each for seconds by itself beside {legs[0][1]}: geometric mean {geometric_mean(faster):.2f}×, least "
                f"{min(faster):.2f}× of {len(legs)} rows."
            )
    if stale := sum(bool(r.get("stale")) for r in good):
        lines.append(
            f"Measured with another kernel or configuration than is taken today, or one renamed since (†): {stale} rows."
        )
    lines.append(f"Targets missed: {_by_group(missed, good)}")
    if unclear:
        lines.append(f"No verdict, the target lies within what the measurement can tell: {_by_group(unclear, good)}")
    if failed:
        lines.append(f"Rows that failed: {', '.join(failed)}.")
    return "\n".join(f"- {line}" for line in lines)


def _by_group(some: Sequence[Record], rows: Sequence[Record]) -> str:
    """How many of the rows that have targets, and their names, an indented line a group."""
    asked = [r["group"] for r in rows if r["target"]]
    lines = [f"{len(some)} of {len(asked)} rows."]
    for group in dict.fromkeys(r["group"] for r in some):
        names = [r["name"] for r in some if r["group"] == group]
        lines.append(f"  - {group}, {len(names)} of {asked.count(group)}: {'; '.join(names)}")
    return "\n".join(lines)


def _runs(results: Results) -> list[str]:
    """Which rows were made when and of which commit."""
    runs: dict[str, int] = {}
    for row in results.rows:
        made = row.get("made") or {}
        commit = (
            f"{made['baracuda_py']} at {made['commit']}" if made.get("commit") else "of a commit that was not recorded"
        )
        what = f"{made.get('date', 'undated')}, {commit}"
        runs[what] = runs.get(what, 0) + 1
    return ["Rows by run: " + "; ".join(f"{count} on {what}" for what, count in runs.items()) + "."] if runs else []


def _on_device(record: Record) -> bool:
    return "floor" in record or "tflops" in record


def _square(record: Record) -> bool:
    """A plain square product of 16-bit operands: rows in both, the result in their type."""
    return re.fullmatch(r"gemm/(bf16|f16) \d+³", record["row"]) is not None


# ---- command line --------------------------------------------------------------------------------------------


def filled(text: str, parts: Mapping[str, str]) -> str:
    """`text` with the parts between its markers."""
    for marker in re.findall(r"<!-- benchmark:([\w ]+):begin -->", text):
        text = between_markers(text, marker, parts[marker])
    return text


def committed(gpu: str = GPU) -> tuple[Results, list[Duel], Record]:
    """The committed rows of a GPU, the products of its sweep, and the sweep's circumstances."""
    rows, sweep = DIRECTORY / f"{slug(gpu)}.jsonl", DIRECTORY / "sweeps" / f"{slug(gpu)}-matmul.jsonl"
    return read(rows), duels(read_sweep(sweep)), json.loads(sweep.read_text().splitlines()[0])


def pages(gpu: str = GPU) -> list[Path]:
    """The files whose ``<!-- benchmark:NAME:begin -->`` … ``:end`` parts are filled with a GPU's results."""
    return [ROOT / "README.md", PAGE] if gpu == GPU else [PAGE.with_stem(f"{PAGE.stem}-{slug(gpu)}")]


def written(page: Path, gpu: str, parts: Mapping[str, str]) -> str:
    """The page's text with these parts. The page of another GPU has the tables of what was measured there."""
    if page in pages():
        return filled(page.read_text(encoding="utf-8"), parts)
    tables = {name: part for name, part in parts.items() if name not in ("gpu", "summary", "headline")}
    sections = [f"## {OTHER_HEADINGS.get(name, name)}\n\n{part}" for name, part in tables.items()]
    return "\n\n".join([f"# Results: {gpu}", parts["gpu"], HOW_TO_READ, parts["summary"], *sections]) + "\n"


def measured_gpus() -> list[str]:
    """The GPUs with committed results, the page's own first."""
    found = [read(file).meta["gpu"] for file in DIRECTORY.glob("*.jsonl")]
    return sorted(found, key=lambda gpu: (gpu != GPU, gpu))


def main() -> None:
    """Writes what is made of the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--gpu", default=GPU, help=f"whose results ({GPU})")
    parser.add_argument(
        "--add", type=Path, nargs="+", default=[], metavar="FILE", help="first put these rows into them"
    )
    given = parser.parse_args()
    path = DIRECTORY / f"{slug(given.gpu)}.jsonl"
    if not (path.exists() or given.add):
        parser.error(f"there are no results of {given.gpu!r}: {path}")
    for file in given.add:
        fresh = read(file)
        write(path, added(read(path) if path.exists() else fresh, fresh, [row.key for row in chosen([])]))
    write(path, marked(read(path), given.gpu))
    results, found, swept = committed(given.gpu)
    parts = sections(results, found, swept)
    for page in pages(given.gpu):
        page.write_text(written(page, given.gpu, parts), encoding="utf-8")
    where = (
        f"{swept['gpu']}, driver {swept['driver']}, {swept['date']}; operands rotate over "
        f"{swept['cold_bytes'] / 1e6:.0f} MB; cuBLAS by its own first choice"
    )
    pictures: list[Path] = []
    if given.gpu == GPU:
        tokens = DIRECTORY / f"{slug(GPU)}-tokens.png"
        drawn(of_rows(results.rows), tokens, TOKENS.format(gpu=GPU), logarithmic=True)
        pictures = [*draw(found, GPU, where, DIRECTORY), tokens]
    for path in (*pages(given.gpu), *pictures):
        print(path)


if __name__ == "__main__":
    main()
