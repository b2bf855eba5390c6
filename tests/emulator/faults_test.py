"""What an emulated kernel's faults say, and that they survive a process."""

from __future__ import annotations

import pickle

import pytest

import baracuda_py as bp
from baracuda_py.types import faults

KINDS = [getattr(faults, name) for name in faults.__all__]
FULL = {
    "kernel": "elementwise/map.cu:map<Add>",
    "operand": "out",
    "space": "global",
    "byte": 4080,
    "extent": 4092,
    "cta": 3,
    "thread": 127,
    "source": "elementwise/map.cu:41",
    "ptx_line": 210,
    "instruction": "st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};",
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_a_fault_is_public_typed_and_pickles(kind: type[bp.KernelFault]) -> None:
    assert getattr(bp, kind.__name__) is kind and kind.__doc__
    fault = kind("store of 16 bytes", "mask the tail", **FULL)
    assert isinstance(fault, bp.KernelFault) and isinstance(fault, bp.BaracudaError) and isinstance(fault, RuntimeError)
    again = pickle.loads(pickle.dumps(fault))
    assert type(again) is kind and str(again) == str(fault) and again.__dict__ == fault.__dict__
    assert {name: getattr(again, name) for name in FULL} == FULL


def test_it_says_everything_it_knows_in_one_line() -> None:
    fault = bp.OutOfBoundsFault("store of 16 bytes", **FULL)
    assert str(fault) == (
        "store of 16 bytes at out+4080, which has 4092: CTA 3, thread 127, elementwise/map.cu:41 (PTX line 210, "
        "st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};), kernel elementwise/map.cu:map<Add>"
    )
    assert fault.message == "store of 16 bytes" and fault.fix == ""


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({}, "what happened"),
        ({"fix": "wait"}, "what happened: wait"),
        ({"space": "shared", "byte": 64}, "what happened at shared memory+64"),
        ({"operand": "x", "space": "global", "byte": -4, "extent": 8}, "what happened at x-4, which has 8"),
        ({"operand": "x", "byte": 0, "cta": 0, "thread": 0}, "what happened at x+0: CTA 0, thread 0"),
        ({"source": "gemm/tc.cu:88"}, "what happened: gemm/tc.cu:88"),
        ({"ptx_line": 7}, "what happened: PTX line 7"),
        ({"instruction": "trap;", "fix": "pass k > 0"}, "what happened: trap;: pass k > 0"),
    ],
)
def test_it_says_only_what_it_knows(known: dict[str, object], said: str) -> None:
    assert str(bp.KernelFault("what happened", **known)) == said  # type: ignore[arg-type]


def test_where_it_happened_is_given_by_name() -> None:
    with pytest.raises(TypeError):
        bp.KernelFault("what", "fix", "elementwise/map.cu:map")  # type: ignore[misc]
