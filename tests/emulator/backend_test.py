"""What runs emulated plans is registered: made once, when a plan first needs it, and asked for that plan's steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.emulator.launch import Emulator
from baracuda_py.plan import backend as registry
from baracuda_py.plan.plan import Plan
from baracuda_py.runtime.steps import Step


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_makers", {})
    monkeypatch.setattr(registry, "_made", {})


def added() -> Plan[Any]:
    desc = bp.BinaryDescriptor("add", (8,), (8,), "f32", "f32")  # type: ignore[arg-type]
    return bp.BinaryPlan.select(desc, device="ptx")


@pytest.mark.usefixtures("empty")
def test_backend_missing_names_op_and_fix() -> None:
    with pytest.raises(bp.UnsupportedError, match=r"add: no backend is registered .*: choose device='cpu'"):
        added().load()


@pytest.mark.usefixtures("empty")
def test_backend_is_made_once_when_first_needed() -> None:
    made: list[tuple[str, tuple[str, ...], str]] = []

    class Noted(Emulator):
        def program(self, op: str, steps: Sequence[Step], operands: Sequence[str], arch: str) -> Any:
            made.append((op, tuple(operands), arch))
            return super().program(op, steps, operands, arch)

    makers: list[Noted] = []

    def make() -> Noted:
        makers.append(Noted())
        return makers[-1]

    registry.register(make)
    plan = added()
    assert not makers
    a, b = np.arange(8, dtype=np.float32), np.ones(8, np.float32)
    for _ in range(2):
        assert np.array_equal(plan.run(x1=a, x2=b), a + b)
    added().load()
    assert len(makers) == 1 and len(made) == 2
    assert made[0] == (plan.desc.op, plan.selection.names, plan.device.arch)
