"""Packed weights in compiled functions, and functions of the library that are compiled themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import baracuda_py as bp

torch = pytest.importorskip("torch")
dynamo = pytest.importorskip("torch._dynamo")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    dynamo.reset()
    with bp.device("cpu"):
        yield
    dynamo.reset()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, fullgraph=True, backend="aot_eager")  # type: ignore[no-any-return, unused-ignore]


def weight(k: int = 128, n: int = 48) -> Any:
    return torch.randn(k, n).half()


CALLS: dict[str, Callable[[], tuple[Callable[..., Any], Any]]] = {
    "int4": lambda: (bp.matmul_int4, bp.pack_int4(weight(), group_size=64, symmetric=False)),
    "gptq": lambda: (bp.matmul_int4, bp.pack_int4(weight(), group_size=32, symmetric=False, layout="gptq")),
    "nf4": lambda: (bp.matmul_nf4, bp.pack_nf4(weight(48, 128), block_size=128)),
    "nf4 double": lambda: (bp.matmul_nf4, bp.pack_nf4(weight(48, 128), double_quant=True)),
    "gguf": lambda: (bp.matmul_gguf, bp.PackedGguf(bp.quantize_gguf(weight(48, 128), "Q4_0"), "Q4_0", (48, 128))),
    "dequantize int4": lambda: (lambda x, w: bp.dequantize_int4(w) + x.sum(), bp.pack_int4(weight(), group_size=64)),
    "dequantize nf4": lambda: (lambda x, w: bp.dequantize_nf4(w) + x.sum(), bp.pack_nf4(weight(48, 128))),
}


@pytest.mark.parametrize("call", CALLS)
def test_compile_takes_packed_weights(call: str) -> None:
    function, packed = CALLS[call]()
    passed, held = compiled(lambda x, w: function(x, w)), compiled(lambda x: function(x, packed))
    for rows in (3, 5, 6):
        x = torch.randn(rows, 128).half()
        want = function(x, packed)
        assert torch.equal(passed(x, packed), want)
        assert torch.equal(held(x), want)


def test_compile_takes_three_packed_weights() -> None:
    three = [bp.pack_int4(weight(n=n), group_size=64) for n in (32, 16, 16)]
    x = torch.randn(3, 128).half()
    made = compiled(lambda x: bp.qkv_project_int4(x, *three))(x)
    for got, want in zip(made, bp.qkv_project_int4(x, *three)):
        assert torch.equal(got, want)


FUNCTIONS: dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]] = {
    "matmul": lambda: (bp.matmul, (torch.randn(4, 8), torch.randn(8, 3)), {"activation": "gelu"}),
    "rms_norm": lambda: (bp.rms_norm, (torch.randn(4, 8), torch.rand(8)), {"eps": 1e-6}),
    "softmax": lambda: (bp.softmax, (torch.randn(4, 8),), {"axis": 0}),
    "attention": lambda: (bp.attention, tuple(torch.randn(1, 2, 5, 4) for _ in range(3)), {"return_lse": True}),
    "add": lambda: (bp.add, (torch.randn(4, 8), 2.0), {}),
    "matmul_int4": lambda: (bp.matmul_int4, (torch.randn(2, 128).half(), bp.pack_int4(weight(), group_size=64)), {}),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compile_of_a_function_itself(name: str) -> None:
    function, args, kwargs = FUNCTIONS[name]()
    want = function(*args, **kwargs)
    made = compiled(function)(*args, **kwargs)
    assert type(made) is type(want)
    for got, one in zip(made, want):
        assert torch.equal(got, one)
    again = function(*args, **kwargs)
    assert torch.equal(again[0], want[0]), "the function itself is as it was"


def test_compile_of_a_function_records_gradients() -> None:
    own, other = (torch.randn(8, 3, generator=torch.Generator().manual_seed(2)).requires_grad_() for _ in range(2))
    x = torch.randn(4, 8)
    compiled(bp.matmul)(x, own).square().sum().backward()
    bp.matmul(x, other).square().sum().backward()
    torch.testing.assert_close(own.grad, other.grad)
