"""torch on a GPU: custom ops, compiled functions in every mode, gradients, modules and training, and that no call waits.

python -m pytest -q -m gpu tests/interop/torch_cuda_test.py
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.plan.registry import all_ops

torch = pytest.importorskip("torch")
dynamo = pytest.importorskip("torch._dynamo")

import torch.nn.functional as F  # noqa: E402

from baracuda_py.interop.torch import enable, nn, optim  # noqa: E402
from baracuda_py.interop.torch.library import overload  # noqa: E402
from baracuda_py.interop.torch.schema import signature_of  # noqa: E402

from .tensors import calls_of  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")]
MODES = ("default", "reduce-overhead", "max-autotune")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    torch.manual_seed(0)
    dynamo.reset()
    yield
    dynamo.reset()


def on_gpu(given: dict[str, Any]) -> dict[str, Any]:
    return {n: x.cuda() if isinstance(x, torch.Tensor) else x for n, x in given.items()}


def close(got: Any, want: Any) -> None:
    if got.dtype.itemsize == 1 and got.is_floating_point():
        got, want = got.float(), want.float()
    torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("name", tuple(all_ops()))
def test_torch_cuda_ops_give_what_functions_give(name: str) -> None:
    signature = signature_of(name)
    for call in calls_of(name, 2):
        given = {n: x for n, x in call.items() if n != "out" or n in signature.required}  # of results none is given
        copies = [on_gpu({n: x.clone() if n in signature.written else x for n, x in given.items()}) for _ in range(2)]
        wanted = signature.call(copies[0])
        made = overload(name)(*signature.lowered(copies[1]))
        results = wanted if isinstance(wanted, tuple) else (wanted,)
        fresh = [x for x in results if not any(x is copies[0].get(n) for n in signature.written)]
        made = [] if made is None else made if isinstance(made, list) else [made]
        assert len(made) == len(fresh)
        assert all(x.is_cuda for x in made)
        if name == "nonzero":  # rows behind the count mean nothing
            made, fresh = made[1:], fresh[1:]
        for got, want in zip(made, fresh):
            close(got, want)
        for n in signature.written:
            if given.get(n) is not None:
                close(copies[1][n], copies[0][n])


# ---- compiled ------------------------------------------------------------------------------------------------------------


def weights_of(width: int, heads: int, dtype: Any) -> dict[str, Any]:
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 2 * width), "down": (2 * width, width)}
    made = {n: torch.randn(s, device="cuda", dtype=dtype) / s[0] ** 0.5 for n, s in shapes.items()}
    return {**made, "norm": torch.rand(width, device="cuda", dtype=dtype) + 0.5, "heads": heads}


def decoder(x: Any, w: dict[str, Any]) -> Any:
    """A decoder layer by this library."""
    batch, tokens, width = x.shape
    y = bp.matmul(bp.rms_norm(x, w["norm"]), w["qkv"]).view(batch, tokens, 3, w["heads"], -1)
    q, k = (bp.rope(y[:, :, i], layout="BSHD") for i in range(2))
    y = bp.attention(q, k, y[:, :, 2], causal=True, layout="BSHD").reshape(batch, tokens, width)
    x = bp.matmul(y, w["out"], residual=x)
    return bp.matmul(bp.matmul(bp.rms_norm(x, w["norm"]), w["up"], activation="gelu"), w["down"], residual=x)


@pytest.mark.parametrize("mode", MODES)
def test_torch_cuda_compiled_decoder(mode: str) -> None:
    w = weights_of(128, 4, torch.float16)
    compiled = torch.compile(lambda x: decoder(x, w), fullgraph=True, mode=mode)
    with torch.no_grad():
        for batch in (2, 2, 2, 2, 3, 5, 3):
            x = torch.randn(batch, 33, 128, device="cuda", dtype=torch.float16)
            torch.testing.assert_close(compiled(x).clone(), decoder(x, w), rtol=1e-2, atol=1e-2)
    skips = dynamo.utils.counters["inductor"]["cudagraph_skips"]
    assert skips == 0, "torch left CUDA graphs out"


@pytest.mark.parametrize("mode", MODES[:2])
def test_torch_cuda_compiled_gradients(mode: str) -> None:
    def loss(x: Any, a: Any, b: Any) -> Any:
        return (bp.matmul(bp.matmul(x, a, activation="gelu"), b) ** 2).mean()

    compiled = torch.compile(loss, fullgraph=True, mode=mode)
    for _ in range(4):
        x = torch.randn(33, 64, device="cuda")
        a, b = (torch.randn(s, device="cuda").div_(8).requires_grad_() for s in ((64, 96), (96, 17)))
        compiled(x, a, b).backward()
        own = [p.grad.clone() for p in (a, b)]
        a.grad = b.grad = None
        (F.gelu(x.double() @ a.double()) @ b.double()).square().mean().backward()
        for got, p in zip(own, (a, b)):
            torch.testing.assert_close(got, p.grad, rtol=1e-3, atol=1e-5)


def test_torch_cuda_captures_a_decoder() -> None:
    w, x = weights_of(128, 4, torch.float16), torch.randn(2, 33, 128, device="cuda", dtype=torch.float16)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        for _ in range(2):
            decoder(x, w)
        with torch.cuda.graph(graph):
            made = decoder(x, w)
        for _ in range(3):
            x.copy_(torch.randn_like(x))
            graph.replay()
            torch.testing.assert_close(made, decoder(x, w))


# ---- gradients, modules, training ----------------------------------------------------------------------------------------

GRADIENTS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "matmul": (bp.matmul, torch.matmul, ((65, 33), (33, 129))),
    "softmax": (bp.softmax, lambda x: torch.softmax(x, -1), ((65, 1025),)),
    "log_softmax": (bp.log_softmax, lambda x: torch.log_softmax(x, -1), ((65, 1025),)),
    "rms_norm": (bp.rms_norm, lambda x, w: F.rms_norm(x, w.shape, w, 1e-5), ((65, 1025), (1025,))),
    "layer_norm": (bp.layer_norm, lambda x, w, b: F.layer_norm(x, w.shape, w, b), ((65, 1025), (1025,), (1025,))),
    "attention": (bp.attention, F.scaled_dot_product_attention, ((2, 4, 65, 64),) * 3),
    "gelu": (bp.gelu, F.gelu, ((65, 1025),)),
    "sum": (lambda x: bp.sum(x, 0), lambda x: x.sum(0), ((65, 1025),)),
    "logsumexp": (lambda x: bp.logsumexp(x, -1), lambda x: x.logsumexp(-1), ((65, 1025),)),
    "var": (lambda x: bp.var(x, -1), lambda x: x.var(-1, correction=0), ((65, 1025),)),
    "cumsum": (bp.cumsum, lambda x: x.cumsum(-1), ((65, 1025),)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_torch_cuda_gradients(name: str) -> None:
    ours, theirs, shapes = GRADIENTS[name]
    own = [torch.randn(s, device="cuda").requires_grad_() for s in shapes]
    exact = [x.detach().double().requires_grad_() for x in own]
    for _ in range(2):
        out, want = ours(*own), theirs(*exact)
        grad = torch.randn_like(out)
        got = torch.autograd.grad(out, own, grad)
        for a, b in zip(got, torch.autograd.grad(want, exact, grad.double())):
            torch.testing.assert_close(a.double(), b, rtol=2e-4, atol=2e-4)


LAYERS: dict[str, Callable[[Any], Any]] = {
    "int8": nn.Int8Linear.of,
    "int8 dynamic": lambda x: nn.Int8Linear.of(x, dynamic=True),
    "int4": lambda x: nn.Int4Linear.of(x, group_size=64),
    "nf4": nn.Nf4Linear.of,
    "gguf": lambda x: nn.GgufLinear.of(x, format="Q4_0"),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_torch_cuda_modules(kind: str) -> None:
    source = torch.nn.Linear(256, 96).half().requires_grad_(False)
    with bp.device("cpu"):
        weight = LAYERS[kind](source).dequantize().float()
    layer = LAYERS[kind](source.cuda())
    compiled = torch.compile(layer, fullgraph=True, mode="reduce-overhead")
    for rows in (1, 5, 33, 257):
        x = torch.randn(rows, 256, device="cuda", dtype=torch.float16)
        want = x.float() @ weight.cuda().T + source.bias.cuda()
        for call in (layer, layer, compiled, compiled):
            torch.testing.assert_close(call(x).float(), want, rtol=1e-2, atol=5e-2 if "dynamic" in kind else 2e-2)


def test_torch_cuda_enabled_functions() -> None:
    x, w = torch.randn(33, 512, device="cuda"), torch.rand(512, device="cuda")
    want = torch.softmax(F.rms_norm(x, (512,), w, 1e-5), -1)
    with enable("rms_norm", "softmax"):
        for _ in range(2):
            torch.testing.assert_close(torch.softmax(F.rms_norm(x, (512,), w, 1e-5), -1), want)


def test_torch_cuda_trains_as_torch_does() -> None:
    """Thirty steps of a small model: the same losses as torch's own within f32's error."""
    data, labels = torch.randn(256, 32, device="cuda"), torch.randint(10, (256,), device="cuda")

    def losses(product: Callable[..., Any], log_softmax: Callable[..., Any], norm: Callable[..., Any]) -> Any:
        torch.manual_seed(1)
        w = [torch.randn(s, device="cuda").div_(6).requires_grad_() for s in ((32, 64), (64,), (64, 10))]
        optimizer, seen = torch.optim.AdamW(w, lr=1e-2), []
        for _ in range(30):
            y = log_softmax(product(norm(F.gelu(product(data, w[0])), w[1]), w[2]))
            loss = -y.gather(-1, labels[:, None]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(loss.detach())
        return torch.stack(seen)

    ours = losses(bp.matmul, bp.log_softmax, bp.rms_norm)
    theirs = losses(torch.matmul, lambda x: torch.log_softmax(x, -1), lambda x, w: F.rms_norm(x, w.shape, w, 1e-5))
    assert ours[-1] < ours[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Lion", "LAMB", "LARS"])
def test_torch_cuda_captures_whole_steps(name: str) -> None:
    """torch's recipe: gradients are allocated in the graph, and so are the optimizer's tables of them. Losses as call by call."""
    data, labels = torch.randn(20, 256, 32, device="cuda"), torch.randint(10, (20, 256), device="cuda")
    x, y = torch.zeros_like(data[0]), torch.zeros_like(labels[0])

    def losses(*, graph: bool) -> Any:
        torch.manual_seed(1)
        w = [torch.randn(s, device="cuda").div_(6).requires_grad_() for s in ((32, 64), (64,), (10, 64), (40,))]
        optimizer, loss, seen = getattr(optim, name)(w[:3], lr=1e-3), torch.zeros((), device="cuda"), []

        def step() -> None:
            optimizer.zero_grad()
            hidden = bp.rms_norm(bp.gelu(bp.matmul(x, w[0])), w[1])
            made = bp.linear_cross_entropy(hidden, w[2], y)
            made.backward()
            optimizer.step()
            loss.copy_(made.detach())

        run, side = step, torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for i in range(len(data)):
                x.copy_(data[i])
                y.copy_(labels[i])
                if graph and i == 3:
                    held = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(held, stream=torch.cuda.current_stream()):
                        step()
                    run = held.replay
                run()
                seen.append(loss.clone())
            made = torch.stack(seen), [p.detach().clone() for p in w]
        torch.cuda.synchronize()
        return made

    (captured, parameters), (called, wanted) = losses(graph=True), losses(graph=False)
    assert torch.equal(captured, called)
    assert all(map(torch.equal, parameters, wanted))
    assert captured[-1] < captured[0]


def test_torch_cuda_optimizers_do_not_wait() -> None:
    """Not for gradients at other addresses either."""
    w = [torch.randn(1000, device="cuda").requires_grad_() for _ in range(3)]
    optimizer = optim.AdamW(w)
    grads = [[torch.randn_like(p) for p in w] for _ in range(4)]

    def step(i: int) -> None:
        for p, grad in zip(w, grads[i]):
            p.grad = grad
        optimizer.step()

    step(0)
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)
    end = torch.cuda.Event()
    for i in (1, 2, 1, 3):
        step(i)
    end.record()
    assert not end.query(), "a step waited"
    torch.cuda.synchronize()


def test_torch_cuda_calls_do_not_wait() -> None:
    """A kernel of a tenth of a second is still running when calls, gradients and custom ops after it have returned."""
    w, x = weights_of(128, 4, torch.float16), torch.randn(2, 33, 128, device="cuda", dtype=torch.float16)
    a = torch.randn(64, 64, device="cuda").requires_grad_()

    def calls() -> None:
        with torch.no_grad():
            decoder(x, w)
            overload("gelu")(x)
        bp.matmul(bp.softmax(a), a).sum().backward()

    for _ in range(2):
        calls()
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
        try:
            torch.cuda._sleep(200_000_000)
            end = torch.cuda.Event()
            end.record()
            calls()
            assert not end.query(), "a call waited for the device"
        finally:
            torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
