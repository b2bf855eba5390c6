"""Every command through `main`, as a user on a machine without a GPU would run it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.cli.commands import demo, env
from baracuda_py.cli.commands.explain import parse_value
from baracuda_py.cli.main import _EPILOG, COMMANDS, main
from baracuda_py.cli.problems import compact, kinds_of, required_fields
from baracuda_py.plan import get_op, list_ops
from baracuda_py.runtime.gpu.driver import device_count, gpu_or_none
from baracuda_py.types import DeviceSpec, ElementKind

from ..places import ROOT

needs_nvrtc = pytest.mark.skipif(gpu_or_none() is None, reason="compiling needs NVRTC, through CuPy or cuda.bindings")
no_gpu = pytest.mark.skipif(device_count() > 0, reason="says what is said without a GPU")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: Any) -> Run:
    """Runs a command; (exit code, stdout, stderr)."""

    def call(*argv: str) -> tuple[int, str, str]:
        code = main(list(argv))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def cache(tmp_path: Any, monkeypatch: Any) -> Any:
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_no_argument_prints_every_command_with_a_line(run: Run) -> None:
    code, out, _ = run()
    assert code == 0
    for name, module in COMMANDS.items():
        assert any(name in line and module.SUMMARY in line for line in out.splitlines()), name


def test_module_runs() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "baracuda_py", "--version"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0
    assert ran.stdout.strip() == "0.1.0"


@pytest.mark.parametrize("argv", [("nonsense",), ("ops", "--nonsense"), ("explain",)])
def test_bad_command_line(run: Run, argv: tuple[str, ...]) -> None:
    code, _, err = run(*argv)
    assert code == 2
    assert "usage" in err


def test_the_first_steps_work(run: Run) -> None:
    """What the overview tells a newcomer to type."""
    steps = [line.split("{prog}")[1].split("   ")[0].split() for line in _EPILOG.splitlines() if "{prog}" in line]
    assert ["ops", "gelu"] in steps
    for step in steps:
        if step[0] in ("env", "ops"):
            code, out, err = run(*step)
            assert (code, err) == (0, "") and out, step


# ---- where the output goes, and unforeseen errors ---------------------------------------------------------------


def shell(command: str, **environment: str) -> tuple[int, str]:
    """(exit code, stderr) of a line of shell; ``{bp}`` stands for the program."""
    ran = subprocess.run(
        ["bash", "-c", command.format(bp=f"{sys.executable} -m baracuda_py")], capture_output=True, text=True,
        cwd=ROOT, env={**os.environ, **environment}, check=False,
    )  # fmt: skip
    return ran.returncode, ran.stderr


@pytest.mark.skipif(os.name != "posix", reason="says it in bash")
def test_a_reader_that_leaves_and_an_output_that_is_closed() -> None:
    many = "{bp} explain matmul a_shape=64,64 b_shape=64,64 a_element=f16 b_element=f16 --device h200 --configs"
    code, err = shell(many + " | true; exit ${{PIPESTATUS[0]}}")
    assert (code, err) == (141, "")
    assert shell("{bp} explain gelu shape=4 element=f32 --device h200 >&-") == (0, "")
    assert shell("{bp} explain gelu 2>&-")[0] == 2
    if Path("/dev/full").exists():
        code, err = shell("{bp} explain gelu shape=4 element=f32 --device h200 > /dev/full")
        assert code == 2
        assert err.startswith("error: ") and err.count("\n") == 1


def test_a_defect_is_one_line_and_a_code_of_its_own(run: Run, monkeypatch: Any) -> None:
    def broken(_: Any) -> int:
        raise ZeroDivisionError("division by zero\n  somewhere")

    monkeypatch.setattr(COMMANDS["ops"], "run", broken)
    code, out, err = run("ops")
    assert (code, out) == (3, "")
    assert err.startswith("error: ops: ZeroDivisionError: division by zero somewhere") and "--debug" in err
    assert err.count("\n") == 1
    with pytest.raises(ZeroDivisionError):
        main(["ops", "--debug"])


SCALARS = ("0", "-1", "abc", "1.5", "None", "True", "", "9" * 30, "9" * 5000, "2**63", "9223372036854775808", "1e400")
VALUES = (
    *SCALARS,
    "4",
    "4,4",
    "()",
    "[]",
    "4,-4",
    "65536,65536,65536",
    "(4,(4,))",
    "[(0,1)]",
    "{{}}",
    "'x'",
    "((0,4),)",
)
KINDS = ("bf16", "f32", "s4", "bin", "fp8_e4m3", "complex64", "i64", "torch.float32", "nonsense", "7")
PROBLEMS = {
    "gelu": {"shape": "4,4", "element": "f32"},
    "add": {"x1_shape": "4,4", "x2_shape": "4", "x1_element": "bf16", "x2_element": "bf16"},
    "contiguize": {"shape": "4,4", "element": "f32", "x_strides": "1,4"},
    "write_slice": {"dest_shape": "4,4", "ranges": "((0,2),(0,4))", "element": "bf16"},
    "kv_append": {"cache_shape": "1,2,8,4", "tokens": "1", "element": "f16"},
    "matmul": {"a_shape": "4,8", "b_shape": "8,4", "a_element": "f16", "b_element": "f16"},
}
DEVICES = (*("h200", "sm_80", "sm_120", "cpu", "h100") * 3, "voodoo2", "99", "-1", "")


def command_lines(rng: random.Random, count: int) -> Iterator[list[str]]:
    """Command lines of which most are wrong somewhere."""
    from dataclasses import fields

    for _ in range(count):
        op = rng.choice(list(PROBLEMS))
        problem = dict(PROBLEMS[op])
        free = [f.name for f in fields(get_op(op).plan.descriptor)]
        for _ in range(rng.choice((0, 0, 1, 2))):
            name = rng.choice([*free, *free, "nonsense", ""])
            problem[name] = rng.choice(KINDS if name.endswith("element") else VALUES)
        if rng.random() < 0.1:
            problem.pop(rng.choice(list(problem)))
        line = ["explain", rng.choice([op] * 20 + ["sparsemax", "", "-x"]), *(f"{k}={v}" for k, v in problem.items())]
        line += ["--device", rng.choice(DEVICES)] if rng.random() < 0.9 else []
        line += ["--variant", rng.choice(["simt", "wgmma", "", "contiguous_chunk"])] if rng.random() < 0.2 else []
        line += rng.sample(["--configs", "--configs", "--nonsense", "stray"], rng.randrange(2))
        yield line
    yield from (["ops", p, "--json"] for p in ("sparsemax", "gelu", "\0", "[", "é"))
    yield from (["demo", "--tokens", n] for n in ("0", "-1", "x", "99999999999", "1e3", "9" * 50))
    yield from (["demo", "--device", d] for d in ("h200", "-1", "99", "99999999999999999999", "cpu:0"))
    yield from (["compile", *w] for w in (["x"], ["--arch", ""], ["--arch", "cpu"], ["neg", "--limit", "x"]))
    yield from (["bench", *w] for w in (["x"], ["matmul"], ["add", "--device", "99"], ["add", "--device", "h200"]))


def test_no_command_line_ends_in_a_traceback(run: Run) -> None:
    codes = set()
    for line in command_lines(random.Random(20260), 300):
        code, out, err = run(*line)
        codes.add(code)
        assert code in (0, 2), f"{line}: exit code {code}: {err[-300:]}"
        assert "Traceback" not in out + err, line
        if code == 2 and "usage:" not in err:
            assert err.startswith("error: ") and err.count("\n") == 1 and not out, f"{line}: {err}"
    assert codes == {0, 2}


# ---- demo ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: Any) -> None:
    monkeypatch.setattr(demo, "HOST", demo.HOST._replace(tokens=40, large=1 << 20))


def test_demo_on_the_host(run: Run, small: None) -> None:  # noqa: ARG001
    code, out, err = run("demo", "--device", "cpu")
    assert (code, err) == (0, "")
    assert "NumPy reference backend" in out
    assert "PASSED: 5 of 5" in out
    assert "1 plan for 40 appends" in out
    assert "WriteSlicePlan" in out
    assert "contiguous_chunk" in out


@no_gpu
def test_demo_says_how_to_get_the_gpu(run: Run, small: None) -> None:  # noqa: ARG001
    code, out, _ = run("demo", "--tokens", "1")
    assert code == 0
    assert "To run on a GPU" in out
    code, _, err = run("demo", "--device", "0")
    assert code == 2
    assert "CUDA device" in err or "CuPy" in err


def test_demo_fails_on_a_wrong_byte(run: Run, small: None, monkeypatch: Any) -> None:  # noqa: ARG001
    from baracuda_py.ops.shape_layout import write_slice as module

    whole = module.write_slice

    def forgets(dest: Any, source: Any, ranges: Any) -> Any:
        return dest if ranges[0][0] == 7 else whole(dest, source, ranges)

    monkeypatch.setattr(module, "write_slice", forgets)
    code, out, _ = run("demo", "--device", "cpu")
    assert code == 1
    assert "FAIL" in out
    assert "bytes of the cache differ" in out
    assert "FAILED: 4 of 5" in out


def test_demo_fails_on_a_wrong_product(run: Run, small: None, monkeypatch: Any) -> None:  # noqa: ARG001
    from baracuda_py.ops.gemm import matmul as module

    def forgets(a: Any, b: Any, *, bias: Any, activation: str) -> Any:
        return whole(a[:, 1:], b[1:], bias=bias, activation=activation)

    whole = module.matmul
    monkeypatch.setattr(module, "matmul", forgets)
    code, out, _ = run("demo", "--device", "cpu", "--tokens", "1")
    assert code == 1
    assert "break '|error| <=" in out
    assert "FAILED: 4 of 5" in out


def test_demo_fails_on_keys_rotated_by_other_angles(run: Run, small: None, monkeypatch: Any) -> None:  # noqa: ARG001
    plain = bp.RopeScaling.plain
    monkeypatch.setattr(bp.RopeScaling, "plain", staticmethod(lambda dim, base: plain(dim, base / 100)))
    code, out, _ = run("demo", "--device", "cpu", "--tokens", "4")
    assert code == 1
    assert "decoding is off by" in out
    assert "FAILED: 4 of 5" in out


def test_demo_fails_where_asserts_are_not_run() -> None:
    """``python -O`` must not pass a broken demo."""
    broken = (
        "from baracuda_py.cli.commands import demo; from baracuda_py.cli import main\n"
        "from baracuda_py.ops.shape_layout import write_slice as module\n"
        "demo.HOST = demo.HOST._replace(tokens=9, large=1 << 16)\n"
        "module.write_slice = lambda dest, source, ranges: dest\n"
        "raise SystemExit(main.main(['demo', '--device', 'cpu']))\n"
    )
    ran = subprocess.run([sys.executable, "-O", "-c", broken], capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 1, ran.stdout
    assert "FAILED: 4 of 5" in ran.stdout


@pytest.mark.parametrize(
    "argv", [("--tokens", "0"), ("--tokens", "99999999999"), ("--device", "h200"), ("--device", "nonsense")]
)
def test_demo_refuses(run: Run, argv: tuple[str, ...]) -> None:
    code, _, err = run("demo", *argv)
    assert code == 2
    assert err.startswith("error: demo")


def test_readme_is_never_empty() -> None:
    text, origin = demo.readme()
    assert text
    assert origin


# ---- ops ----------------------------------------------------------------------------------------------------------


def test_ops_json(run: Run) -> None:
    code, out, _ = run("ops", "--json")
    rows = {row["op"]: row for row in json.loads(out)}
    assert code == 0
    assert list(rows) == list_ops()
    assert {"bf16", "f32", "s4", "complex64"} <= set(rows["write_slice"]["elements"])
    assert rows["write_slice"]["bounds"]["bf16"] == "exact"
    assert "bin" not in rows["write_slice"]["elements"]
    assert {"bool", "complex64"}.isdisjoint(rows["gelu"]["elements"])
    assert all(row["elements"] and row["variants"] and row["summary"] for row in rows.values())


def test_ops_pattern(run: Run) -> None:
    code, out, _ = run("ops", "gelu", "--json")
    assert code == 0
    assert [row["op"] for row in json.loads(out)] == ["gelu"]
    code, _, err = run("ops", "zzzzzz")
    assert code == 2
    assert "zzzzzz" in err


@pytest.mark.parametrize("op", ["add", "kv_append", "contiguize"])
def test_an_example_describes_its_op(op: str) -> None:
    example = required_fields(get_op(op))
    assert example
    assert get_op(op).describe(**example).op == op


def test_compact_kinds() -> None:
    everything = list(ElementKind)
    assert compact(everything) == "all"
    assert compact([k for k in everything if k is not ElementKind.BIN]) == "all but bin"
    assert compact([ElementKind.F16, ElementKind.BF16]) == "f16 bf16"
    assert compact(list(kinds_of(get_op("add"), DeviceSpec.named("h200")))) == "floats ints"


# ---- explain ------------------------------------------------------------------------------------------------------

APPEND = ("write_slice", "dest_shape=8192,32,128", "ranges=[(4000,4001),(0,32),(0,128)]", "element=bf16")


def test_explain(run: Run) -> None:
    code, out, err = run("explain", *APPEND, "--device", "h200")
    assert (code, err) == (0, "")
    assert "shape_layout.write_slice/bf16/memcpy.contiguous_chunk@sm_90a" in out
    assert "to admit it" in out
    _, more, _ = run("explain", *APPEND, "--device", "h200", "--configs")
    assert len(more.splitlines()) > len(out.splitlines())


def test_explain_variant_and_a_plain_integer(run: Run) -> None:
    code, out, _ = run("explain", "gelu", "shape=4096", "element=f32", "--device", "sm_80", "--variant", "strided")
    assert code == 0
    assert "bespoke.strided" in out
    assert "f32[4096]" in out


@no_gpu
def test_explain_without_a_gpu_names_its_device(run: Run) -> None:
    code, out, _ = run("explain", *APPEND)
    assert code == 0
    assert "no GPU is usable here" in out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("gelu",), "shape, element missing"),
        (("gelu", "shape=4", "elment=f32"), "there is no field 'elment'"),
        (("gelu", "shape"), "not key=value"),
        (("gelu", "shape=4", "shape=5", "element=f32"), "shape is given twice"),
        (("gelu", "shape=4", "element=f31"), "f31"),
        (("gelu", "shape=nonsense", "element=f32"), "nonsense"),
        (("gelu", "kind=exp", "shape=4", "element=f32"), "there is no field 'kind'"),
        (("gelo", "shape=4"), "did you mean gelu"),
        (("airy", "shape=4"), "there is no op 'airy': "),
        (("gelu", "shape=4", "element=f32", "x_align=abc"), "x_align='abc'"),
        (("gelu", "shape=4", "element=f32", "x_align=0"), "align"),
        (("gelu", "shape=" + "9" * 30, "element=f32"), "shape"),
        (("gelu", "shape=4,4", "element=f32", "x_strides=9223372036854775808,1"), "x_strides"),
        (("write_slice", "dest_shape=4", "ranges=7", "element=f32"), "ranges"),
        (("gelu", "shape=4", "element=f32", "--variant", "best"), "no variant is called 'best'"),
        (("gelu", "shape=4", "element=f32", "--device", "voodoo2"), "voodoo2"),
    ],
)
def test_explain_refuses_readably(run: Run, argv: tuple[str, ...], said: str) -> None:
    code, out, err = run("explain", "--device", "h200", *argv)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_explain_lists_fields_and_a_working_example(run: Run) -> None:
    _, _, err = run("explain", "add")
    assert "it needs x1_shape, x2_shape, x1_element, x2_element" in err
    assert "for example: explain add" in err


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(Exception, match="missing"):
        main(["explain", "gelu", "--debug"])


@needs_nvrtc
def test_explain_shows_the_kernels(run: Run, cache: Any) -> None:  # noqa: ARG001
    code, out, _ = run(
        "explain", "neg", "shape=4096", "element=f32", "--device", "sm_90a", "--source", "--ptx", "--resources"
    )
    assert code == 0
    assert "registers" in out
    assert "struct Op" in out
    assert ".target sm_90a" in out
    code, out, _ = run("explain", *APPEND, "--device", "h200", "--ptx")
    assert code == 0
    assert "launches no kernel of its own" in out


@pytest.mark.parametrize(("text", "value"), [("bf16", "bf16"), ("1,2", (1, 2)), ("None", None), ("[(0,1)]", [(0, 1)])])
def test_values(text: str, value: Any) -> None:
    assert parse_value(text) == value


# ---- compile, env, bench ------------------------------------------------------------------------------------------


@needs_nvrtc
def test_compile_then_cached(run: Run, cache: Any) -> None:
    argv = ("compile", "neg", "write_slice", "--arch", "sm_90a", "--arch", "sm_80", "--limit", "2")
    code, out, err = run(*argv)
    assert (code, err) == (0, "")
    assert "8 kernels for sm_90a sm_80" in out
    assert "8 built" in out
    assert list(cache.glob("*.cubin"))
    code, out, _ = run(*argv)
    assert code == 0
    assert "0 built" in out
    code, out, _ = run(*argv, "--force")
    assert "8 built" in out


@pytest.mark.parametrize(
    "argv", [("compile", "nonsense"), ("compile", "--arch", "cpu"), ("compile", "--arch", "sm_13")]
)
def test_compile_refuses(run: Run, argv: tuple[str, ...]) -> None:
    code, _, err = run(*argv)
    assert code == 2
    assert err.startswith("error: ")


@needs_nvrtc
def test_compile_reports_a_failure(run: Run, cache: Any, monkeypatch: Any) -> None:  # noqa: ARG001
    from baracuda_py.runtime.compile import compiler
    from baracuda_py.types import CompileError

    def broken(*_: Any, **__: Any) -> Any:
        raise CompileError("x.cu:k does not compile: error")

    monkeypatch.setattr(compiler, "compile_kernels", broken)
    code, out, err = run("compile", "neg", "--arch", "sm_90a")
    assert code == 1
    assert "does not compile" in err
    assert "FAILED" in out


def test_env(run: Run, cache: Any) -> None:
    code, out, err = run("env")
    assert (code, err) == (0, "")
    for name in ("Python", "CuPy", "NVRTC", "kernel cache", "torch", str(cache), "here you can"):
        assert name in out


def test_env_json(run: Run, cache: Any) -> None:  # noqa: ARG001
    code, out, _ = run("env", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["abilities"]["select and explain"] is True
    assert all(f["value"] or f["get"] for f in found["findings"])


def test_env_survives_a_broken_probe(run: Run, monkeypatch: Any) -> None:
    def broken(*_: Any) -> Any:
        raise OSError("a library\nis damaged")

    for name in ("_version", "_cupy", "_driver", "_nvrtc", "_headers", "_cccl", "_disassembler", "_cache"):
        monkeypatch.setattr(env, name, broken)
    code, out, _ = run("env")
    assert code == 0
    assert "a library is damaged" in out
    assert "compile no" in out


@no_gpu
def test_bench_needs_a_gpu(run: Run) -> None:
    code, _, err = run("bench")
    assert code == 2
    assert "none is usable here" in err


def test_bench_refuses_what_it_has_no_problem_for(run: Run) -> None:
    code, _, err = run("bench", "kv_append")
    assert code == 2
    assert "kv_append" in err
