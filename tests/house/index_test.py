"""The generated index and what importing the package costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import baracuda_py as bp
from baracuda_py.cli import generate
from baracuda_py.plan.slot import OperandLayout


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
        for init in (n for n in node.body if isinstance(n, ast.FunctionDef)):
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
