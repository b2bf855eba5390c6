"""The device ledger: what is written down, when an entry counts, and when it lapses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from baracuda_py.plan import all_ops, get_op
from baracuda_py.plan import ledger as read
from baracuda_py.runtime import sources

from . import ledger

H200 = {"gpu": "NVIDIA H200", "driver": "570.1"}
RUN = {"registry_test.py::test_gauntlet[cuda-add]"}


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "ledger.json"
    monkeypatch.setattr(read, "_entries", lambda: json.loads(path.read_text()) if path.exists() else {})
    return path


def test_an_op_is_verified_once_its_gauntlet_has_passed(written: Path) -> None:
    assert read.verified_on(get_op("add")) == ""
    ledger.record(written, {"add": RUN}, set(), H200)
    assert read.verified_on(get_op("add")) == "NVIDIA H200"
    assert "add" not in ledger.unverified()
    assert "exp" in ledger.unverified()


def test_other_tests_alone_verify_nothing(written: Path) -> None:
    ledger.record(written, {"add": {"streams_test.py::test_order"}}, set(), H200)
    assert read.verified_on(get_op("add")) == ""


def test_a_failure_takes_the_entry_out_and_leaves_the_others(written: Path) -> None:
    ledger.record(written, {"add": RUN, "exp": RUN}, set(), H200)
    ledger.record(written, {"add": RUN}, {"add"}, H200)
    assert read.verified_on(get_op("add")) == ""
    assert read.verified_on(get_op("exp")) == "NVIDIA H200"


def test_an_edited_kernel_is_unverified(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.record(written, {"kv_append": RUN, "add": RUN}, set(), H200)
    original = sources.Source.digest
    edited = "shape_layout/append.cu"
    monkeypatch.setattr(
        sources.Source,
        "digest",
        lambda self, prelude="": original(self, prelude) + ("edited" if self.file == edited else ""),
    )
    assert read.verified_on(get_op("kv_append")) == ""
    assert read.verified_on(get_op("add")) == "NVIDIA H200"


def test_every_kernel_file_belongs_to_an_op() -> None:
    root = sources.kernels_dir()
    files = {str(p.relative_to(root)) for p in root.glob("*/*.cu")}
    claimed = {file for op in all_ops().values() for file in read.kernel_files(op)}
    assert files == claimed


def test_rows_of_one_kernel_file_have_digests_of_their_own() -> None:
    digests = [read.op_digest(get_op(name)) for name in ("add", "subtract", "exp", "log")]
    assert len(set(digests)) == 4
