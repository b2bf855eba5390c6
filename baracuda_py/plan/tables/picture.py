"""The HTML of a plan: its facts, a roofline with the prediction as a dot, bars of the candidates, occupancy, and the sources.

It needs nothing from elsewhere: no script, no style sheet, no image. Nothing is compiled: the occupancy uses registers where the
kernel is in the cache already.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from ...runtime.compile.compiler import known_resources
from ...runtime.steps import Launch
from ...types import DeviceSpec
from ...types.units import rate_text, time_text
from ..select import Assessment
from ..selection import Selection

__all__ = ["occupancy", "picture"]

WIDTH, HEIGHT, EDGE = 320, 180, 30  # of the roofline, in pixels
BAR = 240  # pixels of the longest bar
DECADES = 3  # of arithmetic intensity on either side of the ridge
REGISTERS = 65536  # of an SM, on every arch here
RESERVED = 1024  # bytes of shared memory that CUDA takes per CTA
# Threads and CTAs that an SM holds at most (CUDA C++ Programming Guide, compute capabilities), by arch; others as sm_80.
RESIDENT = {"sm_86": (1536, 16), "sm_87": (1536, 16), "sm_89": (1536, 24), "sm_120": (1536, 24), "sm_121": (1536, 24)}
MOST_BARS = 12


def picture(selection: Selection, answers: Sequence[Assessment]) -> str:
    """Everything but the table of facts."""
    return "".join(
        (_roofline(selection), _bars(selection, answers), *(_launch(selection, x) for x in _distinct(selection)))
    )


def _distinct(selection: Selection) -> list[Launch]:
    return list({launch.kernel: launch for launch in selection.launches}.values())


def _roofline(selection: Selection) -> str:
    """FLOP/s over FLOPs per byte, both logarithmic: the device's roof, and the plan's prediction."""
    cost, device = selection.cost, selection.device
    if not cost.flops or not cost.bytes or device.is_host:
        moved = cost.bytes / cost.seconds if cost.seconds else 0.0
        return f"<p>{html.escape(rate_text(moved))} of {html.escape(rate_text(device.bandwidth))} predicted</p>"
    roof = _rate(selection, device)
    ridge, intensity, rate = roof / device.bandwidth, cost.flops / cost.bytes, cost.flops / cost.seconds

    def at(x: float, y: float) -> tuple[float, float]:
        across = min(max((math.log10(x / ridge) + DECADES) / (2 * DECADES), 0.0), 1.0)
        up = min(max(1 + math.log10(y / roof) / (DECADES + 1), 0.0), 1.0)
        return round(EDGE + across * (WIDTH - 2 * EDGE), 1), round(HEIGHT - EDGE - up * (HEIGHT - 2 * EDGE), 1)

    low, high = ridge / 10**DECADES, ridge * 10**DECADES
    corners = (at(low, low * device.bandwidth), at(ridge, roof), at(high, roof))
    x, y = at(intensity, rate)
    share = rate / min(roof, intensity * device.bandwidth)
    line = " ".join(f"{a},{b}" for a, b in corners)
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="roofline">'
        f'<polyline points="{line}" fill="none" stroke="currentColor"></polyline>'
        f'<circle cx="{x}" cy="{y}" r="4" fill="#c00"></circle>'
        f'<text x="{EDGE}" y="{HEIGHT - 8}" font-size="11" fill="currentColor">'
        f"{intensity:.3g} FLOPs per byte, {rate / 1e12:.3g} of {roof / 1e12:.3g} TFLOP/s, {share:.0%} of the roof</text></svg>"
    )


def _rate(selection: Selection, device: DeviceSpec) -> float:
    """The peak rate of the plan's math, of f32 where the device has no figure for it."""
    known = dict(device.rates)
    return known.get(str(selection.guarantee.math_precision), known["f32"])


def _bars(selection: Selection, answers: Sequence[Assessment]) -> str:
    """The best prediction of each variant that serves, the chosen one in colour."""
    best: dict[str, float] = {}
    for answer in answers:
        if answer.feasibility and answer.cost is not None:
            name = answer.candidate.variant
            best[name] = min(answer.cost.seconds, best.get(name, math.inf))
    best[selection.candidate.variant] = selection.cost.seconds
    most = max(best.values()) or 1.0
    lines = []
    for name, seconds in sorted(best.items(), key=lambda pair: pair[1])[:MOST_BARS]:
        colour = "#c00" if name == selection.candidate.variant else "#888"
        style = f"display:inline-block;height:10px;width:{max(1, round(BAR * seconds / most))}px;background:{colour}"
        lines.append(f'<div><span style="{style}"></span> {html.escape(name)} {html.escape(time_text(seconds))}</div>')
    return "".join(lines)


def _launch(selection: Selection, launch: Launch) -> str:
    """A kernel's occupancy, and its source, folded."""
    kernel = next(view for view in selection.kernels if view.name == launch.kernel.entry)
    held, limit = occupancy(launch, selection.device)
    return (
        f"<div>{html.escape(kernel.name)}: {held:.0%} of an SM's threads resident, limited by {html.escape(limit)}</div>"
        f"<details><summary>source of {html.escape(launch.kernel.file)}</summary>"
        f"<pre>{html.escape(kernel.source)}</pre></details>"
    )


def occupancy(launch: Launch, device: DeviceSpec) -> tuple[float, str]:
    """The share of an SM's threads that the kernel's CTAs fill, and what limits it; without a cubin in the cache as if registers
    did not."""
    threads = math.prod(launch.block)
    most_threads, most_ctas = RESIDENT.get(device.arch, (2048, 32))
    known = known_resources(launch.kernel, device.arch)
    shared = launch.shared_bytes + (known.shared_bytes if known else 0) + RESERVED
    warps = -(-threads // 32)
    limits = {
        "threads": most_threads // threads,
        "CTAs per SM": most_ctas,
        "shared memory": (device.shared_bytes + RESERVED) // shared,
    }
    if known and known.registers:
        limits["registers"] = REGISTERS // (warps * 32 * (-(-known.registers // 8) * 8))
    limit = min(limits, key=lambda name: limits[name])
    return min(1.0, limits[limit] * threads / most_threads), limit
