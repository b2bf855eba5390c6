"""``python -m benchmarks.report``: markdown tables and plots from a results file."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .results import DIRECTORY, Record, Results, best_peer, read
from .stats import geometric_mean, median, slug
from .tables import between_markers, cells, headings, markdown

__all__ = ["plots", "sections", "summary"]

SQUARES_TARGET = 1.03
OURS_COLOUR, FLOOR_COLOUR, MARK_COLOUR = "#2f6fab", "#888888", "#c0392b"
PEER_COLOURS = ("#e08e0b", "#5a9e4b", "#8e6bb0", "#7f5539")


def sections(results: Results) -> dict[str, str]:
    """Markdown by marker name: a table a group, and `summary`."""
    tables = {g: markdown(headings(g), map(cells, results.group(g))) for g in results.groups}
    return tables | {"summary": summary(results)}


def summary(results: Results) -> str:
    """Where the run was made, how the rows stand to the floor and the best peer, and what is missed."""
    meta = results.meta
    good = [r for r in results.rows if "error" not in r]
    ratios = [r["floor"]["ratio"] for r in good if "floor" in r]
    speedups = [best[1] for r in good if _on_device(r) and (best := best_peer(r))]
    squares = [
        r["peers"]["cublas"]["speedup"] for r in good if _square(r) and "speedup" in r["peers"].get("cublas", {})
    ]
    missed = [r["row"] for r in good if r["met"] is False]
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
    lines = [f"{machine}; {meta.get('date', 'undated')}."]
    if ratios:
        lines.append(
            f"Against the floor F: median {median(ratios):.3f}, worst {max(ratios):.3f} of {len(ratios)} rows."
        )
    if speedups:
        lines.append(f"Against the best peer of each row: geometric mean {geometric_mean(speedups):.2f}×.")
    if squares:
        lines.append(
            f"Square products in bf16 and f16 against cuBLAS: geometric mean {geometric_mean(squares):.3f}× of "
            f"{len(squares)} rows (target {SQUARES_TARGET})."
        )
    lines.append(f"Targets missed: {', '.join(missed) or 'none'}.")
    if failed:
        lines.append(f"Rows that failed: {', '.join(failed)}.")
    return "\n".join(f"- {line}" for line in lines)


def _on_device(record: Record) -> bool:
    return "floor" in record or "tflops" in record


def _square(record: Record) -> bool:
    """A plain square product of 16-bit operands: rows in both, the result in their type."""
    return re.fullmatch(r"gemm/(bf16|f16) \d+³", record["row"]) is not None


# ---- plots ---------------------------------------------------------------------------------------------------


def plots(results: Results, directory: Path) -> list[Path]:
    """Draws every plot that the results have rows for; returns the files."""
    import matplotlib

    matplotlib.use("Agg")
    name = slug(results.meta.get("gpu", "gpu"))
    rows = [r for r in results.rows if _on_device(r) and "error" not in r]
    drawn: dict[str, Callable[[list[Record]], Any]] = {
        "floor": _floor_bars,
        "peers": _peer_bars,
        "sweep": _sweep,
        "gemm": _squares,
    }
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for kind, draw in drawn.items():
        figure = draw(rows)
        if figure is not None:
            figure.suptitle(
                f"{results.meta.get('gpu', '')}, {results.meta.get('date', '')}", fontsize=9, color="#555555"
            )
            path = directory / f"{name}-{kind}.png"
            figure.savefig(path, dpi=130)
            written.append(path)
    return written


def _bars(labels: list[str], values: list[float], colours: list[str], title: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 1.2 + 0.19 * len(labels)), layout="constrained")
    axes = figure.subplots()
    places = range(len(labels))
    axes.barh(places, values, color=colours, height=0.72)
    axes.set_yticks(places, labels, fontsize=7)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _floor_bars(rows: list[Record]) -> Any:
    """Our time over the floor's, a bar a row; a tick where the target is a multiple of F."""
    rows = [r for r in rows if "floor" in r]
    if not rows:
        return None
    values = [r["floor"]["ratio"] for r in rows]
    colours = [MARK_COLOUR if r["met"] is False else OURS_COLOUR for r in rows]
    figure, axes = _bars([r["row"] for r in rows], values, colours, "time ÷ matched floor F (lower is better)")
    for place, row in enumerate(rows):
        target = row["target"]
        if target and target["kind"] == "ratio" and target["against"] == "floor":
            axes.plot([target["limit"]] * 2, [place - 0.42, place + 0.42], color="black", linewidth=1.2)
    axes.set_xlabel("tick: target; red: target missed", fontsize=8)
    return figure


def _peer_bars(rows: list[Record]) -> Any:
    """The best peer's time over ours, a bar a row."""
    found = [(row, best) for row in rows if (best := best_peer(row))]
    if not found:
        return None
    labels = [f"{row['row']} ({peer})" for row, (peer, _) in found]
    values = [speedup for _, (_, speedup) in found]
    colours = [OURS_COLOUR if v >= 0.98 else MARK_COLOUR for v in values]
    figure, axes = _bars(labels, values, colours, "speed-up over the best peer (higher is better)")
    axes.set_xlabel("red: the peer is faster by more than 2 %", fontsize=8)
    return figure


def _sweep(rows: list[Record]) -> Any:
    """Useful bytes a second by size, for every op and dtype timed at three sizes or more without broadcasting."""
    from matplotlib.figure import Figure

    families: dict[tuple[str, str], list[Record]] = {}
    for row in rows:
        if row["group"] == "elementwise" and row["read_bytes"] % row["written_bytes"] == 0:
            families.setdefault((row["op"], row["dtype"]), []).append(row)
    families = {k: sorted(v, key=_useful) for k, v in families.items() if len({_useful(r) for r in v}) >= 3}
    if not families:
        return None
    figure = Figure(figsize=(4.2 * len(families), 3.6), layout="constrained")
    for axes, ((op, dtype), family) in zip(figure.subplots(1, len(families), squeeze=False)[0], families.items()):
        _curve(axes, family, lambda r: r["us"], "ours", color=OURS_COLOUR, marker="o", markersize=4)
        _curve(axes, family, lambda r: r["floor"]["us"], "floor F", color=FLOOR_COLOUR, linestyle="--")
        for colour, peer in zip(PEER_COLOURS, dict.fromkeys(p for r in family for p in r["peers"])):
            _curve(axes, family, _peer_time(peer), peer, color=colour, marker=".")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_title(f"{op} {dtype}", fontsize=10)
        axes.set_xlabel("useful bytes", fontsize=8)
        axes.set_ylabel("TB/s", fontsize=8)
        axes.legend(fontsize=7, frameon=False)
        axes.grid(alpha=0.25)
    return figure


def _squares(rows: list[Record]) -> Any:
    """TFLOP/s of the square products by size, ours beside the peers'."""
    from matplotlib.figure import Figure

    families: dict[str, list[Record]] = {}
    for row in rows:
        if _square(row):
            families.setdefault(row["dtype"], []).append(row)
    if not families:
        return None
    figure = Figure(figsize=(4.2 * len(families), 3.6), layout="constrained")
    for axes, (dtype, family) in zip(figure.subplots(1, len(families), squeeze=False)[0], families.items()):
        family.sort(key=lambda r: r["flops"])
        axes.plot(*_rates(family, lambda r: r), label="ours", color=OURS_COLOUR, marker="o", markersize=4)
        for colour, peer in zip(PEER_COLOURS, dict.fromkeys(p for r in family for p in r["peers"])):
            axes.plot(*_rates(family, lambda r: r["peers"].get(peer, {})), label=peer, color=colour, marker=".")  # noqa: B023
        axes.set_xscale("log", base=2)
        axes.set_ylim(bottom=0)
        axes.set_title(f"square products, {dtype}", fontsize=10)
        axes.set_xlabel("M = N = K", fontsize=8)
        axes.set_ylabel("TFLOP/s, steady state", fontsize=8)
        axes.legend(fontsize=7, frameon=False)
        axes.grid(alpha=0.25)
    return figure


def _rates(rows: list[Record], figures: Callable[[Record], Record]) -> tuple[list[int], list[float]]:
    points = [(row["shape"][0], figures(row)["tflops"]) for row in rows if "tflops" in figures(row)]
    return [n for n, _ in points], [rate for _, rate in points]


def _curve(axes: Any, rows: list[Record], time_of: Callable[[Record], float | None], label: str, **style: Any) -> None:
    points = [(_useful(r), _useful(r) / us / 1e6) for r in rows if (us := time_of(r))]
    axes.plot([x for x, _ in points], [y for _, y in points], label=label, linewidth=1.3, **style)


def _peer_time(peer: str) -> Callable[[Record], float | None]:
    return lambda row: row["peers"].get(peer, {}).get("us")


def _useful(row: Record) -> int:
    return int(row["read_bytes"] + row["written_bytes"])


# ---- command line --------------------------------------------------------------------------------------------


def main() -> None:
    """Writes the plots, and the tables into the files named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--results", type=Path, help="results file; without it the newest in benchmarks/results")
    parser.add_argument(
        "--readme", type=Path, help="file whose <!-- benchmark:NAME:begin --> … :end --> parts are filled"
    )
    parser.add_argument("--plots", type=Path, default=DIRECTORY, help="where the plots go")
    given = parser.parse_args()
    path = given.results or max(DIRECTORY.glob("*.jsonl"), key=lambda p: p.stat().st_mtime, default=None)
    if path is None:
        parser.error(f"no results in {DIRECTORY}: run python -m benchmarks on a GPU first")
    results = read(path)
    for plot in plots(results, given.plots):
        print(plot)
    parts = sections(results)
    if given.readme is None:
        for name, body in parts.items():
            print(f"\n## {name}\n\n{body}")
        return
    text = given.readme.read_text()
    for name, body in parts.items():
        if f"<!-- benchmark:{name}:begin -->" in text:
            text = between_markers(text, name, body)
        else:
            print(f"{given.readme} has no place for {name!r}")
    given.readme.write_text(text)


if __name__ == "__main__":
    main()
