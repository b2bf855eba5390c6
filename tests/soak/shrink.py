"""Makes a failure small: the fewest and plainest calls that still fail, as a script."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..places import ROOT
from .job import message_of
from .step import Step
from .world import replay

__all__ = ["here", "script", "shrunk", "there"]

Fails = Callable[[Sequence[Step]], str]
ATTEMPTS = 60
PLAIN: dict[str, object] = {"stream": 0, "kind": "plain", "way": "function", "out": False}
LAST = 60  # calls before the failing one that are tried together


def here(steps: Sequence[Step]) -> str:
    """What goes wrong where the steps are carried out in this process; empty where nothing does."""
    from baracuda_py.call.cache import plan_cache

    plan_cache.clear()
    try:
        replay(*steps)
    except Exception as error:
        return message_of(error)
    return ""


def there(steps: Sequence[Step], timeout_s: float = 120) -> str:
    """The same in a process of its own, which an illegal access may end."""
    command = [sys.executable, "-m", "tests.soak.shrink"]
    given = json.dumps([step.to_json() for step in steps])
    try:
        ran = subprocess.run(command, input=given, capture_output=True, text=True, cwd=ROOT, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return f"no end within {timeout_s:g} s"
    return ran.stdout.strip() or (f"the process ended with {ran.returncode}" if ran.returncode else "")


def shrunk(steps: Sequence[Step], fails: Fails, attempts: int = ATTEMPTS) -> tuple[tuple[Step, ...], str]:
    """Fewest and plainest steps that fail, and how; none where the calls do not fail one after the other."""
    left = [attempts]

    def tried(some: Sequence[Step]) -> str:
        left[0] -= 1
        return fails(some) if left[0] >= 0 else ""

    for some in _suspects(steps):
        if error := tried(some):
            break
    else:
        return (), ""
    kept = list(some)
    size = max(len(kept) // 2, 1)
    while size:
        at = 0
        while at < len(kept) - 1:  # the last one fails, and stays
            fewer = [*kept[:at], *kept[min(at + size, len(kept) - 1) :]]
            if found := tried(fewer):
                kept, error = fewer, found
            else:
                at += size
        size //= 2
    for at in range(len(kept)):
        for name, plain in PLAIN.items():
            plainer = replace(kept[at], **{name: plain})  # type: ignore[arg-type]
            if plainer != kept[at] and (found := tried([*kept[:at], plainer, *kept[at + 1 :]])):
                kept[at], error = plainer, found
    return tuple(kept), error


def _suspects(steps: Sequence[Step]) -> Iterator[Sequence[Step]]:
    last = steps[-1]
    yield [last]
    yield [last, last]
    yield [*(step for step in steps[:-1] if step.problem == last.problem), last]
    yield [*[step for step in steps[:-1] if step.op == last.op][-LAST:], last]
    yield steps[-LAST:]
    yield steps


def script(steps: Sequence[Step], error: str, command: str) -> str:
    """The steps as a Python program."""
    lines = ",\n    ".join(map(repr, steps))
    return f'"""{error}\n\nFound by {command}"""\n\nfrom tests.soak import Step, replay\n\nreplay(\n    {lines},\n)\n'


def main() -> None:
    """Steps as JSON on stdin; what goes wrong on stdout."""
    out, sys.stdout = sys.stdout, sys.stderr
    print(here([Step.of_json(step) for step in json.load(sys.stdin)]), file=out)


if __name__ == "__main__":
    main()
