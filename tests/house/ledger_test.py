"""The device ledger: what is written down, when an entry counts, and when it lapses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from baracuda_py.ops import _launch
from baracuda_py.ops.elementwise import _candidates as _map
from baracuda_py.ops.elementwise.fused.plan import FusedPlan
from baracuda_py.ops.gemm import matmul
from baracuda_py.ops.gemm._wgmma import launch, tma
from baracuda_py.ops.shape_layout import _runs
from baracuda_py.plan import all_ops, get_op
from baracuda_py.plan.about import digest, tuned
from baracuda_py.plan.about import ledger as read
from baracuda_py.plan.about.digest import lowered_digest
from baracuda_py.runtime.compile import definitions, sources
from baracuda_py.runtime.steps import Call, Launch
from baracuda_py.types import DeviceSpec

from .. import ledger, records, resources
from ..conftest import _Recorder

RUN = {"gpu": "NVIDIA H200", "arch": "sm_90a", "driver": "570.1", "nvrtc": "12.9", "commit": "abc", "all": False}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Digests are remembered, and these tests change what they are of."""
    read._digest_of.cache_clear()
    yield
    read._digest_of.cache_clear()


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(read, "_entry", lambda op: records.read(tmp_path, op).get("device", {}))
    return tmp_path


def passed(*ops: str) -> dict[str, set[str]]:
    return {op: ledger.required(op) for op in ops}


def test_an_op_is_verified_once_its_gauntlet_has_passed(written: Path) -> None:
    assert read.verified_on(get_op("add")) == ""
    entries = ledger.record(written, passed("add"), set(), RUN, {"add": 3}, {})
    assert read.verified_on(get_op("add")) == "NVIDIA H200"
    assert "add" not in ledger.unverified()
    assert "exp" in ledger.unverified()
    assert RUN.items() <= entries["add"].items()
    assert entries["add"]["heavy_skipped"] == 3


@pytest.mark.parametrize("missing", sorted(ledger.required("add")))
def test_each_test_of_the_gauntlet_is_required(written: Path, missing: str) -> None:
    others = {missing.replace("add", "add2"), f"{missing}-more", "streams_test.py::test_order"}
    ledger.record(written, {"add": ledger.required("add") - {missing} | others}, set(), RUN, {}, {})
    assert read.verified_on(get_op("add")) == ""


def test_required_tests_are_those_that_pytest_runs() -> None:
    from ..gauntlet import registry_test

    for name in ledger.required("add"):
        assert hasattr(registry_test, name.partition("::")[2].partition("[")[0])


def test_a_failure_takes_the_entry_out_and_leaves_the_others(written: Path) -> None:
    ledger.record(written, passed("add", "exp"), set(), RUN, {}, {})
    ledger.record(written, passed("add"), {"add"}, RUN, {}, {})
    assert read.verified_on(get_op("add")) == ""
    assert read.verified_on(get_op("exp")) == "NVIDIA H200"


def test_a_run_in_parts_is_one_if_nothing_changed_meanwhile(written: Path) -> None:
    ledger.record(written, passed("add"), set(), RUN, {"add": 2}, {})
    more = {"add": {"elementwise_test.py::test_more[add]"}, "exp": {"elementwise_test.py::test_more[exp]"}}
    entries = ledger.record(written, more, set(), RUN, {}, {})
    assert set(entries) == {"add"}
    assert set(entries["add"]["tests"]) == ledger.required("add") | more["add"]
    assert entries["add"]["heavy_skipped"] == 2
    entries = ledger.record(written, more, set(), RUN | {"commit": "def"}, {}, {})
    assert entries["add"]["commit"] == "abc"
    assert set(entries["add"]["tests"]) == ledger.required("add") | more["add"]


def sampled(ran: int) -> ledger.Sampled:
    """`ran` of three samples passed each of the tests of add's gauntlet."""
    made = ledger.Sampled()
    for test in ledger.required("add"):
        for i in range(ran):
            made.add("add", f"{test}-{i}", test, 3)
    return made


def test_ledger_line_needs_all_samples_to_pass(written: Path) -> None:
    entries = ledger.record(written, {"add": set()}, set(), RUN, {}, {}, sampled(2))
    assert not entries and read.verified_on(get_op("add")) == ""
    entries = ledger.record(written, {"add": {"more_test.py::test"}}, set(), RUN, {}, {}, sampled(3))
    assert read.verified_on(get_op("add")) == "NVIDIA H200"
    assert set(entries["add"]["tests"]) == ledger.required("add") | {"more_test.py::test"}
    assert entries["add"]["samples"] == dict.fromkeys(ledger.required("add"), 3)
    ledger.record(written, {}, {"add"}, RUN, {}, {}, sampled(3))
    assert read.verified_on(get_op("add")) == ""


def test_what_pytest_reports_of_samples_makes_one_line_of_them(pytestconfig: pytest.Config) -> None:
    """A failure of one sample takes the op's entry out."""
    for failing in (False, True):
        recorder = _Recorder(pytestconfig)
        for i in range(3):
            failed = failing and i == 1
            said = [("covers", "add"), ("one of", ["registry_test.py::test_gauntlet[cuda-add]", 3])]
            report = SimpleNamespace(when="call", passed=not failed, failed=failed, skipped=False, nodeid=f"a{i}")
            report.user_properties = said
            recorder.pytest_runtest_logreport(report)
        complete = recorder.sampled.complete("add")
        assert complete == ({} if failing else {"registry_test.py::test_gauntlet[cuda-add]": 3})
        assert recorder.failed == ({"add"} if failing else set())


def test_an_entry_of_another_form_verifies_nothing(written: Path) -> None:
    records.put(written, "add", "device", {"digest": read.op_digest(get_op("add")), "gpu": "NVIDIA H200"})
    assert read.verified_on(get_op("add")) == ""


def test_an_edited_kernel_is_unverified(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.record(written, passed("kv_append", "add"), set(), RUN, {}, {})
    read._digest_of.cache_clear()
    original = sources.Source.digest
    edited = "shape_layout/append.cu"
    monkeypatch.setattr(
        sources.Source,
        "digest",
        lambda self, entry: original(self, entry) + ("edited" if self.file == edited else ""),
    )
    assert read.verified_on(get_op("kv_append")) == ""
    assert read.verified_on(get_op("add")) == "NVIDIA H200"


# ---- what the host hands to kernels ------------------------------------------------------------------------------------


def _half_a_box(self: Any, of: Any, batch: Any, box_mn: int, boxes: Any = tma.View.boxes) -> Any:
    return boxes(self, of, batch, max(1, box_mn // 2))


def _one_cta_less(items: int, per_cta: int) -> tuple[int, int, int]:
    return (max(1, items // per_cta), 1, 1)


def _one_stage_less(*of: Any, pipeline_of: Callable[..., Any] = launch.pipeline_of) -> tuple[int, int]:
    stages, nbytes = pipeline_of(*of)
    return stages - 1, nbytes


def _wrong_divisor(value: int, index: str, _divisor: Callable[..., bytes] = _launch._divisor) -> bytes:
    return _divisor(value + 1, index)


def _no_slack(copy: Any) -> int:
    return -(-copy.run // 16)


BROKEN = {
    "half of a TMA box": ("matmul", tma.View, "boxes", _half_a_box),
    "a last CTA that is missing": ("add", _map, "grid_of", _one_cta_less),
    "a stage less": ("matmul", launch, "pipeline_of", _one_stage_less),
    "a packed divisor": ("write_slice", _launch, "_divisor", _wrong_divisor),
    "chunks that a run may touch": ("write_slice", _runs, "_chunks_per_run", _no_slack),
    "a flag of every tensor map": ("matmul", digest, "FLAGS", ("INTERLEAVE_NONE", "L2_PROMOTION_L2_256B")),
}  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_host_side_is_unverified(written: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    op, place, name, instead = BROKEN[broken]
    ledger.record(written, passed(op), set(), RUN, {}, {})
    assert read.verified_on(get_op(op)) == "NVIDIA H200"
    read._digest_of.cache_clear()
    monkeypatch.setattr(place, name, instead)
    assert read.verified_on(get_op(op)) == ""


def test_a_winner_of_a_table_lapses_with_the_host_side(monkeypatch: pytest.MonkeyPatch) -> None:
    op, device = get_op("matmul"), DeviceSpec.named("h200")
    desc = op.describe(**op.plan.probes[0]).canonical()
    wgmma = next(c for c in op.plan.candidates if c.variant == "wgmma")
    config = next(iter(wgmma.configs(desc, device)))
    before = tuned.source_digest(wgmma, config, desc, device)
    assert before == tuned.source_digest(wgmma, config, desc, device)
    monkeypatch.setattr(launch, "pipeline_of", _one_stage_less)
    assert before != tuned.source_digest(wgmma, config, desc, device)


@pytest.mark.parametrize("family", ["add", "neg", "contiguize", "write_slice", "kv_append", "matmul", *matmul.NAMED])
def test_every_candidate_launches_a_probe(family: str) -> None:
    op = get_op(family)
    launched = {candidate.partition("[")[0] for candidate, _ in read.lowered(op, "sm_90a")}
    fixed = matmul.NAMED.get(family)
    assert launched == ({c.variant for c in op.plan.candidates} if fixed is None else {fixed.variant})


def test_digests_differ_for_every_configuration() -> None:
    steps = [steps for _, steps in read.lowered(get_op("matmul"), "sm_90a")]
    assert len({lowered_digest(x) for x in steps if isinstance(x[0], Launch)}) == len(
        {repr(x) for x in steps if isinstance(x[0], Launch)}
    )


def test_a_digest_is_the_same_in_every_process() -> None:
    imports = "from baracuda_py.plan import get_op; from baracuda_py.plan.about import ledger"
    code = f"{imports}; print(ledger.op_digest(get_op('contiguize')))"
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert found.stdout.strip() == read.op_digest(get_op("contiguize"))


def test_a_step_is_spelt_alike_by_every_version_of_numpy() -> None:
    """NumPy 2 and 1 print scalars differently, and functions print their address."""
    text = digest._text((np.uint32(3), np.float64(1.5), b"\1\2", None, Call("l", print), True))
    assert (
        text
        == "(uint32:03000000, float64:000000000000f83f, 0102, None, Call(library='l', function=builtins.print), True)"
    )


# ---- what candidates say they launch -----------------------------------------------------------------------------------


def kernels_in(file: Path) -> set[str]:
    """The kernels that a file defines."""
    parts = definitions.read(file.read_text()).parts
    return {name for p in parts if isinstance(p, definitions.Piece) and "__global__" in p.uses for name in p.names}


def test_every_kernel_belongs_to_a_candidate() -> None:
    root = sources.kernels_dir()
    there = {f"{p.relative_to(root).as_posix()}:{name}" for p in root.glob("*/*.cu") for name in kernels_in(p)}
    plans = (*(op.plan for op in all_ops().values()), FusedPlan)  # of fused functions, which are no op
    declared = {kernel for plan in plans for c in plan.candidates for kernel in c.launches}
    assert there == declared


@pytest.mark.parametrize("op", ["add", "neg", "contiguize", "write_slice", "kv_append", "matmul"])
def test_candidates_launch_what_they_declare(op: str) -> None:
    """For the probes on every arch, and for the samples whose kernels the op's record lists."""
    candidates = {c.variant: c for c in get_op(op).plan.candidates}
    for arch in resources.ARCHES:
        for candidate, steps in read.lowered(get_op(op), arch):
            launched = {_name(str(step.kernel)) for step in steps if isinstance(step, Launch)}
            assert launched <= set(candidates[candidate.partition("[")[0]].launches), candidate
    listed = {_name(label) for rows in resources.listed(op).values() for label in rows}
    assert listed and listed <= {kernel for c in candidates.values() for kernel in c.launches}


def _name(kernel: str) -> str:
    return kernel.partition("<")[0]


def test_every_record_is_of_an_op() -> None:
    assert {path.stem for path in records.records_dir().iterdir()} <= all_ops().keys()


def test_a_record_has_one_item_a_line(tmp_path: Path) -> None:
    rows = {"b<1>": ["x", 1, 0], "a<1>": ["y", 2, 0]}
    records.put(tmp_path, "add", "resources", {"sm_90a": rows, "fields": ["s", "r"]})
    records.put(tmp_path, "add", "device", {"tests": ["t"], "none": {}})
    lines = (tmp_path / "add.json").read_text().splitlines()
    assert len(lines) == 18 and lines[:3] == ["{", ' "device": {', '  "none": {},'] and lines[4] == '   "t"'
    assert lines[-5:-3] == ['   "a<1>": ["y", 2, 0],', '   "b<1>": ["x", 1, 0]']
    assert records.read(tmp_path, "add")["resources"]["sm_90a"] == rows
    records.put(tmp_path, "add", "resources", None)
    records.put(tmp_path, "add", "device", None)
    assert not list(tmp_path.iterdir()) and records.read(tmp_path, "add") == {}


def test_rows_of_one_kernel_file_have_digests_of_their_own() -> None:
    digests = [read.op_digest(get_op(name)) for name in ("add", "subtract", "exp", "log")]
    assert len(set(digests)) == 4
