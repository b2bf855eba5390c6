"""One process of the soak: it says on stdout, as lines of JSON, what it is about to call and how that went."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .draw import Drawn
from .step import Step
from .world import World

__all__ = ["Job", "Outcome", "grown", "message_of", "soak"]

OPENING, SETTLED = 0.45, 0.65  # of the job: until when problems are opened, and from when memory has to be flat
RSS_SLACK, DEVICE_SLACK = 48 << 20, 8 << 20  # bytes: heaps are in pieces, and threads have heaps of their own


@dataclass(frozen=True)
class Job:
    """What a process is asked for."""

    device: str
    seed: int
    minutes: float
    calls: int
    threads: int = 1
    ops: tuple[str, ...] = ()  # all where none are named


@dataclass
class Outcome:
    """What came of it. `memory` are bytes of the host and the device, settled and at the end."""

    calls: int = 0
    problems: int = 0
    ops: tuple[str, ...] = ()
    refused: int = 0
    memory: tuple[tuple[int, int], ...] = ()
    failure: str = ""
    steps: tuple[Step, ...] = ()  # up to the one that failed, which is the last


def soak(job: Job, say: Callable[[dict[str, Any]], Any] = lambda _line: None) -> Outcome:
    """Calls until the time is over, so many calls are made, or one fails."""
    world, done = World(job.device), Outcome()
    drawn, trace = Drawn(world, job.seed, job.ops), []  # type: tuple[Drawn, list[Step]]
    began = time.monotonic()

    def share() -> float:
        spent = (time.monotonic() - began) / (60 * job.minutes) if job.minutes else 0.0
        return max(spent, done.calls / job.calls if job.calls else 0.0)

    with ThreadPoolExecutor(job.threads) as threads:
        while share() < 1 and not done.failure:
            if share() >= SETTLED and not done.memory:
                done.memory = (_memory(world),)
            steps = drawn.batch(opens=share() < OPENING)
            say({"batch": [step.to_json() for step in steps]})
            failures = list(threads.map(lambda step: _failure(world, step), steps))
            done.calls += len(steps)
            for step, failure in zip(steps, failures):
                trace.append(step)
                if failure:
                    done.failure, done.steps = failure, tuple(trace)
                    break
            say({"calls": done.calls, "problems": len(drawn.opened)})
    done.memory = (*done.memory, _memory(world)) if done.memory else ()
    done.problems, done.refused = len(drawn.opened), drawn.refused
    done.ops = tuple({step.op for step in drawn.opened})
    if not done.failure and (growth := grown(done.memory)):
        done.failure = growth
    return done


def _failure(world: World, step: Step) -> str:
    try:
        world.run(step)
    except Exception as error:
        return message_of(error)
    return ""


def message_of(error: BaseException) -> str:
    """An error in one line, with the line of the library or the test that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}{place}"


def grown(memory: tuple[tuple[int, int], ...]) -> str:
    """What of the host's and the device's memory grew between the two looks at it; empty where none did."""
    if len(memory) < 2:
        return ""
    (host, device), (host_end, device_end) = memory
    if host_end > host * 1.02 + RSS_SLACK:
        return f"the host's memory grew from {host >> 20} to {host_end >> 20} MiB"
    if device_end > device + DEVICE_SLACK:
        return f"the device's memory grew from {device >> 20} to {device_end >> 20} MiB"
    return ""


def _memory(world: World) -> tuple[int, int]:
    """Bytes that the process has resident, and that CuPy and torch have allocated on the device."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    device = 0
    if world.gpu:
        import cupy

        device = int(cupy.get_default_memory_pool().used_bytes())
        if world.torch:
            device += int(sys.modules["torch"].cuda.memory_allocated())
    return resident, device


def main() -> None:
    """A job as a line of JSON on stdin; lines of JSON on stdout, the outcome last."""
    out, sys.stdout = sys.stdout, sys.stderr

    def say(line: dict[str, Any]) -> None:
        print(json.dumps(line), file=out, flush=True)

    done = soak(Job(**json.loads(sys.stdin.readline())), say)
    say({"outcome": asdict(done) | {"steps": [step.to_json() for step in done.steps]}})


if __name__ == "__main__":
    main()
