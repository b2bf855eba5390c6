"""Fused functions: random graphs against NumPy in float64 within the composed bound, calls, plans as values, and refusals."""

from __future__ import annotations

import math
import pickle
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.call.cache import plan_cache
from baracuda_py.numerics.rounding import round_to
from baracuda_py.ops.elementwise._row import ROWS, Row
from baracuda_py.plan import all_ops
from baracuda_py.runtime.scope import process
from baracuda_py.types import ElementKind, Exact

from ...call.simulated import simulated

COVERS = ()
Array = Any
erf = np.frompyfunc(math.erf, 1, 1)
# What programs call: on symbols, on wide floats, and whether integers take it. Few of them grow fast, so that most graphs stay in
# the range of f32.
STEPS: dict[str, tuple[Callable[..., Any], Callable[..., Any], bool]] = {
    "add": (lambda a, b, _: a + b, lambda a, b, _: a + b, True),
    "subtract": (lambda a, b, _: a - b, lambda a, b, _: a - b, True),
    "multiply": (lambda a, b, _: a * b, lambda a, b, _: a * b, True),
    "divide": (lambda a, b, _: a / (bp.abs(b) + 1), lambda a, b, _: a / (np.abs(b) + 1), False),
    "maximum": (lambda a, b, _: bp.maximum(a, b), lambda a, b, _: np.maximum(a, b), True),
    "negative": (lambda a, *_: -a, lambda a, *_: -a, True),
    "square": (lambda a, *_: a**2, lambda a, *_: a * a, True),
    "where": (lambda a, b, c: bp.where(a < b, a, c), lambda a, b, c: np.where(a < b, a, c), True),
    "clamp": (lambda a, *_: bp.clamp(a, -1, 2), lambda a, *_: np.minimum(np.maximum(a, -1), 2), True),
    "half": (lambda a, *_: 0.5 * a, lambda a, *_: a / 2, False),
    "reversed": (lambda a, *_: 3 - a, lambda a, *_: 3 - a, True),
    "exp": (lambda a, *_: bp.exp(bp.minimum(a, 5)), lambda a, *_: np.exp(np.minimum(a, 5)), False),
    "log": (lambda a, *_: bp.log(bp.abs(a) + 0.5), lambda a, *_: np.log(np.abs(a) + 0.5), False),
    "sqrt": (lambda a, *_: bp.sqrt(bp.abs(a)), lambda a, *_: np.sqrt(np.abs(a)), False),
    "tanh": (lambda a, *_: bp.tanh(a), lambda a, *_: np.tanh(a), False),
    "sigmoid": (lambda a, *_: bp.sigmoid(a), lambda a, *_: 1 / (1 + np.exp(-a)), False),
    "silu": (lambda a, *_: bp.silu(a), lambda a, *_: a / (1 + np.exp(-a)), False),
    "rsqrt": (lambda a, *_: bp.rsqrt(bp.abs(a) + 1), lambda a, *_: 1 / np.sqrt(np.abs(a) + 1), False),
    "gated": (lambda a, b, _: bp.silu_mul(a, b), lambda a, b, _: a / (1 + np.exp(-a)) * b, False),
}  # fmt: skip
KINDS = {
    "f16": (bp.F16,), "bf16": (bp.BF16,), "f32": (bp.F32,), "f64": (bp.F64,), "i32": (bp.I32,), "mixed": (bp.BF16, bp.F32),
    "halves": (bp.F16, bp.BF16),
}  # fmt: skip


class Program:
    """A random sequence of 1 to 8 steps over 1 to 4 inputs, as a function of symbols and of NumPy's arrays."""

    def __init__(self, seed: int, kinds: Sequence[ElementKind]) -> None:
        rng = np.random.default_rng(seed)
        self.whole = kinds[0].is_integer
        known = [name for name, (_, _, whole) in STEPS.items() if whole or not self.whole]
        count = int(rng.integers(1, 5))
        self.kinds = [kinds[i % len(kinds)] for i in range(count)]
        shapes = [(6, 1), (1,), (17,), (6, 17)]
        self.arrays = [
            self._values(rng, shapes[-1 - int(rng.integers(len(shapes))) * (i > 0)], k)
            for i, k in enumerate(self.kinds)
        ]
        steps = int(rng.integers(1, 9))
        self.steps = [(str(rng.choice(known)), *rng.integers(0, count + at, 3).tolist()) for at in range(steps)]

    @staticmethod
    def _values(rng: np.random.Generator, shape: tuple[int, ...], kind: ElementKind) -> Array:
        if kind.is_integer:
            return rng.integers(-1000, 1000, shape).astype(kind.dtype)
        return (rng.standard_normal(shape) * 2).astype(kind.dtype)

    def _run(self, place: int, held: list[Any]) -> Any:
        for name, *args in self.steps:
            held.append(STEPS[name][place](*(held[i] for i in args)))
        last = held[-1]
        for other in held[: len(self.kinds)]:  # every input has a part in the result
            last = last + other
        return last

    def __call__(self, *inputs: Any) -> Any:
        return self._run(0, list(inputs))

    def wide(self) -> Array:
        """By NumPy: in float64, or long double for f64; integers unchanged."""
        of = np.int32 if self.whole else np.longdouble if bp.F64 in self.kinds else np.float64
        with np.errstate(all="ignore"):
            return self._run(1, [np.asarray(x).astype(of) for x in self.arrays])


def traced(program: Callable[..., Any], count: int) -> Any:
    """`fuse` of a function of so many arguments."""
    return bp.fuse({
        1: lambda a: program(a), 2: lambda a, b: program(a, b), 3: lambda a, b, c: program(a, b, c),
        4: lambda a, b, c, d: program(a, b, c, d),
    }[count])  # fmt: skip


def holds(seed: int, kinds: str, device: str) -> None:
    """The result of a random program is within the plan's bound of NumPy's."""
    program = Program(seed, KINDS[kinds])
    fused = traced(program, len(program.arrays))
    plan = fused.plan(*program.arrays, device=device)
    operands = {f"x{i + 1}": x for i, x in enumerate(program.arrays)}
    got, wide, kind = fused(*program.arrays, device=device), program.wide(), plan.desc.layout("out").element
    assert got.shape == wide.shape == (6, 17)
    if program.whole:
        assert isinstance(plan.precision_guarantee.bound, Exact)
        wide = round_to(wide, kind)
    plan.precision_guarantee.check(got, wide, operands, output=kind, measures=plan.measured())
    again = fused(*program.arrays, device=device)
    assert got.dtype == again.dtype and got.tobytes() == again.tobytes()


@pytest.mark.parametrize("kinds", KINDS)
def test_fused_graphs_on_the_oracle(kinds: str) -> None:
    for seed in range(40):
        holds(seed, kinds, "cpu")


@pytest.mark.parametrize("kinds", KINDS)
def test_fused_graphs_emulated(kinds: str) -> None:
    for seed in range(40, 43):
        holds(seed, kinds, "ptx")


def test_fused_bound_is_no_wider_than_the_errors() -> None:
    """A result that is off by a few roundoffs more than its graph can lose is refused."""
    x = np.linspace(0.5, 2, 64, dtype=np.float32)
    fused = bp.fuse(lambda x: bp.exp(x) * x + 1)
    plan, wide = fused.plan(x, device="cpu"), np.exp(x.astype(np.float64)) * x.astype(np.float64) + 1
    check = {"operands": {"x1": x}, "measures": plan.measured()}
    plan.precision_guarantee.check(wide.astype(np.float32), wide, **check)
    with pytest.raises(AssertionError, match="propagated"):
        plan.precision_guarantee.check((wide * (1 + 2.0**-20)).astype(np.float32), wide, **check)


def test_fused_casts_round_and_steps_between_do_not() -> None:
    x = np.array([1 + 2.0**-10, 1000.0], np.float32)
    through = bp.fuse(lambda x: bp.cast(bp.cast(x, "bf16"), "f32") * 3)
    halves = bp.fuse(lambda x: x * 3 - 2 * x)
    for device in ("cpu", "ptx"):
        assert np.array_equal(through(x, device=device), x.astype(bp.BF16.dtype).astype(np.float32) * 3)
        h = np.array([1 + 2.0**-10, 60000.0], np.float16)
        assert np.array_equal(halves(h, device=device), h)  # 180000 is beyond f16, and 3 h is no f16
    assert halves.plan(h, device="cpu").desc.typed.carrier == "float"


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_fused_kinds_meet_as_in_numpy(device: str) -> None:
    """Masks of integers beside halves, integers beside floats, numbers, results of bools and integers."""
    rng = np.random.default_rng(1)
    i, u = rng.integers(-50, 50, (3, 40)).astype(np.int32), rng.integers(0, 90, 40).astype(np.uint8)
    h, x = rng.standard_normal((3, 40)).astype(np.float16), rng.standard_normal(40).astype(np.float32)
    large = np.array([2**24 + 1, -(2**31), 2**31 - 1, 5], np.int32)
    for function, args, expected in (
        (lambda m, h: bp.where(m > 3, h, -h), (i, h), np.where(i > 3, h, -h)),
        (lambda m: bp.where(m > 2**24, m - 1, m), (large,), np.where(large > 2**24, large - 1, large)),
        (lambda m, x: bp.where(m > 2**24, x, -x), (large, x[:4]), np.where(large > 2**24, x[:4], -x[:4])),
        (lambda i, x: i * x, (i, x), i * x),
        (lambda i, u: i * u - 2, (i, u), i * u - 2),
        (lambda a, b: a * 2 > b, (x, x[::-1]), x * 2 > x[::-1]),
        (lambda i, s: i * s + s, (i, 3), i * 3 + 3),
        (lambda h, s: bp.where(h > s, h, s), (h, 0.25), np.where(h > 0.25, h, np.float16(0.25))),
        (lambda x: bp.cast(x * 3, "i32"), (x,), (x * np.float32(3)).astype(np.int32)),
        (lambda x, y: bp.where(bp.cast(x, "bool"), y, 0), (u, x), np.where(u != 0, x, np.float32(0))),
        (lambda x: bp.clamp(x, None, 1), (i,), np.minimum(i, 1)),
        (lambda x: (x > -1) & (x < 1) | ~(x < 2), (x,), (x > -1) & (x < 1) | ~(x < 2)),
        (lambda x, i: (x > 0) ^ (i > 0) & True, (x, i), (x > 0) ^ (i > 0)),
        (lambda x: bp.cast(bp.where(x > 0, 1, 0), "i32"), (x,), np.where(x > 0, 1, 0).astype(np.int32)),
        (lambda x: bp.where(x > 0, 1.0, 0.0) * x, (x,), np.where(x > 0, 1.0, 0.0) * x),
    ):  # fmt: skip
        got = bp.fuse(function)(*args, device=device)
        assert got.dtype == expected.dtype and np.array_equal(got, expected), str(bp.fuse(function).graph(*args))


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_fused_layouts_and_in_place(device: str) -> None:
    rng = np.random.default_rng(2)
    x, row = (rng.integers(-40, 40, shape).astype(np.float32) / 8 for shape in ((6, 34), 34))  # whose results are exact
    fused = bp.fuse(lambda x, row, s: (x - row) * s)
    expected = (x - row) * np.float32(2.5)
    for view in (x, np.asfortranarray(x), np.repeat(x, 2, 1)[:, ::2], x[::-1][::-1]):
        got = fused(view, row, 2.5, device=device)
        assert np.array_equal(got, expected)
    held = np.asfortranarray(x)
    assert fused(held, row, 2.5, out=held, device=device) is held and np.array_equal(held, expected)
    wide = np.zeros((6, 68), np.float32)
    fused(x, row, 2.5, out=wide[:, ::2], device=device)
    assert np.array_equal(wide[:, ::2], expected) and not wide[:, 1::2].any()
    assert fused(x[:0], row, 1.0, device=device).shape == (0, 34)
    assert fused(np.full((), 3, np.float32), row[:1], 1.0, device=device).shape == (1,)
    memory = np.zeros(210, np.float32)
    with pytest.raises(bp.OverlapError, match="out"):
        fused(memory[:204].reshape(6, 34), row, 1.0, out=memory[6:].reshape(6, 34), device=device)


def test_fused_index_of_64_bits_and_vectors() -> None:
    text = "t1 = multiply(x1, x2); return t1"
    plan = bp.FusedPlan.select(
        bp.FusedDescriptor(text, ((1 << 33,), (1 << 33,)), ("f16", "f16")), device="h200"
    )  # fmt: skip
    assert "vector=8" in str(plan.sku.config) and plan.sku.variant == "contiguous" and "u64" in plan.kernels[0].name
    small = bp.FusedPlan.select(bp.FusedDescriptor(text, ((64,), (64,)), ("f16", "f16")), device="h200")
    assert "u64" not in small.kernels[0].name


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_fused_several_results(device: str) -> None:
    x, y = np.linspace(-2, 2, 40, dtype=np.float32), np.float32(3) * np.ones((5, 1), np.float32)
    fused = bp.fuse(lambda x, y: (x * y, bp.abs(x) + y, y - x))
    outs = fused(x, y, device=device)
    for got, expected in zip(outs, (x * y, np.abs(x) + y, y - x)):
        assert np.array_equal(got, expected)
    own = tuple(np.empty((5, 40), np.float32) for _ in range(3))
    again = fused(x, y, out=own, device=device)
    assert all(a is b for a, b in zip(again, own)) and np.array_equal(own[2], y - x)
    plan = fused.plan(x, y, device=device)
    plan.verify(x1=x, x2=y)
    assert [name for name, _ in plan.precision_guarantee.parts] == ["out1", "out2", "out3"]


def test_fused_is_traced_once_and_numbers_take_one_kernel() -> None:
    calls = []

    def function(x: Any, scale: Any) -> Any:
        calls.append(x)
        return bp.exp(x) * scale

    fused, x = bp.fuse(function), np.ones(8, np.float32)
    results = [fused(x, scale, device="cpu")[0] for scale in (1.0, 2.0, 3.0)]
    assert len(calls) == 1 and results[2] == pytest.approx(3 * math.e)
    plans = [fused.plan(x, scale, device="ptx") for scale in (1.0, 2.5)]
    assert (
        plans[0].kernels[0].name == plans[1].kernels[0].name
        and plans[0].kernels[0].source == plans[1].kernels[0].source
    )
    assert len(calls) == 1
    fused(x.astype(np.float16), 1.0, device="cpu")
    fused(x, 1, device="cpu")
    assert len(calls) == 3


def test_fused_repeated_calls_find_their_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their key alone; a number that its kind does not hold is refused there as well."""
    for gpus in simulated(monkeypatch, "h200"):
        x, small = gpus.array(np.ones(16, np.float32)), gpus.array(np.ones(16, np.int8))
        scaled, added = bp.fuse(lambda x, n: bp.exp(x) * n), bp.fuse(lambda x, n: x + n)
        plan_cache.clear()
        for number in (1.5, 2.5, -0.0):
            scaled(x, number)
        added(small, 100)
        assert len(plan_cache.calls) == 2 and plan_cache.info().misses == 2
        with pytest.raises(bp.InvalidProblemError, match=r"300 is outside i8, which holds -128 to 127"):
            added(small, 300)


def test_fused_calls_from_two_threads() -> None:
    fused, x = bp.fuse(lambda x, s: bp.tanh(x) * s + x), np.linspace(-2, 2, 300, dtype=np.float32)
    expected = [fused(x, float(s), device="cpu") for s in range(8)]
    wrong: list[Any] = []
    barrier = threading.Barrier(2)

    def work(first: int) -> None:
        other = bp.fuse(lambda x, s: bp.tanh(x) * s + x)
        barrier.wait()
        for s in range(first, 8, 2):
            for one in (fused, other):
                if not np.array_equal(one(x, float(s), device="cpu"), expected[s]):
                    wrong.append(s)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    assert not wrong


def test_fused_plans_are_values() -> None:
    x = np.ones((4, 8), np.float32)
    fused = bp.fuse(lambda x, y, s: bp.gelu(x) * y + s / 3)
    plan = fused.plan(x, x[0], 0.5, device="ptx")
    assert bp.Plan.from_json(plan.to_json()) == plan == pickle.loads(pickle.dumps(plan))
    assert hash(plan.desc) == hash(fused.of(x, x[0], 0.5)) and plan.desc == fused.of(x, x[0], 0.5)
    assert "gelu" in plan.kernels[0].source and plan.desc.graph in plan.kernels[0].source
    text = str(plan.explain())
    assert "strided" in text and "contiguous" in text and "propagated" in text
    assert plan.verify().outputs[0].share <= 1
    assert bp.fuse(lambda x: fused(x, x, 1.0) + 1).graph(x).outputs == ("t4",)  # inside another one


@pytest.mark.parametrize(
    "graph",
    [
        "", "return x3", "return", "t1 = exp(x1, x1); return t1", "t1 = nothing(x1); return t1", "t2 = exp(x1); return t2",
        "t1 = exp(t1); return t1", "t1 = exp(x1);return t1", "t1 = add(x1, __import__('os')); return t1", "t1 = exp(x1); t1",
        "t1 = cast(x1, f99); return t1", "t1 = add(x1,  x2); return t1", "t1 = softmax(x1); return t1", 3, None,
    ],
)  # fmt: skip
def test_fused_graphs_as_text_are_checked(graph: Any) -> None:
    with pytest.raises(bp.InvalidProblemError, match="graph"):
        bp.FusedPlan.select(bp.FusedDescriptor(graph, ((3,), (3,)), ("f32", "f32")), device="cpu")


def test_fused_guarantee_says_where_there_is_no_bound() -> None:
    x = np.linspace(-2, 2, 9, dtype=np.float32)
    bounded = bp.fuse(lambda x: bp.gelu(bp.exp(x))).plan(x, device="cpu").precision_guarantee
    assert "parts_without_a_bound" not in str(bounded)
    plan = bp.fuse(lambda x, y: bp.copysign(x, bp.exp(y) - 1)).plan(x, x, device="cpu")
    assert "parts_without_a_bound" in str(plan.precision_guarantee)
    assert "copysign takes what is rounded" in plan.precision_guarantee.bound.source
    assert plan.measured()["parts_without_a_bound"](x1=x, x2=x).any()


def samples_of(name: str) -> list[Array]:
    """Halves, or i32 where a row takes no floats: as many as it has arguments."""
    rng, row = np.random.default_rng(3), ROWS[name]
    whole = rng.integers(-9, 9, (len(row.arguments), 3, 35)).astype(np.int32)
    return [x.astype(np.float16) / 4 if bp.F32 in row.domain else x for x in whole]


def of_own_kind(row: Row, argument: str, x: Any, middle: float) -> Any:
    """What a row is given for an argument: x, or a bool or integers made of it."""
    if argument in row.integers:
        return bp.cast(x * 4, bp.I16)
    return x > middle if argument in row.mask else x


@pytest.mark.parametrize("name", [name for name in all_ops() if name in ROWS and name != "cast"])
def test_fused_takes_every_row(name: str) -> None:
    """On what is rounded before: the row's own errors and those that it carries are within the bound."""
    row, arrays = ROWS[name], samples_of(name)

    def function(*inputs: Any) -> Any:
        given = [of_own_kind(row, argument, x * 3 + 1, 1) for x, argument in zip(inputs, row.arguments)]
        return getattr(bp, name)(*(bp.abs(x) + 1 if name in ("log", "sqrt", "rsqrt", "pow") else x for x in given))

    plan = bp.fuse(function).plan(*arrays, device="ptx")
    plan.verify(**{f"x{i + 1}": x for i, x in enumerate(arrays)})
    assert f"struct Of_{name} " in plan.kernels[0].source


X = np.ones((2, 3), np.float32)
REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "branch": (lambda x: x if x > 0 else -x, "decides a branch"),
    "chain": (lambda x: bp.where(0 < x < 1, x, 0), "decides a branch"),
    "item": (lambda x: x[0], "an item of it is read"),
    "length": (lambda x: x * len(x), "its length is asked for"),
    "loop": (lambda x: sum(y for y in x), "it is iterated over"),
    "number": (lambda x: x * float(x), "its value is asked for"),
    "shape": (lambda x: x.reshape(3, 2), "asked for: reshape"),
    "numpy": (lambda x: np.exp(x), r"numpy\.exp"),
    "captured": (lambda x: x * X, "numpy.ndarray that is no argument"),
    "reduction": (lambda x: x - bp.cumsum(x, axis=-1), "cumsum is no function of elements"),
    "statistic": (lambda x: x - bp.sum(x), "has lost the axes it reduced"),
    "matmul": (lambda x: bp.matmul(x, x), "matmul is no function of elements"),
    "operator": (lambda x: x @ x, "multiplied as a matrix"),
    "softmax": (lambda x: bp.softmax(x), "softmax is no function of elements"),
    "gradient": (lambda x: bp.multiply_backward(x, x, x), "no function of elements"),
    "out": (lambda x: bp.exp(x, out=X), "is given out="),
    "device": (lambda x: bp.exp(x, device="cpu"), "is given out=, stream=, pref= or device="),
    "bools": (lambda x: (x > 0) * x, "bool is not supported"),
    "mask": (lambda x: bp.where(x, x, 0), "must hold bools, got f32"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_fused_refuses_with_the_line(case: str) -> None:
    function, said = REFUSED[case]
    with pytest.raises(bp.BaracudaError, match=said) as caught:
        bp.fuse(function)(X, device="cpu")
    line = function.__code__.co_firstlineno
    assert f"fused_test.py:{line}" in str(caught.value) and caught.value.fix


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: bp.fuse(3), "expected a function"),
        (lambda: bp.fuse(lambda x: 2)(X), "returns a int"),
        (lambda: bp.fuse(lambda x: (x, x * 2)).plan(X, out=X), "entries"),
        (lambda: bp.fuse(lambda x: (x, x > 0))(X), "one kernel writes one kind"),
        (lambda: bp.fuse(lambda x, y: (x + y, x * 2))(X[0], X), "one kernel writes results of one shape"),
        (lambda: bp.fuse(lambda x, y: x)(X, X), "does not use x2"),
        (lambda: bp.fuse(lambda x, s: s * 2)(X, 2.0), "does not use x1"),
        (lambda: bp.fuse(lambda x: x)(3.0), "given no array"),
        (lambda: bp.fuse(lambda x: x)(), "missing a required argument"),
        (lambda: bp.fuse(lambda x, *, y: x)(X, y=X), "parameters by name alone"),
        (lambda: bp.fuse(lambda x: x)(X.astype(np.complex64)), "complex64"),
        (lambda: bp.fuse(lambda x, y: x * y)(X, X[:, :2]), "do not broadcast"),
        (lambda: bp.fuse(lambda x: x * 2)(X, out=np.zeros((2, 3))), "the result is f32 and out holds f64"),
        (lambda: bp.fuse(lambda x: x * 2)(X, out=np.zeros((3, 2), np.float32)), "out must have shape"),
        (lambda: bp.fuse(lambda x: (x, x * 2))(X, out=X), "returns 2 results and out has 1"),
        (lambda: bp.fuse(lambda i, x: bp.where(i > 3, x, 0))(X.astype(np.int64), X), "64-bit integers"),
        (lambda: bp.fuse(lambda *x: x[0])(*[X] * 17), "pass 16 at most"),
    ],
)
def test_fused_refuses_calls(call: Callable[[], Any], said: str) -> None:
    with bp.device("cpu"), pytest.raises(bp.BaracudaError, match=said):
        call()


def test_fused_takes_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.linspace(-1, 1, 12)
    fused = bp.fuse(lambda x, s: bp.exp(x) * s)
    got = fused(x, 2.0, device="ptx")
    assert torch.allclose(torch.as_tensor(got), x.exp() * 2)
    assert torch.equal(got, fused(x.clone().requires_grad_(), 2.0, device="ptx").detach())


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_fused_casts_round_once(device: str) -> None:
    """A double just above the middle of two neighbours of 16 bits, which f32 takes for the middle."""
    for kind, digits in ((bp.F16, 11), (bp.BF16, 8)):
        x = np.array([1 + 2.0**-digits + 2.0**-30, -1 - 2.0**-digits - 2.0**-30, 1 + 2.0**-digits])
        got = bp.fuse(lambda x, kind=kind: bp.cast(x, kind))(x, device=device)
        assert got.astype(float).tolist() == [1 + 2.0 ** (1 - digits), -1 - 2.0 ** (1 - digits), 1.0]


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_fused_functions_run_on_the_device_of_the_process(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_DEVICE", device)
    process.forget()
    try:
        x = np.linspace(-1, 1, 7, dtype=np.float32)
        np.testing.assert_allclose(bp.fuse(lambda x: bp.exp(x) + 1)(x), np.exp(x) + 1, rtol=1e-6)
    finally:
        monkeypatch.undo()
        process.forget()
