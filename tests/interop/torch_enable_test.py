"""Unchanged torch modules on this library's kernels: in a block, installed, compiled, and what is passed on to torch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import baracuda_py as bp

torch = pytest.importorskip("torch")
dynamo = pytest.importorskip("torch._dynamo")

import torch.nn.functional as F  # noqa: E402

from baracuda_py.interop.torch import enable, install  # noqa: E402

NAMES = ("rms_norm", "layer_norm", "softmax", "silu", "linear", "matmul", "attention")
HOW: dict[str, Callable[..., Any]] = {"enable": enable, "install": install}


class Block(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """A block that calls each of NAMES once."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(16, eps=1e-6)
        self.project = torch.nn.Linear(16, 48)
        self.last = torch.nn.LayerNorm(16)

    def forward(self, x: Any) -> Any:
        parts = self.project(self.norm(x)).reshape(*x.shape[:2], 3, 4, 4)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        return torch.softmax(F.silu(self.last(y + x)) @ self.project.weight.T, -1)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    dynamo.reset()
    yield
    dynamo.reset()


def gradients(model: Any, x: Any) -> tuple[Any, list[Any]]:
    model.zero_grad()
    out = model(x)
    out.square().sum().backward()
    return out.detach(), [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("how", HOW)
def test_enable_serves_a_block_and_its_gradients(how: str) -> None:
    model, x = Block(), torch.randn(2, 5, 16)
    want, grads = gradients(model, x)
    with bp.device("cpu"), HOW[how](*NAMES) as on:
        got, own = gradients(model, x)
    assert on.report.served == dict.fromkeys(NAMES, 1)
    assert not on.report.passed
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    for a, b in zip(own, grads):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    with bp.device("cpu"):
        assert torch.equal(model(x), want), "torch's own kernels are back"
    assert on.report.served == dict.fromkeys(NAMES, 1)


@pytest.mark.parametrize("how", HOW)
def test_enable_is_traced_with_a_dynamic_batch(how: str) -> None:
    model = Block()
    with bp.device("cpu"), HOW[how](*NAMES) as on, torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        for batch in (2, 3, 5):
            x = torch.randn(batch, 5, 16)
            assert torch.equal(compiled(x), model(x))
    assert set(on.report.traced) == set(NAMES)
    assert not on.report.passed


CALLS: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "dropout": ("attention", "dropout_p", lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=1e-9)),
    "inplace": ("silu", "inplace", lambda x: F.silu(x.clone(), inplace=True)),
    "tanh": ("gelu", "approximate='tanh'", lambda x: F.gelu(x, approximate="tanh")),
    "dtype": ("softmax", "torch.int64", lambda x: torch.softmax(x.long(), -1, dtype=torch.float32)),
    "out": ("matmul", "out", lambda x: torch.matmul(x, x.mT, out=torch.empty(2, 3, 3))),
    "scalar": ("log_softmax", "without axes", lambda x: torch.log_softmax(x[0, 0, 0], 0)),
    "eps": ("rms_norm", "eps=None", lambda x: F.rms_norm(x.bfloat16(), (4,))),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("call", CALLS)
def test_enable_passes_on_what_it_cannot_serve(how: str, call: str) -> None:
    name, reason, function = CALLS[call]
    x = torch.randn(2, 3, 4)
    want = function(x)
    with bp.device("cpu"), HOW[how](name) as on:
        got = function(x)
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    if call in ("inplace", "out") and how == "install":
        return  # torch has other operators for these, which are not overridden
    (seen,) = on.report.passed
    assert seen[0] == name
    assert reason in seen[1]
    assert reason in str(on)


@pytest.mark.parametrize("how", HOW)
def test_enable_says_why_the_host_is_not_served(how: str) -> None:
    model, x = Block(), torch.randn(2, 5, 16)
    want = model(x)
    with HOW[how](*NAMES) as on:
        assert torch.equal(model(x), want)
    assert {name for name, _ in on.report.passed} == set(NAMES)
    assert all("bp.device" in reason and n == 1 for (_, reason), n in on.report.passed.items())
    assert not on.report.served


def test_enable_attention_matches_torch() -> None:
    q, k, v = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)
    mask = torch.rand(2, 1, 3, 6) > 0.3
    mask[..., 0] = True
    cases: list[tuple[Any, dict[str, Any]]] = [
        ((q, k, v), {"enable_gqa": True}),
        ((q, k, v), {"enable_gqa": True, "is_causal": True}),  # query 0 sees key 0 alone
        ((q, k, v), {"enable_gqa": True, "attn_mask": mask, "scale": 0.3}),
        ((q[:, :2], k, v), {"attn_mask": torch.randn(3, 6)}),
        ((q[0], k[0].repeat(2, 1, 1), v[0].repeat(2, 1, 1)), {"is_causal": True}),
    ]
    for operands, options in cases:
        want = F.scaled_dot_product_attention(*operands, **options)
        with bp.device("cpu"), enable("attention") as on:
            got = F.scaled_dot_product_attention(*operands, **options)
        assert on.report.served == {"attention": 1}, on.report
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_enable_holds_in_its_own_thread_alone() -> None:
    x, seen = torch.randn(3, 4), list[Any]()
    on = enable("softmax")

    def other() -> None:
        torch.softmax(x, -1)
        seen.append(on.report.served)
        with on, bp.device("cpu"):
            torch.softmax(x, -1)

    with bp.device("cpu"), on, on:  # entered twice, a call counts once
        torch.softmax(x, -1)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == [{"softmax": 1}]
    assert on.report.served == {"softmax": 2}


def test_enable_leaves_autocast_to_torch() -> None:
    x = torch.randn(3, 4, dtype=torch.bfloat16)
    with bp.device("cpu"), enable("softmax", "linear") as on, torch.autocast("cpu", torch.bfloat16):
        torch.softmax(x, -1)
        assert F.linear(torch.randn(2, 4), torch.randn(3, 4)).dtype == torch.bfloat16
    assert on.report.served == {"linear": 1}
    assert [name for name, _ in on.report.passed] == ["softmax"]


def test_enable_refuses_unknown_names() -> None:
    for name, said in (("relu6", "name some of rms_norm"), ("silu_mul", "interop.transformers.swap")):
        with pytest.raises(bp.InvalidProblemError, match=said):
            enable(name)
    with pytest.raises(bp.InvalidProblemError, match="no name was given"):
        install()


def test_install_names_a_torch_without_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.library, "get_kernel")
    said = r"torch \d.*has no torch.library.get_kernel.*\n?.*context manager"
    with pytest.raises(bp.UnsupportedError, match=said):
        install("softmax")


def test_install_is_removed_once() -> None:
    x = torch.randn(3, 4)
    on = install("softmax")
    with bp.device("cpu"):
        torch.softmax(x, -1)
        with pytest.raises(bp.InvalidProblemError, match="'softmax' is installed already"):
            install("gelu", "softmax")
        on.remove()
        on.remove()
        torch.softmax(x, -1)
    assert on.report.served == {"softmax": 1}
    assert "removed" in repr(on)
    install("gelu", "softmax").remove()
