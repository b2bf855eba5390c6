"""The generated index and what importing the package costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.cli import generate
from baracuda_py.cli.pages import ops_text, page_text
from baracuda_py.plan.registry import composed_functions
from baracuda_py.plan.slot import OperandLayout
from baracuda_py.types.names import ADVICE, ALIASES, SYNONYMS


def run(code: str) -> str:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_generated_files_are_fresh() -> None:
    assert generate.write(check=True) == [], "run python -m baracuda_py.cli.generate"


def test_package_is_typed_and_constructors_name_fields() -> None:
    """What `tests/typed_user.py` is checked against, here without a type checker."""
    package = Path(bp.__file__).parent
    assert (package / "py.typed").is_file()
    stub = ast.parse((package / "__init__.pyi").read_text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}

    def declared(name: str) -> dict[str, str]:
        """The fields of a class of the stub, with those of its bases there."""
        held = {}
        for base in [ast.unparse(base) for base in classes[name].bases if ast.unparse(base) in classes]:
            held |= declared(base)
        own = (n for n in classes[name].body if isinstance(n, ast.AnnAssign))
        return held | {ast.unparse(n.target): ast.unparse(n.annotation) for n in own}

    aliases = {
        ast.unparse(n.target): ast.unparse(n.value)
        for n in stub.body
        if isinstance(n, ast.AnnAssign) and n.value is not None
    }
    taken = {}
    for name, node in classes.items():
        for init in (n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"):
            assert init.args.vararg is None and init.args.kwarg is None, name
            every = [*init.args.args[1:], *init.args.kwonlyargs]
            kinds = {a.arg: ast.unparse(a.annotation or ast.Constant(None)) for a in every}
            taken[name] = {parameter: aliases.get(kind, kind) for parameter, kind in kinds.items()}
            positional = [a.arg for a in init.args.args[1:]]
            assert positional == [f.name for f in fields(getattr(bp, name))][: len(positional)], name
    assert {"MatmulDescriptor", "WriteSliceDescriptor", "UnaryDescriptor", "PlanPreference"} <= set(taken)
    for name, parameters in taken.items():
        public = getattr(bp, name)
        assert set(parameters) == {f.name for f in fields(public)}, name
        attributes = declared(name)
        assert set(getattr(public, "put_in", ())) <= set(attributes), name
        layouts = {slot.name: "_Layout | None" if slot.optional else "_Layout" for slot in getattr(public, "slots", ())}
        assert {
            n: kind for n, kind in layouts.items() if isinstance(getattr(public, n), OperandLayout)
        }.items() <= attributes.items()
    assert taken["MatmulDescriptor"]["a_element"] == "ElementLike"
    assert taken["MatmulDescriptor"]["a_strides"] == "Sequence[int] | None"
    assert taken["PlanPreference"]["backend"] == "BackendKind | str | None"
    assert "'" not in ast.unparse(next(n for n in stub.body if getattr(n, "name", "") == "matmul").args)  # type: ignore[attr-defined]


def test_importing_the_package_imports_no_op_and_no_framework() -> None:
    loaded = run("import sys, baracuda_py; print('\\n'.join(sys.modules))").split()
    for module in ("cupy", "torch", "jax", "scipy", "rich", "baracuda_py.ops", "baracuda_py.ops.elementwise.oracle"):
        assert module not in loaded, f"importing baracuda_py imports {module}"


def test_a_kind_and_a_function_are_resolved_on_first_use() -> None:
    out = run(
        "import sys, baracuda_py as bp; bp.F32; print('cupy' in sys.modules); bp.add; print('cupy' in sys.modules)"
    )
    assert out.split() == ["False", "False"]


def test_every_public_name_resolves_and_is_listed() -> None:
    for name in dir(bp):
        assert getattr(bp, name) is not None
    assert {"add", "write_slice", "F32", "Graph", "plan_cache"} <= set(dir(bp))


def test_an_unknown_name_says_how_to_search() -> None:
    with pytest.raises(AttributeError, match=r"bp\.list_ops\(\)"):
        _ = bp.no_such_op


def test_discovery() -> None:
    assert set(bp.list_ops()) >= {"add", "exp", "write_slice", "contiguize", "kv_append"}
    assert "contiguize" in bp.find("contig")
    assert "sigmoid" in bp.find("sigmoyd")
    with pytest.raises(bp.UnsupportedError, match="did you mean"):
        bp.get_op("write_slices")


def test_index_aliases_are_the_functions_themselves() -> None:
    for alias, op in ALIASES.items():
        assert getattr(bp, alias) is getattr(bp, op) is bp.get_op(alias).function
        assert alias in dir(bp) and bp.find(alias)[0] == op, alias
    assert not set(ALIASES) & set(bp.list_ops())
    stub = (Path(bp.__file__).parent / "__init__.pyi").read_text()
    assert all(f"\n{alias} = {op}\n" in stub for alias, op in ALIASES.items())


def test_index_aliases_are_on_the_pages() -> None:
    assert "Also `bp.swish`." in page_text(bp.get_op("silu"))
    assert all(f"| `bp.{alias}` | [`{op}`]" in ops_text() for alias, op in ALIASES.items())


def test_index_advice_names_what_exists() -> None:
    for name, advice in ADVICE.items():
        with pytest.raises(AttributeError, match=re.escape(advice)):
            getattr(bp, name)
        used = re.findall(r"bp\.(\w+)\(", advice)
        assert used or "needs no kernel" in advice, name
        assert all(hasattr(bp, function) for function in used), name
        assert name not in bp.list_ops(), f"{name} is an op now"


@pytest.mark.parametrize(
    ("text", "first"),
    [("kv cache", "kv_append"), ("KV-cache", "kv_append"), ("layernorm", "layer_norm"), ("gptq", "matmul_int4"),
     ("flash attention", "attention"), ("gather", "take_along_axis"), ("sdpa", "attention"), ("rotary", "rope"),
     ("softmax backward", "softmax_backward"), ("llama.cpp", "matmul_gguf"), ("attention for decode", "attention_decode"),
     ("cat", "concatenate"), ("rot90", "rot90"), ("lexsort", "lexsort")],
)  # fmt: skip
def test_find_knows_what_people_say(text: str, first: str) -> None:
    assert bp.find(text)[0] == first


def test_find_lists_what_there_is_once() -> None:
    ops = set(bp.list_ops())
    there = ops | composed_functions().keys()
    for text in (*SYNONYMS, *ALIASES, "quantised", "norm", "", "  ", "gemm of weights"):
        hits = bp.find(text)
        assert hits and set(hits) <= there and len(hits) == len(set(hits)), text
    assert {name for names in SYNONYMS.values() for name in names} <= ops
    assert bp.find("zzzz") == []
    with pytest.raises(bp.InvalidProblemError, match="find: expected a text, got int"):
        bp.find(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_linear_multiplies_by_the_transpose(device: str) -> None:
    rng = np.random.default_rng(0)
    x, w, b = (rng.normal(size=s).astype(np.float32) for s in ((3, 8), (5, 8), (5,)))
    np.testing.assert_allclose(bp.linear(x, w, b, device=device), x @ w.T + b, rtol=1e-5, atol=1e-6)
    assert bp.linear(x, w, activation="relu", device=device).min() == 0
    for wrong in (w[0], 3.0, [1.0]):
        with pytest.raises(bp.InvalidProblemError, match="linear: weight must be"):
            bp.linear(x, wrong, device=device)
