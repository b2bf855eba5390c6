"""Public functions made of a signature and a plan: what they take, how they are called, and what their keys hold."""

from __future__ import annotations

import inspect
import traceback
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops import _function
from baracuda_py.ops._function import function_of
from baracuda_py.plan import get_op


class Calls:
    """Stands in for `functional.call`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[dict[str, Any]] = []
        monkeypatch.setattr(_function.functional, "call", self)

    def __call__(self, plan: Any, operands: Any, describe: Any, **how: Any) -> Any:
        self.seen.append({"plan": plan, "operands": operands, "describe": describe, **how})
        return "result"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


@pytest.mark.parametrize("op", ["contiguize", "kv_append", "write_slice", "matmul", "matmul_tc"])
def test_the_shell_is_written_once(op: str) -> None:
    function = get_op(op).function
    signature = inspect.signature(function)
    *_, stream, pref, device = signature.parameters.values()
    assert [p.name for p in (stream, pref, device)] == ["stream", "pref", "device"]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is None for p in (stream, pref, device))
    assert ("out" in signature.parameters) == ("out" in get_op(op).plan.descriptor.slot_of)
    assert function.__name__ == op and function.__doc__ and signature.return_annotation == "Any"
    with pytest.raises(TypeError, match=rf"{op}\(\) got an unexpected keyword argument 'steam'"):
        function(*[np.ones(3)] * 5, steam=1)


def test_operands_go_in_the_descriptor_s_order_and_options_into_the_key(calls: Calls) -> None:
    def like(
        k_cache: Any, v_cache: Any, k: Any, v: Any, positions: Any, *, layout: str = "BHSD", status: Any = None
    ) -> Any:
        """What it does."""

    made = function_of(bp.KvAppendPlan)(like)
    assert made(1, 2, 3, 4, positions=5, status=6, stream=7) == "result"
    (seen,) = calls.seen
    assert list(seen["operands"].items()) == [
        ("k_cache", 1), ("v_cache", 2), ("k", 3), ("v", 4), ("positions", 5), ("status", 6)
    ]  # fmt: skip
    assert (seen["options"], seen["stream"], seen["device"]) == ("BHSD", 7, None)
    assert made.__name__ == "like" and made.__doc__ == "What it does."


def test_absent_operands_are_left_out_and_told_apart(calls: Calls) -> None:
    def product(a: Any, b: Any, /, *, alpha: float = 1.0, beta: float = 1.0, c: Any = None, bias: Any = None,
                math: Any = None) -> Any:  # fmt: skip
        """A product."""

    made = function_of(bp.MatmulPlan, called="mine", doc="Mine.", name="matmul")(product)
    made(1, 2)
    made(1, 2, c=3)
    made(1, 2, bias=3, alpha=np.float32(2), pref=bp.PlanPreference(math="tf32"))
    made(1, 2, c=3, beta=1e39)
    first, second, third, fourth = calls.seen
    assert list(first["operands"]) == ["out", "a", "b"] and list(second["operands"]) == ["out", "a", "b", "c"]
    assert second["options"] != third["options"] and "bias" in third["options"][1]
    assert third["values"] == {"alpha": 2.0, "beta": 1.0} and bp.MathPrecision.TF32 in third["options"]
    assert second["options"] != fourth["options"], "a number beyond f32 needs other checks"
    assert made.__name__ == "mine" and made.__doc__ == "Mine."
    with pytest.raises(bp.OperandTypeError, match="mine: alpha must be a number"):
        made(1, 2, alpha="2")
    with pytest.raises(bp.InvalidProblemError, match="mine: beta=2 scales c, and there is no c"):
        made(1, 2, beta=2)


def test_what_describes_a_call_is_not_asked_before_it_must(calls: Calls) -> None:
    x = np.ones((2, 3), np.float32)
    made = function_of(bp.ContiguizePlan, called="copied")(lambda x: None)
    made(object())
    made(x)
    assert calls.seen[1]["describe"]() == bp.ContiguizeDescriptor.of(x)
    assert "options" not in calls.seen[0] and "values" not in calls.seen[0]


def test_a_body_may_gather_its_arguments_itself(calls: Calls) -> None:
    def half(x: Any, *, part: int = 1) -> _function.Asked:
        """A body."""
        return {"x": x}, lambda: x, part, {"start": 0}, (8,)

    half.__annotations__["return"] = "Asked"
    made = function_of(bp.WriteSlicePlan)(half)
    assert made(3, part=2, device="cpu") == "result"
    (seen,) = calls.seen
    assert (seen["operands"], seen["options"], seen["values"], seen["shifts"]) == ({"x": 3}, 2, {"start": 0}, (8,))
    assert seen["device"] == "cpu" and inspect.signature(made).return_annotation == "Any"


def test_a_traceback_shows_the_line() -> None:
    with pytest.raises(bp.OperandTypeError) as caught:
        bp.contiguize(object(), device="cpu")
    assert "_call(_plan, operands" in "".join(traceback.format_tb(caught.tb))
