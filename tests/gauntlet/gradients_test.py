"""Every `Op.gradient` against central differences of the forward op's oracle, and the same check against planted errors."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from baracuda_py.plan import all_ops, get_op

from .gradients import Differentiable, differentiable

OPS = [name for name, op in all_ops().items() if op.gradient is not None]
FORWARD = {op.gradient.op: name for name, op in reversed(all_ops().items()) if op.gradient and op.gradient.op}
OF_GRADIENTS = True  # a test of an op is one of its backward op too
every_gradient = pytest.mark.parametrize("op", FORWARD.values())


@cache
def problems(name: str) -> list[Differentiable]:
    """Of a gradient of a surrogate, with this in place of the oracle."""
    op = get_op(name)
    if op.gradient is not None and (surrogate := op.gradient.surrogate):
        op = replace(op, plan=type(op.plan.__name__, (op.plan,), {"reference": staticmethod(surrogate)}))
    return differentiable(op)


def noticed(op: str, oracle: Callable[..., Any]) -> list[str]:
    """Complaints of the first problem in which `oracle`, in place of the backward op's own, is found wrong."""
    return next((found for one in problems(op) if (found := one.complaints(oracle))), [])


@pytest.mark.parametrize("op", OPS)
def test_gradient_is_that_of_the_forward_oracle(op: str) -> None:
    found = [complaint for problem in problems(op) for complaint in problem.complaints()]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("op", OPS)
def test_every_differentiated_operand_is_tried(op: str) -> None:
    gradient, tried = get_op(op).gradient, problems(op)
    assert gradient is not None and {n for one in tried for n in one.differentiated} == {
        *gradient.gradients,
        *gradient.unchanged,
    }
    assert sum("fresh values" in one.label for one in tried) * 3 >= len(tried)


def test_an_op_without_f64_is_tried_in_its_own_type(monkeypatch: pytest.MonkeyPatch) -> None:
    from baracuda_py.types import ElementKind, OperandTypeError

    def narrow(self: Differentiable, op: Any, arrays: Any) -> Any:
        if self.element is ElementKind.F64:
            raise OperandTypeError("no f64")
        return described(self, op, arrays)

    described = Differentiable._described
    monkeypatch.setattr(Differentiable, "_described", narrow)
    tried = differentiable(get_op("softmax"))
    assert tried and {one.element for one in tried} <= {ElementKind.F16, ElementKind.BF16, ElementKind.F32}
    assert [complaint for one in tried for complaint in one.complaints()] == []


# ---- the check itself ----------------------------------------------------------------------------------------------------


def wrong_results(op: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The backward op's oracle with one output changed."""
    backward = get_op(op).gradient.op  # type: ignore[union-attr]
    reference = get_op(backward).plan.reference

    def changed(output: str, change: Callable[[Any], Any]) -> Callable[..., Any]:
        def oracle(desc: Any, **arrays: Any) -> Any:
            results = reference(desc, **arrays)
            names = [o.name for o in desc.operands if o.written]
            results = results if isinstance(results, tuple) else (results,)
            return tuple(change(x) if name == output else x for name, x in zip(names, results))

        return oracle

    def one_less(x: Any) -> Any:
        x = x.copy()
        x.flat[np.abs(x).argmax()] = 0
        return x

    changes = {"sign": np.negative, "factor": lambda x: 2 * x, "dropped element": one_less, "order": np.flip}
    for output in get_op(op).gradient.gradients.values():  # type: ignore[union-attr]
        for name, change in changes.items():
            yield f"{output}: {name}", changed(output, change)


def wrong_operands(op: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The backward op's oracle with one float operand reversed or zero."""
    reference = get_op(get_op(op).gradient.op).plan.reference  # type: ignore[union-attr]

    def changed(operand: str, change: Callable[[Any], Any]) -> Callable[..., Any]:
        def oracle(desc: Any, **arrays: Any) -> Any:
            return reference(desc, **{n: change(x) if n == operand else x for n, x in arrays.items()})

        return oracle

    changes = {"reversed": np.flip, "zero": np.zeros_like}
    gradient = get_op(op).gradient
    assert gradient is not None
    tried = {n for one in problems(op) for n in (*one.own_results, *one.inputs) if n in gradient.saved}
    tried -= {*gradient.shapes}
    for operand in (gradient.grad, *gradient.more.values(), *(gradient.renames.get(n, n) for n in sorted(tried))):
        for name, change in changes.items():
            yield f"{operand}: {name}", changed(operand, change)


@every_gradient
def test_a_wrong_result_is_noticed(op: str) -> None:
    assert [name for name, oracle in wrong_results(op) if not noticed(op, oracle)] == []


# What says only which terms are NaN, where no step is taken (the families' tests compare those places), and what has one element.
UNSEEN = {"nansum": ["x: zero"], "dropout": ["position: reversed"], "gumbel_softmax": ["position: reversed"]}


@every_gradient
def test_a_wrong_operand_is_noticed(op: str) -> None:
    assert [name for name, oracle in wrong_operands(op) if not noticed(op, oracle)] == UNSEEN.get(op, [])


@pytest.mark.parametrize("op", [name for name in OPS if get_op(name).gradient.shapes])  # type: ignore[union-attr]
def test_gradient_reads_no_values_where_it_says_so(op: str) -> None:
    gradient, reference = get_op(op).gradient, get_op(get_op(op).gradient.op).plan.reference  # type: ignore[union-attr]
    assert gradient is not None

    def without(desc: Any, **arrays: Any) -> Any:
        return reference(desc, **{n: np.full_like(x, np.nan) if n in gradient.shapes else x for n, x in arrays.items()})

    assert noticed(op, without) == []


class Edit(NamedTuple):
    """Code behind the oracle of `backward` that is written wrongly: in the module of the oracle, or of one that it `CALLS`."""

    backward: str
    old: str
    new: str


CALLS = {"matmul_backward": "matmul"}  # a backward op whose oracle calls that of another op
MATMUL = "np.matmul(size(first), size(second))"
EDITS = (
    Edit("softmax_backward", "p * (g - _sum(desc, g * p))", "p * (g + _sum(desc, g * p))"),
    Edit("softmax_backward", "p * (g - _sum(desc, g * p))", "p * g"),
    Edit("softmax_backward", "p * (g - _sum(desc, g * p))", "p * (g - _sum(desc, g))"),
    Edit("softmax_backward", "p * (g - _sum(desc, g * p))", "p * (g - 2 * _sum(desc, g * p))"),
    Edit("log_softmax_backward", "g - np.exp(p) * _sum(desc, g)", "g + np.exp(p) * _sum(desc, g)"),
    Edit("log_softmax_backward", "g - np.exp(p) * _sum(desc, g)", "g"),
    Edit("log_softmax_backward", "g - np.exp(p) * _sum(desc, g)", "g - p * _sum(desc, g)"),
    Edit("max_backward", "(rows == rows.max(axis=-1, keepdims=True)).sum(axis=-1)", "(rows != np.inf).sum(axis=-1)"),
    Edit("var_backward", '"mean": _OPS["mean"]', '"mean": _OPS["sum"]'),
    Edit("var_backward", "max(desc.extent - desc.correction, 0)", "desc.extent"),
    Edit("mean_backward", "np.longdouble(desc.extent)", "np.longdouble(desc.extent + 1)"),
    Edit("rms_norm_backward", "- n * _mean(desc, g * n)", "+ n * _mean(desc, g * n)"),
    Edit("rms_norm_backward", "- n * _mean(desc, g * n)", ""),
    Edit("rms_norm_backward", "- n * _mean(desc, g * n)", "- n * _mean(desc, raw * n)"),
    Edit("rms_norm_backward", "(raw * n).sum", "(g * n).sum"),
    Edit("layer_norm_backward", "(g - plain - n *", "(g + plain - n *"),
    Edit("layer_norm_backward", "(g - plain - n *", "(g - n *"),
    Edit("layer_norm_backward", "raw.sum(axis=rows)", "g.sum(axis=rows)"),
    Edit("layer_norm_backward", "wide(x, desc.element) - (0 if mean", "wide(x, desc.element) + (0 if mean"),
    Edit("rope_backward", "-sine if desc.inverse else sine", "sine"),
    Edit("rope_backward", "part[:, :, None, :] * factor", "part[:, :, None, :]"),
    Edit("rope_backward", "b * cosine + a * sine", "b * cosine"),
    Edit("rope_backward", "_wide(read[name])[picked]", '_wide(read["cos"])[picked]'),
    Edit("matmul_backward", MATMUL, f"-{MATMUL}"),
    Edit("matmul_backward", MATMUL, f"2 * {MATMUL}"),
    Edit("matmul_backward", MATMUL, "np.matmul(size(first[..., 1:]), size(second[..., 1:, :]))"),
    Edit("matmul_backward", MATMUL, "np.matmul(size(first), size(second[..., ::-1, :]))"),
    Edit("attention_backward", "head.v.T - self.delta", "head.v.T + self.delta"),
    Edit("attention_backward", "head.v.T - self.delta", "head.v.T - 0 * self.delta"),
    Edit("attention_backward", "self.weights * pull * self.head.derivative", "self.weights * pull"),
    Edit("attention_backward", "x.weights.T @ x.grad", "x.weights.T @ x.out"),
    Edit("attention_backward", "x.scale * (x.of_scores @ x.head.k)", "x.of_scores @ x.head.k"),
    Edit("attention_backward", "x.scale * (x.of_scores.T @ x.head.q)", "x.scale * (x.added.T @ x.head.q)"),
    Edit("attention_backward", "-(x.sink_weights * x.delta)", "(x.sink_weights * x.delta)"),
    Edit("attention_backward", "lambda x: x.added,", "lambda x: x.of_scores,"),
    Edit("attention_backward", "(x.added * x.distance(desc))", "(x.of_scores * x.distance(desc))"),
    Edit("attention_backward", "head.batch, head.kv_head, head.keys", "head.batch, 0, head.keys"),
    Edit("attention_backward", "one + part", "part"),
)  # fmt: skip


def planted(edit: Edit, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The backward op's oracle with the edit, which the forward op does not see."""
    plan = get_op(CALLS.get(edit.backward, edit.backward)).plan
    original = importlib.import_module(plan.reference.__module__)
    text = inspect.getsource(original)
    assert edit.old in text, f"{original.__name__} no longer says {edit.old!r}"
    module = ModuleType(original.__name__)
    module.__package__ = original.__package__
    exec(compile(text.replace(edit.old, edit.new), str(original.__file__), "exec"), module.__dict__)
    replacement = getattr(module, plan.reference.__name__)  # type: ignore[attr-defined]

    def oracle(desc: Any, **arrays: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(plan, "reference", staticmethod(replacement))
            return get_op(edit.backward).plan.reference(desc, **arrays)

    return oracle


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: f"{edit.backward}: {edit.new or 'no ' + edit.old}")
def test_an_error_in_the_oracle_is_noticed(edit: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    assert noticed(FORWARD[edit.backward], planted(edit, monkeypatch)), f"{edit.new!r} in place of {edit.old!r}"


@pytest.mark.parametrize("backward", sorted({edit.backward for edit in EDITS}))
def test_a_copy_of_the_oracle_without_an_error_is_right(backward: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert noticed(FORWARD[backward], planted(Edit(backward, "", ""), monkeypatch)) == []
