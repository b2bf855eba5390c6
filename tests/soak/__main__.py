"""``python -m tests.soak --minutes 2 --seed 7 --device ptx``: starts the jobs, shows their progress, reports what failed."""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ..ledger import commit_of, machine
from .job import Job
from .shrink import ROOT, script, shrunk, there
from .step import Step


class Running:
    """A job's process, and what it said last."""

    def __init__(self, job: Job) -> None:
        self.job, self.calls, self.outcome = job, 0, {}  # type: tuple[Job, int, dict[str, Any]]
        self.trace: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.job"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self._process.stdin is not None
        print(json.dumps(asdict(job)), file=self._process.stdin, flush=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text)
            self.trace += line.get("batch", ())
            self.calls = line.get("calls", self.calls)
            self.outcome = line.get("outcome", self.outcome)
        code = self._process.wait()
        if not self.outcome:  # it was ended: the call that did it is among the last ones
            self.outcome = {"calls": self.calls, "failure": f"the process ended with {code}", "steps": self.trace}

    @property
    def alive(self) -> bool:
        return self._reader.is_alive()

    def end(self) -> None:
        self._process.terminate()
        self._reader.join()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.0, help="how long each job calls")
    parser.add_argument("--calls", type=int, default=0, help="how many calls all jobs make together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda", help='"cuda", "ptx" (or "ptx:sm_80", ...) or "cpu"')
    parser.add_argument("--ops", nargs="*", default=(), metavar="OP", help="all by default")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--threads", type=int, default=1, help="threads that call in each process")
    parser.add_argument("--record", type=Path, help="where the record is written, as JSON")
    parser.add_argument(
        "--script", type=Path, default=Path("soak_failure.py"), help="where a failure is written, as Python"
    )
    given = parser.parse_args()
    if not given.minutes and not given.calls:
        parser.error("say --minutes or --calls")
    return given


def _watched(jobs: list[Running], given: argparse.Namespace) -> None:
    """Shows how many calls were made until all jobs are over."""
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed} calls"), TimeElapsedColumn()
    with Progress(*columns) as progress:
        bar = progress.add_task(f"soak on {given.device}, seed {given.seed}", total=given.calls or None)
        while any(job.alive for job in jobs):
            for job in jobs:
                job._reader.join(0.5 / len(jobs))
            progress.update(bar, completed=sum(job.calls for job in jobs))


def _reported(job: Running, given: argparse.Namespace) -> dict[str, Any]:
    """A failure made small: printed, and written as a script."""
    outcome = job.outcome
    command = f"python -m tests.soak --device {given.device} --seed {job.job.seed} --threads {given.threads}"
    found = {"failure": outcome["failure"], "command": command}
    print(f"FAILED: {outcome['failure']}")
    steps = [Step.of_json(step) for step in outcome["steps"]]
    small, error = shrunk(steps, there) if steps else ((), "")
    if small:
        text = script(small, error, command)
        given.script.write_text(text)
        print(text)
        found["script"] = text
    elif steps:
        print(f"not seen where the calls follow one another; the last of {len(steps)}: {steps[-1]}")
        found["last"] = repr(steps[-1])
    return found


def main() -> int:
    given = _arguments()
    share = -(-given.calls // given.jobs) if given.calls else 0
    jobs = [
        Running(Job(given.device, given.seed + turn, given.minutes, share, given.threads, tuple(given.ops)))
        for turn in range(given.jobs)
    ]
    try:
        _watched(jobs, given)
    finally:
        for job in jobs:
            job.end()
    outcomes = [job.outcome for job in jobs]
    failed = [job for job in jobs if job.outcome["failure"]]
    record = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "commit": commit_of(ROOT),
        "device": given.device, **(machine() if given.device == "cuda" else {}), "seed": given.seed, "jobs": given.jobs,
        "threads": given.threads, "calls": sum(o["calls"] for o in outcomes),
        "problems": sum(o.get("problems", 0) for o in outcomes), "ops": len({op for o in outcomes for op in o.get("ops", ())}),
        "refused": sum(o.get("refused", 0) for o in outcomes),
        "memory_mib": [[[n >> 20 for n in seen] for seen in o.get("memory", ())] for o in outcomes],
    }  # fmt: skip
    print(f"{record['calls']} calls of {record['problems']} problems, {len(failed)} jobs failed")
    record["failures"] = [_reported(job, given) for job in failed]
    if given.record:
        given.record.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
