"""Compiling, the cubin cache under stress and failure, missing toolchains, and a machine with no CuPy."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.cli.commands import env
from baracuda_py.runtime.compile import cache, compiler, inspect, sources
from baracuda_py.runtime.compile.compiler import compile_kernels, compile_ptx, entry_key, parse_log
from baracuda_py.runtime.gpu import driver
from baracuda_py.runtime.launch import Arguments
from baracuda_py.runtime.steps import Copy, Fill, Kernel, Launch, Packed, Ptr, Run, Scratch, workspace_size
from baracuda_py.runtime.system import toolchain

from ..gauntlet import readable

ARCH = "sm_90a"
COPY = Kernel("shape_layout/copy.cu", "copy_elements<u32, 1, 4, 1>")
OTHER = Kernel("shape_layout/copy.cu", "copy_elements<u32, 2, 8, 4>")


def build(kernel: Kernel = COPY, arch: str = ARCH, **options: Any) -> Any:
    return compile_kernels([kernel], arch, **options)[kernel]


# ---- compiling -------------------------------------------------------------------------------------------------------


def test_a_kernel_is_compiled_once(fresh_cache: Path) -> None:
    first = build()
    assert first.seconds > 0
    assert first.cubin[:4] == b"\x7fELF"
    assert first.resources.registers > 0
    again = build()
    assert again.seconds == 0
    assert (again.cubin, again.name, again.resources) == (first.cubin, first.name, first.resources)
    assert build(force=True).seconds > 0
    assert {p.suffix for p in fresh_cache.iterdir()} == {".cubin", ".json"}


def test_kernels_of_one_file_share_a_program(fresh_cache: Path) -> None:
    built = compile_kernels([COPY, OTHER, COPY], ARCH)
    assert len(built) == 2
    assert built[COPY].cubin == built[OTHER].cubin
    assert built[COPY].name != built[OTHER].name
    assert len(list(fresh_cache.glob("*.cubin"))) == 1


def test_a_second_build_has_the_first_ones_log() -> None:
    """NVRTC 13.0 answers from a cache of its own beside a driver, with a cubin and an empty log."""
    first, second = (compile_kernels([COPY], ARCH, force=True)[COPY].resources for _ in range(2))
    assert first == second and second.registers > 0


def test_nvrtc_does_not_answer_from_its_own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    whole = compiler._Program.compile

    def compile(self: Any, options: tuple[str, ...]) -> None:
        given.extend(options)
        whole(self, options)

    monkeypatch.setattr(compiler._Program, "compile", compile)
    compile_kernels([COPY], ARCH, force=True)
    assert "--no-cache" in given


def test_the_key_depends_on_everything_that_changes_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {entry_key(COPY, ARCH), entry_key(OTHER, ARCH), entry_key(COPY, "sm_80")}
    keys.add(entry_key(Kernel(COPY.file, COPY.entry, "// prelude"), ARCH))
    for name, answer in (("nvrtc_build", "12.9.87 CL-1"), ("nvrtc_version", (12, 8))):
        monkeypatch.setattr(compiler, name, lambda answer=answer: answer)
        keys.add(entry_key(COPY, ARCH))
    assert len(keys) == 6


def test_cubin_digest_covers_headers_and_no_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "include").mkdir()
    (tmp_path / "a" / "k.cu").write_text('#include "one.cuh"\n')
    (tmp_path / "include" / "one.cuh").write_text('#include "two.cuh"\n')
    (tmp_path / "include" / "two.cuh").write_text('constexpr int N = 1;  // one\nconstexpr char S[] = "//1";\n')
    monkeypatch.setattr(sources, "kernels_dir", lambda: tmp_path)
    first = sources.Source("a/k.cu")
    assert set(first.headers) == {"one.cuh", "two.cuh"}
    (tmp_path / "include" / "two.cuh").write_text(
        '/* more\nwords */\nconstexpr int N = 1;\n\nconstexpr char S[] = "//1";\n'
    )
    assert sources.Source("a/k.cu").code_digest == first.code_digest
    for other in (
        'constexpr int N = 2;\nconstexpr char S[] = "//1";\n',
        'constexpr int N = 1;\nconstexpr char S[] = "//2";\n',
    ):
        (tmp_path / "include" / "two.cuh").write_text(other)
        assert sources.Source("a/k.cu").code_digest != first.code_digest
    with pytest.raises(bp.CompileError, match=r"gone\.cu cannot be read.*reinstall"):
        sources.Source("a/gone.cu")
    (tmp_path / "a" / "binary.cu").write_bytes(b"\xff\xfe")
    with pytest.raises(bp.CompileError, match=r"binary\.cu cannot be read.*reinstall"):
        sources.Source("a/binary.cu")


def test_a_kernel_that_does_not_compile_gives_the_log(fresh_cache: Path) -> None:
    broken = Kernel("shape_layout/copy.cu", "copy_elements<u32, 1, 4, 1>", "struct Broken { int x }")
    with pytest.raises(bp.CompileError) as caught:
        build(broken)
    readable(caught.value, "copy.cu", ARCH, "error", ".log")
    assert "Broken" in caught.value.log or "prelude" in caught.value.log
    assert len(caught.value.log.splitlines()) > 1
    assert not fresh_cache.exists() or not list(fresh_cache.iterdir())


@pytest.mark.usefixtures("fresh_cache")
@pytest.mark.parametrize("entry", ["no_such_kernel<1>", "copy_elements<u32, 1, 3, 1>", "copy_elements<"])
def test_an_entry_that_is_not_there(entry: str) -> None:
    with pytest.raises(bp.CompileError) as caught:
        build(Kernel("shape_layout/copy.cu", entry))
    assert caught.value.log
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("fresh_cache")
def test_an_arch_that_nvrtc_does_not_know() -> None:
    with pytest.raises(bp.CompileError, match="sm_12345"):
        build(COPY, "sm_12345")


def test_ptx_is_text() -> None:
    text = compile_ptx(COPY, ARCH)
    assert text.startswith("//") and text.count("\n") > 10
    assert "\n.target sm_90a\n" in text
    assert "\n.target sm_80\n" in compile_ptx(COPY, "sm_80")


def test_sass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("neg", (64,), "f32"), device=ARCH)  # type: ignore[arg-type]
    if toolchain.disassembler() is None:
        with pytest.raises(bp.UnsupportedError, match="cuobjdump or nvdisasm"):
            _ = plan.kernels[0].sass
    else:
        assert "EXIT" in plan.kernels[0].sass
    tool = tmp_path / "nvdisasm"
    monkeypatch.setattr(inspect, "disassembler", lambda: str(tool))
    for text, said in (("", "does not run"), ("#!/bin/sh\necho too old >&2; exit 1\n", r"for sm_90a \(too old\)")):
        tool.write_text(text or "\0")
        tool.chmod(0o755)
        with pytest.raises(bp.UnsupportedError, match=f"{said}.*pip install nvidia-cuda-cuobjdump"):
            _ = plan.kernels[0].sass


def test_the_log_is_read_by_entry() -> None:
    text = textwrap.dedent("""
        ptxas info    : Compiling entry function '_Z1av' for 'sm_90a'
        ptxas info    : Function properties for _Z1av
            16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
        ptxas info    : Used 40 registers, used 1 barriers, 16 bytes stack, 8192 bytes smem
        ptxas info    : Compiling entry function '_Z1bv' for 'sm_90a'
            0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
        ptxas info    : Used 8 registers, used 0 barriers
    """)
    assert parse_log(text) == {"_Z1av": compiler.Resources(40, 12, 16, 8192), "_Z1bv": compiler.Resources(8, 0, 0, 0)}


# ---- the cache: damage and failure -----------------------------------------------------------------------------------


def _damage(folder: Path, how: str) -> None:
    cubin, meta = next(folder.glob("*.cubin")), next(folder.glob("*.json"))
    data = json.loads(meta.read_text())
    if how == "truncated cubin":
        cubin.write_bytes(cubin.read_bytes()[:-7])
    elif how == "flipped bit":
        raw = bytearray(cubin.read_bytes())
        raw[len(raw) // 2] ^= 1
        cubin.write_bytes(raw)
    elif how == "empty cubin":
        cubin.write_bytes(b"")
    elif how == "missing cubin":
        cubin.unlink()
    elif how == "truncated entry":
        meta.write_text(meta.read_text()[:20])
    elif how == "empty entry":
        meta.write_text("")
    elif how == "entry of another shape":
        meta.write_text("[1, 2]")
    elif how == "binary entry":
        meta.write_bytes(b"\xff\xfe\x00")
    elif how == "deep entry":
        meta.write_text("[" * 30_000)
    elif how == "huge entry":
        meta.write_text(json.dumps(data | {"more": "x" * (1 << 20)}))
    elif how == "entry of an older form":
        _seal(meta, data | {"resources": {"regs": 3}})
    elif how == "resources that are no numbers":
        _seal(meta, data | {"resources": data["resources"] | {"registers": "12"}})
    elif how == "sealed without a name":
        _seal(meta, {key: value for key, value in data.items() if key != "name"})
    elif how.startswith("name "):
        meta.write_text(json.dumps(data | {"name": NAMES[how]}))
    elif how.startswith("sealed name "):
        _seal(meta, data | {"name": NAMES[how.removeprefix("sealed ")]})
    elif how == "cubin elsewhere":
        meta.write_text(json.dumps(data | {"cubin": f"../cubins/{data['cubin']}"}))
    elif how == "another kernel's entry":
        build(OTHER)
        (other,) = (path for path in folder.glob("*.json") if path != meta)
        meta.write_bytes(other.read_bytes())
    elif how in ("fifo entry", "fifo cubin"):
        path = meta if how == "fifo entry" else cubin
        path.unlink()
        os.mkfifo(path)
    elif how in ("link entry", "link cubin"):
        path = meta if how == "link entry" else cubin
        path.rename(folder / "moved")
        path.symlink_to(folder / "moved")
    elif how == "entry is a folder":
        meta.unlink()
        meta.mkdir()
    else:
        raise AssertionError(how)


def _seal(path: Path, data: dict[str, Any]) -> None:
    """An entry whose seal is right, whatever it says: as another edition of this package may have written it."""
    meta = {key: value for key, value in data.items() if key != "seal"}
    cubin = path.with_name(f"{meta['cubin']}.cubin").read_bytes()
    path.write_text(json.dumps(meta | {"seal": cache._seal(path.stem, meta, cubin)}))


NAMES = {"name of nothing": "_Zevil", "name a number": 7, "name a list": ["_Zevil"]}
DAMAGE = [
    "truncated cubin", "flipped bit", "empty cubin", "missing cubin", "truncated entry", "empty entry", "entry of another shape",
    "binary entry", "deep entry", "huge entry", "entry of an older form", "resources that are no numbers",
    "sealed without a name", *NAMES, *(f"sealed {name}" for name in NAMES), "cubin elsewhere", "another kernel's entry",
    "fifo entry", "fifo cubin", "link entry", "link cubin",
]  # fmt: skip


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_entry_is_rebuilt(fresh_cache: Path, how: str) -> None:
    first = build()
    _damage(fresh_cache, how)
    again = build()
    assert again.seconds > 0
    assert again.cubin == first.cubin
    assert build().seconds == 0


def test_an_entry_that_cannot_be_replaced_is_one_warning(fresh_cache: Path) -> None:
    build()
    _damage(fresh_cache, "entry is a folder")
    with pytest.warns(RuntimeWarning, match="cannot be written") as caught:
        assert build().resources.registers > 0
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build().seconds > 0


def test_a_full_disk_is_one_warning(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fdopen

    class Full:
        """A file that has no room."""

        def __init__(self, handle: int, mode: str) -> None:
            self.file = real(handle, mode)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, data: bytes) -> None:
            self.file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache.os, "fdopen", Full)
    with pytest.warns(RuntimeWarning, match=r"No space left on device.*BARACUDA_CACHE_DIR") as caught:
        built = build()
    assert len(caught) == 1
    assert built.cubin[:4] == b"\x7fELF"
    assert list(fresh_cache.iterdir()) == [], "half a file was left behind"


def test_a_read_only_cache_is_read_and_not_written(fresh_cache: Path) -> None:
    build()
    for folder in fresh_cache.parents:  # pytest's own, closed to others
        if folder.stat().st_uid == os.geteuid() and folder != Path(tempfile.gettempdir()):
            folder.chmod(folder.stat().st_mode | 0o055)
    fresh_cache.chmod(0o555)
    root = os.geteuid() == 0
    if root:  # who may write everywhere
        os.seteuid(65534)
    try:
        assert build().seconds == 0
        with pytest.warns(RuntimeWarning, match="cannot be written") as caught:
            assert build(OTHER).seconds > 0
        assert len(caught) == 1
    finally:
        if root:
            os.seteuid(0)
        fresh_cache.chmod(0o755)


def test_a_cache_that_cannot_be_made_is_one_warning(
    tmp_path: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del fresh_cache
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(blocker / "cubins"))
    with pytest.warns(RuntimeWarning, match="kernels are compiled again in every process") as caught:
        built = compile_kernels([COPY, OTHER], ARCH)
    assert len(caught) == 1
    assert built[COPY].cubin[:4] == b"\x7fELF"


# ---- threads and processes on one cache ------------------------------------------------------------------------------

MANY = [
    Kernel("shape_layout/copy.cu", f"copy_elements<u32, {rank}, {width}, 1>") for rank in (1, 2) for width in (1, 2, 4)
]


def test_threads_hammer_one_cache(fresh_cache: Path) -> None:
    gate = threading.Barrier(6)

    def work(seed: int) -> list[str]:
        gate.wait()
        return [build(MANY[i]).name for i in np.random.default_rng(seed).permutation(len(MANY))]

    with ThreadPoolExecutor(6) as pool:
        names = [set(found) for found in pool.map(work, range(6))]
    assert all(found == names[0] for found in names)
    assert not list(fresh_cache.glob(".new-*"))
    assert all(build(kernel).seconds == 0 for kernel in MANY)


def _hammer(seed: int, folder: str, results: Any) -> None:
    os.environ["BARACUDA_CACHE_DIR"] = folder
    rng = np.random.default_rng(seed)
    for step in range(3):
        for i in rng.permutation(len(MANY)):
            built = build(MANY[i])
            results.put((str(MANY[i]), built.name, len(built.cubin) > 500))
        for path in list(Path(folder).glob("*.cubin"))[: step + 1]:  # damage, while the others read
            try:
                path.write_bytes(path.read_bytes()[:100])
            except OSError:
                continue


def test_processes_hammer_one_cache_while_it_is_damaged(fresh_cache: Path) -> None:
    toolchain.nvrtc()  # where it is missing, that shows here and not in three processes
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        results = manager.Queue()
        workers = [context.Process(target=_hammer, args=(seed, str(fresh_cache), results)) for seed in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(240)
        assert [worker.exitcode for worker in workers] == [0, 0, 0]
        seen: dict[str, str] = {}
        count = 0
        while not results.empty():
            kernel, name, whole = results.get()
            assert whole
            assert seen.setdefault(kernel, name) == name
            count += 1
    assert count == 3 * 3 * len(MANY)
    assert not list(fresh_cache.glob(".new-*"))
    for kernel in MANY:
        assert build(kernel).cubin[:4] == b"\x7fELF"


# ---- a toolchain that is not there -----------------------------------------------------------------------------------


class _Nvrtc:
    """NVRTC as damaged installations have it."""

    class NVRTCError(RuntimeError):
        pass

    def __init__(self, failing: str) -> None:
        self.failing = failing

    def getVersion(self) -> tuple[int, int]:
        if self.failing == "libnvrtc":
            raise RuntimeError("libnvrtc.so.12: cannot open shared object file")
        return 12, 9

    def createProgram(self, *_: Any) -> int:
        return 1

    def compileProgram(self, *_: Any) -> None:
        raise self.NVRTCError("NVRTC_ERROR_BUILTIN_OPERATION_FAILURE (7)")

    def getProgramLog(self, _: int) -> str:
        return "nvrtc: error: failed to open libnvrtc-builtins.so.12.9.\n  Make sure that it is installed correctly."

    def destroyProgram(self, _: int) -> None: ...


@pytest.fixture
def nvrtc_fails(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    import cupy.cuda

    lost: str = request.param
    monkeypatch.setattr(cupy.cuda, "nvrtc", _Nvrtc(lost))
    cached = (toolchain.nvrtc, toolchain.nvrtc_version, toolchain.nvrtc_build)
    for function in cached:
        function.cache_clear()
    yield lost
    for function in cached:
        function.cache_clear()


@pytest.mark.usefixtures("fresh_cache")
@pytest.mark.parametrize("nvrtc_fails", ["libnvrtc", "libnvrtc-builtins"], indirect=True)
def test_a_damaged_nvrtc_is_named_with_the_fix(nvrtc_fails: str) -> None:
    with pytest.raises(bp.UnsupportedError) as caught:
        build()
    readable(caught.value, "NVRTC", nvrtc_fails, f"pip install '.[cuda{toolchain.cuda_major()}]' in a checkout")
    (found,) = [f for f in env.findings() if f.name == "NVRTC"]
    assert found.value is None and nvrtc_fails in found.note and "pip install" in found.get


def test_nvrtc_build_is_read() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+ CL-\d+", toolchain.nvrtc_build())
    assert toolchain.nvrtc_build().startswith(".".join(map(str, toolchain.nvrtc_version())) + ".")


@pytest.mark.parametrize("major", [12, 13])
def test_hints_name_the_cuda_that_is_installed(major: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "installed_version", lambda name: "14.0" if name == f"cupy-cuda{major}x" else None)
    toolchain.cuda_major.cache_clear()
    try:
        hints = [f.get for f in env.findings() if f.get]
        named = set(re.findall(r"\[(?:cuda|full)(\d+)\]", " ".join(hints)))
        assert named == {str(major)} and len(hints) > 3
        assert toolchain.install_hint("full") == f"pip install '.[full{major}]' in a checkout"
    finally:
        toolchain.cuda_major.cache_clear()


@pytest.mark.parametrize(("driver", "extra"), [("535.86.10", "12"), ("580.82.07", "13"), (None, "12")])
def test_where_nothing_is_installed_the_driver_decides(
    driver: str | None, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "installed_version", lambda _: None)
    monkeypatch.setattr(toolchain, "driver_version", lambda: driver)
    toolchain.cuda_major.cache_clear()
    try:
        assert toolchain.install_hint().startswith(f"pip install '.[cuda{extra}]' in a checkout")
        assert ("or [cuda13]" in toolchain.install_hint()) == (driver is None)
    finally:
        toolchain.cuda_major.cache_clear()


def test_a_folder_that_may_not_be_entered_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Path.is_file raises there."""

    def refuse(path: Path, **_: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    monkeypatch.setattr(Path, "is_file", refuse)
    for cached in (toolchain.disassembler, toolchain.include_dirs):
        cached.cache_clear()
    try:
        toolchain.disassembler()
        assert toolchain.include_dirs(frozenset({"cuda_fp16.h"}))
    finally:
        for cached in (toolchain.disassembler, toolchain.include_dirs):
            cached.cache_clear()


def test_a_missing_system_header_is_named() -> None:
    toolchain.include_dirs.cache_clear()
    with pytest.raises(bp.UnsupportedError, match=r"<no/such/header\.h> is in no CUDA wheel.*pip install"):
        toolchain.include_dirs(frozenset({"no/such/header.h"}))


def _blocked(code: str, *modules: str) -> subprocess.CompletedProcess[str]:
    """Runs code where these modules cannot be imported."""
    program = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {modules!r}:
            raise ImportError("No module named " + repr(name))
sys.meta_path.insert(0, Blocker())
{textwrap.dedent(code)}
"""
    return subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)


def test_host_back_end_works_without_cupy() -> None:
    ran = _blocked(
        """
        import numpy as np
        import baracuda_py as bp
        x = np.arange(6, dtype=np.float32)
        assert np.array_equal(bp.square(x, device="cpu"), x * x)
        with bp.device("cpu"):
            d = bp.write_slice(np.zeros((4, 4), np.float32), np.ones((1, 4), np.float32), [(1, 2), (0, 4)])
            assert d.sum() == 4
        plan = bp.UnaryPlan.select(bp.UnaryDescriptor("exp", (1024,), "f32"), device="h200")
        repr(plan), repr(plan.explain()), plan.to_json(), hash(plan)
        assert bp.UnaryPlan.from_json(plan.to_json()) == plan
        for what in (lambda: bp.square(x), lambda: bp.UnaryPlan.select(plan.desc), lambda: plan.run(x=x), lambda: plan.bind(x=x),
                     lambda: plan.compile(), lambda: plan.load(), lambda: plan.kernels[0].ptx, lambda: bp.Device(0),
                     lambda: bp.GpuBuffer.zeros(4, "f32"), lambda: bp.fence(1, 2)):
            try:
                what()
            except bp.UnsupportedError as error:
                assert "CuPy" in str(error) and "[cuda" in str(error) and "[torch" in str(error), error
                print("refused")
        """,
        "cupy", "cupyx", "cupy_backends", "cuda",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["refused"] * 10


def test_with_no_gpu_every_way_in_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    if driver.cupy_or_none() is None:
        pytest.skip("CuPy is not installed")
    for module in ("driver", "device"):
        monkeypatch.setattr(f"baracuda_py.runtime.gpu.{module}.device_count", lambda: 0)
    x = np.ones(8, np.float32)
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("exp", (8,), "f32"), device="h200")  # type: ignore[arg-type]
    for what in (
        lambda: bp.exp(x),
        lambda: plan.run(x=x),
        lambda: plan.bind(x=x),
        plan.load,
        lambda: bp.Device(0),
        lambda: bp.GpuBuffer.zeros(4, "f32"),
    ):
        with pytest.raises(bp.UnsupportedError) as caught:
            what()
        readable(caught.value, 'device="cpu"')
    assert plan.compile().kernels[0].resources.registers > 0


# ---- steps and arguments ---------------------------------------------------------------------------------------------


def test_workspace_is_what_the_steps_reach() -> None:
    launch = Launch(COPY, (1, 1, 1), (1, 1, 1), (Ptr("x"), Scratch(256, 100), Scratch(0, 10)))
    assert workspace_size((launch,)) == 356
    assert workspace_size((launch, Fill(Scratch(400, 8), 0, 8), Copy(Ptr("a"), Ptr("b"), 4))) == 408
    assert workspace_size(()) == 0


def test_arguments_are_aligned_and_patched() -> None:
    args = (
        np.int32(7),
        Ptr("b", 12),
        Packed(b"\x01" * 5, 4),
        np.float64(2.5),
        Scratch(64, 8),
        Run("alpha", "float32"),
        Ptr("a"),
    )
    packed = Arguments(args, {"a": 0, "b": 1})
    packed.patch([0x1000, 0x2000], {"alpha": 1.5}, 0x9000)
    table = packed.table.tolist()
    base = table[0]

    def at(index: int, dtype: Any) -> Any:
        buffer = packed._storage[table[index] - packed._storage.__array_interface__["data"][0] :]
        return np.frombuffer(buffer[: np.dtype(dtype).itemsize].tobytes(), dtype)[0]

    assert [at(0, np.int32), at(1, np.uint64), at(3, np.float64), at(4, np.uint64)] == [7, 0x200C, 2.5, 0x9040]
    assert [at(5, np.float32), at(6, np.uint64)] == [1.5, 0x1000]
    assert base % 64 == 0
    assert all(address % 8 == 0 for address in (table[1], table[3], table[4], table[6]))
    packed.patch([0, 0], {"alpha": 0.0}, 0)
    assert (at(1, np.uint64), at(6, np.uint64)) == (0, 0), "an absent operand stays null, whatever its offset"
    assert at(5, np.float32) == 0.0
    usual = {"alpha": 2.5}
    for values in (usual, usual, {"alpha": -1.0}, usual):
        packed.patch([0, 0], values, 0)
        assert at(5, np.float32) == values["alpha"], "whichever mapping was given before"
