"""Launches that begin while the kernel ahead of them ends."""

from __future__ import annotations

import ctypes
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.runtime import overlap
from baracuda_py.runtime.compile.compiler import compile_ptx
from baracuda_py.runtime.launch import _PdlRunner
from baracuda_py.runtime.overlap import supports_pdl
from baracuda_py.runtime.steps import Kernel, Launch, Ptr
from baracuda_py.types import DeviceSpec, DriverError

H200 = DeviceSpec.named("h200")

OVERLAPPING = {
    "gemv along k": (bp.MatmulDescriptor((1, 1000), (1000, 513), "bf16", "bf16", b_strides=(1, 1000)), "gemv"),
    "gemv across": (bp.MatmulDescriptor((1, 513), (513, 1000), "bf16", "bf16"), "gemv"),
    "a ragged product": (bp.MatmulDescriptor((100, 77), (77, 91), "bf16", "bf16"), "tc_async"),
    "a split one": (bp.MatmulDescriptor((64, 8192), (8192, 64), "bf16", "bf16"), "tc_async"),
    "scales by blocks": (
        bp.MatmulDescriptor(
            (512, 512),
            (512, 512),
            "fp8_e4m3",
            "fp8_e4m3",
            out_element="bf16",
            b_strides=(1, 512),
            scale_a_shape=(512, 4),
            scale_a_strides=(1, 512),
            scale_b_shape=(4, 4),
            scale_a_element="f32",
            scale_b_element="f32",
        ),
        "wgmma",
    ),
    "tc": (bp.MatmulDescriptor((100, 77), (77, 91), "bf16", "bf16"), "tc"),
    "copies and a product": (bp.MatmulDescriptor((777, 2049), (2049, 1333), "bf16", "bf16"), "wgmma_padded"),
}


OPERATIONS = re.compile(r"^\s*(?:@!?%p\d+\s+)?((?:ld|st|red|atom|multimem|cp)\.[^\s;]+)", re.MULTILINE)
OWN = (".param", ".const", ".shared", ".local", ".commit_group", ".wait_group", ".mbarrier")


def accesses(ptx: str) -> list[str]:
    """The operations that touch memory which other kernels see: in the global space, or in none that is named."""
    return [op for op in OPERATIONS.findall(ptx) if ".global" in op or not any(part in op for part in OWN)]


@pytest.mark.parametrize("what", list(OVERLAPPING))
def test_pdl_kernels_wait_before_they_touch_memory(what: str) -> None:
    desc, variant = OVERLAPPING[what]
    plan = bp.MatmulPlan.select(desc, bp.PlanPreference(variant=variant), device=H200)
    launches = [step for step in plan.selection.steps if isinstance(step, Launch)]
    assert len(launches) == (2 if what in ("a split one", "copies and a product") else 1)
    assert all(step.pdl for step in launches)
    for step in launches:
        text = compile_ptx(step.kernel, "sm_90a")
        assert text.count(".entry") == text.count("griddepcontrol.wait") == 1
        before, after = text[text.index(".entry") :].split("griddepcontrol.wait")
        assert not accesses(before), step.kernel
        assert any(".global" in access for access in accesses(after)), f"{step.kernel}: the pattern finds nothing"


@pytest.mark.parametrize(
    "line",
    [
        "ld.global.nc.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];",
        "@%p1 st.global.u16 [%rd1], %rs1;",
        "@!%p12 ld.b32 %r1, [%rd1];",
        "ld.volatile.u32 %r1, [%rd1];",
        "red.global.add.f32 [%rd1], %f1;",
        "atom.acq_rel.gpu.global.add.u32 %r1, [%rd1], 1;",
        "cp.async.cg.shared.global.L2::128B [%r1], [%rd1], 16, %r2;",
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];",
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2}], [%r3];",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], 16;",
    ],
)
def test_an_access_is_noticed(line: str) -> None:
    assert len(accesses(f"\tmov.u32 %r1, 0;\n\t{line}\n")) == 1


@pytest.mark.parametrize(
    "line",
    [
        "ld.param.u64 %rd1, [k_param_0];",
        "ld.const.f32 %f1, [c];",
        "ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r5];",
        "st.shared.u16 [%r1], %rs1;",
        "cp.async.commit_group;",
        "cp.async.wait_group 1;",
        "cp.async.bulk.commit_group;",
        "cp.async.bulk.wait_group.read 0;",
        "mbarrier.init.shared::cta.b64 [%r1], 1;",
    ],
)
def test_what_stays_in_the_cta_is_none(line: str) -> None:
    assert not accesses(f"\t{line}\n")


@pytest.mark.parametrize(
    ("arch", "can"),
    [
        ("sm_80", False),
        ("sm_86", False),
        ("sm_89", False),
        ("sm_90a", True),
        ("sm_100a", True),
        ("sm_103a", True),
        ("sm_120", True),
    ],
)
def test_launches_overlap_from_sm_90_on(arch: str, can: bool) -> None:
    assert supports_pdl(arch) is can
    kernel = Kernel(
        "gemm/reduce.cu", "reduce<float, 4, 256, u32, Epilogue<float, Absent, Absent, Absent, IDENTITY, true, float>>"
    )
    text = compile_ptx(kernel, arch)
    assert f".target {arch}" in text and accesses(text)
    assert ("griddepcontrol.wait" in text) is can


STEP = Launch(Kernel("a.cu", "kernel"), (3, 4, 5), (128, 2, 1), (), 4096, pdl=True)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes a function of Python that takes four numbers the driver's, called as C."""

    def put(launch: Callable[..., int]) -> None:
        called = ctypes.CFUNCTYPE(ctypes.c_int, *(ctypes.c_uint64,) * 4)(launch)
        address = ctypes.cast(called, ctypes.c_void_p).value
        prototype: Any = ctypes.CFUNCTYPE(ctypes.c_int)
        monkeypatch.setattr(overlap, "_driver_launch", lambda _keep=called: prototype(address))

    return put


def test_driver_gets_the_launch_attributes(driver: Any) -> None:
    """Read by cuda.bindings, which knows the structures from the driver's headers."""
    d = pytest.importorskip("cuda.bindings.driver")
    launched: list[Any] = []

    def launch(place: int, *rest: int) -> int:
        config = d.CUlaunchConfig(_ptr=place)
        attribute = d.CUlaunchAttribute(_ptr=ctypes.c_uint64.from_address(place + 40).value)  # config.attrs
        launched.append((
            (config.gridDimX, config.gridDimY, config.gridDimZ), (config.blockDimX, config.blockDimY, config.blockDimZ),
            config.sharedMemBytes, int(config.hStream), config.numAttrs, attribute.id.name,
            attribute.value.programmaticStreamSerializationAllowed, rest,
        ))  # fmt: skip
        return 0

    driver(launch)
    launch_on_stream = overlap.pdl_launch(1 << 46 | 17, STEP, 1 << 47 | 33)
    for stream in (1 << 47, 0):
        launch_on_stream(stream)
    name, rest = "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION", (1 << 46 | 17, 1 << 47 | 33, 0)
    assert launched == [((3, 4, 5), (128, 2, 1), 4096, stream, 1, name, 1, rest) for stream in (1 << 47, 0)]


@pytest.mark.parametrize("bound", [False, True])
def test_pdl_threads_have_separate_streams_and_arguments(driver: Any, bound: bool) -> None:
    d = pytest.importorskip("cuda.bindings.driver")
    both, seen = threading.Barrier(2, timeout=20), []

    def launch(place: int, _function: int, table: int, _extra: int) -> int:
        if not bound:
            both.wait()
        argument = ctypes.c_uint64.from_address(ctypes.c_uint64.from_address(table).value).value
        time.sleep(0.01)
        seen.append((int(d.CUlaunchConfig(_ptr=place).hStream), argument))
        return 0

    driver(launch)
    runner = _PdlRunner(replace(STEP, args=(Ptr("x"),)), 17, {"x": 0})
    prepared = runner.prepare([5], {}, 0)

    def call(stream: int) -> None:
        prepared(stream) if bound else runner.run([stream], {}, 0, stream)

    for _ in range(2):
        threads = [threading.Thread(target=call, args=(stream,)) for stream in (7, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(seen) == [(stream, 5 if bound else stream) for stream in (7, 7, 9, 9)]


def test_a_launch_that_the_driver_refuses_is_named(driver: Any) -> None:
    pytest.importorskip("cuda.bindings.driver")
    driver(lambda *_: 701)
    runner = _PdlRunner(STEP, 17, {})
    for _ in range(2):
        with pytest.raises(DriverError, match=r"launching a.cu:kernel: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"):
            runner.run([], {}, 0, 0)
    assert len(runner._idle) == 1
