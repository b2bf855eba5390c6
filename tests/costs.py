"""What an op costs the bounded suite: CPU seconds of the tests that are about one op, which the suite holds to a limit.

A suite of 180 ops has to stay short, and each op adds tests by being in the registry. What NVRTC takes is left out: it depends on
what the kernel cache holds. So are tests that need a GPU.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

from baracuda_py.plan import all_ops
from baracuda_py.runtime.compile import compiler

from .gauntlet import Case

__all__ = ["LIMIT", "Costs", "Watch", "op_of"]

# CPU seconds that the median op may cost. Runs of 88 ops took about 0.6, with all cores busy; the limit only goes down. Products
# cost ten times as much, and are few: the median is of the rows, of which there will be many.
LIMIT = 1.0
COST = "cost"  # the property of a report that holds an op and its seconds


def op_of(item: pytest.Item) -> str:
    """The op that a test is parametrised by; "" for the others, which cost the same however many ops there are."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    case, op = params.get("case"), params.get("op")
    return case.op if isinstance(case, Case) else op if isinstance(op, str) else ""


class Costs:
    """CPU seconds by op and by test function."""

    def __init__(self) -> None:
        self.ops: Counter[str] = Counter()
        self.tests: Counter[str] = Counter()

    def add(self, op: str, test: str, seconds: float) -> None:
        self.ops[op] += seconds  # type: ignore[assignment]
        self.tests[test.partition("[")[0].rpartition("/")[2]] += seconds  # type: ignore[assignment]

    @property
    def median(self) -> float:
        return statistics.median(self.ops.values()) if self.ops else 0.0

    def complaint(self, limit: float = LIMIT) -> str:
        """What is said where an op costs more than `limit`; "" otherwise."""
        if self.median <= limit:
            return ""
        dearest = ", ".join(f"{op} {seconds:.2f}" for op, seconds in self.ops.most_common(3))
        tests = ", ".join(f"{test} {seconds / len(self.ops):.2f}" for test, seconds in self.tests.most_common(6))
        costs = f"an op costs {self.median:.2f} CPU seconds (the median), {limit} are allowed"
        return f"{costs}; most: {dearest}; an op by test: {tests}"

    def __str__(self) -> str:
        ((op, most),) = self.ops.most_common(1) or [("none", 0.0)]
        return f"{len(self.ops)} ops, {self.median:.2f} CPU seconds an op (the median); most: {op} {most:.2f}"


class Watch:
    """Measures each test where it runs, sums where reports arrive, and fails a run of all ops that cost too much."""

    def __init__(self, *, judges: bool) -> None:
        self.judges = judges
        self.costs, self.began, self.compiling = Costs(), 0.0, 0.0
        compiled = compiler._Program.compile

        def timed(program: compiler._Program, options: tuple[str, ...]) -> None:
            start = time.process_time()
            try:
                compiled(program, options)
            finally:
                self.compiling += time.process_time() - start

        compiler._Program.compile = timed  # type: ignore[method-assign]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        self.began, self.compiling = time.process_time(), 0.0
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        op = op_of(item)
        if call.when == "teardown" and op and not item.get_closest_marker("gpu"):
            report.user_properties = [(COST, [op, time.process_time() - self.began - self.compiling])]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for key, value in report.user_properties:
            if key == COST:
                op, seconds = value  # type: ignore[misc]
                self.costs.add(op, report.nodeid, seconds)

    @property
    def complaint(self) -> str:
        """Of a bounded run that had tests of every op."""
        return self.costs.complaint() if self.judges and len(self.costs.ops) >= len(all_ops()) else ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.complaint and not session.exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.complaint:
            terminalreporter.write_line(f"FAILED the cost of an op: {self.complaint}", red=True)
        elif len(self.costs.ops) > 1:
            terminalreporter.write_line(str(self.costs))
