"""Every kernel compiles for every arch, with no spill and no stack frame that is not declared. No GPU is needed.

What has not changed since an op's record was written is taken from there; ``--all`` compiles everything. In CI it is taken from
there only where the record has figures of the NVRTC that is installed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from baracuda_py.plan import all_ops, get_op
from baracuda_py.runtime.compile.compiler import compile_kernels
from baracuda_py.runtime.steps import Kernel
from baracuda_py.runtime.system.toolchain import nvrtc_version

from .. import resources
from ..resources import ARCHES, SPILLS

OPS = list(all_ops())
# Both tests of an op follow one another: they select the same kernels, which takes most of their time.
of_every_op = pytest.mark.parametrize("op", OPS, scope="module")

pytestmark = pytest.mark.filterwarnings("default::tests.resources.UntestedCompiler")


def check(op: str, label: str, arch: str, spill: int, stack: int) -> None:
    most = SPILLS.get(op, (0, ""))[0]
    if spill > most:
        resources.spilled(f"{op}: {label} on {arch} spills {spill} bytes, {most} are declared")
    if stack > most:
        resources.spilled(f"{op}: {label} on {arch} has a stack frame of {stack} bytes, {most} are declared")


def check_all(op: str, kernels: Iterable[Kernel], arch: str, *, everything: bool) -> None:
    """Compiles what the op's record does not know, and checks it all."""
    of = resources.version() if resources.in_ci() else None
    known = {} if everything else resources.listed(op, of).get(arch, {})
    fresh: list[Kernel] = []
    for kernel in kernels:
        entry = known.get(resources.label(kernel))
        if entry is not None and entry[0] == resources.digest(kernel):
            check(op, resources.label(kernel), arch, entry[2], entry[3])
        else:
            fresh.append(kernel)
    for kernel, built in resources.compiled(fresh, arch).items():
        assert len(built.cubin) > 500
        assert built.resources.registers > 0, f"the compile log says nothing of {kernel}"
        check(op, resources.label(kernel), arch, built.resources.spill_bytes, built.resources.stack_bytes)


@pytest.mark.timeout(1800)
@of_every_op
def test_every_kernel_compiles_for_every_arch_without_a_spill(op: str, everything: bool) -> None:
    for arch in ARCHES:
        check_all(op, resources.kernels_of(get_op(op), arch, everything=everything), arch, everything=everything)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "batch"), resources.WGMMA)
def test_wgmma_kernels_do_not_spill_in_batches_or_split_waves(
    kind: str, batch: tuple[int, ...], everything: bool
) -> None:
    check_all("matmul", resources.wgmma_s(kind, batch), "sm_90a", everything=everything)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("arch", ARCHES)
def test_gemv_kernels_do_not_spill_for_any_pitch(arch: str, everything: bool) -> None:
    check_all("matmul", resources.gemv_s(arch), arch, everything=everything)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("arch", ARCHES)
def test_kernels_of_long_rows_do_not_spill(arch: str, everything: bool) -> None:
    kernels = {op: resources.long_rows(get_op(op), arch) for op in OPS}
    assert {"rms_norm", "softmax"} <= {op for op in OPS if kernels[op]}
    for op in OPS:
        check_all(op, kernels[op], arch, everything=everything)


@of_every_op
def test_resources_are_not_stale(op: str) -> None:
    """Regenerate with `python -m tests.resources OP` after editing a kernel, with the oldest and the newest NVRTC: CI wants the
    figures of both, and an installation with one NVRTC needs its own alone."""
    written = resources.written_with(op)
    assert len(written) == 2 or (written and not resources.in_ci()), f"kernels/records/{op}.json is of {written} alone"
    for nvrtc, arch in itertools.product(written, ARCHES):
        known = resources.listed(op, nvrtc)
        assert set(known) == set(ARCHES), f"kernels/records/{op}.json is missing an arch of NVRTC {nvrtc}"
        present = {resources.label(k): resources.digest(k) for k in resources.listable(get_op(op), arch)}
        stale = [label for label, entry in known[arch].items() if present.get(label) != entry[0]]
        assert not stale, f"{len(stale)} kernels changed since kernels/records/{op}.json was written: {stale[:3]}"
        missing = sorted(present.keys() - known[arch].keys())
        assert not missing, f"{len(missing)} kernels are not in kernels/records/{op}.json: {missing[:3]}"
        for name, entry in known[
            arch
        ].items():  # by each NVRTC: a run with another need not look again (tests/passed.py)
            check(op, f"{name} (NVRTC {nvrtc})", arch, entry[2], entry[3])


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_no_exception_is_declared_in_vain() -> None:
    for op, (_, why) in SPILLS.items():
        used = 0
        for arch in ARCHES:
            kernels = {*resources.kernels_of(get_op(op), arch, everything=True), *resources.long_rows(get_op(op), arch)}
            used = max(used, *(c.resources.spill_bytes for c in compile_kernels(kernels, arch).values()))
        assert used > 0 or nvrtc_version() < resources.NEWEST, (
            f"no kernel of {op} spills any more: take it out of SPILLS"
        )
        assert why


def _labels(op: str, arch: str) -> set[str]:
    return {resources.label(kernel) for kernel in resources.kernels_of(get_op(op), arch)}


def test_matmul_declares_no_spill() -> None:
    assert "matmul" not in SPILLS


def test_a_spill_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "nvrtc_version", lambda: resources.NEWEST)
    with pytest.raises(AssertionError, match="spills 8 bytes"):
        check("add", "some/kernel.cu:entry", "sm_90a", 8, 0)
    with pytest.raises(AssertionError, match="stack frame of 16 bytes"):
        check("add", "some/kernel.cu:entry", "sm_90a", 0, 16)


def test_spill_with_a_newer_compiler_warns_users(monkeypatch: pytest.MonkeyPatch) -> None:
    major, minor = resources.NEWEST
    monkeypatch.setattr(resources, "nvrtc_version", lambda: (major, minor + 1))
    monkeypatch.setenv("CI", "true")
    with pytest.raises(AssertionError, match="spills 8 bytes"):
        check("add", "some/kernel.cu:entry", "sm_90a", 8, 0)
    monkeypatch.delenv("CI")
    with pytest.warns(resources.UntestedCompiler, match=rf"NVRTC {major}.{minor + 1}.*spills 8 bytes"):
        check("add", "some/kernel.cu:entry", "sm_90a", 8, 0)
