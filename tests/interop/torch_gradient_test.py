"""Gradients of eager calls: against central differences, against torch's own operators, and through torch's machinery."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import baracuda_py as bp

torch = pytest.importorskip("torch")

from torch.utils.checkpoint import checkpoint  # noqa: E402

from baracuda_py.plan.registry import all_ops  # noqa: E402

from .tensors import differentiable_calls_of  # noqa: E402

DIFFERENTIABLE = tuple(name for name, op in all_ops().items() if op.gradient is not None)
F = torch.nn.functional


@pytest.fixture(autouse=True)
def on_the_host() -> Iterator[None]:
    torch.manual_seed(0)
    with bp.device("cpu"):
        yield


def leaf(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_of_samples_reaches_every_operand(name: str) -> None:
    op = all_ops()[name]
    assert op.gradient is not None
    function, reached = op.function, set()
    for given in differentiable_calls_of(name, 3):
        own = {n: x.detach().clone().requires_grad_() if _is_float(op, n, x) else x for n, x in given.items()}
        positional = [
            n for n, p in function.__signature__.parameters.items() if p.kind is p.POSITIONAL_ONLY and n in own
        ]
        result = function(*(own[n] for n in positional), **{n: x for n, x in own.items() if n not in positional})
        out = result[0] if isinstance(result, tuple) else result
        out.backward(torch.ones_like(out))
        for n, x in own.items():
            if isinstance(x, torch.Tensor) and x.requires_grad:
                assert x.grad is not None, n
                assert (x.grad.shape, x.grad.dtype) == (x.shape, x.dtype)
                reached.add(n)
    assert reached


def _is_float(op: Any, name: str, x: Any) -> bool:
    return (
        op.arguments.get(name, name) in (*op.gradient.gradients, *op.gradient.unchanged)
        and isinstance(x, torch.Tensor)
        and x.is_floating_point()
    )


CHECKED: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "matmul": (lambda a, b: bp.matmul(a, b, alpha=0.5), ((4, 6), (6, 5))),
    "matmul activation": (
        lambda a, b, bias, c, r: bp.matmul(a, b, bias=bias, c=c, beta=2.0, residual=r, activation="gelu_tanh"),
        ((4, 6), (6, 5), (5,), (4, 5), (4, 1)),
    ),
    "matmul silu": (lambda a, b: bp.matmul(a, b, activation="silu"), ((4, 6), (6, 5))),
    "matmul shared weight": (lambda a, b: bp.matmul(a, b), ((2, 3, 4, 6), (6, 5))),
    "matmul broadcast": (lambda a, b: bp.matmul(a, b), ((2, 1, 4, 6), (3, 6, 5))),
    "matmul vectors": (lambda a, b: bp.matmul(a, b), ((6,), (2, 6, 5))),
    "matmul vector": (lambda a, b: bp.matmul(a, b), ((2, 5, 6), (6,))),
    "join concatenate": (lambda a, b: bp.concatenate([a, b, a], axis=-1), ((3, 2), (3, 1))),
    "join stack": (lambda a, b: bp.stack([a, b], axis=1), ((3, 2), (3, 2))),
    "pad reflect": (lambda x: bp.pad(x, ((0, 1), (2, 5)), "reflect"), ((2, 4),)),
    "softmax": (lambda x: bp.softmax(x, axis=0), ((4, 6),)),
    "sparsemax": (lambda x: bp.sparsemax(x, axis=0), ((4, 6),)),
    "entmax15": (lambda x: bp.entmax15(x), ((4, 6),)),
    "batch_norm_inference": (
        lambda x, w, b: bp.batch_norm_inference(x, torch.zeros_like(w), torch.full_like(w, 2.0), w, b),
        ((3, 2, 4), (2,), (2,)),
    ),
    "log_softmax": (lambda x: bp.log_softmax(x), ((4, 6),)),
    "rms_norm": (lambda x, w: bp.rms_norm(x, w), ((4, 6), (6,))),
    "rms_norm residual": (lambda x, w, r: bp.rms_norm(x, w, residual=r), ((4, 6), (6,), (4, 6))),
    "rms_norm axes": (lambda x: bp.rms_norm(x, normalized_shape=(4, 6)), ((3, 4, 6),)),
    "layer_norm": (lambda x, w, b: bp.layer_norm(x, w, b), ((4, 6), (6,), (6,))),
    "group_norm": (lambda x, w, b: bp.group_norm(x, 2, w, b), ((2, 4, 5), (4,), (4,))),
    "group_norm bias": (lambda x, b: bp.group_norm(x, 2, bias=b), ((2, 4, 5), (4,))),
    "batch_norm": (lambda x, w, b: bp.batch_norm(x, weight=w, bias=b), ((3, 2, 4), (2,), (2,))),
    "instance_norm": (lambda x, w, b: bp.instance_norm(x, weight=w, bias=b), ((2, 3, 2, 4), (3,), (3,))),
    "rope": (lambda x, k: bp.rope(x, k=k, base=100.0, style="interleaved")[:2], ((1, 2, 3, 4), (1, 1, 3, 4))),
    "attention": (lambda q, k, v: bp.attention(q, k, v, causal=True), ((1, 4, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4))),
    "attention mask": (
        lambda q, k, v, m, s: bp.attention(q, k, v, mask=m, sinks=s, scale=0.3, softcap=4.0),
        ((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4), (3, 5), (2,)),
    ),
}  # fmt: skip


ROWS = ("sum", "mean", "max", "min", "var", "logsumexp")
POSITIVE = ("sqrt", "rsqrt", "log", "pow", "divide", "copysign")
ONE = (
    "neg",
    "abs",
    "square",
    "sqrt",
    "rsqrt",
    "exp",
    "log",
    "tanh",
    "sigmoid",
    "erf",
    "relu",
    "gelu",
    "silu",
    "contiguize",
)
TWO = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "pow")
MORE: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    **{name: (getattr(bp, name), ((3, 4),)) for name in ONE},
    **{name: (getattr(bp, name), ((3, 4), (3, 1))) for name in TWO},
    **{name: (partial(getattr(bp, name), axis=0), ((3, 4),)) for name in (*ROWS, "cumsum")},
    "copysign": (lambda x: bp.copysign(x, torch.tensor([1.0, -1.0, 2.0], dtype=x.dtype)), ((2, 3),)),
    "silu_mul": (bp.silu_mul, ((3, 4), (3, 4))),
    "where": (lambda x, y: bp.where(torch.tensor([True, False, True, False]), x, y), ((3, 4), (4,))),
    "clamp": (lambda x: bp.clamp(x, -0.5, 0.5), ((3, 4),)),
}
ONE_MORE = (
    "flip",
    "triu",
    "tril",
    "norm",
    "prod",
    "std",
    "nansum",
    "nanmean",
    "nanmax",
    "nanmin",
    "masked_softmax",
    "reciprocal",
    "cube",
    "frac",
    "relu6",
    "hardtanh",
    "hardsigmoid",
    "hardswish",
    "hardshrink",
    "softshrink",
    "threshold",
    "leaky_relu",
    "affine",
    "elu",
    "selu",
    "celu",
    "softsign",
    "log_sigmoid",
    "softplus",
    "mish",
    "gelu_tanh",
    "tanhshrink",
    "exp2",
    "expm1",
    "cbrt",
    "sin",
    "cos",
    "tan",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "erfc",
    "lgamma",
)
TWO_MORE = (
    "mod",
    "fmod",
    "fmax",
    "fmin",
    "hypot",
    "atan2",
    "logaddexp",
    "prelu",
    "reglu",
    "glu",
    "geglu",
    "geglu_tanh",
)
RUNNING = ("cumprod", "cummax", "cummin", "logcumsumexp")
UNIT = ("logit", "log2", "log10", "log1p", "asin", "acos", "atanh", "erfinv")  # of operands between 0 and 1
MORE.update({name: (getattr(bp, name), ((3, 4),)) for name in (*ONE_MORE, *UNIT, "acosh")})
MORE.update({name: (getattr(bp, name), ((3, 4),) * 2) for name in TWO_MORE})
TARGET = torch.linspace(-0.93, 1.1, 12, dtype=torch.float64).reshape(3, 4)  # of losses that have no gradient by it
MASK = TARGET.sin() > -0.3
MORE.update({
    **{name: (getattr(bp, name), ((3, 4), (3, 4), (4,))) for name in ("fma", "lerp", "addcmul", "addcdiv")},
    **{name: (partial(getattr(bp, name), axis=0), ((3, 4),)) for name in RUNNING},
    "aminmax": (lambda x: bp.aminmax(x, axis=1), ((3, 4),)),
    "var_mean": (lambda x: bp.var_mean(x, axis=1), ((3, 4),)),
    "trace": (bp.trace, ((3, 4),)),
    "reduce_to": (lambda x: bp.reduce_to(x, (3, 1)), ((2, 3, 4),)),
    "diag": (lambda x: bp.diag(x, 1), ((4,),)),
    "cross_entropy": (lambda x: bp.cross_entropy(x, torch.tensor([1, 3, 0]), label_smoothing=0.1), ((3, 4),)),
    "linear_cross_entropy": (
        lambda h, w: bp.linear_cross_entropy(h, w, torch.tensor([1, 3, 0]), label_smoothing=0.1), ((3, 5), (4, 5))),
    "embedding": (lambda w: bp.embedding(w, torch.tensor([[1, 3], [3, 0]]), mode="clip"), ((4, 3),)),
    "index_select": (lambda x: bp.index_select(x, torch.tensor([2, 0, 2]), axis=1, mode="clip"), ((3, 4),)),
    "take_along_axis": (lambda x: bp.take_along_axis(x, torch.tensor([[1, 3, 1]]), axis=1, mode="clip"), ((2, 4),)),
    "ldexp": (lambda x: bp.ldexp(x, torch.tensor([1, -2, 0, 3])), ((3, 4),)),
    "xlogy": (lambda x, y: bp.xlogy(x, y.abs() + 0.5), ((3, 4),) * 2),
    "index_add": (
        lambda x, src: bp.index_add(x, torch.tensor([[2, 0], [2, 2]]), src, axis=1, mode="clip"), ((3, 4), (3, 2, 2))),
    "index_copy": (lambda x, src: bp.index_copy(x, torch.tensor([2, 0]), src, axis=1), ((3, 4), (3, 2))),
    "scatter": (
        lambda x, src: bp.scatter(x, torch.tensor([[0, 1, 2, 0], [2, 2, 0, 1]]), src, axis=0), ((3, 4), (2, 4))),
    **{f"scatter {by}": (partial(lambda by, x, src: bp.scatter(
        x, torch.tensor([[0, 1, 2, 0], [2, 2, 0, 1]]), src, axis=1, reduce=by), by), ((3, 4), (2, 4)))
       for by in ("mean", "prod", "max", "min")},
    "masked_select": (lambda x: bp.masked_select(x, MASK), ((3, 4),)),
    "masked_scatter": (lambda x, src: bp.masked_scatter(x, MASK, src), ((3, 4), (2, 5))),
    "sort": (lambda x: bp.sort(x, axis=1, descending=True).values, ((3, 4),)),
    "topk": (lambda x: bp.topk(x, 2, axis=0, largest=False).values, ((3, 4),)),
    "kthvalue": (lambda x: bp.kthvalue(x, 2, axis=1)[0], ((3, 4),)),
    "median": (lambda x: bp.median(x, axis=1)[0], ((3, 4),)),
    "normalize": (lambda x: bp.normalize(x), ((3, 4),)),
    "weight_norm": (lambda x, g: bp.weight_norm(x, g), ((3, 4), (3, 1))),
    **{f"embedding_bag {by}": (partial(lambda by, w: bp.embedding_bag(
        torch.tensor([0, 3, 1, 1, 2]), w, torch.tensor([0, 2, 2]), reduce=by, padding_idx=-1), by), ((4, 3),))
       for by in ("sum", "mean", "max")},
    "embedding_bag weights": (lambda w, p: bp.embedding_bag(
        torch.tensor([[0, 3], [1, 1]]), w, reduce="sum", per_sample_weights=p), ((4, 3), (2, 2))),
    **{f"segment_{by}": (partial(lambda of, x: of(x, torch.tensor([0, 2, 3])), getattr(bp, f"segment_{by}")), ((3, 4),))
       for by in ("sum", "mean", "max", "min", "prod", "logsumexp", "softmax")},
    "ctc_loss": (
        lambda x: bp.ctc_loss(x, torch.tensor([[1, 2], [1, 1]]), torch.tensor([4, 4]), torch.tensor([2, 1])), ((4, 2, 3),)),
    "multilabel_margin_loss": (
        lambda x: bp.multilabel_margin_loss(x, torch.tensor([[1, -1, 0, 0], [3, 0, -1, 2], [2, 1, 0, -1]])), ((3, 4),)),
    "nll_loss": (lambda x: bp.nll_loss(x, torch.tensor([1, 3, 0])), ((3, 4),)),
    "gumbel_softmax": (lambda x: bp.gumbel_softmax(x, 0.7, seed=3), ((3, 4),)),
    "gaussian_nll_loss": (lambda x, t, v: bp.gaussian_nll_loss(x, t, v.abs() + 0.5), ((3, 4),) * 3),
    "margin_ranking_loss": (bp.margin_ranking_loss, ((3, 4),) * 3),
    "kl_div": (lambda x, t: bp.kl_div(x, t.sigmoid(), reduction="batchmean"), ((3, 4),) * 2),
    "kl_div log_target": (lambda x, t: bp.kl_div(x, t, log_target=True, reduction="none"), ((3, 4),) * 2),
    "bce": (lambda x, t: bp.bce(x.sigmoid(), t.sigmoid()), ((3, 4),) * 2),
    "bce_with_logits": (lambda x, t: bp.bce_with_logits(x, t.sigmoid(), reduction="sum"), ((3, 4),) * 2),
    "poisson_nll_loss": (lambda x, t: bp.poisson_nll_loss(x, t.abs() + 1.1, full=True), ((3, 4),) * 2),
    "poisson_nll_loss mean": (
        lambda x, t: bp.poisson_nll_loss(x.abs() + 0.5, t, log_input=False, reduction="none"), ((3, 4),) * 2),
    **{name: (getattr(bp, name), ((3, 4),) * 2) for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")},
    **{f"{name} none": (partial(getattr(bp, name), reduction="none"), ((3, 4),) * 2)
       for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")},
    **{name: (partial(lambda loss, x: loss(x, TARGET.sign()), getattr(bp, name)), ((3, 4),))
       for name in ("soft_margin_loss", "hinge_embedding_loss")},
    "cosine_embedding_loss": (lambda x, y: bp.cosine_embedding_loss(x, y, TARGET[:, 1].sign()), ((3, 4),) * 2),
    "triplet_margin_loss": (lambda x, y, z: bp.triplet_margin_loss(x, y, z, margin=2.0, swap=True), ((3, 4),) * 3),
    "multi_margin_loss": (lambda x: bp.multi_margin_loss(x, torch.tensor([1, 3, 0]), p=2), ((3, 4),)),
    "multilabel_soft_margin_loss": (lambda x, t: bp.multilabel_soft_margin_loss(x, t.sigmoid()), ((3, 4),) * 2),
    "roll": (lambda x: bp.roll(x, 2, axis=0), ((3, 4),)),
    "dropout": (lambda x, r: bp.dropout(x, 0.3, residual=r, seed=4), ((3, 4), (3, 4))),
    "tile": (lambda x: bp.tile(x, (2, 1)), ((3, 4),)),
    "repeat_interleave": (lambda x: bp.repeat_interleave(x, 2, axis=1), ((3, 4),)),
    "pad": (lambda x: bp.pad(x, ((1, 0), (0, 2))), ((3, 4),)),
})  # fmt: skip
CHECKED.update(MORE)
HALVES = (
    "matmul_tc",
    "matmul_tc_bf16",
    "matmul_tc_async",
    "matmul_tc_bf16_async",
)  # in 16 bits differences say nothing


@pytest.mark.parametrize("name", HALVES)
def test_gradient_of_a_kernel_is_that_of_its_product(name: str) -> None:
    dtype = torch.bfloat16 if "bf16" in name else torch.float16
    a, b = (torch.randn(16, 16).to(dtype).requires_grad_() for _ in range(2))
    grad = torch.randn_like(out := getattr(bp, name)(a, b))
    out.backward(grad)
    wide, held = grad.to(dtype).double(), [x.detach().double() for x in (a, b)]
    for got, want in ((a.grad, wide @ held[1].T), (b.grad, held[0].T @ wide)):
        torch.testing.assert_close(got.double(), want, rtol=2**-7, atol=2**-7)


def test_gradient_of_a_cast_is_a_cast() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    bp.cast(x, "bf16").square().sum().backward()
    assert torch.equal(x.grad, (2 * x.detach().bfloat16()).float())


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradient_of_fake_quantize_is_torchs(dtype: Any, channels: bool) -> None:
    """The kernels' results and gradients bit for bit, ties, ends and NaN among them."""
    values = torch.cat([torch.linspace(-9, 9, 289), torch.tensor([0.25, 0.75, -0.25, 1e9, -1e9, float("nan")])])
    ours, theirs = (values.repeat(3, 1).to(dtype).requires_grad_() for _ in range(2))
    grad = torch.randn(3, values.numel()).to(dtype)
    scale, zero_point = torch.tensor([0.5, 0.3, 2.0]).to(dtype), torch.tensor([0, -3, 5])
    with bp.device("ptx"):
        if channels:
            wanted = torch.fake_quantize_per_channel_affine(theirs, scale.float(), zero_point.int(), 0, -8, 7)
            out = bp.fake_quantize(ours, scale[:, None], zero_point[:, None].to(dtype), -8, 7)
        else:
            wanted = torch.fake_quantize_per_tensor_affine(theirs, 0.5, 3, -8, 7)
            out = bp.fake_quantize(ours, 0.5, 3, -8, 7)
        out.backward(grad)
    wanted.backward(grad)
    finite = ~ours.isnan()
    assert torch.equal(out[finite], wanted[finite]) and out[~finite].isnan().all()
    assert torch.equal(ours.grad, theirs.grad)


@pytest.mark.parametrize("case", CHECKED)
def test_gradient_is_that_of_central_differences(case: str) -> None:
    function, shapes = CHECKED[case]
    leaves = [leaf(*shape) for shape in shapes]
    if case in POSITIVE:
        leaves = [(x.detach().abs() + 0.5).requires_grad_() for x in leaves]
    if case in UNIT or case == "acosh":
        leaves = [(x.detach().sigmoid() * 0.8 + (1.1 if case == "acosh" else 0.1)).requires_grad_() for x in leaves]
    assert torch.autograd.gradcheck(function, tuple(leaves))


def test_gradient_checks_cover_every_differentiable_op() -> None:
    """A new op with a gradient is checked here against differences, or by a test of its own."""
    assert set(DIFFERENTIABLE) == {case.split()[0] for case in CHECKED} | {*HALVES, "cast", "fake_quantize"}


LIKE_TORCH: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "matmul": (bp.matmul, torch.matmul, ((5, 8), (8, 3))),
    "softmax": (bp.softmax, lambda x: torch.softmax(x, -1), ((5, 8),)),
    "layer_norm": (bp.layer_norm, lambda x, w, b: F.layer_norm(x, (8,), w, b), ((5, 8), (8,), (8,))),
    "group_norm": (
        lambda x, w, b: bp.group_norm(x, 3, w, b), lambda x, w, b: F.group_norm(x, 3, w, b), ((2, 6, 8), (6,), (6,))),
    "attention": (bp.attention, F.scaled_dot_product_attention, ((1, 2, 5, 8),) * 3),
}  # fmt: skip


@pytest.mark.parametrize("name", LIKE_TORCH)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradient_is_that_of_torch(name: str, dtype: Any) -> None:
    ours, theirs, shapes = LIKE_TORCH[name]
    own = [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]
    other = [x.detach().float().requires_grad_() for x in own]
    grad = torch.randn_like(other_out := theirs(*other))
    torch.autograd.backward(ours(*own), grad.to(dtype))
    torch.autograd.backward(other_out, grad.to(dtype).float())
    for a, b in zip(own, other):
        near = {"rtol": 2e-2, "atol": 6e-2} if dtype is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
        torch.testing.assert_close(a.grad.float(), b.grad, **near)


class _Stops(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """A copy through which no gradient flows, and of which torch records that one may."""

    @staticmethod
    def forward(_ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, _grad: Any) -> None:
        return None


@pytest.mark.parametrize(
    "call",
    [
        bp.softmax,
        lambda x: bp.add(x, x),
        lambda x: bp.layer_norm(x),
        lambda x: torch.ops.baracuda.softmax(x),
        lambda x: torch.ops.baracuda.layer_norm(x, None, None, stats=True)[0],
        torch.sigmoid,
    ],
)
def test_gradient_of_a_result_without_one_is_none(call: Callable[[Any], Any]) -> None:
    """As torch's own function, which stands last: the operands get none, whatever else gives them one."""
    for repeated in (False, True):  # the second call takes the short way
        x = leaf(3, 4)
        _Stops.apply(call(x)).sum().backward()
        assert x.grad is None, f"repeated: {repeated}"
        (_Stops.apply(call(x)).sum() + (2 * x).sum()).backward()
        assert torch.equal(x.grad, torch.full_like(x, 2))


def test_gradient_of_both_results_of_a_norm() -> None:
    x, r, w = leaf(4, 6), leaf(4, 6), leaf(6)

    def both(x: Any, r: Any, w: Any) -> Any:
        made = bp.rms_norm(x, w, residual=r)
        return made.out * 2 + made.residual_out

    assert torch.autograd.gradcheck(both, (x, r, w))
    assert torch.autograd.gradcheck(lambda x, r, w: bp.rms_norm(x, w, residual=r).residual_out, (x, r, w))


def test_gradient_of_a_target_is_computed_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradients' op has one output more only where the target requires a gradient; the others keep their bits."""
    from baracuda_py.interop.torch import differentiate, recorded

    x, target, grads, asked = leaf(3, 4), leaf(3, 4), {}, []

    def noted(signature: Any, held: Any, received: Any, needs: Any, invoke: Any) -> Any:
        def seen(name: str, values: dict[str, Any]) -> Any:
            asked.append(values.get("return_grad_target", False))
            return invoke(name, values)

        return gradients_of(signature, held, received, needs, seen)

    gradients_of = differentiate.gradients_of
    for module in (differentiate, recorded):
        monkeypatch.setattr(module, "gradients_of", noted)
    for needed in (False, True, True):
        for one in (x, target):
            one.grad = None
        bp.huber_loss(x, target.requires_grad_(needed), delta=0.7).backward()
        grads[needed] = x.grad
    assert asked == [False, True, True]
    assert torch.equal(grads[False], grads[True]) and torch.equal(target.grad, -x.grad)
    (alone,) = torch.autograd.grad(bp.huber_loss(x.detach(), target, delta=0.7), target)
    assert torch.equal(alone, target.grad)


def test_statistics_are_constants() -> None:
    made = bp.rms_norm(leaf(4, 6), stats=True)
    assert (made.out.requires_grad, made.rstd.requires_grad) == (True, False)
    plain = bp.rms_norm(leaf(4, 6))
    assert isinstance(plain, torch.Tensor), "what only the gradient needs is not returned"


def test_parameters_hooks_and_checkpoints_work() -> None:
    layer, x = torch.nn.Linear(8, 3, bias=False), torch.randn(4, 8)
    seen: list[Any] = []
    layer.weight.register_hook(lambda grad: seen.append(tuple(grad.shape)))
    for _ in range(2):  # a repeated call accumulates
        checkpoint(lambda x: bp.matmul(x, layer.weight.T), x, use_reentrant=False).sum().backward()
    torch.testing.assert_close(layer.weight.grad, 2 * (torch.ones(4, 3).T @ x))
    assert seen == [(3, 8)] * 2
    with torch.no_grad():
        assert not bp.matmul(x, layer.weight.T).requires_grad
    with torch.inference_mode():
        assert bp.matmul(x, layer.weight.T).is_inference()


def test_gradient_of_a_repeated_call_takes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first call worked out serves others: with other values, other operands that need a gradient, in other threads."""
    from baracuda_py.interop.torch import answers

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("a call like one before was read from the start")

    x, w = leaf(4, 6), leaf(6)
    bp.rms_norm(x, w, eps=0.5)
    bp.multiply(x, 2.0)
    monkeypatch.setattr(answers, "_general", refused)
    grads: list[Any] = []

    def step(eps: float) -> None:
        with bp.device("cpu"):
            made = bp.multiply(bp.rms_norm(x.detach(), w, eps=eps), 3.0)
        assert isinstance(made, torch.Tensor), "what only the gradient needs is not returned"
        grads.append((eps, torch.autograd.grad(made.square().sum(), w)[0]))

    step(0.25)
    threads = [threading.Thread(target=step, args=(0.5 + i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(grads) == 5, "a thread has raised"
    for eps, got in grads:
        (want,) = torch.autograd.grad((3 * F.rms_norm(x.detach(), (6,), w, eps)).square().sum(), w)
        torch.testing.assert_close(got, want)


def test_gradient_is_not_differentiated_again() -> None:
    x = leaf(4, 6)
    (grad,) = torch.autograd.grad(bp.softmax(x).square().sum(), x, create_graph=True)
    with pytest.raises(bp.UnsupportedError, match=r"softmax: its gradient has no gradient.*torch's own operator"):
        grad.sum().backward()


@pytest.mark.parametrize("grad", [False, True])
def test_nested_tensors_are_refused_with_the_fix(grad: bool) -> None:
    rows = [torch.randn(n, 4) for n in (2, 3)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=grad)
    with pytest.raises(bp.OperandTypeError, match=r"softmax: x is a nested tensor.*x\.values\(\)"):
        bp.softmax(x)
    assert bp.softmax(x.values()).shape == (5, 4)


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no gradient": (lambda x: bp.quantize_int8(x), r"quantize_int8: x requires a gradient.*x\.detach\(\)"),
    "written": (lambda x: bp.write_slice(x * 1, x, [(0, 4), (0, 6)]), r"write_slice: dest requires .*dest\.detach\(\)"),
    "out": (lambda x: bp.softmax(x, out=torch.empty_like(x)), r"softmax: out was passed.*no_grad"),
    "sparse": (lambda x: bp.softmax(x.to_sparse()), r"sparse"),
    "target": (
        lambda x: bp.hinge_embedding_loss(x.detach(), x).backward(),
        r"hinge_embedding_loss: there is no gradient of target.*target\.detach\(\)",
    ),
    "recorded out": (lambda x: bp.relu(x.detach(), out=x), r"relu: out requires a gradient.*out\.detach\(\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_gradient_is_refused_with_the_fix(case: str) -> None:
    call, says = REFUSED[case]
    with pytest.raises(bp.BaracudaError, match=says):
        call(torch.randn(4, 6, requires_grad=True))


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "out": lambda x, y: bp.relu(x, out=y),
    "written operand": lambda x, y: bp.write_slice(y, x[:2], (slice(1, 3),)),
    "plan": lambda x, y: bp.relu.plan(x).run(x=x, out=y),
    "bound plan": lambda x, y: bp.relu.bind(x, out=y)(),
    "step": lambda x, y: _step(y)(y=x),
}


def _step(y: Any) -> Any:
    with bp.record(y=y) as step:
        bp.relu(y)
    return step


@pytest.mark.parametrize("case", WRITES)
def test_gradient_notices_what_is_written(case: str) -> None:
    """torch refuses a gradient whose saved tensors changed, by a count of writes that every write has to advance."""
    x, held, p = torch.randn(4, 6), torch.randn(4, 6), torch.randn(4, 6, requires_grad=True)
    product = p * held
    WRITES[case](x, held)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is:DeprecationWarning")
def test_constants_inside_transforms_are_computed() -> None:
    x, held = torch.randn(4, 6), torch.randn(4, 6)
    wanted = torch.softmax(held, -1)
    for found in (
        torch.func.grad(lambda x: (x * bp.softmax(held)).sum())(x),
        torch.vmap(lambda one: one + bp.softmax(held))(torch.zeros(1, 1))[0],
        torch.func.jvp(lambda x: x * bp.softmax(held), (x,), (torch.ones_like(x),))[1],
    ):
        torch.testing.assert_close(found, wanted)


def _dual(call: Callable[[Any], Any], x: Any) -> Any:
    with torch.autograd.forward_ad.dual_level():
        return call(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))


FORWARD: dict[str, Callable[[Any], Any]] = {
    "jvp": lambda x: torch.func.jvp(bp.softmax, (x,), (x,)),
    "jacfwd": lambda x: torch.func.jacfwd(lambda x: bp.matmul(x, x.T))(x),
    "hessian": lambda x: torch.func.hessian(lambda x: bp.softmax(x).square().sum())(x),
    "dual tensor": lambda x: _dual(bp.softmax, x),
    "dual tensor, no gradient": lambda x: _dual(lambda x: bp.topk(x, 2), x),
    "dual tensor, written": lambda x: _dual(lambda d: bp.write_slice(x, d[:2], (slice(1, 3),)), x),
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is:DeprecationWarning")  # of torch's own rules for forward mode
@pytest.mark.parametrize("case", FORWARD)
def test_forward_mode_is_refused_with_the_fix(case: str) -> None:
    """Such a call would have a tangent of zeros otherwise, which is a wrong derivative."""
    x = torch.randn(4, 6)
    before = x.clone()
    with pytest.raises(bp.UnsupportedError, match=r"carries a tangent.*jacrev"):
        FORWARD[case](x)
    assert torch.equal(x, before)
    assert torch.equal(_dual(lambda x: bp.argmax(x, 1), x), x.argmax(1)), "whole numbers have no derivative"
    assert torch.equal(bp.relu(x), x.relu())


DIRECT: dict[str, Callable[[Any], Any]] = {
    "gradient": lambda x: _dual(torch.ops.baracuda.relu, x),
    "no gradient": lambda x: _dual(lambda d: torch.ops.baracuda.topk(d, 2), x),
    "jvp": lambda x: torch.func.jvp(torch.ops.baracuda.relu, (x,), (x,)),
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is:DeprecationWarning")
@pytest.mark.parametrize("case", DIRECT)
def test_forward_mode_of_custom_ops_is_refused(case: str) -> None:
    with pytest.raises(bp.UnsupportedError, match=r"carries a tangent.*jacrev"):
        DIRECT[case](torch.randn(4, 6))


def test_whole_numbers_need_no_gradient() -> None:
    x = torch.randn(4, 6, requires_grad=True)
    assert torch.equal(bp.argmax(x, 1), x.argmax(1))
    assert torch.equal(bp.greater(x, 0), x > 0)


# ---- autocast ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grad", [False, True])
def test_autocast_casts_the_factors_of_products(grad: bool) -> None:
    x, w = torch.randn(4, 8), torch.nn.Parameter(torch.randn(8, 3), requires_grad=grad)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        product, soft = bp.matmul(x, w), bp.softmax(x)
        mixed = bp.matmul(product.detach(), torch.randn(3, 5))
    assert (product.dtype, soft.dtype, mixed.dtype) == (torch.bfloat16, torch.float32, torch.bfloat16)
    assert torch.equal(product, bp.matmul(x.bfloat16(), w.bfloat16()))
    if grad:
        product.float().sum().backward()
        assert w.grad is not None
        assert w.grad.dtype == torch.float32
