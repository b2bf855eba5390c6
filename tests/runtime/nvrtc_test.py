"""NVRTC through cuda.bindings makes what NVRTC through CuPy makes, and its errors are the same."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.runtime.compile import compiler
from baracuda_py.runtime.compile.compiler import compile_kernels, compile_ptx
from baracuda_py.runtime.steps import Kernel
from baracuda_py.runtime.system import toolchain
from baracuda_py.runtime.system.nvrtc import BindingsNvrtc

pytestmark = pytest.mark.usefixtures("fresh_cache")
COPY = Kernel("shape_layout/copy.cu", "copy_elements<u32, 1, 4, 1>")
OTHER = Kernel("shape_layout/copy.cu", "copy_elements<u32, 2, 8, 4>")


@pytest.fixture
def through_bindings(monkeypatch: pytest.MonkeyPatch) -> BindingsNvrtc:
    made = BindingsNvrtc(pytest.importorskip("cuda.bindings.nvrtc"))
    monkeypatch.setattr(compiler, "nvrtc", lambda: made)
    return made


def results() -> list[Any]:
    built = compile_kernels([COPY, OTHER], "sm_90a", force=True)
    return [(b.name, b.cubin, b.resources) for b in built.values()] + [compile_ptx(COPY, "sm_90a")]


def test_nvrtc_gives_the_same_code_both_ways(through_bindings: BindingsNvrtc, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = results()
    cupy_nvrtc = pytest.importorskip("cupy").cuda.nvrtc
    assert through_bindings.getVersion() == cupy_nvrtc.getVersion()
    monkeypatch.setattr(compiler, "nvrtc", lambda: cupy_nvrtc)
    theirs = results()
    assert mine == theirs
    assert mine[0][1][:4] == b"\x7fELF" and mine[0][2].registers > 0


@pytest.mark.usefixtures("through_bindings")
@pytest.mark.parametrize(
    "kernel", [Kernel(COPY.file, COPY.entry, "struct Broken { int x }"), Kernel(COPY.file, "none<1>")]
)
def test_nvrtc_errors_have_the_log(kernel: Kernel) -> None:
    with pytest.raises(bp.CompileError, match="does not compile") as caught:
        compile_kernels([kernel], "sm_90a")
    assert "error" in caught.value.log


def test_an_empty_log_is_empty(through_bindings: BindingsNvrtc) -> None:
    """And no shared object of Python's was written to."""
    program = through_bindings.createProgram("", "", (), ())
    try:
        through_bindings.compileProgram(program, ())
        assert through_bindings.getProgramLog(program) == b""
        assert bytes([32]) == b" " and b"".join([b" "])[0] == 32
        with pytest.raises(through_bindings.NVRTCError, match=r"^NVRTC_ERROR_\w+ \(\d+\)$"):
            through_bindings.getLoweredName(program, "nothing")
    finally:
        through_bindings.destroyProgram(program)


def test_nvrtc_of_cuda_bindings_is_named_where_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost:
        def nvrtcVersion(self) -> Any:
            raise RuntimeError("libnvrtc.so.12: cannot open shared object file")

    monkeypatch.setitem(sys.modules, "cupy.cuda", None)
    monkeypatch.setattr(toolchain, "_nvrtc_of_bindings", lambda _error: BindingsNvrtc(Lost()))
    toolchain.nvrtc.cache_clear()
    try:
        with pytest.raises(bp.UnsupportedError, match=r"cuda\.bindings cannot load \(libnvrtc.*pip install '\.\[torch"):
            toolchain.nvrtc()
    finally:
        toolchain.nvrtc.cache_clear()
