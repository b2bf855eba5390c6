"""Open bugs of PyTorch that make custom ops silently wrong: with the schemas of this library each gives the right result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import baracuda_py as bp

torch = pytest.importorskip("torch")
dynamo = pytest.importorskip("torch._dynamo")

import baracuda_py.interop.torch  # noqa: E402  # defines torch.ops.baracuda

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, where it imports its own compiler
BACKENDS = ("aot_eager", "aot_eager_decomp_partition")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    dynamo.reset()
    with bp.device("cpu"):
        yield
    dynamo.reset()


def compiled(function: Any, backend: str) -> Any:
    return torch.compile(function, fullgraph=True, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_bugs_a_clone_before_a_write_is_kept(backend: str) -> None:
    """pytorch#198031: the copy that an op writes to is elided, and the op writes to its source."""

    def step(dest: Any, source: Any) -> tuple[Any, Any]:
        copy = dest.clone()
        bp.write_slice(copy, source, [(1, 3)])
        return copy, dest * 2

    dest, source = torch.randn(4), torch.randn(2)
    before = dest.clone()
    copy, doubled = compiled(step, backend)(dest, source)
    assert torch.equal(dest, before)
    assert torch.equal(doubled, before * 2)
    assert torch.equal(copy, torch.cat((before[:1], source, before[3:])))


@pytest.mark.parametrize("backend", BACKENDS)
def test_bugs_one_tensor_as_two_operands(backend: str) -> None:
    """pytorch#198031: op(x, x), where one of the two is written."""

    def append(cache: Any, x: Any, at: Any) -> tuple[Any, Any]:
        keys, values = cache.clone(), cache.clone()
        bp.kv_append(keys, values, x, x, at)
        return bp.add(keys, keys), values

    def twice(x: Any) -> Any:
        return bp.multiply(x, x), bp.matmul(x, x), bp.attention(x[None, None], x[None, None], x[None, None])

    cache, x, at = torch.randn(1, 2, 6, 4), torch.randn(1, 2, 1, 4), torch.tensor([3])
    for got, want in zip(compiled(append, backend)(cache, x, at), append(cache, x, at)):
        assert torch.equal(got, want)
    square = torch.randn(5, 5)
    for got, want in zip(compiled(twice, backend)(square), twice(square)):
        assert torch.equal(got, want)


def test_bugs_one_tensor_read_and_written_is_refused_or_right() -> None:
    """The operand that is written overlaps one that is read: refused eagerly, before anything is written."""
    x = torch.arange(4.0)
    before = x.clone()
    with pytest.raises(bp.OverlapError):
        bp.write_slice(x, x[0:2], [(1, 3)])
    assert torch.equal(x, before)
    twin = torch.ops.baracuda.write_slice_functional
    (made,) = twin(x, x[0:2], [1, 3])[:1]
    assert torch.equal(made, torch.tensor([0.0, 0.0, 1.0, 3.0]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_bugs_strides_reach_the_op_as_they_are(backend: str) -> None:
    """pytorch#130487, #153389: operands of other strides than in eager code, and results of other strides than the fake's."""
    seen: list[tuple[int, ...]] = []

    def layer(x: Any, w: Any) -> Any:
        y = bp.gelu(x.transpose(0, 1))
        seen.append(tuple(y.stride()))
        return bp.matmul(y, w.T[:, ::2])

    x, w = torch.randn(6, 4), torch.randn(10, 6)
    assert torch.equal(compiled(layer, backend)(x, w), layer(x, w))
    assert seen[0] == seen[1], "the traced strides are the eager ones"


@pytest.mark.parametrize("backend", BACKENDS)
def test_bugs_a_graph_of_writes_is_not_one_of_copies(backend: str) -> None:
    """pytorch#187319: a cache of graphs that ignores which operands an op writes: the twin's graph and the op's are two."""

    def writes(dest: Any, source: Any) -> Any:
        torch.ops.baracuda.write_slice(dest, source, [0, 2])
        return dest + 0

    def copies(dest: Any, source: Any) -> Any:
        return torch.ops.baracuda.write_slice_functional(dest, source, [0, 2])[0] + 0

    source = torch.ones(2)
    for function, written in ((writes, True), (copies, False), (writes, True)):
        dest = torch.zeros(4)
        assert torch.equal(compiled(function, backend)(dest, source), torch.tensor([1.0, 1.0, 0.0, 0.0]))
        assert bool(dest.any()) is written


@pytest.mark.parametrize("backend", BACKENDS)
def test_bugs_a_view_of_an_input_is_written(backend: str) -> None:
    """pytorch#163129: a write through a view is one to its base, among ops that read the base before and after."""

    def step(base: Any, source: Any) -> tuple[Any, Any]:
        before = bp.multiply(base, 2.0)
        bp.write_slice(base[1], source, [(0, 2)])
        return before, bp.multiply(base, 3.0)

    base, source = torch.ones(2, 3), torch.zeros(2)
    before, after = compiled(step, backend)(base, source)
    assert torch.equal(before, torch.full((2, 3), 2.0))
    assert torch.equal(base, torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 1.0]]))
    assert torch.equal(after, base * 3)
