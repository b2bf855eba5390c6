"""Nothing but a BaracudaError comes out, whatever goes in: descriptors, preferences, devices and operands that make no sense.

Every case starts from a problem that makes sense and spoils some of it. What is refused writes nothing; `can_implement`, `repr`
and `explain` raise nothing. ``--all`` runs more cases.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import pickle
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.call.operands import key
from baracuda_py.ops.elementwise._row import ROWS
from baracuda_py.plan import Op, Plan, get_op, list_ops
from baracuda_py.plan.descriptor import Descriptor
from baracuda_py.tensor.axes import span
from baracuda_py.types import BaracudaError, ElementKind, PlanPreference

from ..gauntlet import Problem

CASES, MANY = 6000, 60000
FEWEST = 200  # cases of a family, however many families there are
PART = 20  # the bounded suite draws one case in so many
PACKAGE = Path(bp.__file__).parent
UNARY, BINARY = tuple(bp.UnaryKind), tuple(bp.BinaryKind)  # of the library itself: other tests add some of their own

DEVICES: tuple[Any, ...] = (
    "cpu", "h200", "h100", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103", "sm_120",
    "sm_121", "NVIDIA H200", "compute_80", "80", "gpu", "", "sm_999", b"cpu", 0, -1, 99, True, 1.5, None, [], {},
    np.int64(0), object(), bp.DeviceSpec.named("h200"),
)  # fmt: skip
USUAL = ("cpu", "cpu", "cpu", "h200", "sm_80", "sm_120")


class Hostile:
    """An object whose every answer is an error."""

    def _refuse(self, *_: object) -> Any:
        raise RuntimeError("hostile")

    __index__ = __float__ = __int__ = __len__ = __getitem__ = __iter__ = __hash__ = __eq__ = __repr__ = __str__ = (
        _refuse  # type: ignore[assignment]
    )


class HostileArray:
    """An array by its attributes, none of which can be read."""

    shape = property(Hostile._refuse)
    dtype = property(Hostile._refuse)
    __cuda_array_interface__ = property(Hostile._refuse)
    __array_interface__ = property(Hostile._refuse)

    def __dlpack_device__(self) -> tuple[int, int]:
        raise RuntimeError("hostile")

    def __dlpack__(self, **_: object) -> Any:
        raise RuntimeError("hostile")


def weird(rng: random.Random) -> Any:
    """A value of a sort that no field is of, or at the edge of what fields take."""
    return rng.choice((
        lambda: None, lambda: True, lambda: 0, lambda: -1, lambda: 1, lambda: 3, lambda: 7, lambda: 12, lambda: 2**31,
        lambda: 2**32, lambda: 2**62, lambda: 2**63 - 1, lambda: 2**63, lambda: -(2**63), lambda: 10**400, lambda: 10**5000,
        lambda: 1.5, lambda: float("nan"), lambda: float("inf"), lambda: 1j, lambda: "8", lambda: "", lambda: "rellu",
        lambda: "f32", lambda: "\0", lambda: b"ab", lambda: bytearray(2), lambda: np.int64(8), lambda: np.uint64(2**63),
        lambda: np.float32(2), lambda: np.bool_(True), lambda: np.array(3), lambda: np.array([1, 2]), lambda: np.array([1.5]),
        lambda: np.array([None, 1]), list, lambda: [1, 2], lambda: (1,), lambda: (2.0, 3), lambda: ("4", 5), lambda: (-1,),
        lambda: (0, 4), lambda: (2**62, 2**62), lambda: (2**63,), lambda: (1,) * 40, lambda: (1,) * 1000, lambda: (None, 2),
        lambda: ((1, 2), (3, 4)), lambda: {1, 2}, dict, lambda: {"a": 1}, lambda: iter((1, 2)), count, lambda: range(3),
        lambda: slice(1, 2), object, lambda: int, lambda: np.dtype("f4"), lambda: np.dtype(">f4"), lambda: np.dtype("i4,f4"),
        lambda: bp.F32, lambda: bp.S4, lambda: bp.BIN, lambda: bp.COMPLEX64, lambda: Decimal("2"), lambda: Fraction(3, 1),
        Hostile, lambda: [Hostile()], HostileArray, lambda: Ellipsis, lambda: print,
    ))()  # fmt: skip


KINDS = ("f32", "bf16", "f16", "f64", "i32", "u8", "i64", "fp8_e4m3", "s4", "bool", "complex64", np.float32, bp.BF16)


def _shape(rng: random.Random, rank: int) -> tuple[int, ...]:
    return tuple(rng.choice((0, 1, 1, 2, 3, 4, 8, 16, 33)) for _ in range(rank))


def _strides(rng: random.Random, rank: int) -> Any:
    return rng.choice((None, None, tuple(rng.choice((-3, -1, 0, 1, 2, 40, 2**40)) for _ in range(rank))))


def _aligned(rng: random.Random) -> Any:
    return rng.choice((None, None, 16, 8, 4, 2, 1, 32))


def _unary(rng: random.Random) -> dict[str, Any]:
    shape, kind = _shape(rng, rng.randrange(4)), rng.choice(UNARY)
    taken = [k for k in KINDS[:8] if ElementKind.of(k) in ROWS[kind.value].domain]  # most functions take floats alone
    return {"kind": kind, "shape": shape, "element": rng.choice(rng.choice((taken or KINDS, taken or KINDS, KINDS[:8]))),
            "x_strides": _strides(rng, len(shape)), "x_align": _aligned(rng), "out_align": _aligned(rng)}  # fmt: skip


def _binary(rng: random.Random) -> dict[str, Any]:
    shape = _shape(rng, rng.randrange(4))
    other = rng.choice((shape, shape[1:], (1,) * len(shape)))
    element = rng.choice(KINDS[:8])
    return {"kind": rng.choice(BINARY), "x1_shape": shape, "x2_shape": other, "x1_element": element,
            "x2_element": element, "x1_strides": _strides(rng, len(shape)), "x2_align": _aligned(rng)}  # fmt: skip


def _ternary(rng: random.Random) -> dict[str, Any]:
    shape, kind = _shape(rng, rng.randrange(4)), rng.choice(list(bp.TernaryKind))
    others = [rng.choice((shape, shape[1:], None)) for _ in range(2)]
    element = rng.choice(KINDS[:8])
    return {"kind": kind, "x1_shape": shape, "x2_shape": others[0], "x3_shape": others[1],
            "x1_element": "bool" if kind is bp.TernaryKind.WHERE else element, "x2_element": element, "x3_element": element,
            "x2_strides": _strides(rng, len(shape)), "x3_align": _aligned(rng)}  # fmt: skip


def _contiguize(rng: random.Random) -> dict[str, Any]:
    shape = _shape(rng, rng.randrange(5))
    return {
        "shape": shape,
        "element": rng.choice(KINDS),
        "x_strides": _strides(rng, len(shape)),
        "x_align": _aligned(rng),
    }


def _write_slice(rng: random.Random) -> dict[str, Any]:
    shape = _shape(rng, rng.randrange(1, 4))
    ranges = [sorted((rng.randint(0, n), rng.randint(0, n))) for n in shape]
    return {"dest_shape": shape, "ranges": ranges, "element": rng.choice(KINDS), "dest_strides": _strides(rng, len(shape)),
            "dest_align": _aligned(rng), "dynamic_axis": rng.choice((None, None, 0))}  # fmt: skip


def _kv_append(rng: random.Random) -> dict[str, Any]:
    shape = _shape(rng, 4)
    return {"cache_shape": shape, "tokens": rng.choice((0, 1, 2)), "element": rng.choice(KINDS),
            "cache_layout": rng.choice(("BHSD", "bshd")), "positions_element": rng.choice(("i32", "i64"))}  # fmt: skip


def _matmul(rng: random.Random) -> dict[str, Any]:
    (m, n, k), batch = _shape(rng, 3), _shape(rng, rng.choice((0, 0, 1, 2)))
    element = rng.choice(KINDS[:4])
    given: dict[str, Any] = {"a_shape": (*batch, m, k), "b_shape": (k, n), "a_element": element, "b_element": element,
                             "a_align": _aligned(rng), "activation": rng.choice(("identity", "gelu"))}  # fmt: skip
    if rng.random() < 0.3:
        given |= {"bias_shape": (n,), "bias_element": element, "alpha": 0.5}
    return given


def _of_samples(kind: type[Plan[Any]]) -> Callable[[random.Random], dict[str, Any]]:
    """Fields of the family's samples, where it has no generator above."""

    @cache
    def known() -> list[dict[str, Any]]:
        ops = [op for op in map(get_op, list_ops()) if op.plan is kind]
        of_ops = [(op, list(islice(op.samples(op.fixed), 3 + 60 // len(ops)))) for op in ops]
        some = [(op, sample) for op, samples in of_ops for sample in samples[3:] or samples]
        described = [Problem(op, sample, "cpu").desc.to_dict() for op, sample in some]
        return [
            {n: x for n, x in fields.items() if x != str(math.inf)} for fields in described
        ]  # no default in plain JSON

    return lambda rng: dict(rng.choice(known()))


OWN = {
    bp.UnaryPlan: _unary, bp.BinaryPlan: _binary, bp.ContiguizePlan: _contiguize, bp.WriteSlicePlan: _write_slice,
    bp.KvAppendPlan: _kv_append, bp.MatmulPlan: _matmul, bp.TernaryPlan: _ternary,
}  # fmt: skip
KINDS_OF_PLANS = dict.fromkeys(get_op(name).plan for name in list_ops())
FAMILIES: dict[str, tuple[type[Plan[Any]], Callable[[random.Random], dict[str, Any]]]] = {
    kind.__name__.removesuffix("Plan"): (kind, OWN.get(kind) or _of_samples(kind)) for kind in KINDS_OF_PLANS
}


class Outcome:
    """What came of the cases: how many were taken or refused, and what was raised that ought not to be."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.raw: Counter[tuple[str, str]] = Counter()
        self.first: dict[tuple[str, str], str] = {}

    @contextlib.contextmanager
    def typed(self, what: str, *, never: bool = False) -> Iterator[None]:
        """Only a BaracudaError leaves the block; with `never`, not even that."""
        try:
            yield
        except BaracudaError as error:
            self.counts["refused"] += 1
            if never:
                self._note(error, f"{what} raised")
        except Exception as error:
            self._note(error, what)

    def _note(self, error: Exception, what: str) -> None:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if str(PACKAGE) in f.filename]
        where = str(Path(frames[-1].filename).relative_to(PACKAGE)) if frames else "outside"
        place = where, type(error).__name__
        self.raw[place] += 1
        line = f"{where}:{frames[-1].lineno}" if frames else where
        self.first.setdefault(place, f"{line} {type(error).__name__}: {str(error)[:300]} [{what}]")

    def check(self, *, refused: int) -> None:
        report = "\n".join(f"{n} x {self.first[place]}" for place, n in self.raw.most_common())
        assert not self.raw, f"{sum(self.raw.values())} of {self.counts} let another exception out:\n{report}"
        assert self.counts["refused"] >= refused, "too little is refused for this to be a test"


def _preference(rng: random.Random, outcome: Outcome) -> Any:
    """None, or a preference with odd values, or something that is none."""
    roll = rng.random()
    if roll < 0.5:
        return None
    if roll < 0.6:
        return weird(rng)
    usual = {"backend": ("bespoke", "cublas", None), "variant": ("tc", "simt", "strided", None), "math": ("f32", "tf32"),
             "deterministic": (True, False), "max_workspace_bytes": (0, 1024, None)}  # fmt: skip
    named = rng.choice([f.name for f in fields(PlanPreference)])
    value = weird(rng) if rng.random() < 0.5 else rng.choice(usual.get(named, (True, False)))
    with outcome.typed(f"PlanPreference({named}=...)"):
        return PlanPreference(**{named: value})
    return None


def _spoilt(rng: random.Random, given: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return given | {rng.choice(names): weird(rng) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))}


def _said(plan: Plan[Any], outcome: Outcome, rng: random.Random) -> None:
    """Everything a plan says of itself."""
    with outcome.typed("repr", never=True):
        assert repr(plan) and repr(plan.desc) and hash(plan) == hash(plan) and plan._repr_html_()
    if rng.random() < 0.3:
        with outcome.typed("explain", never=True):
            assert repr(plan.explain()) and plan.explain()._repr_html_()
        with outcome.typed("to_json", never=True):
            assert Plan.from_json(plan.to_json()) == plan == pickle.loads(pickle.dumps(plan))


@pytest.mark.parametrize("family", FAMILIES)
def test_descriptors(family: str, everything: bool, bounded: bool) -> None:
    """Fields of any sort, on any device, with any preference."""
    kind, base = FAMILIES[family]
    rng, outcome = random.Random(family), Outcome()
    names = [f.name for f in fields(kind.descriptor)]
    part = PART if bounded else 1
    for _ in range(max((MANY if everything else CASES) // (2 * len(FAMILIES)), FEWEST) // part):
        given = _spoilt(rng, base(rng), names)
        desc = plan = None
        with outcome.typed(f"{kind.descriptor.__name__}(...)"):
            desc = kind.descriptor(**given)
            assert repr(desc) and hash(desc) == hash(desc)
        if desc is None:
            continue
        device = rng.choice(DEVICES) if rng.random() < 0.2 else rng.choice(USUAL)
        pref = _preference(rng, outcome)
        with outcome.typed(f"{desc!r}"):
            plan = kind.select(desc, pref, device=device)
            plan.selection.steps  # noqa: B018
        if plan is not None:
            outcome.counts["taken"] += 1
            _said(plan, outcome, rng)
            operands = {n: _operand(rng) for n in plan.selection.names if rng.random() < 0.9}
            with outcome.typed("can_implement", never=True):
                bool(
                    plan.can_implement(
                        **operands, **{n: weird(rng) for n in type(desc).values if n not in plan.selection.names}
                    )
                )
    outcome.check(refused=20 // part)
    assert outcome.counts["taken"] >= 10 // part


# ---- operands --------------------------------------------------------------------------------------------------------

DTYPES = tuple("?bBhHiIlLqQefdgFDGSUVOMm") + (">f4", "i4,f4", "bfloat16", "float8_e4m3fn", "int4")
GUARD = 64


def _array(rng: random.Random, shape: tuple[int, ...] | None = None, dtype: Any = None) -> Any:
    """An array of any dtype and strides, inside guard bytes that its base holds."""
    import ml_dtypes

    dtype = rng.choice(DTYPES) if dtype is None else dtype
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype) if isinstance(dtype, str) else dtype)
    shape = _shape(rng, rng.randrange(4)) if shape is None else shape
    if dtype.hasobject or not dtype.itemsize:
        return np.full(shape, None if dtype.hasobject else "")
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.arange(2 * GUARD + 2 * size + 8, dtype=np.uint8) % 3
    start = GUARD + rng.choice((0, 0, 0, 1, 2, 4))
    flat = memory[start : start + size].view(dtype) if size else np.empty(0, dtype)
    x = flat.reshape(shape)
    view = rng.random()
    if view < 0.1 and x.ndim:
        x = x[::-1]
    elif view < 0.2:
        x = x.T
    elif view < 0.3 and x.ndim:
        x = x[..., ::2]
    elif view < 0.4:
        x = np.broadcast_to(x, (2, *x.shape))
    elif view < 0.5:
        x.flags.writeable = False
    return x


def _operand(rng: random.Random) -> Any:
    """An array, or anything that might be mistaken for one."""
    roll = rng.random()
    if roll < 0.6:
        return _array(rng)
    if roll < 0.75:
        return weird(rng)
    return rng.choice((
        lambda: np.ma.masked_array([1.0, 2.0], [True, False]), lambda: np.float32(2), list,
        lambda: [1.0, 2.0], lambda: [[1], [2, 3]], lambda: memoryview(bytearray(8)), lambda: np.rec.array([(1, 2.0)]),
        lambda: np.empty((2, 0, 3)), lambda: np.array("text"), HostileArray, lambda: np.zeros((1,) * 33, np.float32),
        lambda: bp.GpuBuffer.view(np.zeros(8, np.uint8), "s4"),
        lambda: np.lib.stride_tricks.as_strided(np.ones(4), (4, 4), (0, 8)),
    ))()  # fmt: skip


def _memory(x: Any) -> Any:
    """The allocation that an array is in."""
    while isinstance(getattr(x, "base", None), np.ndarray):
        x = x.base
    return x


def _touched(x: Any) -> Any:
    """Which bytes of its allocation an array covers."""
    memory = _memory(x)
    covered = np.zeros(memory.nbytes, bool)
    if not x.size:
        return covered
    offset = x.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    np.ndarray((*x.shape, x.itemsize), bool, covered, offset, (*x.strides, 1))[...] = True
    return covered


class Images:
    """The bytes of every array among the operands, guard bytes included, as they were."""

    def __init__(self, operands: dict[str, Any]) -> None:
        self.arrays = {n: x for n, x in operands.items() if isinstance(x, np.ndarray) and not x.dtype.hasobject}
        self.before = {n: _memory(x).tobytes() for n, x in self.arrays.items()}

    def check(self, what: str, written: Sequence[str] = ()) -> None:
        """Nothing but what is written has changed."""
        allowed: dict[int, Any] = {}
        for name in (n for n in written if n in self.arrays):
            x = self.arrays[name]
            allowed[id(_memory(x))] = _touched(x) | allowed.get(id(_memory(x)), False)
        for name, x in self.arrays.items():
            memory = _memory(x)
            differs = np.frombuffer(memory.tobytes(), np.uint8) != np.frombuffer(self.before[name], np.uint8)
            assert not (differs & ~allowed.get(id(memory), np.zeros(1, bool))).any(), f"{what} wrote at or about {name}"


def _laid(rng: random.Random, layout: Any) -> Any:
    """An array of the layout, inside guard bytes."""
    size = layout.element.dtype.itemsize
    strides = [s * size for s in layout.strides]
    low, high = span(layout.shape, layout.strides, layout.element)
    if layout.element.packed or high - low > 1 << 20:
        return _array(rng, layout.shape, layout.element.dtype)
    memory = np.arange(high - low + 2 * GUARD + 16, dtype=np.uint8) % 3 % 2
    offset = GUARD - low
    offset += -(memory.__array_interface__["data"][0] + offset) % 16
    return np.ndarray(layout.shape, layout.element.dtype, memory, offset, strides)


def _good(rng: random.Random, plan: Plan[Any]) -> dict[str, Any]:
    """Operands that the plan takes, most of the time, however many there are."""
    layouts = {o.name: plan.selection.canonical.layout(o.name) for o in plan.operands}
    return {
        n: _array(rng, x.shape, x.element.dtype) if rng.random() < 0.4 / len(layouts) else _laid(rng, x)
        for n, x in layouts.items()
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_operands(family: str, everything: bool, bounded: bool) -> None:
    """Operands of any sort to a plan for the host: what is refused writes nothing."""
    kind, base = FAMILIES[family]
    rng, outcome = random.Random(family), Outcome()
    part = PART if bounded else 1
    reads_values = kind.descriptor.refuse_values is not Descriptor.refuse_values  # which `can_implement` does not
    for _ in range(max((MANY if everything else CASES) // (4 * len(FAMILIES)), FEWEST) // part):
        plan = None
        given = base(rng)
        with outcome.typed(f"{given}"):
            plan = kind.select(kind.descriptor(**given), device=rng.choice(("cpu", "cpu", "cpu", "sm_80")))
        if plan is None:
            continue
        operands = _good(rng, plan)
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            operands[rng.choice([*operands, *operands, "no_such_operand"])] = _operand(rng)
        names = [n for n in type(plan.desc).values if n not in operands]
        values = {n: weird(rng) for n in names if rng.random() < 0.4 / max(len(names), 2)}
        images, admitted = Images(operands), False
        with outcome.typed("can_implement", never=True):
            admitted = bool(plan.can_implement(**operands, **values))
        images.check("can_implement")
        for method in ("run", "bind"):
            done = False
            with outcome.typed(f"{method} of {plan.sku}"), np.errstate(all="ignore"):
                result = getattr(plan, method)(**operands, **values)
                done = True
                if method == "bind":
                    result()
            outcome.counts["taken"] += done
            images.check(method, [o.name for o in plan.operands if o.written] if done else ())
            if plan.device.is_host and not outcome.raw:
                same = done == admitted or (admitted and reads_values)
                assert same, f"can_implement said {admitted} and {method} {done} of {plan}"
    outcome.check(refused=20 // part)
    assert outcome.counts["taken"] >= 10 // part


def _required(op: Op) -> list[str]:
    """The arguments that the op's function cannot do without."""
    parameters = inspect.signature(op.function).parameters.values()
    return [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY and p.default is p.empty]


def test_functions(everything: bool, bounded: bool) -> None:
    """Public functions called with anything."""
    rng, outcome = random.Random(3), Outcome()
    ops = list_ops()
    part = PART if bounded else 1
    for _ in range((MANY if everything else CASES) // 4 // part):
        op = get_op(rng.choice(ops))
        same = rng.choice(("f", "f", "d", "e", "bfloat16", "i"))
        operands: dict[str, Any] = {}
        for name in _required(op):
            if name == "ranges":
                operands[name] = rng.choice(([(0, 4), (0, 4)], [slice(None), slice(1, 3)], weird(rng)))
            elif name == "dtype":
                operands[name] = rng.choice(("f32", "bfloat16", weird(rng)))
            else:
                operands[name] = _array(rng, (4, 4), same) if rng.random() < 0.7 else _operand(rng)
        options: dict[str, Any] = {"device": rng.choice(DEVICES) if rng.random() < 0.2 else "cpu"}
        if rng.random() < 0.2:
            options["pref"] = _preference(rng, outcome)
        if rng.random() < 0.1:
            options["stream"] = weird(rng)
        keywords = [p.name for p in inspect.signature(op.function).parameters.values() if p.default is None]
        if "out" in keywords and rng.random() < 0.4:
            options["out"] = _array(rng, (4, 4), same) if rng.random() < 0.7 else _operand(rng)
        if rng.random() < 0.3:
            options.setdefault(rng.choice([n for n in keywords if n not in ("out", "device")]), weird(rng))
        images, done = Images(operands | ({"out": options["out"]} if "out" in options else {})), False
        with outcome.typed(f"bp.{op.name}"), np.errstate(all="ignore"):
            op.function(*operands.values(), **options)
            done = True
        outcome.counts["taken"] += done
        written = [o.name for o in op.plan.descriptor.signature_operands if o.role == "inout"]
        images.check(op.name, ("out", *written) if done else ())
    outcome.check(refused=50 // part)
    assert outcome.counts["taken"] >= 20 // part


class _Like:
    """An array as the short path sees CuPy's."""

    shape, strides, dtype, _c_contiguous = (4,), (4,), np.dtype(np.float32), True

    class data:
        ptr, device_id = 1 << 20, 0


@pytest.mark.parametrize(
    "spoilt", [{"pref": {}}, {"device": []}, {"pref": Hostile()}, {"out_dtype": {}}], ids=lambda x: next(iter(x))
)
def test_short_path_leaves_unhashable_options_to_the_long_path(
    monkeypatch: pytest.MonkeyPatch, spoilt: dict[str, Any]
) -> None:
    monkeypatch.setattr(key._known, "cupy", _Like)
    function: Any = bp.matmul if "out_dtype" in spoilt else bp.add
    with pytest.raises(BaracudaError):
        function(_Like(), _Like(), **spoilt)
