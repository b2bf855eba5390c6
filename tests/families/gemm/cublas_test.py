"""Variant `cublas` on the host: what it refuses, and that every layout it takes becomes the right column-major product.

The library is played by one that does what cuBLAS documents, on NumPy's memory.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py import functional
from baracuda_py.call.cache import plan_cache
from baracuda_py.call.caller import Caller
from baracuda_py.call.paths import recipe, resolve
from baracuda_py.call.results import allocate
from baracuda_py.ops.gemm import samples
from baracuda_py.ops.gemm._variants.cublas import Cublas, Side, blas_gemm, side_of
from baracuda_py.ops.gemm.matmul import MatmulDescriptor, MatmulPlan
from baracuda_py.ops.products.gemm import Matrix
from baracuda_py.plan.select import assess
from baracuda_py.runtime import cublas
from baracuda_py.runtime.gpu import streams
from baracuda_py.runtime.launch import Executable
from baracuda_py.runtime.steps import WORKSPACE, Call, workspace_size
from baracuda_py.runtime.system import libraries
from baracuda_py.runtime.system.toolchain import install_hint
from baracuda_py.types import DeviceSpec, DriverError, ElementKind, PlanPreference

BARE = DeviceSpec.named("h200")
H200 = BARE.with_libraries(frozenset({"cublas"}))
DTYPES = {number: kind.dtype for kind, number in cublas.DATA_TYPES.items()}


class Column:
    """cuBLAS for matrices in host memory: records calls, checks what they must keep to, and multiplies."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.status = 0
        self.stream = self.workspace = self.math_mode = None

    def cublasCreate_v2(self, handle: Any) -> int:
        handle._obj.value = 0xB1A5
        return 0

    def cublasSetMathMode(self, _handle: Any, mode: int) -> int:
        self.math_mode = mode
        return 0

    def cublasSetStream_v2(self, _handle: Any, stream: int) -> int:
        self.calls.append("stream")
        self.stream, self.workspace = stream, None  # as documented: the stream takes the workspace away
        return 0

    def cublasSetWorkspace_v2(self, _handle: Any, address: int, nbytes: int) -> int:
        self.calls.append("workspace")
        self.workspace = address, nbytes
        return 0

    def cublasGemmStridedBatchedEx(
        self, _handle: Any, transa: int, transb: int, m: int, n: int, k: int, alpha: Any, a: int, atype: int, lda: int,
        sa: int, b: int, btype: int, ldb: int, sb: int, beta: Any, c: int, ctype: int, ldc: int, sc: int, count: int,
        compute: int, algorithm: int,
    ) -> int:  # fmt: skip
        self.calls.append("gemm")
        if self.status:
            return self.status
        assert self.workspace is not None, "the product has no workspace of its own"
        assert beta._obj.value == 0 and type(beta._obj) is type(alpha._obj) and algorithm == -1
        assert lda >= (k if transa else m) and ldb >= (n if transb else k) and ldc >= m
        for i in range(count):
            if not alpha._obj.value:  # as documented for BLAS: A and B are not read
                _columns(c, ctype, i * sc, (m, n), ldc)[...] = 0
                continue
            left = _columns(a, atype, i * sa, (k, m) if transa else (m, k), lda)
            right = _columns(b, btype, i * sb, (n, k) if transb else (k, n), ldb)
            left, right = (x.astype(np.float64) for x in (left.T if transa else left, right.T if transb else right))
            with np.errstate(all="ignore"):
                _columns(c, ctype, i * sc, (m, n), ldc)[...] = np.float64(alpha._obj.value) * np.matmul(left, right)
        return 0


def _columns(address: int, kind: int, first: int, shape: tuple[int, int], leading: int) -> Any:
    """A column-major matrix in memory."""
    dtype = DTYPES[kind]
    size = dtype.itemsize
    nbytes = ((shape[1] - 1) * leading + shape[0]) * size
    memory = (ctypes.c_char * nbytes).from_address(address + first * size)
    return np.ndarray(shape, dtype, memory, strides=(size, leading * size))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Column]:
    fake = Column()
    monkeypatch.setattr(cublas, "library", lambda: fake)
    monkeypatch.setattr(cublas, "_handles", {})
    monkeypatch.setattr(cublas, "_ordinal", lambda: 0)
    return fake


def step_of(desc: Any, device: DeviceSpec = H200) -> Call:
    (step,) = Cublas().lower(desc.canonical(), device, "")
    assert isinstance(step, Call)
    return step


def _operands() -> Iterator[Any]:
    for sample in samples.matmul({"name": "matmul"}, full=True):
        arrays = {n: x for n, x in sample.operands.items() if x is not None}
        yield pytest.param(arrays, sample.options, id=sample.label)


@pytest.mark.parametrize(("arrays", "options"), list(_operands()))
def test_what_it_takes_is_computed(library: Column, arrays: dict[str, Any], options: dict[str, Any]) -> None:
    desc = MatmulDescriptor.of(**arrays, **{k: v for k, v in options.items() if k != "beta"})
    desc.validate()
    if 0 in desc.shape or not Cublas().supports(desc.canonical(), H200):
        return
    expected = MatmulPlan.reference(desc, **{n: x for n, x in arrays.items() if n != "out"})
    layout = desc.canonical().layout("out")
    out = arrays.get("out")
    out = np.zeros(layout.shape, layout.element.dtype) if out is None else out.copy(order="K")
    step = step_of(desc)
    names = ("out", "a", "b")
    pointers = [x.__array_interface__["data"][0] for x in (out, arrays["a"], arrays["b"])]
    Executable([step], names, "sm_90a", 0).run(pointers, {"alpha": desc.alpha}, 4096, 7)
    assert (library.stream, library.workspace) == (7, (4096, step.scratch.nbytes if step.scratch else -1))
    guarantee = Cublas().guarantee(desc.canonical(), H200, "")
    guarantee.check(
        out,
        np.asarray(expected).reshape(out.shape),
        {n: x for n, x in arrays.items() if n != "out"},
        output=layout.element,
        measures=MatmulPlan.select(desc, device=H200).measured(desc),
    )


def test_most_plain_samples_are_taken() -> None:
    taken = sum(
        bool(Cublas().supports(MatmulDescriptor.of(**{n: p.values[0][n] for n in ("a", "b")}).canonical(), H200))
        for p in _operands()
    )
    assert taken > 100


@pytest.mark.parametrize(
    ("strides", "shape", "side"),
    [
        ((8, 1), (4, 8), Side(cublas.OP_N, 8)),
        ((1, 4), (4, 8), Side(cublas.OP_T, 4)),
        ((12, 1), (4, 8), Side(cublas.OP_N, 12)),
        ((1, 6), (4, 8), Side(cublas.OP_T, 6)),
        ((1, 3), (1, 8), Side(cublas.OP_T, 3)),  # one row of stepped elements
        ((3, 1), (8, 1), Side(cublas.OP_N, 3)),  # one column of stepped elements
        ((99, 1), (1, 8), Side(cublas.OP_N, 8)),
        ((16, 2), (4, 8), None),
        ((-8, 1), (4, 8), None),
        ((0, 1), (4, 8), None),
        ((4, 1), (4, 8), None),  # rows that overlap
    ],
)  # fmt: skip
def test_strides_become_an_operation_and_a_pitch(strides: Any, shape: Any, side: Any) -> None:
    assert side_of(Matrix("a", ElementKind.F32, *strides, (), 16), *shape) == side


def test_cublas_row_major_product_is_transposed() -> None:
    desc = MatmulDescriptor((3, 5, 7), (3, 7, 4), "f32", "f32", b_strides=(28, 1, 7))
    call = blas_gemm(desc.canonical().gemm, cublas.COMPUTE_32F, 0)
    assert call is not None
    assert (call.a, call.transa, call.lda, call.stride_a) == ("b", cublas.OP_T, 7, 28)
    assert (call.b, call.transb, call.ldb, call.stride_b) == ("a", cublas.OP_N, 7, 35)
    assert (call.m, call.n, call.k, call.c, call.ldc, call.stride_c, call.matrices) == (4, 5, 7, "out", 4, 20, 3)


@pytest.mark.parametrize(
    ("changed", "reason", "fix"),
    [
        ({"activation": "relu"}, "fuses no epilogue", "leave out"),
        ({"bias_shape": (40,), "bias_element": "bf16"}, "fuses no epilogue", "leave out"),
        ({"out_element": "f16"}, "as f16", "out_dtype='bf16'"),
        ({"a_shape": (8, 0), "b_shape": (0, 40)}, "K is 0", ""),
        ({"a_strides": (256, 2)}, "neither rows nor columns", "contiguize a"),
        ({"a_align": 1}, "between two", "a on a multiple of 2 bytes"),
        (
            {"a_shape": (2, 3, 8, 16), "b_shape": (2, 3, 16, 40), "a_strides": (9999, 128, 16, 1)},
            "more than one axis",
            "contiguize a",
        ),
        ({"name": "matmul_tc_bf16"}, "fixes variant 'tc'", "use matmul"),
    ],
)  # fmt: skip
def test_refusals_say_what_would_admit_it(changed: dict[str, Any], reason: str, fix: str) -> None:
    fields = {"a_shape": (8, 64), "b_shape": (64, 40), "a_element": "bf16", "b_element": "bf16"}
    desc = MatmulDescriptor(**{**fields, **changed}).canonical()  # type: ignore[arg-type]
    (answer,) = (a.feasibility for a in assess([Cublas()], desc, PlanPreference(), H200))
    assert not answer and reason in answer.reason and fix in answer.fix


@pytest.mark.parametrize(
    ("element", "k", "served"), [("bf16", 40344, False), ("f16", 32, False), ("bf16", 40320, True), ("f32", 33, True)]
)
def test_k_of_halves_is_a_multiple_of_64(element: str, k: int, served: bool) -> None:
    """The library loses the end of others."""
    desc = bp.MatmulDescriptor((46, k), (k, 8), element, element)
    feasible = Cublas().supports(desc.canonical(), H200)
    assert bool(feasible) is served
    assert served or "lose the end of K" in feasible.reason


def test_without_the_library_the_extra_is_named() -> None:
    answer = Cublas().supports(MatmulDescriptor((8, 8), (8, 8), "f32", "f32").canonical(), BARE)
    assert "not installed" in answer.reason and answer.fix == install_hint("full")
    with pytest.raises(bp.UnsupportedError, match=r"pip install '\.\[full1[23]\]' in a checkout"):
        MatmulPlan.select(
            MatmulDescriptor((8, 8), (8, 8), "f32", "f32"), bp.PlanPreference(backend="cublas"), device=BARE
        )


@pytest.mark.parametrize(
    ("element", "math", "compute"),
    [("bf16", None, 68), ("f16", None, 68), ("f32", None, 68), ("f32", "tf32", 77), ("f64", None, 70)],
)
def test_the_accumulator_follows_the_precision(element: str, math: Any, compute: int) -> None:
    step = step_of(MatmulDescriptor((8, 8), (8, 8), element, element, math=math))
    assert step.function.args[0].compute == compute  # type: ignore[attr-defined]
    assert step.capturable and workspace_size([step]) == 32 << 20


def test_f32_is_strict_and_partial_sums_are_wide(library: Column) -> None:
    cublas.prepare()
    assert library.math_mode == 16  # the default mode, and no reductions in the output's type


def test_the_workspace_is_set_after_the_stream(library: Column) -> None:
    a, b, out = (np.eye(4, dtype=np.float32) for _ in range(3))
    pointers = {n: x.__array_interface__["data"][0] for n, x in (("a", a), ("b", b), ("out", out))} | {WORKSPACE: 64}
    step_of(MatmulDescriptor((4, 4), (4, 4), "f32", "f32")).function(pointers, {"alpha": 2.0}, 3)
    assert library.calls == ["stream", "workspace", "gemm"]
    assert np.array_equal(out, 2 * np.eye(4))
    library.status = 15
    with pytest.raises(DriverError, match="CUBLAS_STATUS_NOT_SUPPORTED"):
        step_of(MatmulDescriptor((4, 4), (4, 4), "f32", "f32")).function(pointers, {"alpha": 2.0}, 3)


def test_a_plan_that_calls_it_is_a_value() -> None:
    plan = MatmulPlan.select(
        MatmulDescriptor((64, 64), (64, 64), "bf16", "bf16"), bp.PlanPreference(backend="cublas"), device=H200
    )
    assert str(plan.sku) == "gemm.matmul/bf16/rrr/identity/cublas.cublas@sm_90a"
    assert plan.capture_safe and plan.kernels == () and plan.workspace_size == 32 << 20
    assert MatmulPlan.from_json(plan.to_json()) == plan
    assert not plan.precision_guarantee.batch_invariant and plan.precision_guarantee.deterministic


def test_a_steady_state_figure_is_near_what_was_measured() -> None:
    desc = MatmulDescriptor((8192, 8192), (8192, 8192), "bf16", "bf16").canonical()
    assert 2 * 8192**3 / Cublas().cost(desc, H200, "").seconds / 1e12 == pytest.approx(680, rel=0.05)
    vector = MatmulDescriptor((1, 8192), (8192, 8192), "bf16", "bf16").canonical()
    assert Cublas().cost(vector, H200, "").seconds * 1e6 == pytest.approx(34, rel=0.1)


def test_libraries_are_found_by_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_folders", lambda: iter([tmp_path, tmp_path / "absent"]))
    libraries.installed_libraries.cache_clear()
    assert libraries.installed_libraries() == frozenset()
    (tmp_path / "libcublas.so.12").touch()
    libraries.installed_libraries.cache_clear()
    assert libraries.installed_libraries() == {"cublas"}
    libraries.installed_libraries.cache_clear()


class FakeDevice:
    """What running a plan asks of CuPy, in host memory: scratch and streams are noted."""

    def __init__(self) -> None:
        self.cuda = self.runtime = self
        self.ndarray = pytest.importorskip("cupy").ndarray
        self.capturing = False
        self.scratch: list[tuple[int, int]] = []  # bytes, stream
        self.stream = 7

    def get_current_stream(self) -> Any:
        return SimpleNamespace(ptr=self.stream)

    def getDevice(self) -> int:
        return 0

    def setDevice(self, _ordinal: int) -> None: ...

    def Device(self, _ordinal: int) -> Any:
        return contextlib.nullcontext()

    def streamIsCapturing(self, _stream: int) -> bool:
        return self.capturing

    def alloc(self, nbytes: int) -> Any:
        self.scratch.append((nbytes, self.stream))
        return SimpleNamespace(ptr=4096 * len(self.scratch))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    fake = FakeDevice()
    for module in (allocate, recipe, resolve, streams):
        monkeypatch.setattr(module, "require_gpu", lambda _what, **_: fake)
    streams._query.cache_clear()
    plan_cache.clear()
    yield fake
    streams._query.cache_clear()
    plan_cache.clear()


def _on_device(x: Any) -> Any:
    """Host memory as a CuPy array."""
    import cupy

    memory = cupy.cuda.UnownedMemory(x.ctypes.data, x.nbytes, x, 0)
    return cupy.ndarray(x.shape, x.dtype, cupy.cuda.MemoryPointer(memory, 0))


def test_a_plan_with_scratch_takes_the_short_path(
    library: Column, gpu: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call describes and checks nothing, and has scratch of its own from the stream's pool."""
    a, b, out = (np.full(shape, 2, np.float32) for shape in ((8, 16), (16, 12), (8, 12)))
    operands = {name: _on_device(x) for name, x in (("a", a), ("b", b), ("out", out))}
    pref = PlanPreference(variant="cublas")

    def call() -> Any:
        return bp.matmul(operands["a"], operands["b"], out=operands["out"], pref=pref, device=H200)

    plan = MatmulPlan.select(MatmulDescriptor.of(**operands), pref, device=H200)
    for run in (call, lambda: plan.run(**operands)):
        library.calls.clear()
        gpu.scratch.clear()
        run()
        with monkeypatch.context() as patched:
            patched.setattr(functional, "_call_checked", None)
            patched.setattr(Caller, "_checked", None)
            out[...] = 0
            assert run() is operands["out"]
            assert (out == 64).all()
            assert library.workspace == (8192, plan.workspace_size) and library.stream == 7
            assert gpu.scratch == [(plan.workspace_size, 7)] * 2
        assert library.calls.count("gemm") == 2
    gpu.capturing = True
    with pytest.raises(bp.UnsupportedError, match="workspace was not passed"):
        plan.run(**operands)
