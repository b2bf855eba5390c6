"""Options, tests that run once a sample, their order, the reason a GPU test is skipped for, the device ledger, and costs."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest

from baracuda_py.runtime.gpu.driver import cupy_or_none, device_count, gpu_or_none
from tests import emulated_runs, extents, ledger, skipped
from tests.bounded import choose, is_bounded
from tests.concerns import asked_ops, check_ops, concerns
from tests.costs import Watch, op_of
from tests.gauntlet import Case, Part, cases, few_of
from tests.passed import Compiles, Passed
from tests.places import TESTS, files_of_tests
from tests.settled import Settled


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full", action="store_true", help="all that needs no device, of which a run of the whole suite takes a choice"
    )
    parser.addoption(
        "--all", action="store_true", help="the same, and every sample of every op, in place of a few dozen"
    )
    parser.addoption(
        "--op",
        action="append",
        default=[],
        metavar="OP",
        help="only what concerns this op: its cases and its family's tests",
    )
    parser.addoption("--sample", default="", metavar="TEXT", help="only samples of this label, or with this in it")
    parser.addoption(
        "--ledger", default=None, metavar="PATH", help="merge what passed on this device into a folder of records"
    )
    parser.addoption(
        "--small",
        action="store_true",
        help="device tests of large products take extents of a few hundred, which end in tiles as the large ones do: for "
        "compute-sanitizer, under which kernels take 50 to 100 times as long",
    )
    parser.addoption("--changed", action="store_true", help="leave out runs on the emulator that the records know")
    parser.addoption("--record", action="store_true", help="write into the records which emulated runs passed")
    parser.addoption(
        "--passed",
        default=None,
        metavar="PATH",
        help="leave out tests that PATH lists; those that pass are listed there",
    )
    parser.addoption(
        "--recompiled",
        action="store_true",
        help="with --passed: this NVRTC is another, so leave out of the listed tests those alone that had nothing to do with it",
    )
    parser.addoption(
        "--settled",
        default=None,
        metavar="STEP",
        help="leave out tests that tests/settled/STEP.json has seen to pass with the same inputs",
    )
    parser.addoption("--settle", default=None, metavar="STEP", help="write that record of the tests that pass")
    parser.addoption(
        "--commit", default=None, metavar="TEXT", help="what the ledger says was tested (git's own by default)"
    )


# Tests make many objects that live on, items and translated kernels among them: to walk the young ones at every 700 (the default)
# took a third of the time of the collection of tests and a tenth of what the emulator takes to read a kernel.
GARBAGE = 20_000, 20, 10


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(*GARBAGE)
    os.environ.pop("COLUMNS", None)  # texts are folded to it
    _share_cores(config)
    check_ops(asked_ops(config))
    extents.choose(config.getoption("--small"))
    # CuPy is imported here, outside the tests' filters, so that a warning it gives is not taken for its absence.
    if cupy_or_none() is None:
        from tests.without_cupy import WithoutCupy

        config.pluginmanager.register(WithoutCupy(), "without-cupy")
    if demands_every_package(config):
        config.pluginmanager.register(skipped, "skipped")
    if config.getoption("--passed"):
        writes, again = not hasattr(config, "workerinput"), bool(config.getoption("--recompiled"))
        known = Passed(Path(config.getoption("--passed")), writes=writes, recompiled=again)
        config.pluginmanager.register(known, "passed")
        config.pluginmanager.register(Compiles(), "compiles")
    for option in ("--settled", "--settle"):
        if step := config.getoption(option):
            kept = Settled(step, writes=option == "--settle", worker=hasattr(config, "workerinput"))
            config.pluginmanager.register(kept, option)
    if config.getoption("--record") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(emulated_runs.Recorder(passed=config.getoption("--passed")), "emulated-runs")
    config.pluginmanager.register(_Recorder(config), "device-ledger")
    config.pluginmanager.register(Watch(judges=is_bounded(config) and not hasattr(config, "workerinput")), "costs")


def demands_every_package(config: pytest.Config) -> bool:
    """Whether what a missing package skips is a failure: in the full suite of continuous integration."""
    return os.environ.get("CI") == "true" and bool(config.getoption("--full"))


def _share_cores(config: pytest.Config) -> None:
    """Workers that each multiply matrices by threads for every core wait for one another: half as much time again for some
    of the tests, and all of it CPU time. A worker loads NumPy and torch, which read this, after it has started."""
    workers = getattr(config.option, "numprocesses", None)
    if isinstance(workers, int) and workers and not hasattr(config, "workerinput"):
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ.setdefault(name, str(max((os.cpu_count() or 1) // workers, 1)))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Workers are given tests by name, and cannot know what was asked for."""
    node.workerinput["bounded"] = is_bounded(node.config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Workers of a bounded run import the tests' modules first, each from another place on: pytest rewrites the asserts of a
    module where it is first imported, and in a fresh checkout each worker would rewrite all of them. What cannot be imported is
    left to the collection."""
    given = getattr(session.config, "workerinput", {})
    if not given.get("bounded"):
        return
    files = [*files_of_tests().values()]
    first = int(given["workerid"].removeprefix("gw")) * len(files) // given["workercount"]
    for path in (*files[first:], *files[:first]):
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test of `every_sample` once a case; where there is no device, one that is skipped stands for an op's."""
    marker = metafunc.definition.get_closest_marker("every_sample")
    if marker is None:
        return
    option = metafunc.config.getoption
    backends, ops, parts = (marker.kwargs[name] for name in ("backends", "ops", "parts"))
    asked = asked_ops(metafunc.config)
    given = []
    for backend in backends:
        gpu = backend == "cuda"
        few = is_bounded(metafunc.config) and not gpu
        marks = [pytest.mark.gpu] if gpu else []
        for op in [op for op in ops if op in asked or not asked]:
            name = f"{backend}-{op}" if len(backends) > 1 else op
            if gpu and not device_count():
                if is_bounded(metafunc.config) and any(param.marks for param in given):
                    break  # the first is skipped for all
                given.append(pytest.param(Case(op, backend, 0, name, 0), id=name, marks=marks))
                continue
            also = marker.kwargs["also"].get(op, ()) if backend == "ptx" and not option("--sample") else ()
            chosen = {"full": option("--all"), "sample": option("--sample"), "parts": parts.get(op, 1), "also": also}
            taken = few_of(marker, op, backend) if few else cases(op, backend, marker.kwargs["count"], **chosen)
            for case in taken:
                given.append(pytest.param(case, id=f"{name}-{case.label}", marks=marks))
    metafunc.parametrize("case", given)


# What tells most for its time comes first: results of every op's kernels on the device, then emulated; their variants; then the
# long device tests. Tests of the host alone are short, and fill the gaps at the end.
GAUNTLET = ("registry_test.py", "emulated_gauntlet_test.py")


def _stage(item: pytest.Item) -> int:
    gpu, ours = item.get_closest_marker("gpu") is not None, item.path.name in GAUNTLET
    if ours and getattr(item, "originalname", "") == "test_gauntlet":
        return 0 if gpu else 1
    if gpu:
        return 2 if ours else 3
    return 4 if ours else 5


def _slow(item: pytest.Item) -> bool:
    """Whether a device test takes many seconds: it runs in parts, or has a time limit of its own."""
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    parts = (x.part if isinstance(x, Case) else x for x in params)
    return any(isinstance(x, Part) and x.count > 1 for x in parts) or item.get_closest_marker("timeout") is not None


def _dealt(items: list[pytest.Item]) -> list[pytest.Item]:
    """The items by stage, slow device tests evenly among the first three quarters of the others: xdist gives a process tens of
    tests that follow one another, and none should get many slow ones, or begin one at the end."""
    begun = [item for item in items if _stage(item) < 2]
    slow = [item for item in items if _stage(item) in (2, 3) and _slow(item)]
    quick = [item for item in items if _stage(item) in (2, 3) and not _slow(item)]
    rest = [item for item in items if _stage(item) > 3]
    places = {id(item): (i + 0.5) * 0.75 * len(quick) / len(slow) for i, item in enumerate(slow)}
    places |= {id(item): float(i) for i, item in enumerate(quick)}
    return [*begun, *sorted([*slow, *quick], key=lambda item: places[id(item)]), *rest]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ops := asked_ops(config):
        others = [item for item in items if not concerns(item, ops)]
        items[:] = [item for item in items if concerns(item, ops)]
        config.hook.pytest_deselected(items=others)
    if is_bounded(config):
        items[:], others = choose(items, device=device_count() > 0)
        config.hook.pytest_deselected(items=others)
    items.sort(key=_stage)
    items[:] = _dealt(items)
    if not device_count():
        reason = "no usable CUDA device" if gpu_or_none() is not None else "CuPy cannot be imported"
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=f"{reason}: runs with a GPU only"))
    if not config.getoption("--all"):
        for item in items:
            if item.get_closest_marker("heavy"):
                item.add_marker(pytest.mark.skip(reason="heavy: runs with --all only"))
                if item.get_closest_marker("gpu"):
                    item.user_properties += [("left out", name) for name in _covers(item)]


def pytest_collection_finish() -> None:
    """Thousands of tests are held to the end: the garbage collector need not walk them each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def bounded(request: pytest.FixtureRequest) -> bool:
    """Whether this is the bounded suite: for a test that draws fewer cases there."""
    return is_bounded(request.config)


@pytest.fixture
def everything(request: pytest.FixtureRequest) -> bool:
    """Whether ``--all`` was given."""
    return bool(request.config.getoption("--all"))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> str:
    """Both back ends; "cuda" is skipped where there is no device."""
    return str(request.param)


@pytest.fixture(autouse=True)
def _covered(request: pytest.FixtureRequest) -> None:
    """Says which op a device test covered."""
    if request.node.get_closest_marker("gpu") is not None:
        record_property = request.getfixturevalue("record_property")
        for name in _covers(request.node):
            record_property("covers", name)
        case = request.node.callspec.params.get("case") if hasattr(request.node, "callspec") else None
        if isinstance(case, Case):
            whole = request.node.name.replace(f"-{case.label}", "", 1)
            record_property("one of", (f"{request.node.path.name}::{whole}", len(case.siblings)))


def _covers(item: Any) -> list[str]:
    """The ops that a test is about: the one that it is parametrised by, or the `COVERS` of its module."""
    op = op_of(item)
    return [op] if op else list(getattr(item.module, "COVERS", ()))


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cubin cache of the test's own."""
    from baracuda_py.runtime.compile import cache
    from baracuda_py.runtime.system import files

    folder = tmp_path / "cubins"
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(folder))
    for module in (cache, files):
        monkeypatch.setattr(module, "_warned", set())
    return folder


class _Recorder:
    """Collects which ops' device tests passed and failed, and writes them down at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.path = config.getoption("--ledger")
        self.passed: dict[str, set[str]] = {}
        self.failed: set[str] = set()
        self.skipped: Counter[str] = Counter()
        self.sampled = ledger.Sampled()
        self.emulator: dict[str, str] = {}
        self.run = {"commit": config.getoption("--commit"), "all": bool(config.getoption("--all"))}
        self.worker = hasattr(config, "workerinput")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        said = dict(report.user_properties)
        if report.when == "setup" and report.skipped:
            self.skipped.update(str(value) for key, value in report.user_properties if key == "left out")
        names = [str(value) for key, value in report.user_properties if key == "covers"]
        for name in names:
            if report.failed:
                self.failed.add(name)
            elif report.when == "call" and report.passed:
                passed = self.passed.setdefault(name, set())
                if "one of" in said:
                    self.sampled.add(name, report.nodeid, *cast(tuple[str, int], said["one of"]))
                else:
                    file, _, test = report.nodeid.partition("::")
                    passed.add(f"{Path(file).name}::{test}")
                if "emulator" in said:
                    self.emulator[name] = str(said["emulator"])

    def pytest_sessionfinish(self) -> None:
        if self.path and not self.worker and device_count():
            run = ledger.machine() | self.run | {"commit": self.run["commit"] or ledger.commit_of(TESTS)}
            ledger.record(Path(self.path), self.passed, self.failed, run, self.skipped, self.emulator, self.sampled)
