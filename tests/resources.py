"""What each kernel takes of an SM, on every arch: ``python -m tests.resources [OP ...]`` writes it into the ops' records.

A record is keyed by NVRTC's version and by kernel, with the digest of its source, so that a test run compiles only what has
changed. It is written by the oldest and by the newest NVRTC that the extras admit: run it in an environment of each.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import itertools
import os
import warnings
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import baracuda_py as bp
from baracuda_py.plan import Op, all_ops, get_op
from baracuda_py.plan.about.tune import admissible
from baracuda_py.plan.candidate import steps_of
from baracuda_py.plan.select import assess
from baracuda_py.runtime.compile.compiler import Compiled, compile_kernels
from baracuda_py.runtime.compile.sources import source_of
from baracuda_py.runtime.steps import Kernel, Launch
from baracuda_py.runtime.system.toolchain import nvrtc_version
from baracuda_py.types import BaracudaError, DeviceSpec, PlanPreference

from . import records
from .families.gemm.wgmma_test import in_blocks
from .gauntlet import samples_of

__all__ = [
    "ARCHES",
    "SPILLS",
    "WGMMA",
    "UntestedCompiler",
    "compiled",
    "digest",
    "gemv_s",
    "kernels_of",
    "label",
    "listable",
    "listed",
    "long_rows",
    "spilled",
    "version",
    "wgmma_s",
    "written_with",
]

FIELDS = ("source", "registers", "spill", "stack", "shared")
ARCHES = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120")
SAMPLES = 12

# Declared exceptions: op -> the most bytes of spill and of stack one of its kernels may take on an arch, and why.
_SIGNED = "16 signed bytes an access on sm_120 only, by NVRTC 13.5"
_PLACES = "20 elements a thread that are read one by one, on sm_120 only, by NVRTC 13.5: 80 registers of 255 are in use"
_BYTES = "16 unsigned bytes an access on sm_100a and sm_120 only: ptxas keeps a predicate each"
_CODES = "16 codes an access, on sm_80 only"
_INTEGERS = (
    "f64 results of 32-bit integers, two a thread, on sm_90a and sm_100a only: constants of the polynomials take turns"
)
_FULL = "192 accumulators of 255 registers: a counter or two are kept in memory, and read once a block of keys"
_DOUBLES = "f64 rows that start anywhere, by 512 threads of which an SM holds two CTAs: 64 registers a thread"
_KEPT = (
    "f32 rows that a cluster of CTAs of 256 threads keeps, four CTAs per SM, on sm_120 by NVRTC 12.9; gradients also on sm_90a "
    "by NVRTC 13.5 (60 bytes). " + _DOUBLES
)
_KEPT_GRADIENTS = (
    "rows of four vectors a thread that a cluster keeps, on sm_120 (f32 by NVRTC 12.9, f64 by 13.5) and sm_100a"
)
_SCALED = "as softmax_backward, with one more factor: " + _KEPT
_DROPPED = "eight bf16 a thread on sm_100a by NVRTC 12.9, four strided f32 and their residual on sm_120 by NVRTC 13.5"
_SCANS = "rows of 8 f16 or fewer, of which a thread has one, on sm_90a"
_CHANNELS = "f64 at odd positions, on sm_120"
_JOINED = "16 arrays, whose addresses are kept in memory, on sm_100a by NVRTC 13.5"
_LOGITS = "bf16 rows of 65 to 128, of which 8 threads hold two vectors each, on sm_100a by NVRTC 12.9"
_RUNS = "sums of runs of 16-bit lines on sm_80"
_PARTS = "parts of long segments joined in 32 registers, around the quotient or logarithm of the result"
_PIECES = "eight loads of up to 8 bytes at a time, or four of two arrays"
_REPEATS = "sums over repeats, on sm_100a by NVRTC 13.5"
_SUMS = "sums of four read at once in the launch that adds up slices, on sm_90a (28 bytes) and sm_120 (40)"
_ATTENTION = dict.fromkeys(
    (
        "attention",
        "attention_tc",
        "attention_tc_causal",
        "attention_flash",
        "attention_flash_causal",
        "paged_attention",
    ),
    (64, _FULL),
)
SPILLS: Mapping[str, tuple[int, str]] = _ATTENTION | {
    "attention_backward": (40, _SUMS),
    "maximum": (152, _BYTES),
    "minimum": (152, _BYTES),
    "clamp": (8, _SIGNED),
    "clz": (8, _CODES),
    "exp2": (16, _INTEGERS),
    "asin": (16, _INTEGERS),
    "atan": (16, _INTEGERS),
    "topk": (16, _PLACES),
    "softmax": (76, _KEPT),
    "log_softmax": (76, _KEPT),
    "softmax_backward": (208, _KEPT),
    "log_softmax_backward": (160, _KEPT),
    "masked_softmax_backward": (224, _SCALED),
    "linear_cross_entropy": (16, _LOGITS),
    "rms_norm": (136, _KEPT),
    "layer_norm": (156, _KEPT),
    "rms_norm_backward": (36, _KEPT_GRADIENTS),
    "layer_norm_backward": (12, _KEPT_GRADIENTS),
    "dropout": (48, _DROPPED),
    "dropout_backward": (28, _DROPPED + ", eight f16 a thread on sm_80"),
    "cross_entropy": (528, "f64 rows that start anywhere, on sm_120, and by NVRTC 13.5 on sm_100a"),
    "poisson_nll_loss": (160, "sums of f64, two logarithms each, on sm_100a"),
    "smooth_l1_loss": (8, "sums of f64 on sm_100a, by NVRTC 13.5"),
    "logcumsumexp": (16, _SCANS),
    "batch_norm_inference_backward": (16, _CHANNELS),
    "join": (568, _JOINED),
    "triplet_margin_loss_backward": (16, "three powers for each column, by another norm than 1 and 2"),
    "embedding_backward": (8, _RUNS + ", and chunks of two f32 columns on sm_90a"),
    "index_select_backward": (8, _RUNS),
    "segment_mean": (56, _PARTS + ", on sm_80, sm_89 and sm_90a"),
    "segment_logsumexp": (16, _PARTS + ", on sm_80"),
    "segment_prod_backward": (8, _PIECES + ", on sm_100a"),
    "segment_softmax_backward": (8, _PIECES + ", on sm_100a"),
    "embedding_bag_backward": (8, _PIECES + ", on sm_89 and, by NVRTC 13.5, sm_120"),
    "tile_backward": (8, _REPEATS),
    "repeat_interleave_backward": (8, _REPEATS),
}


# The newest NVRTC that every kernel was compiled with: .ci/run does so with the oldest and the newest that the extras admit.
NEWEST = (13, 5)


class UntestedCompiler(UserWarning):
    """A compiler that is newer than all that were tested makes a kernel slower than it need be."""


def in_ci() -> bool:
    """Whether this run is ours: CI systems set the variable ``CI``, and so does .ci/run."""
    return bool(os.environ.get("CI"))


def spilled(message: str) -> None:
    """A spill that is not declared: a failure. With an NVRTC newer than NEWEST it is a user's warning, for his kernels are right
    all the same, and still our failure: that is how we come to know of it."""
    if in_ci() or nvrtc_version() <= NEWEST:
        raise AssertionError(message)
    version = ".".join(map(str, nvrtc_version()))
    warnings.warn(f"with NVRTC {version}, which is newer than this edition: {message}", UntestedCompiler, stacklevel=3)


def label(kernel: Kernel) -> str:
    """The kernel's name in the file; a generated prelude is part of it."""
    prelude = f"#{hashlib.sha256(kernel.prelude.encode()).hexdigest()[:8]}" if kernel.prelude else ""
    return f"{kernel}{prelude}"


def digest(kernel: Kernel) -> str:
    return source_of(kernel).digest(kernel.entry)[:16]


def kernels_of(op: Op, arch: str, *, everything: bool = False) -> list[Kernel]:
    """The kernels that the op's candidates lower to on `arch`: the best configuration of each, over a spread of samples;
    every configuration over every sample where `everything`."""
    return list(_kernels_of(op.name, arch, everything))


@lru_cache(maxsize=64)
def _kernels_of(name: str, arch: str, everything: bool) -> tuple[Kernel, ...]:
    op, device = get_op(name), DeviceSpec.named(arch)
    found: dict[Kernel, None] = {}
    for desc in _descriptors(name, everything):
        answers = assess(op.plan.candidates, desc, PlanPreference(deterministic=False), device)
        best: dict[str, Any] = {}
        for answer in (a for a in answers if a.feasibility):
            held = best.get(answer.candidate.variant)
            if everything or held is None or (answer.cost and held.cost and answer.cost.seconds < held.cost.seconds):
                best[answer.candidate.variant + (str(answer.config) if everything else "")] = answer
        for answer in best.values():
            steps = steps_of(answer.candidate, desc, device, answer.config)
            found |= {s.kernel: None for s in steps if isinstance(s, Launch)}
    return tuple(found)


@lru_cache(maxsize=2)
def _descriptors(name: str, everything: bool) -> tuple[Any, ...]:
    """Of the samples that have kernels: the same on every arch."""
    op = get_op(name)
    known = inspect.signature(op.plan.descriptor.of).parameters  # type: ignore[attr-defined]
    found = (_desc(op, sample, known) for sample in samples_of(op, everything=everything, count=SAMPLES))
    return tuple(desc for desc in found if desc is not None)


def _desc(op: Op, sample: Any, known: Iterable[str]) -> Any:
    from .arena import materialise

    operands = {name: slot.operand for name, slot in materialise(sample.operands, "cpu").items()}
    try:
        desc = op.of(**{k: v for k, v in {**operands, **sample.options}.items() if k in known}).canonical()
    except BaracudaError:
        return None
    written = [o.name for o in desc.operands if o.written and not o.optional]
    return None if all(0 in desc.layout(name).shape for name in written) else desc


WGMMA = tuple(itertools.product(("bf16", "fp8_e4m3", "fp8_e4m3 in blocks"), ((), (3,))))


def wgmma_s(kind: str, batch: tuple[int, ...]) -> list[Kernel]:
    """wgmma's kernels for a batch, and for a last wave that is split; in sm_90a. No sample has so many tiles. A batch takes
    registers of its own, and so do block scales."""
    m, n, k = (700, 3000, 4096) if batch else (8192, 8192, 8192)
    element, _, blocks = kind.partition(" in ")
    strides = (*(k * n for _ in batch), 1, k)
    plain = bp.MatmulDescriptor((*batch, m, k), (*batch, k, n), element, element, b_strides=strides, out_element="bf16")
    desc = in_blocks(m, n, k, batch) if blocks else plain
    plans = admissible(bp.MatmulPlan, desc, PlanPreference(variant="wgmma"), DeviceSpec.named("h200"))
    steps = {plan.sku.config: plan.selection.steps for plan in plans if batch or "split_last_wave" in plan.sku.config}
    assert sum("split_last_wave" in config for config in steps) > 4
    return list(dict.fromkeys(step.kernel for each in steps.values() for step in each if isinstance(step, Launch)))


def gemv_s(arch: str) -> list[Kernel]:
    """gemv's kernels for every pitch. No sample has every number of tokens in every vector's width. Tokens along the other axis
    are read element by element."""
    found: dict[Kernel, None] = {}
    for kind, tokens, n in itertools.product(("bf16", "f32", "f64"), (2, 4, 8), (4096, 4098, 4095)):
        desc = bp.MatmulDescriptor((tokens, 4096), (4096, n), kind, kind, a_strides=(1, tokens))
        for plan in admissible(bp.MatmulPlan, desc, PlanPreference(variant="gemv"), DeviceSpec.named(arch)):
            found |= {s.kernel: None for s in plan.selection.steps if isinstance(s, Launch)}
    assert len(found) > 50
    return list(found)


# Of which each is served in another way, by 16 bits or by 32; the last ones are shared by clusters, where an arch has them.
LONG_ROWS = (2049, 4097, 8193, 16385, 32769, 524288, 524289)


def long_rows(op: Op, arch: str) -> list[Kernel]:
    """The kernels of long rows that start anywhere and of those that a cluster shares, of an op that has some, with all operands
    that may come with x, or with none where these kernels take none. Samples are shorter, or few of them start there."""
    launches = [name for candidate in op.plan.candidates for name in candidate.launches]
    if (
        not any(name.endswith("_unaligned") for name in launches)
        or "shape" not in op.plan.descriptor.__dataclass_fields__
    ):
        return []  # there are none, or those of another op
    optional = [slot.name for slot in op.plan.descriptor.slots if slot.optional and "residual" not in slot.name]
    for given in (True, False):
        found: dict[Kernel, None] = {}
        for kind, length in itertools.product(("bf16", "f32", "f64"), LONG_ROWS):
            beside = {f"{name}_element": "f64" if kind == "f64" else "f32" for name in optional}
            if "grad_weight" in optional:  # gradients of long rows take weights of x's dtype
                beside |= {f"{name}_element": kind for name in optional if "weight" in name or "bias" in name}
            desc = op.describe(shape=(3, length), element=kind, **(beside if given else {}))
            for plan in admissible(op.plan, desc, PlanPreference(), DeviceSpec.named(arch)):
                found |= {s.kernel: None for s in plan.selection.steps if isinstance(s, Launch)}
        wanted = [kernel for kernel in found if "_unaligned" in kernel.entry or "_cluster" in kernel.entry]
        if wanted:
            break
    assert len(wanted) > 4, f"{op.name}: {[kernel.entry for kernel in wanted]}"
    return wanted


def listable(op: Op, arch: str) -> list[Kernel]:
    """The kernels that the op's record lists of an arch."""
    kernels = kernels_of(op, arch)
    if op.name == "matmul":
        kernels += gemv_s(arch)
        if arch == "sm_90a":
            kernels += [kernel for kind, batch in WGMMA for kernel in wgmma_s(kind, batch)]
    return list(dict.fromkeys(kernels + long_rows(op, arch)))


def compiled(kernels: Iterable[Kernel], arch: str) -> dict[Kernel, Compiled]:
    return compile_kernels(kernels, arch)


def version() -> str:
    """The version of NVRTC that is installed, ``"12.9"``."""
    return ".".join(map(str, nvrtc_version()))


def written_with(op: str) -> list[str]:
    """The versions of NVRTC that the op's record has figures of, the oldest first."""
    return sorted(_section(op).get("nvrtc", {}), key=lambda name: tuple(map(int, name.split("."))))


def listed(op: str, nvrtc: str | None = None) -> dict[str, dict[str, list[Any]]]:
    """The op's record by one NVRTC (default: the installed one, or else the oldest):
    arch -> label -> [digest, registers, spill bytes, stack bytes, static shared bytes]."""
    known = _section(op).get("nvrtc", {})
    oldest = next(iter(written_with(op)), "")
    return known.get(nvrtc or version(), {} if nvrtc else known.get(oldest, {}))  # type: ignore[no-any-return]


def _section(op: str) -> dict[str, Any]:
    return records.read(records.records_dir(), op).get("resources", {})  # type: ignore[no-any-return]


def _row(kernel: Kernel, built: Compiled) -> list[Any]:
    r = built.resources
    return [digest(kernel), r.registers, r.spill_bytes, r.stack_bytes, r.shared_bytes]


def main() -> int:
    from rich.progress import Progress

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*", metavar="OP", help="the ops whose records are written (default: all)")
    ops = [get_op(name) for name in parser.parse_args().ops] or list(all_ops().values())
    with Progress() as bar:
        task = bar.add_task("compiling", total=len(ARCHES) * len(ops))
        for op in ops:
            kernels = {}
            for arch in ARCHES:
                bar.update(task, description=f"{op.name} {arch}")
                found = compiled(listable(op, arch), arch).items()
                kernels[arch] = {label(kernel): _row(kernel, built) for kernel, built in found}
                bar.advance(task)
            others = {name: listed(op.name, name) for name in written_with(op.name)}
            said = {"fields": list(FIELDS), "nvrtc": others | {version(): kernels}}
            records.put(records.records_dir(), op.name, "resources", said)
    print(f"{records.records_dir()}: {len(ops)} ops")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
