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
        self.signature = inspect.signature(_function.functional.call)
        monkeypatch.setattr(_function.functional, "call", self)

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.seen.append(dict(self.signature.bind(*given, **named).arguments))
        return "result"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


@pytest.mark.parametrize("op", ["contiguize", "kv_append", "write_slice", "matmul", "matmul_tc", "nonzero", "unique"])
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


def test_function_gathers_operands_in_order_and_keys_options(calls: Calls) -> None:
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
    assert (seen["options"], seen["stream"], seen["device"]) == (("BHSD",), 7, None)
    assert made.__name__ == "like" and made.__doc__ == "What it does."


def test_function_leaves_out_absent_operands_and_keys_them(calls: Calls) -> None:
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


def decode(calls: Calls, **given: Any) -> dict[str, Any]:
    """What a call of a function that decodes asks for."""

    def like(
        q: Any, k: Any, v: Any, lengths: Any = None, *, scale: float | None = None, softcap: float | None = None,
        window: Any = None, layout: str = "BHSD", return_lse: bool = False, lse: Any = None,
    ) -> Any:  # fmt: skip
        """What it does."""

    def doubled(window: Any, what: str) -> Any:
        assert what == "mine: window"
        return tuple(2 * n for n in window)

    function_of(bp.DecodeAttentionPlan, called="mine", rules=_function.SignatureRules(reads={"window": doubled}))(like)(
        1, 2, 3, **given
    )
    return calls.seen[-1]


def test_an_output_that_is_asked_for_is_an_operand_in_its_place(calls: Calls) -> None:
    plain, asked, passed = (decode(calls, **how) for how in ({}, {"return_lse": True}, {"lse": 4, "lengths": 5}))
    assert list(plain["operands"]) == ["out", "q", "k", "v"]
    assert list(asked["operands"].items()) == [("out", None), ("lse", None), ("q", 1), ("k", 2), ("v", 3)]
    assert list(passed["operands"].items()) == [("out", None), ("lse", 4), ("q", 1), ("k", 2), ("v", 3), ("lengths", 5)]
    assert len({seen["options"] for seen in (plain, asked, passed)}) == 3


def test_function_keys_absent_values_and_reads_options(calls: Calls) -> None:
    plain, capped, scaled = (decode(calls, **how) for how in ({}, {"softcap": 2}, {"scale": np.float64(3)}))
    assert (plain["values"], capped["values"], scaled["values"]) == ({}, {"softcap": 2.0}, {"scale": 3.0})
    assert len({seen["options"] for seen in (plain, capped, scaled)}) == 3
    assert capped["options"] == decode(calls, softcap=7.0)["options"], "their sizes are not in the key"
    assert (8, 0) in decode(calls, window=[4, 0])["options"]
    with pytest.raises(bp.InvalidProblemError, match="mine: softcap=-1"):
        decode(calls, softcap=-1)


def test_what_describes_such_a_call_has_all_of_it(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bp.attention_decode.__globals__, "_call", calls)
    q, k = np.ones((2, 8, 1, 64), np.float16), np.ones((2, 2, 40, 64), np.float16)
    given: dict[str, Any] = {"q": q, "k": k, "v": k, "lengths": np.ones(2, np.int32)}
    how: dict[str, Any] = {"softcap": 3.0, "window": (4, None), "return_lse": True, "k_scale": 0.5}
    bp.attention_decode(**given, **how)
    (seen,) = calls.seen
    assert seen["describe"](*seen["describe_args"]) == bp.DecodeAttentionDescriptor.of(**given, **how)


def test_what_describes_a_call_is_not_asked_before_it_must(calls: Calls) -> None:
    x = np.ones((2, 3), np.float32)
    made = function_of(bp.ContiguizePlan, called="copied")(lambda x: None)
    made(object())
    made(x)
    seen = calls.seen[1]
    assert seen["describe"](*seen["describe_args"]) == bp.ContiguizeDescriptor.of(x)
    assert seen["options"] == () and seen["values"] is None


def test_a_body_may_gather_its_arguments_itself(calls: Calls) -> None:
    def half(x: Any, *, part: int = 1) -> _function.CallArgs:
        """A body."""
        return {"x": x}, lambda: x, part, {"start": 0}, (8,)

    half.__annotations__["return"] = "CallArgs"
    made = function_of(bp.WriteSlicePlan)(half)
    assert made(3, part=2, device="cpu") == "result"
    (seen,) = calls.seen
    assert (seen["operands"], seen["options"], seen["values"], seen["shifts"]) == ({"x": 3}, 2, {"start": 0}, (8,))
    assert seen["device"] == "cpu" and inspect.signature(made).return_annotation == "Any"


def test_a_body_that_gathers_may_have_an_out_of_its_own(calls: Calls) -> None:
    def copied(x: Any, /, *, out: Any = None) -> _function.CallArgs:
        """A body."""
        return {"out": out, "x": x}, lambda: x, (), None, None

    copied.__annotations__["return"] = "CallArgs"
    made = function_of(bp.ContiguizePlan)(copied)
    assert list(inspect.signature(made).parameters) == ["x", "out", "stream", "pref", "device"]
    made(1, out=2)
    assert calls.seen[0]["operands"] == {"out": 2, "x": 1}


def test_a_traceback_shows_the_line() -> None:
    with pytest.raises(bp.OperandTypeError) as caught:
        bp.contiguize(object(), device="cpu")
    assert "_call(_plan, operands" in "".join(traceback.format_tb(caught.tb))


@pytest.mark.parametrize("op", ["nonzero", "unique", "unique_consecutive"])
def test_function_cuts_results_by_its_rule(op: str) -> None:
    """`trim` is no part of a call's key or description: both calls find the plan of one problem."""
    function, x = getattr(bp, op), np.array([3, 3, 0, 3], np.int32)
    bp.plan_cache.clear()
    cut, whole = function(x, device="cpu"), function(x, trim=False, device="cpu")
    kept = int(whole.count[0])
    assert 0 < kept < len(whole.out) and np.array_equal(cut, whole.out[:kept])
    assert bp.plan_cache.info().plans == 1
    with pytest.raises(bp.InvalidProblemError, match=f"{op}: trim must be True or False"):
        function(x, trim=1, device="cpu")
