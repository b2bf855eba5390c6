"""PyTorch's own samples of its functions (OpInfo), given to ours: results and gradients beside torch's in float64.

python -m pytest -q --full tests/interop/torch_opinfo_test.py            # on the CPU
python -m pytest -q --full -m gpu tests/interop/torch_opinfo_test.py     # on a GPU
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.plan.registry import all_ops
from baracuda_py.types import OpCategory as C

torch = pytest.importorskip("torch")

from .opinfo import KINDS, ROWS, WITHOUT, NotOurs  # noqa: E402

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.bool)
MOST = 24  # samples of an op and a dtype


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch has no CUDA device")
    torch.manual_seed(0)
    if request.param == "cuda":
        yield request.param
        return
    with bp.device("cpu"):
        yield request.param


@lru_cache(maxsize=1)
def _infos() -> dict[str, Any]:
    """PyTorch's OpInfos by name and variant. Their module takes seconds to import."""
    pytest.importorskip("expecttest")
    from torch.testing._internal.common_methods_invocations import op_db

    return {info.name + (f":{info.variant_test_name}" if info.variant_test_name else ""): info for info in op_db}


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The arguments with each tensor changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(x, change) for x in value)
    if isinstance(value, Mapping):
        return {name: _mapped(x, change) for name, x in value.items()}
    return value


def _wide(x: Any) -> Any:
    return x.detach().double() if x.is_floating_point() else x.detach()


def _rounded(args: tuple[Any, ...], dtype: Any) -> tuple[Any, ...]:
    """The arguments with their numbers rounded to a dtype."""
    return tuple(torch.tensor(x, dtype=dtype).item() if isinstance(x, float) else x for x in args)


def _leaves(value: Any) -> list[Any]:
    found: list[Any] = []
    _mapped(value, lambda x: found.append(x) if x.is_floating_point() else None)
    return found


def _results(made: Any) -> list[Any]:
    return [made] if isinstance(made, torch.Tensor) else list(made)


def _check(name: str, info: Any, sample: Any) -> str:
    """Compares one call with torch's in float64, and says of a sample that is none of ours, or that is refused, why."""
    row = ROWS[name]
    args = (sample.input, *(_rounded(sample.args, sample.input.dtype) if row.rounds else sample.args))
    op = all_ops().get(name.split()[0])  # None of what is made of several ops
    differentiable = op is not None and op.gradient is not None and name not in ("batch_norm", "instance_norm")
    own_args, own_kwargs = _mapped((args, sample.kwargs), lambda x: x.detach().clone())
    narrow = all(x.dtype == torch.float32 for x in _leaves((own_args, own_kwargs)))
    grads = differentiable and narrow and bool(_leaves((own_args, own_kwargs)))
    wide_args, wide_kwargs = _mapped((args, sample.kwargs), _wide)
    if grads:
        for given in ((own_args, own_kwargs), (wide_args, wide_kwargs)):
            for x in _leaves(given)[: row.leading]:
                x.requires_grad_()
    try:
        made = row.call(*own_args, **own_kwargs)
    except NotOurs as reason:
        return str(reason)
    except bp.BaracudaError as error:
        reasons = [reason for text, reason in row.refuses.items() if text in str(error)]
        if KINDS in str(error) and not _leaves((args, sample.kwargs)):
            return KINDS
        if not reasons:
            raise
        return reasons[0]
    whole = not _leaves((args, sample.kwargs))
    with torch.no_grad():
        narrow_args, narrow_kwargs = _mapped((args, sample.kwargs), torch.Tensor.clone)
        dtypes = [x.dtype for x in _results(info.op(*narrow_args, **narrow_kwargs))]
    if whole and dtypes[0].is_floating_point:
        wide_args, wide_kwargs = _mapped((wide_args, wide_kwargs), torch.Tensor.double)
    wanted = info.op(*wide_args, **wide_kwargs)
    pairs = list(zip(_results(made), _results(wanted), dtypes))
    for got, want, dtype in pairs:
        if whole and dtype == torch.float32:
            dtype = torch.float64  # of whole numbers, as NumPy's
        assert got.dtype == dtype, f"{got.dtype}, and torch's is {dtype}"
        torch.testing.assert_close(got, want.to(got.dtype), equal_nan=True)
    if grads and pairs[0][0].requires_grad:
        got, want, _ = pairs[0]
        seed = torch.randn(got.shape, device=got.device, dtype=got.dtype)
        own, wide = (_leaves(x)[: row.leading] for x in ((own_args, own_kwargs), (wide_args, wide_kwargs)))
        found = torch.autograd.grad(got, own, seed, allow_unused=True)
        expected = torch.autograd.grad(want, wide, seed.double(), allow_unused=True)
        for x, y in zip(found, expected):
            if y is not None:
                x = torch.zeros_like(y) if x is None else x
                rtol, atol = row.gradient
                torch.testing.assert_close(x.float(), y.float(), equal_nan=True, rtol=rtol, atol=atol)
    return ""


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # torch's, of samples without a result
@pytest.mark.parametrize("name", ROWS)
def test_opinfo_samples_give_what_torch_gives(name: str, device: str) -> None:
    info, compared, reasons = _infos()[ROWS[name].info], 0, []
    admitted = info.dtypesIfCUDA if device == "cuda" and info.dtypesIfCUDA else info.dtypes
    for dtype in DTYPES:
        if dtype in admitted:
            for sample in islice(info.sample_inputs(device, dtype), MOST):
                reason = _check(name, info, sample)
                compared += not reason
                reasons.append(reason)
    assert compared, f"no sample is a call of {name}: {set(reasons)}"


FAMILIES = (
    C.UNARY_ELEMENTWISE, C.BINARY_ELEMENTWISE, C.TERNARY_ELEMENTWISE, C.REDUCE, C.SCAN, C.SOFTMAX, C.NORM, C.REARRANGE,
    C.LOSS, C.INDEXING, C.SORT,
)  # fmt: skip


def test_opinfo_of_an_op_has_a_row() -> None:
    """What torch has under the same name is compared, or the table says why not."""
    names = {name.partition(":")[0].removeprefix("nn.functional.") for name in _infos()}
    ops = {name for name, op in all_ops().items() if op.plan.category in FAMILIES}
    assert not (ops & names) - {name.split()[0] for name in ROWS} - WITHOUT.keys()
    assert WITHOUT.keys() <= ops - ROWS.keys()
