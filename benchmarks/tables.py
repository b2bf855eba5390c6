"""Result lines as table cells and markdown. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .results import BASELINES, Record, best_peer

__all__ = ["between_markers", "cells", "headings", "markdown", "peer_text", "verdict"]

HOST = ("host", "bridge")  # groups of rows that have no floor
PRODUCTS = ("gemm", "attention", "attention_backward", "models", "int8")  # groups with compute-bound rows
DEVICE_HEADINGS = ("row", "µs", "TB/s", "× F", "µs, one launch", "peers: µs (our speed-up)", "target", "met")
PRODUCT_HEADINGS = (
    "row", "µs", "TFLOP/s", "× F", "MHz, W", "peers: µs (our speed-up)", "alone: µs, MHz", "kernel", "target", "met",
)  # fmt: skip
HOST_HEADINGS = ("row", "µs", "peers: µs (our speed-up)", "target", "met")


def headings(group: str) -> tuple[str, ...]:
    """The column titles of a group."""
    return PRODUCT_HEADINGS if group in PRODUCTS else HOST_HEADINGS if group in HOST else DEVICE_HEADINGS


def cells(record: Record) -> tuple[str, ...]:
    """One result line as the cells of its group's table."""
    if "error" in record:
        gaps = ("–",) * (len(headings(record["group"])) - 2)
        return (record["name"], *gaps, f"failed: {record['error'].splitlines()[0][:120]}")
    target = record["target"]["text"] if record["target"] else ""
    name = f"{record['name']} †" if record.get("stale") else record["name"]
    last = (peer_text(record), target, verdict(record))
    if record["group"] in HOST:
        return (name, number(record["us"]), *last)
    if record["group"] in PRODUCTS:
        return (name, *_product_cells(record, last))
    return (
        name,
        number(record["us"]),
        f"{record['tbps']:.2f}" if "tbps" in record else "",  # prompts among rows of caches are bound by products
        f"{record['floor']['ratio']:.3f}" if "floor" in record else "",
        number(record["event_us"]) if "event_us" in record else "",
        *last,
    )


def _product_cells(record: Record, last: tuple[str, str, str]) -> tuple[str, ...]:
    """What follows the name of a row of products: the compute-bound have a rate, the others stand beside the floor."""
    peers, *rest = last
    config = f"[{record['config']}]" if record["config"] else ""
    return (
        number(record["us"]),
        f"{record['tflops']:.1f}" if "tflops" in record else "",
        f"{record['floor']['ratio']:.3f}" if "floor" in record else "",
        f"{record['clock_mhz']:.0f}, {record['power_w']:.0f}" if record["clock_mhz"] else "",
        peers,
        alone_text(record),
        f"{record['variant']}{config}",
        *rest,
    )


def alone_text(record: Record) -> str:
    """``213.0 at 1395, cublas 206.0 at 1515 (0.97×)``: ours and the best peer, each for seconds by itself."""
    legs = dict(record.get("alone", {}))
    if not legs:
        return ""
    ours = legs.pop("ours")
    texts = [_leg_text(ours)]
    texts += [f"{name} {_leg_text(leg)} ({leg['us'] / ours['us']:.2f}×)" for name, leg in legs.items()]
    return ", ".join(texts)


def _leg_text(leg: Record) -> str:
    return number(leg["us"]) + (f" at {leg['clock_mhz']:.0f}" if leg["clock_mhz"] else "")


def number(us: float) -> str:
    """Microseconds in three or four figures."""
    if us >= 1e4:
        return f"{us:,.0f}"
    return f"{us:.2f}" if us < 100 else f"{us:.1f}"


def peer_text(record: Record) -> str:
    """``cupy 12.30 (1.21×), torch 10.10 (0.99×)``; a baseline, which does less than we do, shows its time alone."""
    texts = []
    for name, peer in record["peers"].items():
        if "error" in peer:
            texts.append(f"{name} failed")
        elif "withdrawn" in peer:
            texts.append(f"{name}: {peer['withdrawn']}")
        elif name in BASELINES:
            texts.append(f"{name} {number(peer['us'])}")
        else:
            texts.append(f"{name} {number(peer['us'])} ({1 / peer['ratio']:.2f}×)")
    return ", ".join(texts)


def verdict(record: Record) -> str:
    """Whether the target was met, or that the measurement cannot tell; a row that a peer beats by more than 2 % says so."""
    met = "no verdict" if record.get("open") else {True: "yes", False: "no", None: ""}[record.get("met")]
    best = best_peer(record)
    beaten = f"behind {best[0]}" if best and best[1] < 0.98 else ""
    return ", ".join(filter(None, (met, beaten)))


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A GitHub table: the first column left, the others right but for long texts."""
    lines = [header, ["---", *("---:" if len(h) < 16 else "---" for h in header[1:])], *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def between_markers(text: str, name: str, body: str) -> str:
    """`text` with what stands between the markers of `name` replaced; ValueError where it has no such markers."""
    begin, end = f"<!-- benchmark:{name}:begin -->", f"<!-- benchmark:{name}:end -->"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"no markers {begin} … {end}")
    return f"{head}{begin}\n{body}\n{end}{tail}"
