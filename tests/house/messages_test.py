"""Names in messages: what a message tells its reader to use is there."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import Plan, get_op
from baracuda_py.plan.registry import composed_functions
from baracuda_py.types import errors, vocabulary

PACKAGE = Path(bp.__file__).parent
REFUSALS = {*errors.__all__, "no", "refuse"}  # calls whose arguments are read by users
# `bp.a.b`, then a call or a name with an underscore that no dot, quote or brace stands before.
NAMED = re.compile(r"\bbp((?:\.\w+)+)")
SPELT = re.compile(
    r"""(?<![\w.{'"/-])([a-zA-Z]\w*)(?=\()|(?<![\w.{/-])(?!sm_)([a-z][a-z0-9]*(?:_[a-z0-9]+)+)(?![\w/])"""
)
BUILTIN = {"float", "int", "str", "dtype"}
# Names of the transformers package.
TRANSFORMERS = {
    "attention_forward", "attention_dropout", "attn_implementation", "core_model_loading", "from_pretrained", "masking_utils",
    "output_attentions", "quant_method", "quantization_config",
}  # fmt: skip


def known() -> set[str]:
    """Public names, parameters of functions, descriptors' fields, plans' members, variants, kinds and values of enums."""
    found = {*dir(bp), bp.__name__, *dir(Plan), *dir(bp.PagedKVCache), *BUILTIN, *TRANSFORMERS}
    found |= {f.name for f in dataclasses.fields(bp.PlanPreference)} | {
        f.name for f in dataclasses.fields(bp.DeviceSpec)
    }
    for function in composed_functions().values():
        found |= {*inspect.signature(function).parameters}
    for make in ("dynamic_ntk", "longrope"):
        found |= {*inspect.signature(getattr(bp.RopeScaling, make)).parameters}
    for op in map(get_op, bp.list_ops()):
        found |= {op.name, *inspect.signature(op.function).parameters}
        found |= {f.name for f in dataclasses.fields(op.plan.descriptor)}  # type: ignore[arg-type, type-var]
        found |= {operand.name for operand in op.plan.descriptor.signature_operands}
        found |= {candidate.variant for candidate in op.plan.candidates}
    kinds = [x for x in (bp.ElementKind, *vars(vocabulary).values()) if isinstance(x, enum.EnumMeta)]
    return found | {str(member.value) for kind in kinds for member in kind}  # type: ignore[attr-defined]


def messages(text: str) -> Iterator[tuple[int, str]]:
    """Texts that a refusal is made of, a formatted value read as "{}"."""
    for node in ast.walk(ast.parse(text)):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            parts = [*node.args, *(k.value for k in node.keywords)] if name in REFUSALS else []
        elif isinstance(node, ast.Assign) and {getattr(to, "id", "") for to in node.targets} & {"fix", "reason"}:
            parts = [node.value]
        yield from ((part.lineno, _text(part)) for part in parts)


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else "{}"
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.FormattedValue):
        return "{}"
    if isinstance(node, (ast.BinOp, ast.IfExp)):
        return " ".join(_text(x) for x in ast.iter_child_nodes(node))
    return ""


def unknown(text: str, names: set[str]) -> Iterator[tuple[int, str]]:
    """The line and the name of what a message speaks of and the library does not have."""
    for line, message in messages(text):
        for match in NAMED.finditer(message):
            held: object = bp
            for part in match[1].strip(".").split("."):
                held = getattr(held, part, None)
            if held is None:
                yield line, match[0]
        for match in SPELT.finditer(NAMED.sub("", message)):
            if (match[1] or match[2]) not in names:
                yield line, match[1] or match[2]


def test_every_name_in_a_message_is_there() -> None:
    names, seen = known(), 0
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        seen += sum(1 for _ in messages(text))
        wrong = list(unknown(text, names))
        assert not wrong, f"{path.relative_to(PACKAGE)}: {wrong}"
    assert seen > 200, "the search finds the messages"


@pytest.mark.parametrize(
    ("message", "name"),
    [("use matmul_int3 for it", "matmul_int3"), ("use multiplied(...)", "multiplied"), ("see bp.Graph.lunch", "bp.Graph.lunch")],
)  # fmt: skip
def test_a_name_that_is_not_there_is_found(message: str, name: str) -> None:
    text = f'raise InvalidProblemError(f"{{op}}: no", "{message}" if x else "use matmul(..., out_dtype=...)")'
    assert [found for _, found in unknown(text, known())] == [name]


def test_message_offers_another_kind_only_where_it_serves() -> None:
    """By the field that says it: a kind that an operand always holds, and one that it never does, are cast."""
    outs, lses = np.ones((2, 3, 8), np.float32), np.zeros((2, 3), np.float32)
    merge = bp.MergeAttentionPlan.select(bp.MergeAttentionDescriptor.of(outs, lses), device="cpu")
    a = np.ones((4, 4), np.float32)
    product = bp.MatmulPlan.select(bp.MatmulDescriptor.of(a, a), device="cpu")
    described = ", or describe the problem with "
    for plan, given, fix in (
        (merge, {"outs": outs, "lses": lses.astype(np.float16)}, "cast it to f32"),
        (merge, {"outs": outs.astype(np.float64), "lses": lses}, "cast it to f32"),
        (merge, {"outs": outs.astype(np.float16), "lses": lses}, f"cast it to f32{described}element='f16'"),
        (product, {"a": a, "b": a.astype(np.float16)}, f"cast it to f32{described}b_element='f16'"),
    ):
        answer = plan.can_implement(**given)
        assert (answer.error.__class__, answer.fix) == (bp.OperandTypeError, fix)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_message_names_the_argument_of_the_function(device: str) -> None:
    """A call has no field of the descriptor: what its message says is taken by the function."""
    x, places = np.ones((2, 3), np.float32), np.zeros((2, 3), np.int32)
    with pytest.raises(bp.OperandTypeError, match=r"index_element='i32' \(of a call, index_dtype='i32'\)"):
        bp.sort(x, indices=places, device=device)
    assert bp.sort(x, indices=places, index_dtype="i32", device=device).indices is places
    codes = bp.get_op("quantize_fp8")  # whose dtype is not that of what it reads
    with pytest.raises(bp.OperandTypeError) as refusal:
        codes.plan.select(codes.of(x=x), device=device).run(x=x.astype(np.float16))
    assert "element='f16'" in str(refusal.value) and "of a call" not in str(refusal.value)
