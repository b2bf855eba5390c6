"""What a plan knows of a GPU: :class:`DeviceSpec`, with figures for an arch, a known GPU, or the host."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .errors import UnsupportedError
from .vocabulary import ArchSku

__all__ = ["DeviceSpec", "known_devices"]


@dataclass(frozen=True)
class DeviceSpec:
    """Everything selection asks about a device. Frozen, hashable and without an ordinal.

    `bandwidth` is bytes a second, reads plus writes; `rates` maps a math precision to FLOP/s, and ``"issue"`` to
    thread instructions a second; `overhead` is what a launch costs a CUDA graph, in seconds.
    """

    name: str
    arch: str
    tier: ArchSku
    sms: int
    shared_bytes: int
    l2_bytes: int
    bandwidth: float
    rates: tuple[tuple[str, float], ...]
    overhead: float = 2.0e-6
    libraries: frozenset[str] = frozenset()

    @property
    def is_host(self) -> bool:
        return self.tier is ArchSku.HOST

    def rate(self, precision: str) -> float:
        """FLOP/s in `precision`; KeyError if the device has no figure for it."""
        return dict(self.rates)[precision]

    def with_libraries(self, libraries: frozenset[str]) -> DeviceSpec:
        return replace(self, libraries=libraries)

    @staticmethod
    def named(name: str) -> DeviceSpec:
        """The spec of an arch (``"sm_90a"``), of a GPU with shipped figures (``"h200"``), or ``"cpu"``."""
        key = name.strip().lower().removeprefix("nvidia ").replace(" ", "_")
        if key in _KNOWN:
            return _KNOWN[key]
        match = re.fullmatch(r"(?:sm|compute)?_?(\d{2,3})([af]?)", key)
        if match and match[1] in _ARCHES:
            return _KNOWN[_ARCHES[match[1]][0]] if match[1] in _EXACT else _nominal(match[1])
        raise UnsupportedError(
            f"device {name!r} is not known: give one of {', '.join(known_devices())}, or the arch of an NVIDIA GPU "
            f"from compute capability 8.0 on ({', '.join(f'sm_{a}' for a in _ARCHES)})"
        )

    def __str__(self) -> str:
        return f"{self.name} ({self.arch})" if self.name != self.arch else self.arch


def known_devices() -> tuple[str, ...]:
    """The names that :meth:`DeviceSpec.named` has figures for."""
    return tuple(_KNOWN)


def _spec(
    name: str, arch: str, tier: ArchSku, sms: int, shared_kib: int, l2_mib: float, gbps: float, ghz: float, tc: float
) -> DeviceSpec:
    lanes = 128.0  # thread instructions a clock and SM on every tier here
    rates = (
        ("bf16", tc * 1e12), ("f16", tc * 1e12), ("f32", sms * lanes * 2 * ghz * 1e9), ("issue", sms * lanes * ghz * 1e9),
    )  # fmt: skip
    return DeviceSpec(name, arch, tier, sms, shared_kib << 10, int(l2_mib * 2**20), gbps * 1e9, rates)


# Bandwidth: that of a plain copy, measured on an H200 (benchmarks/results/); elsewhere the datasheet's times the same 0.87.
_KNOWN = {
    "cpu": DeviceSpec("cpu", "host", ArchSku.HOST, 1, 0, 0, 1e10, (("f32", 1e10), ("issue", 1e9)), 0.0),
    "sm_80": _spec("sm_80", "sm_80", ArchSku.SM80, 108, 163, 40, 1350, 1.41, 312),
    "sm_89": _spec("sm_89", "sm_89", ArchSku.SM89, 128, 99, 72, 877, 2.52, 165),
    "sm_90a": _spec("sm_90a", "sm_90a", ArchSku.SM90A, 132, 227, 50, 2910, 1.755, 989),
    "sm_100a": _spec("sm_100a", "sm_100a", ArchSku.SM100A, 148, 227, 126, 6960, 1.9, 2250),
    "sm_120": _spec("sm_120", "sm_120", ArchSku.SM120, 170, 99, 96, 1560, 2.4, 209),
    "h200": _spec("NVIDIA H200", "sm_90a", ArchSku.SM90A, 132, 227, 60, 4150, 1.755, 989),
    "h100": _spec("NVIDIA H100 80GB HBM3", "sm_90a", ArchSku.SM90A, 132, 227, 50, 2910, 1.755, 989),
}

# Compute capability -> (the tier's entry above, the compile target). Later minors run their tier's kernels.
_ARCHES = {
    "80": ("sm_80", "sm_80"), "86": ("sm_80", "sm_86"), "87": ("sm_80", "sm_87"), "89": ("sm_89", "sm_89"),
    "90": ("sm_90a", "sm_90a"), "100": ("sm_100a", "sm_100a"), "103": ("sm_100a", "sm_103a"),
    "120": ("sm_120", "sm_120"), "121": ("sm_120", "sm_121"),
}  # fmt: skip
_EXACT = {"80", "89", "90", "100", "120"}


def _nominal(capability: str) -> DeviceSpec:
    tier, target = _ARCHES[capability]
    return replace(_KNOWN[tier], name=target, arch=target)
