"""Files of the cache: who is trusted, what is written, what is removed."""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from baracuda_py.runtime import files
from baracuda_py.runtime.files import read_trusted, write_atomic

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
    """Makes `path` a stranger's: root hands it over, and to anybody else his own files are made to look strange."""
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    else:
        uid = os.geteuid() + 1
        monkeypatch.setattr(files.os, "geteuid", lambda: uid)


def open_descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def test_a_file_of_one_s_own_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    assert write_atomic(path, b"abc")
    assert read_trusted(path, 3) == b"abc"
    assert read_trusted(path, 2) is None, "larger than the limit"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_stranger_s_file_is_refused_with_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_root_s_files_are_read_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_modes_are_the_umask_s(mask: int, file: int, folder: int, tmp_path: Path) -> None:
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
