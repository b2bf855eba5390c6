"""Compiles the kernels of the ops' sample problems and shows their resources. It needs no GPU.

Cubins are stored in the cache, so this also warms the cache, for this machine or for another arch.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...plan.plan import Plan
    from ...plan.registry import Op
    from ...runtime.compile.compiler import Compiled
    from ...runtime.steps import Kernel

__all__ = ["SUMMARY", "arguments", "run"]

SUMMARY = "compile kernels, show registers, spills and seconds"
ALL = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120")
_FALLBACK = "sm_90a"
_PER_OP = 4  # kernels per op without --limit, which cover its variants and main kinds


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ops", nargs="*", metavar="OP", help="ops to compile (default: all)")
    parser.add_argument(
        "--arch", action="append", metavar="ARCH", help=f"an arch, repeatable (default: the GPU here, else {_FALLBACK})"
    )
    parser.add_argument("--all", action="store_true", help=f"every arch that has a tier: {' '.join(ALL)}")
    parser.add_argument(
        "--limit",
        type=_count,
        default=_PER_OP,
        metavar="N",
        help=f"kernels an op, 0 for all of its samples' (default: {_PER_OP})",
    )
    parser.add_argument("--force", action="store_true", help="build even what the cache holds")


def _count(text: str) -> int:
    """An int of 0 or more."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of kernels: give 0 or more")
    return int(text)


def run(given: argparse.Namespace) -> int:
    from ...runtime.system.toolchain import nvrtc
    from ...types import BaracudaError
    from ..problems import resolve_ops
    from ..terminal import complain, console, progress

    arches = _arches(given)
    nvrtc()  # report a missing NVRTC once
    screen = console()
    jobs = [(op, arch, kernels_of(op, arch, given.limit)) for arch in arches for op in resolve_ops(given.ops)]
    rows, failed = [], 0
    with progress(screen) as bar:
        task = bar.add_task("compiling", total=sum(len(kernels) for _, _, kernels in jobs))
        for op, arch, kernels in jobs:
            bar.update(task, description=f"{op.name} for {arch}")
            try:
                rows += [
                    _cells(op, arch, kernel, built) for kernel, built in _build(kernels, arch, given.force).items()
                ]
            except BaracudaError as error:
                failed += 1
                complain(str(error))
            bar.advance(task, len(kernels))
    _report(screen, rows, failed, arches)
    return 1 if failed else 0


def _arches(given: argparse.Namespace) -> list[str]:
    from ...runtime.gpu.device import spec_of
    from ...runtime.gpu.driver import device_count
    from ...types import UnsupportedError

    names = ALL if given.all else given.arch or ([spec_of(None).arch] if device_count() else [_FALLBACK])
    specs = [spec_of(name) for name in names]
    if any(spec.host_memory for spec in specs):
        raise UnsupportedError("no kernel is built for the host", f"choose among {', '.join(ALL)}")
    return list(dict.fromkeys(spec.arch for spec in specs))


def kernels_of(op: Op, arch: str, limit: int) -> list[Kernel]:
    """The kernels that the op's samples lower to, at most `limit`: each variant first, then other kinds."""
    from ...types import BaracudaError
    from ..problems import element_of, sample_descriptors

    ranked: dict[Kernel, tuple[int, int]] = {}
    repeats: dict[Any, int] = {}
    kinds: dict[str, int] = {}
    for desc in sample_descriptors(op):
        try:
            plan: Plan[Any] = op.plan.select(desc, device=arch)
        except BaracudaError:
            continue  # a sample this arch does not serve
        for step in plan.selection.launches:
            if step.kernel not in ranked:
                variant = plan.sku.variant
                group = variant, element_of(desc)
                repeats[group] = repeats.get(group, -1) + 1
                kinds[variant] = kinds.get(variant, -1) + 1
                ranked[step.kernel] = repeats[group], kinds[variant]
    ordered = sorted(ranked, key=lambda kernel: ranked[kernel])
    return ordered[:limit] if limit > 0 else ordered


def _build(kernels: Sequence[Kernel], arch: str, force: bool) -> dict[Kernel, Compiled]:
    from ...runtime.compile.compiler import compile_kernels

    return compile_kernels(kernels, arch, force=force)


def _cells(op: Op, arch: str, kernel: Kernel, built: Compiled) -> tuple[Any, ...]:
    from rich.text import Text

    used = built.resources
    spills = Text(str(used.spill_bytes), style="red") if used.spill_bytes else "0"
    cached = built.seconds == 0.0
    how = Text("cached", style="dim") if cached else "built"
    return (
        op.name,
        kernel.entry,
        arch,
        used.registers,
        spills,
        used.shared_bytes,
        "" if cached else f"{built.seconds:.2f}",
        how,
    )


def _report(screen: Any, rows: Sequence[tuple[Any, ...]], failed: int, arches: Sequence[str]) -> None:
    from rich.text import Text

    from ...runtime.compile.cache import cache_dir
    from ...runtime.system.toolchain import nvrtc_version
    from ..terminal import show_table

    head = ("op", "kernel", "arch", ">registers", ">spilled B", ">shared B", ">seconds", "how")
    show_table(screen, head, rows)
    built = [float(row[6]) for row in rows if row[6]]
    spilling = sum(str(row[4]) != "0" for row in rows)
    version = ".".join(map(str, nvrtc_version()))
    screen.print(
        f"{len(rows)} kernels for {' '.join(arches)} by NVRTC {version}: {len(built)} built in {sum(built):.1f} s, "
        f"{len(rows) - len(built)} from {cache_dir()}; {spilling} spill registers"
    )
    if failed:
        screen.print(Text(f"FAILED: {failed} groups of kernels did not compile", style="bold red"))
