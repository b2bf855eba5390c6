"""Arguments at the far edge, which foreign code, other files or a slip may pass: each is answered by an error of this library."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.cli.main import main
from baracuda_py.runtime.gpu.driver import device_count


class RaisesOnAttributes:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class RaisesOnEquality:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")


class RaisesOnIndex:
    def __index__(self) -> int:
        raise RuntimeError("read")


class RaisesOnFloat(float):
    def __float__(self) -> float:
        raise RuntimeError("read")


class LiesAboutStrides(np.ndarray):  # type: ignore[type-arg]
    @property
    def strides(self) -> tuple[int, ...]:
        return (1 << 40, 4)


DEVICES = {
    "ints": np.array([1, 2]),
    "names": np.array(["cpu", "ptx"]),
    "one name": np.array(["cpu"]),
    "one int": np.array(0),
    "many axes": np.zeros((1,) * 33),
    "attributes raise": RaisesOnAttributes(),
    "equality raises": RaisesOnEquality(),
    "index raises": RaisesOnIndex(),
    "list": ["cpu"],
}


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_device_odd_objects_are_refused(device: Any) -> None:
    with pytest.raises(bp.UnsupportedError, match="is not an ordinal"):
        bp.neg(np.ones(3, "f4"), device=device)


FRESH = """
import numpy as np, baracuda_py as bp
x = np.ones((2, 3), "f4")
print(bp.{family}Plan.select(bp.{family}Descriptor.of({kind!r}, {arrays}), device="h200").desc.op)
"""


@pytest.mark.parametrize(
    "odd", [np.array([1, 2]), RaisesOnEquality(), "yes", None], ids=["array", "raises", "text", "None"]
)
def test_options_that_ask_for_an_output_are_read_as_any_other(odd: Any) -> None:
    """A function looks at them before there is a descriptor."""
    x, i = np.zeros((3, 4), "f4"), np.zeros(2, "i8")
    for _ in range(2):
        for call in (
            lambda: bp.index_select(x, i, mode=odd, device="cpu"),
            lambda: bp.bincount(i, 3, mode=odd, device="cpu"),
        ):
            with pytest.raises(bp.InvalidProblemError, match="mode"):
                call()
        with pytest.raises(bp.InvalidProblemError, match="return_status must be True or False"):
            bp.cross_entropy(x, np.zeros(3, "i8"), return_status=odd, device="cpu")


def test_an_output_that_was_not_asked_for_says_how_it_is() -> None:
    x, made = np.arange(3), np.zeros((), "i4")
    for call, says in (
        (lambda: bp.bincount(x, 3, status=made, device="cpu"), 'status\': pass mode="status"'),
        (lambda: bp.unique(x, counts=x, device="cpu"), "counts': pass return_counts=True"),
        (lambda: bp.softmax(x.astype("f4"), status=made, device="cpu"), "status"),
    ):
        with pytest.raises(bp.BaracudaError, match=says):
            call()


@pytest.mark.parametrize(
    ("family", "kind", "arrays"),
    [("Binary", "silu_mul", "x, x"), ("Binary", "equal", "x, x"), ("Unary", "cast", "x, dtype='f16'")],
)
def test_descriptor_of_finds_its_row_in_a_fresh_process(family: str, kind: str, arrays: str) -> None:
    made = subprocess.run(
        [sys.executable, "-c", FRESH.format(family=family, kind=kind, arrays=arrays)], capture_output=True, text=True
    )
    assert (made.returncode, made.stdout.strip()) == (0, kind), made.stderr


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_arrays_of_numpys_highest_rank(device: str) -> None:
    shape = (1,) * 62 + (2, 3)
    x = np.arange(6, dtype="f4").reshape(shape)
    np.testing.assert_array_equal(bp.neg(x, device=device), -x)
    np.testing.assert_array_equal(bp.sum(x, axis=-1, device=device).ravel(), [3, 12])
    best = bp.topk(x, 2, device=device)
    np.testing.assert_array_equal(best.values.ravel(), [2, 1, 5, 4])
    np.testing.assert_array_equal(best.indices.ravel(), [2, 1, 2, 1])
    np.testing.assert_array_equal(bp.take_along_axis(x, best.indices, -1, device=device).out, best.values)


def test_numbers_that_cannot_be_read_are_refused() -> None:
    x = np.ones((1, 4, 2, 64), "f2")
    with pytest.raises(bp.OperandTypeError, match="softcap"):
        bp.attention(x, x, x, softcap=RaisesOnFloat(2), device="cpu")
    with pytest.raises(bp.OperandTypeError, match="alpha"):
        bp.matmul(x[0, 0], x[0, 0].T, alpha=RaisesOnFloat(2), device="cpu")


@pytest.mark.parametrize("value", [slice(None), np.array([1]), [1], 10**5000], ids=["slice", "array", "list", "huge"])
def test_names_that_do_not_hash_or_print_are_refused(value: Any) -> None:
    for field in ("style", "weights"):
        with pytest.raises(bp.InvalidProblemError, match=field):
            bp.QkvProjectDescriptor((4, 64), "f16", **{field: value})
    with pytest.raises(bp.BaracudaError):
        bp.MatmulDescriptor((4, 4), (4, 4), "f16", "f16", activation=value)


def test_more_elements_than_an_index_counts_are_refused() -> None:
    many = bp.ReduceDescriptor((1 << 32, 1 << 32, 4), "f32", (0,), x_strides=(0, 0, 0))
    with pytest.raises(bp.InvalidProblemError, match="elements"):
        bp.ReducePlan.select(many, device="h200")


def test_array_subclasses_are_read_as_they_lie() -> None:
    x = np.arange(6, dtype="f4").reshape(2, 3).view(LiesAboutStrides)
    np.testing.assert_array_equal(bp.neg(x, device="cpu"), -np.arange(6, dtype="f4").reshape(2, 3))


def test_compile_refuses_a_negative_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "add", "--limit", "-1"]) == 2
    assert "--limit" in capsys.readouterr().err


@pytest.mark.parametrize("tokens", [{}, {1: 2}, "", "12", {1, 2}, b"12", bytearray(2), frozenset()], ids=repr)
def test_paged_cache_takes_tokens_only_in_an_order(tokens: Any) -> None:
    cache = bp.PagedKVCache(bp.KVCacheSpec(layers=1, kv_heads=1, head_dim=16), pages=4, device="cpu")
    sequence = cache.allocate(1)
    for call in (cache.allocate, lambda given: cache.extend({sequence: given})):
        with pytest.raises(bp.InvalidProblemError, match="give their ids"):
            call(tokens)
    assert cache.allocate(iter([1, 2])).length == cache.allocate(range(2)).length == 2


@pytest.mark.parametrize("eps", [float("nan"), -1.0, float("inf")])
def test_select_refuses_an_eps_that_run_refuses(eps: float) -> None:
    for name in ("rms_norm", "layer_norm"):
        with pytest.raises(bp.InvalidProblemError, match="eps"):
            bp.NormPlan.select(bp.NormDescriptor((4, 8), "f32", name=name, eps=eps), device="h200")


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(bp.BaracudaError) as caught:
        call()
    return str(caught.value)


def test_write_slice_fix_for_a_number_works() -> None:
    dest, window = np.ones((4, 6), np.float32), [(0, 2), slice(1, 3)]
    said = refused(lambda: bp.WriteSliceDescriptor.of(dest, 2.5, window))
    source = eval(said.rpartition("shape: ")[2], {"numpy": np, "dest": dest})
    bp.write_slice(dest, source, window, device="cpu")
    assert (dest[:2, 1:3] == 2.5).all() and dest.sum() == 20 + 4 * 2.5


@pytest.mark.parametrize("source", [np.array(3, "f4"), np.array([3, 4], "f4"), np.array([[3], [4]], "f4")])
def test_write_slice_fix_for_a_smaller_source_works(source: Any) -> None:
    dest, window = np.ones((4, 6), np.float32), [(0, 2), (1, 3)]
    said = refused(lambda: bp.WriteSliceDescriptor.of(dest, source, window))
    expression = said.rpartition("pass ")[2].removesuffix(", which copies nothing")
    bp.write_slice(dest, eval(expression, {"numpy": np, "source": source}), window, device="cpu")
    assert np.array_equal(dest[:2, 1:3], np.broadcast_to(source, (2, 2)))
    other = refused(lambda: bp.write_slice(dest, np.ones(3, "f4"), window, device="cpu"))
    assert "broadcast_to" not in other


@pytest.mark.parametrize("number", [2.0, np.float32(2)])
@pytest.mark.parametrize("op", ["log", "sqrt", "sum"])
def test_fix_for_a_number_alone_works(op: str, number: Any) -> None:
    said = refused(lambda: getattr(bp, op)(number, device="cpu"))
    (wrapped,) = re.findall(r"wrap it with (numpy.asarray\(.*, dtype\))", said)
    assert "are numbers" not in said and "cupy.asarray" not in said
    assert np.isfinite(getattr(bp, op)(eval(wrapped, {"numpy": np, "np": np, "dtype": np.float32}), device="cpu"))


def test_fix_for_an_output_is_no_copy_of_it() -> None:
    """A result that is written to contiguize(out) would not be in out."""
    x, out = np.ones((2, 3), np.float32), np.zeros((2, 6), np.float32)[:, ::2]
    with pytest.raises(bp.InvalidProblemError) as caught:
        bp.roll(x, 1, out=out, device="cpu")
    assert str(caught.value).startswith("roll: out must have strides (3, 1)")
    assert caught.value.fix == "pass out with those strides"


def test_fix_for_another_kind_names_arguments_that_exist() -> None:
    q = np.ones((1, 2, 4, 8), np.float32)
    k = q.astype(np.float16)
    said = refused(lambda: bp.attention(q, k, k, device="cpu"))
    assert said == "attention: k must hold f32, as q does, got f16: cast it to f32"
    said = refused(lambda: bp.softmax(q, out=k, device="cpu"))
    assert "element=" not in said


def test_fix_for_a_run_names_no_device_that_only_selects() -> None:
    if device_count():
        pytest.skip("a GPU is here")
    said = refused(lambda: bp.gelu(np.ones(3), device="sm_90a"))
    assert said.startswith("gelu: running for sm_90a needs a CUDA device") and "explain" not in said
    assert 'device="sm_90a" to select' in refused(lambda: bp.gelu(np.ones(3)))
