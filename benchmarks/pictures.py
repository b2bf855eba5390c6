"""The README's two pictures, drawn from committed results: the roofline of the selection set, and speed-ups by class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .classes import CLASSES, Duel
from .stats import geometric_mean, slug

__all__ = ["draw"]

OURS, PEER, LOSS, ROOF = "#1f6fb4", "#e08e0b", "#c8322b", "#666666"
WIDTH, DPI = 8.0, 150  # inches; GitHub shows it at about 800 pixels

# By NVIDIA's data sheets: bytes a second, and dense FLOP/s in 16 bits and in f32.
DATA_SHEETS = {
    "NVIDIA H200": (4.8e12, {2: 989e12, 4: 67e12}),
    "NVIDIA H100 80GB HBM3": (3.35e12, {2: 989e12, 4: 67e12}),
}


def draw(duels: Sequence[Duel], gpu: str, where: str, directory: Path) -> list[Path]:
    """Writes ``<gpu>-roofline.png`` and ``<gpu>-speedup.png``; `where` says what was measured, on what and when."""
    import matplotlib

    matplotlib.use("Agg")
    written = []
    with matplotlib.rc_context({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}):
        for kind, figure in (("roofline", _roofline(duels, gpu, where)), ("speedup", _speedups(duels, where))):
            path = directory / f"{slug(gpu)}-{kind}.png"
            figure.savefig(path, dpi=DPI, metadata={"Software": None})
            written.append(path)
    return written


def _figure(height: float, title: str, where: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure
    from matplotlib.transforms import blended_transform_factory

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.set_title("\n", fontsize=13)  # room for two lines that begin at the figure's edge
    left = blended_transform_factory(figure.transFigure, axes.transAxes)
    lines = ((22, title, {"fontsize": 13, "fontweight": "bold"}), (6, where, {"fontsize": 9.5, "color": "#555555"}))
    for points, text, style in lines:
        shown = axes.annotate(text, (0.01, 1), xycoords=left, xytext=(0, points), textcoords="offset points", **style)
        shown.set_in_layout(False)
    return figure, axes


# ---- roofline ------------------------------------------------------------------------------------------------------


def _roofline(duels: Sequence[Duel], gpu: str, where: str) -> Any:
    """FLOP/s by FLOPs a byte, both contenders of a product on one vertical line."""
    figure, axes = _figure(5.2, f"{len(duels)} matrix products under the roofline", where)
    x = [_intensity(d) for d in duels]
    rates = {who: [d.product.flops / getattr(d, who) / 1e6 for d in duels] for who in ("ours", "cublas")}
    axes.vlines(x, rates["cublas"], rates["ours"], color="#bbbbbb", linewidth=0.7, zorder=1)
    for who, label, colour in (("cublas", "cuBLAS", PEER), ("ours", "ours (best kernel)", OURS)):
        for f32, marker in ((False, "o"), (True, "^")):
            points = [(a, y) for a, y, d in zip(x, rates[who], duels) if (d.group == "f32") is f32]
            style = {"s": 32 if f32 else 15, "color": colour, "marker": marker, "linewidths": 0, "zorder": 2}
            axes.scatter(*zip(*points), label=f"{label}, f32" if f32 else label, **style)
    left, right = min(x) * 0.7, max(x) * 1.5
    bandwidth, peaks = DATA_SHEETS[gpu]
    for size, peak in peaks.items():
        ridge = peak / bandwidth
        ends = [left, ridge, right] if size == 2 else [ridge, right]
        axes.plot(ends, [min(peak, e * bandwidth) / 1e12 for e in ends], color=ROOF, linewidth=1.2, zorder=0)
        text = f"{'16 bits' if size == 2 else 'f32'}: {peak / 1e12:.0f} TFLOP/s"
        axes.text(right / 1.05, peak * 1.12 / 1e12, text, ha="right", fontsize=9.5, color=ROOF)
    height = left * 2.6 * bandwidth / 1e12 * 1.5
    axes.text(left * 2.6, height, f"{bandwidth / 1e12:g} TB/s", rotation=34, fontsize=9.5, color=ROOF)
    note = "too small to fill the card:\nthe launch is what takes the time"
    axes.text(11, 0.006, note, fontsize=9.5, color="#555555", va="center")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(top=2500)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.set_xlabel("FLOPs a byte that must be moved")
    axes.set_ylabel("TFLOP/s")
    axes.legend(loc="lower right", frameon=False, fontsize=9.5, handletextpad=0.2)
    axes.grid(alpha=0.2)
    return figure


def _intensity(duel: Duel) -> float:
    return duel.product.flops / (duel.product.read + duel.product.written)


# ---- speed-ups -----------------------------------------------------------------------------------------------------


def _speedups(duels: Sequence[Duel], where: str) -> Any:
    """A dot a product in the row of its class, losses in red, the geometric mean written."""
    figure, axes = _figure(4.2, "Speed-up over cuBLAS, a dot a product", where)
    names = [name for name in CLASSES if any(d.group == name for d in duels)][::-1]
    for row, name in enumerate(names):
        own = sorted(d.speedup for d in duels if d.group == name)
        mean = geometric_mean(own)
        heights = [row + 0.28 * _jitter(i) for i in range(len(own))]
        colours = [LOSS if s < 1 else OURS for s in own]
        axes.scatter(own, heights, s=20, c=colours, alpha=0.75, linewidths=0, zorder=2)
        axes.plot([mean, mean], [row - 0.36, row + 0.36], color="black", linewidth=2, zorder=3)
        axes.text(12.5, row, f"{mean:.2f}×", va="center", fontweight="bold")
        axes.text(19, row, f"{sum(s < 1 for s in own)} of {len(own)}", va="center", color=LOSS)
    top = len(names) - 0.4
    axes.text(12.5, top, "mean", fontsize=9.5, color="#555555")
    axes.text(19, top, "slower", fontsize=9.5, color=LOSS)
    axes.axvline(1, color="black", linewidth=0.8, zorder=1)
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.6, 28)
    axes.set_xticks([0.7, 1, 1.4, 2, 4, 8], ["0.7×", "1×", "1.4×", "2×", "4×", "8×"])
    axes.set_ylim(-0.55, len(names) - 0.1)
    axes.set_yticks(range(len(names)), names)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("time of cuBLAS ÷ time of our best kernel; bar: geometric mean")
    axes.grid(axis="x", alpha=0.2)
    return figure


def _jitter(index: int) -> float:
    """A place in -1…1, neighbours at a distance: no dot hides the next."""
    return 2 * ((index * 0.618034) % 1) - 1
