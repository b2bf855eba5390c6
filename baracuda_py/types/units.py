"""Formats numbers with units: memory in powers of two, rates in powers of ten, times to three digits."""

from __future__ import annotations

__all__ = ["bytes_text", "figure_text", "rate_text", "time_text"]


def bytes_text(count: float) -> str:
    """Bytes in powers of two, as for memory: ``72 B``, ``16 KiB``, ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def time_text(seconds: float) -> str:
    """A duration of three digits: ``7.20 ns``, ``18.3 µs``, ``1.20 ms``, ``2.00 s``."""
    for unit, scale in (("ns", 1e9), ("µs", 1e6), ("ms", 1e3)):
        if seconds * scale < 999.5:  # a value that would print as 1000 takes the next unit
            return f"{_digits(seconds * scale)} {unit}"
    return f"{_digits(seconds)} s"


def rate_text(bytes_per_second: float) -> str:
    """Bytes per second in powers of ten, as for bandwidth: ``4.10 TB/s``."""
    for unit, scale in (("MB/s", 1e6), ("GB/s", 1e9)):
        if bytes_per_second / scale < 999.5:
            return f"{_digits(bytes_per_second / scale)} {unit}"
    return f"{_digits(bytes_per_second / 1e12)} TB/s"


def figure_text(value: float) -> str:
    """A number of two digits: ``0.24``, ``4.9e-4``."""
    if value == 0 or 0.01 <= value < 1000:
        return f"{value:.2g}"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def _digits(value: float) -> str:
    """Three significant digits, trailing zeros included; two below 0.1."""
    if value < 0.1:
        return f"{value:.2g}"
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"
