"""Files of the cache: who is trusted, what is written, what is removed, where they are, and locks in a forked child."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from baracuda_py.call.cache import plan_cache
from baracuda_py.runtime import cublas, launch
from baracuda_py.runtime.compile import cache
from baracuda_py.runtime.compile.compiler import compile_kernels
from baracuda_py.runtime.steps import Kernel
from baracuda_py.runtime.system import files
from baracuda_py.runtime.system.files import read_trusted, write_atomic

NOBODY = 65534


@pytest.fixture(autouse=True)
def _own_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_warned", set())


@pytest.fixture
def umask() -> Iterator[None]:
    """Puts the process's umask back."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `path` another user's: root gives it away, and to others their own files are made to look foreign."""
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    else:
        uid = os.geteuid() + 1
        monkeypatch.setattr(files.os, "geteuid", lambda: uid)


def open_descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def test_cache_reads_files_of_the_same_user(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    assert write_atomic(path, b"abc")
    assert read_trusted(path, 3) == b"abc"
    assert read_trusted(path, 2) is None, "larger than the limit"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_cache_refuses_files_of_another_user_with_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"abc")
    give_away(path, monkeypatch)
    with pytest.warns(RuntimeWarning, match=r"belongs to user \d+.*BARACUDA_CACHE_DIR") as caught:
        assert read_trusted(path, 3) is None
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_trusted(path, 3) is None


def test_a_file_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"abc")
    path.chmod(0o664)
    assert read_trusted(path, 3) == b"abc", "a group shares on purpose"
    path.chmod(0o666)
    with pytest.warns(RuntimeWarning, match="may be written by everybody"):
        assert read_trusted(path, 3) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to have a file of root's and be somebody else")
def test_cache_reads_files_of_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"abc")
    monkeypatch.setattr(files.os, "geteuid", lambda: NOBODY)
    assert read_trusted(path, 3) == b"abc"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", ["fifo", "link", "folder", "device", "absent", "null"])
def test_what_is_no_plain_file_is_no_file(what: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if what == "fifo":
        os.mkfifo(path)
    elif what == "link":
        (tmp_path / "other").write_bytes(b"abc")
        path.symlink_to(tmp_path / "other")
    elif what == "folder":
        path.mkdir()
    elif what == "device":
        path = Path("/dev/zero")
    elif what == "null":
        path = tmp_path / "a\0b"
    held = open_descriptors()
    assert read_trusted(path, 100) is None
    assert open_descriptors() == held


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(("mask", "file", "folder"), [(0o022, 0o644, 0o755), (0o077, 0o600, 0o700), (0, 0o664, 0o775)])
def test_cache_file_modes_follow_the_umask(mask: int, file: int, folder: int, tmp_path: Path) -> None:
    os.umask(mask)
    path = tmp_path / "folder" / "file"
    assert write_atomic(path, b"abc")
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (file, folder)
    assert read_trusted(path, 3) == b"abc", "what is written can be read again"


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()
    (path / "inside").write_bytes(b"")
    assert not write_atomic(path, b"abc")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert not write_atomic(path / "inside" / "below", b"abc"), "the folder is a file"


# ---- what is removed -------------------------------------------------------------------------------------------------


def entry(index: int) -> str:
    return f"{index:040x}"


def fill(count: int, start: int = 0) -> None:
    """Entries of about a thousand bytes."""
    for index in range(start, start + count):
        cache.store(index.to_bytes(2, "big") * 400, {entry(index): {"name": "k"}})


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


FOREIGN_FILES = [
    "thesis.tex", "dataset.bin", ".hidden", ".new-thing", ".new-0123456789abcdeg", "0" * 40, "0" * 39 + ".json",
    "0" * 40 + ".cubin.bak", "0" * 40 + ".JSON", "x" + "0" * 40 + ".cubin", "G" * 40 + ".cubin",
]  # fmt: skip


def test_cache_never_removes_files_of_other_users(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LIMIT_BYTES", 8000)
    fresh_cache.mkdir()
    (fresh_cache / ("f" * 40 + ".cubin")).mkdir()
    for name in FOREIGN_FILES:
        (fresh_cache / name).write_bytes(b"x" * 5000)
        os.utime(fresh_cache / name, (0, 0))
    fill(30)
    assert all((fresh_cache / name).read_bytes() == b"x" * 5000 for name in FOREIGN_FILES)
    assert (fresh_cache / ("f" * 40 + ".cubin")).is_dir()
    assert 0 < sum(status.st_size for _, status in cache.contents(fresh_cache)) <= 8000, "they do not count either"


def test_cache_limit_holds_and_keeps_the_last_used(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LIMIT_BYTES", 20_000)
    fill(5)
    for index, path in enumerate(sorted(fresh_cache.iterdir(), key=lambda p: p.stat().st_mtime)):
        os.utime(path, (index, index))
    for start in range(5, 60):
        assert cache.load(entry(0)) is not None, "used at every turn"
        fill(1, start)
        assert size(fresh_cache) <= 20_000
        assert cache.load(entry(start)) is not None, "what was just written is there"
        time.sleep(0.002)  # a file system's clock may tick that slowly
    assert cache.load(entry(1)) is None


def test_a_process_that_finds_a_full_folder_clears_it(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(40)
    assert size(fresh_cache) > 20_000
    monkeypatch.setattr(cache, "_sizes", {})
    monkeypatch.setattr(cache, "LIMIT_BYTES", 20_000)
    fill(1, 100)
    assert size(fresh_cache) <= 20_000


def test_temporaries_left_behind_go_after_an_hour(fresh_cache: Path) -> None:
    fresh_cache.mkdir()
    old, new = fresh_cache / (files.TEMPORARY + "0" * 16), fresh_cache / (files.TEMPORARY + "1" * 16)
    for path, age in ((old, 3700), (new, 3500)):
        path.write_bytes(b"half")
        os.utime(path, (time.time() - age, time.time() - age))
    fill(1)
    assert new.exists() and not old.exists()


# ---- whose entries are loaded ----------------------------------------------------------------------------------------

COPY = Kernel("shape_layout/copy.cu", "copy_elements<u32, 1, 4, 1>")


def seconds() -> float:
    return compile_kernels([COPY], "sm_90a")[COPY].seconds


@pytest.mark.parametrize("suffix", ["json", "cubin"])
def test_planted_entry_is_rebuilt(suffix: str, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seconds() > 0 and seconds() == 0
    fresh_cache.chmod(0o1777)
    with monkeypatch.context() as patch:
        for path in fresh_cache.glob(f"*.{suffix}"):
            give_away(path, patch)
        with pytest.warns(RuntimeWarning, match="belongs to user"):
            assert seconds() > 0
    assert seconds() == 0, "one's own has taken its place"


def test_every_process_writes_the_same_cubin(fresh_cache: Path) -> None:
    kernel = Kernel(
        "gemm/reduce.cu", "reduce<float, 4, 256, u32, Epilogue<float, Absent, Absent, Absent, GELU, true, float>>"
    )
    code = f"""
        from baracuda_py.runtime.compile.compiler import compile_kernels
        from baracuda_py.runtime.steps import Kernel
        compile_kernels([Kernel({kernel.file!r}, {kernel.entry!r})], "sm_90a")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
    (first,) = fresh_cache.glob("*.cubin")
    assert b"_INTERNAL_" in first.read_bytes(), "a name that NVRTC makes unique is in it"
    assert compile_kernels([kernel], "sm_90a", force=True)[kernel].cubin == first.read_bytes()
    assert len(list(fresh_cache.iterdir())) == 2


# ---- where it is -----------------------------------------------------------------------------------------------------


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for variable, value, found in (
        ("BARACUDA_CACHE_DIR", str(tmp_path / "own"), tmp_path / "own"),
        ("BARACUDA_CACHE_DIR", "~/own", tmp_path / "home" / "own"),
        ("XDG_CACHE_HOME", str(tmp_path), tmp_path / "baracuda_py"),
        ("XDG_CACHE_HOME", "~/xdg", tmp_path / "home" / "xdg" / "baracuda_py"),
        ("XDG_CACHE_HOME", "", tmp_path / "home" / ".cache" / "baracuda_py"),
    ):
        monkeypatch.delenv("BARACUDA_CACHE_DIR", raising=False)
        monkeypatch.setenv(variable, value)
        assert cache.cache_dir() == found


@pytest.mark.parametrize("variable", ["BARACUDA_CACHE_DIR", "XDG_CACHE_HOME"])
def test_a_relative_folder_does_not_follow_the_process(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BARACUDA_CACHE_DIR", raising=False)
    monkeypatch.setenv(variable, f"relative-{variable}")
    monkeypatch.chdir(tmp_path)
    first = cache.cache_dir()
    assert first.is_relative_to(tmp_path)
    monkeypatch.chdir("/")
    assert cache.cache_dir() == first


def test_a_user_without_a_home_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for variable in ("HOME", "BARACUDA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert cache.cache_dir().is_absolute()
    assert cache.cache_dir().name == f"baracuda_py-{os.getuid()}"


# ---- forks -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_cache_lock_is_free_in_a_forked_child() -> None:
    locks = [plan_cache._lock, launch._loading, cublas._creating]
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        held.set()
        done.wait()
        for lock in locks:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.alarm(20)
            plan_cache.info()
            status = sum(not lock.acquire(timeout=5) for lock in locks)
        finally:
            os._exit(status)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not any(lock.locked() for lock in locks)


def test_every_lock_of_the_package_survives_a_fork() -> None:
    root = Path(cache.__file__).parent.parent
    made = {p.name for p in root.rglob("*.py") if "threading.Lock()" in p.read_text() or "RLock(" in p.read_text()}
    assert made == {"locks.py"}
    assert "new_lock()" in Path(launch.__file__).read_text()
