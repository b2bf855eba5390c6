"""The description of a GPU that plans use: :class:`DeviceSpec`, for an arch, a known GPU, the host, or a GPU emulated there."""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from .errors import InvalidProblemError, UnsupportedError
from .keeping import cached_hash
from .vocabulary import ArchSku

__all__ = ["DeviceSpec", "known_devices"]


@cached_hash
@dataclass(frozen=True)
class DeviceSpec:
    """The properties of a device that selection uses. Frozen, hashable and without an ordinal.

    `bandwidth` is bytes per second, reads plus writes. `rates` maps a math precision to FLOP/s, and ``"issue"`` to thread
    instructions per second. `overhead` is the time of a launch in a CUDA graph, in seconds. With `emulated` the host executes
    the kernels: figures and kernels are those of the GPU, the name begins with ``"ptx:"``, and there are no libraries. Raises
    UnsupportedError for an unknown arch, and InvalidProblemError for figures that no device has.
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
    emulated: bool = False

    def __post_init__(self) -> None:
        _check(self)

    @property
    def is_host(self) -> bool:
        """Whether this is the NumPy reference back end, ``"cpu"``."""
        return self.tier is ArchSku.HOST

    @property
    def nominal(self) -> bool:
        """Whether its figures are those of a datasheet: only an H200 was measured."""
        return not self.is_host and self.chip.name not in _MEASURED

    @property
    def host_memory(self) -> bool:
        """Whether operands are in host memory, as with the reference back end and the emulator."""
        return self.emulated or self.is_host

    @cached_property
    def chip(self) -> DeviceSpec:
        """The GPU that is emulated; otherwise the device itself."""
        return replace(self, name=self.name.removeprefix(PTX), emulated=False) if self.emulated else self

    def rate(self, precision: str) -> float:
        """FLOP/s in `precision`; raises KeyError if the device has no figure for it."""
        return self._rates[precision]

    @cached_property
    def _rates(self) -> dict[str, float]:
        return dict(self.rates)

    def with_libraries(self, libraries: frozenset[str]) -> DeviceSpec:
        return replace(self, libraries=libraries)

    def as_emulated(self) -> DeviceSpec:
        """The same GPU, emulated on the host."""
        return replace(self, name=f"{PTX}{self.name}", libraries=frozenset(), emulated=True)

    @staticmethod
    @lru_cache(maxsize=64)
    def named(name: str) -> DeviceSpec:
        """The spec of an arch (``"sm_90a"``), of a GPU with shipped figures (``"h200"``), of either emulated on the host
        (``"ptx:sm_80"``, and ``"ptx"`` for ``"ptx:sm_90a"``), or ``"cpu"``."""
        prefix, colon, chip = name.partition(":")
        emulated = prefix.strip().lower() == "ptx"
        key = _spelled((chip if colon else _EMULATED) if emulated else name)
        spec = _found(key)
        if spec is None or (emulated and spec.is_host):
            raise UnsupportedError(f"device {name!r:.80} is not known", _advice(key, PTX if emulated else ""))
        return spec.as_emulated() if emulated else spec

    def __repr__(self) -> str:
        return f"<DeviceSpec {self}>"

    def __str__(self) -> str:
        notes = [self.arch] if self.name.removeprefix(PTX) != self.arch else []
        notes += ["emulated"] if self.emulated else []
        return f"{self.name} ({', '.join(notes)})" if notes else self.name


def known_devices() -> tuple[str, ...]:
    """The names that :meth:`DeviceSpec.named` has figures for."""
    return tuple(_KNOWN)


PTX = "ptx:"  # the prefix of an emulated device's name


# ---- figures -----------------------------------------------------------------------------------------------------------

# Compute capability -> (the tier's entry below, the compile target). Later minors run their tier's kernels.
_ARCHES = {
    "80": ("sm_80", "sm_80"), "86": ("sm_80", "sm_86"), "87": ("sm_80", "sm_87"), "89": ("sm_89", "sm_89"),
    "90": ("sm_90a", "sm_90a"), "100": ("sm_100a", "sm_100a"), "103": ("sm_100a", "sm_103a"),
    "120": ("sm_120", "sm_120"), "121": ("sm_120", "sm_121"),
}  # fmt: skip
_SHARED = {"86": 99 << 10}  # bytes per CTA, if they differ from the tier's
_EXACT = {"80", "89", "90", "100", "120"}
_TIERS = {target: ArchSku(tier.replace("_", "")) for tier, target in _ARCHES.values()} | {"host": ArchSku.HOST}

_LONGEST_NAME = 128
_RANGES = {"sms": (1, 1 << 16), "shared_bytes": (99 << 10, 1 << 24), "l2_bytes": (0, 1 << 40)}  # 99 KiB: from 8.0 on
_RATES = {True: {"f32", "issue"}, False: {"f32", "issue", "bf16", "f16"}}  # read by candidates; by `is_host`


def _check(spec: DeviceSpec) -> None:
    """Raises for figures that no device has: a spec may come from a saved plan."""

    def refuse(field: str, fix: str) -> InvalidProblemError:
        return InvalidProblemError(f"DeviceSpec: {field}={getattr(spec, field)!r:.80}", fix)

    if not isinstance(spec.arch, str) or spec.arch not in _TIERS:
        raise UnsupportedError(f"DeviceSpec: arch={spec.arch!r:.80} is not known", f"one of {', '.join(_TIERS)}")
    if spec.tier is not _TIERS[spec.arch]:
        raise refuse("tier", f"{spec.arch} is of tier {_TIERS[spec.arch]}")
    if not isinstance(spec.name, str) or not 0 < len(spec.name) <= _LONGEST_NAME or not spec.name.isprintable():
        raise refuse("name", "give a line of text")
    for field, (low, high) in _RANGES.items():
        low = 0 if spec.is_host and field == "shared_bytes" else low
        if type(getattr(spec, field)) is not int or not low <= getattr(spec, field) < high:
            raise refuse(field, f"give an int from {low} to {high - 1}")
    pairs = isinstance(spec.rates, tuple) and all(isinstance(r, tuple) and len(r) == 2 for r in spec.rates)
    if not pairs or not all(isinstance(name, str) and _is_figure(rate, 1) for name, rate in spec.rates):
        raise refuse("rates", "give a tuple of (precision, operations a second)")
    if missing := _RATES[spec.is_host] - dict(spec.rates).keys():
        raise refuse("rates", f"give a figure for {', '.join(sorted(missing))} too")
    if not _is_figure(spec.bandwidth, 1):
        raise refuse("bandwidth", "give bytes a second")
    if not _is_figure(spec.overhead, 0):
        raise refuse("overhead", "give seconds, 0 or more")
    if not isinstance(spec.libraries, frozenset) or not all(isinstance(name, str) for name in spec.libraries):
        raise refuse("libraries", "give a frozenset of names")
    if type(spec.emulated) is not bool or (spec.emulated and spec.is_host):
        raise refuse("emulated", "give True or False, and False for the host")
    if spec.emulated and spec.libraries:
        raise refuse("libraries", "give none: only kernels are emulated")
    if spec.name.startswith(PTX) is not spec.emulated:
        raise refuse("name", f"that of an emulated device begins with {PTX!r}, and no other's")


def _is_figure(value: Any, least: int) -> bool:
    return type(value) in (int, float) and least <= value < 1e30 and math.isfinite(value)


def _spec(
    name: str, arch: str, tier: ArchSku, sms: int, shared_kib: int, l2_mib: float, gbps: float, ghz: float, tc: float
) -> DeviceSpec:
    lanes = 128.0  # thread instructions per clock and SM, on every tier here
    rates = (
        ("bf16", tc * 1e12), ("f16", tc * 1e12), ("f32", sms * lanes * 2 * ghz * 1e9), ("issue", sms * lanes * ghz * 1e9),
    )  # fmt: skip
    return DeviceSpec(name, arch, tier, sms, shared_kib << 10, int(l2_mib * 2**20), gbps * 1e9, rates)


# Columns: SMs, KiB of shared memory per CTA, MiB of L2, GB/s, boost clock in GHz, dense f16 TFLOP/s with f32 sums. Bandwidth is
# that of a plain copy: measured on an H200 (benchmarks/results/), elsewhere the datasheet's times the same 0.87.
_KNOWN = {
    "cpu": DeviceSpec("cpu", "host", ArchSku.HOST, 1, 0, 0, 1e10, (("f32", 1e10), ("issue", 1e9)), 0.0),
    "sm_80": _spec("sm_80", "sm_80", ArchSku.SM80, 108, 163, 40, 1350, 1.41, 312),
    "sm_89": _spec("sm_89", "sm_89", ArchSku.SM89, 128, 99, 72, 877, 2.52, 165),
    "sm_90a": _spec("sm_90a", "sm_90a", ArchSku.SM90A, 132, 227, 50, 2910, 1.755, 989),
    "sm_100a": _spec("sm_100a", "sm_100a", ArchSku.SM100A, 148, 227, 126, 6960, 1.9, 2250),
    "sm_120": _spec("sm_120", "sm_120", ArchSku.SM120, 170, 99, 96, 1560, 2.4, 209),
    "h200": _spec("NVIDIA H200", "sm_90a", ArchSku.SM90A, 132, 227, 60, 4150, 1.755, 989),
    "h100": _spec("NVIDIA H100 80GB HBM3", "sm_90a", ArchSku.SM90A, 132, 227, 50, 2910, 1.755, 989),
    # NVIDIA A100 Tensor Core GPU datasheet (2022): 1,555 and 2,039 GB/s, 312 TFLOPS.
    "a100": _spec("NVIDIA A100-SXM4-80GB", "sm_80", ArchSku.SM80, 108, 163, 40, 1774, 1.41, 312),
    "a100_40gb": _spec("NVIDIA A100-SXM4-40GB", "sm_80", ArchSku.SM80, 108, 163, 40, 1353, 1.41, 312),
    # NVIDIA A30 datasheet (2021): 933 GB/s, 165 TFLOPS. A10 datasheet (2021): 600 GB/s, 125 TFLOPS.
    "a30": _spec("NVIDIA A30", "sm_80", ArchSku.SM80, 56, 163, 24, 812, 1.44, 165),
    "a10": _spec("NVIDIA A10", "sm_86", ArchSku.SM80, 72, 99, 6, 522, 1.695, 125),
    # NVIDIA RTX A6000 datasheet (2021) and the GA102 whitepaper: 768 GB/s, 154.8 TFLOPS.
    "a6000": _spec("NVIDIA RTX A6000", "sm_86", ArchSku.SM80, 84, 99, 6, 668, 1.8, 154.8),
    # NVIDIA GA102 whitepaper (2021): 936 GB/s, 71 TFLOPS with f32 sums.
    "rtx3090": _spec("NVIDIA GeForce RTX 3090", "sm_86", ArchSku.SM80, 82, 99, 6, 814, 1.695, 71),
    # NVIDIA L4, L40 and L40S datasheets (2023): 300, 864 and 864 GB/s; 121, 181 and 362 TFLOPS.
    "l4": _spec("NVIDIA L4", "sm_89", ArchSku.SM89, 58, 99, 48, 261, 2.04, 121),
    "l40": _spec("NVIDIA L40", "sm_89", ArchSku.SM89, 142, 99, 96, 752, 2.49, 181),
    "l40s": _spec("NVIDIA L40S", "sm_89", ArchSku.SM89, 142, 99, 96, 752, 2.52, 362),
    # NVIDIA Ada GPU architecture whitepaper (2023): 1,008 GB/s, 165.2 TFLOPS with f32 sums.
    "rtx4090": _spec("NVIDIA GeForce RTX 4090", "sm_89", ArchSku.SM89, 128, 99, 72, 877, 2.52, 165.2),
    # NVIDIA DGX B200 datasheet (2024), per GPU: 8 TB/s, 2,250 TFLOPS dense.
    "b200": _spec("NVIDIA B200", "sm_100a", ArchSku.SM100A, 148, 227, 126, 6960, 1.9, 2250),
    # NVIDIA RTX Blackwell GPU architecture whitepaper (2025): 1,792 GB/s, 209.5 TFLOPS with f32 sums.
    "rtx5090": _spec("NVIDIA GeForce RTX 5090", "sm_120", ArchSku.SM120, 170, 99, 96, 1560, 2.41, 209.5),
}
_MEASURED = ("NVIDIA H200",)


def _nominal(capability: str) -> DeviceSpec:
    tier, target = _ARCHES[capability]
    shared = _SHARED.get(capability, _KNOWN[tier].shared_bytes)
    return replace(_KNOWN[tier], name=target, arch=target, shared_bytes=shared)


# ---- names -------------------------------------------------------------------------------------------------------------


def _spelled(name: str) -> str:
    """A normalised name: lower case, without the vendor's words, the others joined by underscores."""
    words = re.split(r"[\s_-]+", name.strip().lower())
    return "_".join(word for word in words if word not in ("nvidia", "geforce", "tesla", "jetson"))


_NAMED = _KNOWN | {_spelled(spec.name): spec for spec in _KNOWN.values()}
_NAMED |= {key.replace("rtx", "rtx_"): spec for key, spec in _KNOWN.items() if key.startswith("rtx")}
_EMULATED = "sm_90a"  # the arch that "ptx" alone emulates


def _found(key: str) -> DeviceSpec | None:
    """The spec of a normalised name, or None if there are no figures for it."""
    if key in _NAMED:
        return _NAMED[key]
    match = re.fullmatch(r"(?:sm|compute)?_?(\d{2,3})([af]?)", key)
    if match and match[1] in _ARCHES:
        return _KNOWN[_ARCHES[match[1]][0]] if match[1] in _EXACT else _nominal(match[1])
    return None


# GPUs without figures here -> the arch to use.
_MODELS = {
    r"a100|a30": "sm_80",
    r"a2|a10g?|a16|a40|(rtx_?)?a\d000|(rtx_?)?30[5-9]0": "sm_86",
    r".*orin.*": "sm_87",
    r"l40?s?|.*_ada|.*_ada_.*|(rtx_?)?40[5-9]0": "sm_89",
    r"gh200|h\d{2,3}": "sm_90a",
    r"g?b[12]00": "sm_100a",
    r"g?b300": "sm_103",
    r"(rtx_?)?50[5-9]0|rtx_pro_\d000.*": "sm_120",
    r"gb10": "sm_121",
}
_SUFFIX = r"(_?(ti|super|sxm\d?|pcie|nvl|\d+gb))*"
_TOO_OLD = r"v100|p100|k80|t4|(gtx_?)?1\d{3}|(rtx_?)?20[5-9]0|(sm|compute)_?[1-7]\d"


def _advice(key: str, prefix: str = "") -> str:
    """The fix for an unknown device name; `prefix` is the prefix of an emulated device."""
    for models, arch in _MODELS.items():
        if re.fullmatch(f"({models}){_SUFFIX}", key):
            return f'name its arch, device="{prefix}{arch}" (nominal figures)'
    if re.fullmatch(f"({_TOO_OLD}){_SUFFIX}", key):
        return "kernels are for compute capability 8.0 and later"
    known = [name for name, spec in _KNOWN.items() if not (prefix and spec.is_host)]
    arches = (f"sm_{capability}" for capability in _ARCHES)
    near = difflib.get_close_matches(key, dict.fromkeys([*known, *arches]), n=3, cutoff=0.7)
    if near:
        return f"did you mean {' or '.join(prefix + name for name in near)}?"
    others = "" if prefix else ', "ptx" or "cpu"'
    return f'name an arch, such as "{prefix}sm_89", or "{prefix}h100", "{prefix}h200"{others}'
