"""PTX with source lines: kept in the kernel cache under the rules of cubins, named by paths under kernels/."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.runtime.compile import cache, compiler, sources
from baracuda_py.runtime.compile.compiler import compile_kernels, compile_ptx
from baracuda_py.runtime.steps import Kernel

from .cache_test import give_away

ARCH = "sm_90a"
COPY = Kernel("shape_layout/copy.cu", "copy_elements<u32, 1, 4, 1>")
OTHER = Kernel("shape_layout/copy.cu", "copy_elements<u32, 2, 8, 4>")


def lined(kernel: Kernel = COPY, arch: str = ARCH, **options: Any) -> str:
    return compile_ptx(kernel, arch, lines=True, **options)


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What NVRTC was asked to compile since the test began."""
    asked: list[Any] = []
    real = compiler._Program.compile
    monkeypatch.setattr(compiler._Program, "compile", lambda self, how: (asked.append(how), real(self, how)))
    return asked


def only(folder: Path, suffix: str) -> Path:
    (found,) = folder.glob(f"*.{suffix}")
    return found


# ---- what it is ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("fresh_cache")
def test_lines_are_of_files_as_they_lie_under_kernels() -> None:
    kernel = Kernel(
        "gemm/reduce.cu", "reduce<float, 4, 256, u32, Epilogue<float, Absent, Absent, Absent, GELU, true, float>>"
    )
    text = lined(kernel)
    files = dict(re.findall(r'\.file\s+(\d+)\s+"([^"]*)"', text))
    assert {"gemm/reduce.cu", "include/products/epilogue.cuh"} <= set(files.values())
    for number, line in re.findall(r"\.loc\s+(\d+)\s+(\d+)", text):
        path = sources.kernels_dir() / files[number]  # line 0: of no line of ours
        assert 0 <= int(line) <= len(path.read_text().splitlines()), f"{path}:{line}"
    assert ".loc" not in compile_ptx(kernel, ARCH), "without lines it is as it was"


@pytest.mark.usefixtures("fresh_cache")
def test_ptx_prelude_lines_are_its_own() -> None:
    plan = bp.BinaryPlan.select(
        bp.get_op("add").describe(x1_shape=(64,), x2_shape=(64,), x1_element="f32", x2_element="f32"), device=ARCH
    )
    text = lined(plan.kernels[0]._launch.kernel)
    assert set(re.findall(r'\.file\s+\d+\s+"([^"]*)"', text)) >= {"elementwise/map.cu", "prelude"}


def test_a_line_that_moves_makes_another_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "include").mkdir()
    monkeypatch.setattr(sources, "kernels_dir", lambda: tmp_path)
    monkeypatch.setattr(compiler, "source_of", lambda kernel: sources.Source(kernel.file))
    header, exact, code = tmp_path / "include" / "one.cuh", set(), set()
    kernel = Kernel("a/k.cu", "k")
    (tmp_path / "a" / "k.cu").write_text('#include "one.cuh"\n')
    for text in ("int n = 1;\n", "\nint n = 1;\n", "// one\nint n = 1;\n", "int n = 1;  // one\n"):
        header.write_text(text)
        exact.add(compiler.ptx_key(kernel, ARCH))
        code.add(compiler.entry_key(kernel, ARCH))
    assert (len(exact), len(code)) == (4, 1)
    assert len({sources.Source("a/k.cu", p).exact_digest for p in ("", "// p", "\n// p")}) == 3


# ---- when it is built ------------------------------------------------------------------------------------------------


def test_it_is_built_once_a_kernel_and_arch(fresh_cache: Path, builds: list[Any]) -> None:
    first = lined()
    assert lined() == first and len(builds) == 1
    assert {p.suffix for p in fresh_cache.iterdir()} == {".ptx", ".json"}
    assert lined(OTHER) != first and lined(arch="sm_80") != first and len(builds) == 3
    assert lined(force=True) == first and len(builds) == 4
    compile_ptx(COPY, ARCH)
    assert len(builds) == 5, "PTX to show is built afresh, and kept nowhere"
    assert len(list(fresh_cache.iterdir())) == 6


def test_cubins_and_ptx_are_stored_together(fresh_cache: Path, builds: list[Any]) -> None:
    for _ in range(2):
        text, cubin = lined(), compile_kernels([COPY], ARCH)[COPY].cubin
    assert len(builds) == 2 and len(list(fresh_cache.iterdir())) == 4
    assert only(fresh_cache, "ptx").read_text() == text and only(fresh_cache, "cubin").read_bytes() == cubin
    assert compiler.ptx_key(COPY, ARCH) != compiler.entry_key(COPY, ARCH)


@pytest.mark.usefixtures("fresh_cache")
def test_another_process_in_another_folder_reads_it(tmp_path: Path, builds: list[Any]) -> None:
    code = f"""
        from baracuda_py.runtime.compile.compiler import compile_ptx
        from baracuda_py.runtime.steps import Kernel
        print(hash(compile_ptx(Kernel({COPY.file!r}, {COPY.entry!r}), {ARCH!r}, lines=True)))
    """
    root = Path(bp.__file__).parent.parent
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        check=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    there = lined()
    assert not builds and str(tmp_path) not in there
    assert lined(force=True) == there, "and it is what any process builds"


# ---- what is not believed --------------------------------------------------------------------------------------------


def seal(path: Path, code: bytes, name: str = "") -> None:
    """An entry whose seal is right, whatever it leads to: as another edition of this package may have written it."""
    meta = {"kernel": str(COPY), "arch": ARCH, "ptx": name or cache._digest(code)}
    (path.parent / f"{meta['ptx']}.ptx").write_bytes(code)
    path.write_text(json.dumps(meta | {"seal": cache._seal(path.stem, meta, code)}))


def another_kernel_s(entry: Path, _ptx: Path) -> None:
    folder = entry.parent
    lined(OTHER)
    (other,) = (path for path in folder.glob("*.json") if path != entry)
    entry.write_bytes(other.read_bytes())


def a_cubin_s(entry: Path, _ptx: Path) -> None:
    folder = entry.parent
    compile_kernels([COPY], ARCH)
    (other,) = (path for path in folder.glob("*.json") if path != entry)
    entry.write_bytes(other.read_bytes())


DAMAGE: dict[str, Callable[[Path, Path], object]] = {
    "truncated": lambda _entry, ptx: ptx.write_bytes(ptx.read_bytes()[:-7]),
    "edited": lambda _entry, ptx: ptx.write_text(ptx.read_text().replace("add", "sub")),
    "empty": lambda _entry, ptx: ptx.write_bytes(b""),
    "missing": lambda _entry, ptx: ptx.unlink(),
    "link": lambda _entry, ptx: (ptx.rename(ptx.with_name("moved")), ptx.symlink_to(ptx.with_name("moved"))),
    "fifo": lambda _entry, ptx: (ptx.unlink(), os.mkfifo(ptx)),
    "truncated entry": lambda entry, _ptx: entry.write_text(entry.read_text()[:20]),
    "entry of another shape": lambda entry, _ptx: entry.write_text("[1, 2]"),
    "code elsewhere": lambda entry, _ptx: entry.write_text(entry.read_text().replace('"ptx": "', '"ptx": "../x/')),
    "another kernel's": another_kernel_s,
    "a cubin's": a_cubin_s,
    "sealed, no text": lambda entry, _ptx: seal(entry, b"\xff\xfe"),
    "sealed, no kernel": lambda entry, _ptx: seal(entry, b"// nothing\n"),
    "sealed, not our file": lambda entry, ptx: seal(entry, b"// notes\n" + ptx.read_bytes(), "notes"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_ptx_entry_is_rebuilt(how: str, fresh_cache: Path, builds: list[Any]) -> None:
    first = lined()
    DAMAGE[how](only(fresh_cache, "json"), only(fresh_cache, "ptx"))
    before = len(builds)
    assert lined() == first and len(builds) == before + 1
    assert lined() == first and len(builds) == before + 1, "and then it is whole again"


@pytest.mark.parametrize("suffix", ["json", "ptx"])
def test_planted_entry_is_rebuilt(
    suffix: str, fresh_cache: Path, builds: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = lined()
    fresh_cache.chmod(0o1777)
    with monkeypatch.context() as patch:
        give_away(only(fresh_cache, suffix), patch)
        with pytest.warns(RuntimeWarning, match="belongs to user"):
            assert lined() == first and len(builds) == 2
    assert lined() == first and len(builds) == 2, "one's own has taken its place"


def test_ptx_counts_against_the_cache_limit(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LIMIT_BYTES", 20_000)
    for index in range(60):
        cache.store(b"%04d" % index * 200, {f"{index:040x}": {}}, "ptx")
        for path in fresh_cache.iterdir():  # all that was there is older than what comes
            os.utime(path, ns=(path.stat().st_mtime_ns - 10**9,) * 2)
    assert sum(path.stat().st_size for path in fresh_cache.iterdir()) <= 20_000
    assert cache.load(f"{59:040x}", "ptx") and not cache.load(f"{0:040x}", "ptx")
    assert cache.load(f"{59:040x}") is None, "of another kind"
