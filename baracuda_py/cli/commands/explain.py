"""Selects a plan for a problem given as key=value, and shows the plan, every candidate with its reason, and the code.

Needs no GPU. Fields are those of the op's descriptor; values are Python literals, anything else is taken as text:

  explain write_slice dest_shape=8192,32,128 'ranges=[(4000,4001),(0,32),(0,128)]' element=bf16 --device h200
  explain gelu shape=4096,4096 element=bf16 --configs --resources
"""

from __future__ import annotations

import argparse
import ast
import json
import shlex
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...plan.plan import Plan
    from ...plan.registry import Op
    from ...types import DeviceSpec

__all__ = ["SUMMARY", "arguments", "parse_fields", "run"]

SUMMARY = "which kernel serves a problem and why; its code"
_FALLBACK = "h200"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("op", help="the op's name")
    parser.add_argument(
        "fields", nargs="*", metavar="key=value", help="the problem; none of them: the fields are listed"
    )
    parser.add_argument(
        "--device", help=f"an ordinal, an arch, a GPU's name or cpu (default: the GPU here, else {_FALLBACK})"
    )
    parser.add_argument("--variant", help="insist on this variant")
    parser.add_argument(
        "--configs", action="store_true", help="a line for every configuration, not only each variant's best"
    )
    parser.add_argument("--json", action="store_true", help="print the candidates as JSON, and nothing else")
    for name, what in (
        ("source", "the CUDA text"),
        ("ptx", "the PTX"),
        ("sass", "the machine code"),
        ("resources", "registers, spills, shared memory"),
    ):
        parser.add_argument(f"--{name}", action="store_true", help=f"print {what} of the plan's kernels")


def run(given: argparse.Namespace) -> int:
    from ...plan.registry import get_op
    from ...types import PlanPreference

    op = get_op(given.op)
    desc = described(op, parse_fields(op, given.fields))
    spec, note = default_device(given.device)
    plan: Plan[Any] = op.plan.select(desc, PlanPreference(variant=given.variant), device=spec)
    if given.json:
        print(json.dumps(plan.explain(configs=given.configs).to_dict(), indent=2))
        return 0
    if note:
        print(note)
    print(plan, plan.explain(configs=given.configs), sep="\n\n")
    _show_kernels(plan, given)
    return 0


def default_device(text: str | None, fallback: str = _FALLBACK) -> tuple[DeviceSpec, str]:
    """The device for ``--device``, and a note if a default was used."""
    from ...runtime.gpu.device import spec_of
    from ...runtime.gpu.driver import device_count
    from ..terminal import device_of

    if text is not None or device_count():
        return spec_of(device_of(text)), ""
    spec = spec_of(fallback)
    return spec, f"no GPU is usable here: this is the plan for {spec}; --device chooses another\n"


def parse_fields(op: Op, given: Sequence[str]) -> dict[str, Any]:
    """Parses ``key=value`` texts as the op's descriptor fields; raises InvalidProblemError, which lists the fields, if one is
    wrong."""
    from ...types import InvalidProblemError

    free = {f.name: f for f in fields(op.plan.descriptor) if f.name not in op.fixed}
    found: dict[str, Any] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign:
            raise InvalidProblemError(f"{op.name}: {text!r} is not key=value", field_list(op))
        if name not in free:
            raise InvalidProblemError(f"{op.name}: there is no field {name!r}", field_list(op))
        if name in found:
            raise InvalidProblemError(f"{op.name}: {name} is given twice", "give it once")
        found[name] = parse_value(value)
        if isinstance(found[name], int) and "tuple[int, ...]" in str(free[name].type):
            found[name] = (found[name],)  # shape=4096 means (4096,)
    missing = [n for n, f in free.items() if n not in found and f.default is MISSING and f.default_factory is MISSING]
    if missing:
        raise InvalidProblemError(f"{op.name}: {', '.join(missing)} missing", field_list(op))
    return found


def described(op: Op, given: dict[str, Any]) -> Any:
    """The descriptor; a value of the wrong type raises InvalidProblemError, whatever the family raised."""
    from ...types import BaracudaError, InvalidProblemError

    try:
        return op.describe(**given)
    except BaracudaError:
        raise
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        values = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise InvalidProblemError(
            f"{op.name}: {values} does not describe a problem ({error})", field_list(op)
        ) from error


def parse_value(text: str) -> Any:
    """A Python literal, else the text itself (``bf16``)."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def field_list(op: Op) -> str:
    """The fix for a wrong field: all fields, and an example that works."""
    from ..problems import required_fields

    needed: list[str] = []
    optional: list[str] = []
    for f in fields(op.plan.descriptor):
        if f.name not in op.fixed:
            (needed if f.default is MISSING and f.default_factory is MISSING else optional).append(f.name)
    example = shlex.join(f"{name}={_literal(value)}" for name, value in required_fields(op).items())
    return f"it needs {', '.join(needed)}; it may have {', '.join(optional)}; for example: explain {op.name} {example}"


def _literal(value: Any) -> str:
    import enum

    return str(value.value if isinstance(value, enum.Enum) else value).replace(" ", "")


def _show_kernels(plan: Plan[Any], given: argparse.Namespace) -> None:
    """Shows the requested parts of each kernel."""
    wanted = [name for name in ("resources", "source", "ptx", "sass") if getattr(given, name)]
    if wanted and not plan.kernels:
        print(f"\n{plan.sku} launches no kernel of its own: there is nothing to show for --{' --'.join(wanted)}")
    for kernel in plan.kernels:
        for name in wanted:
            shown = getattr(kernel, name)
            if name == "resources":
                print(
                    f"\n{kernel.name}: {shown.registers} registers, {shown.spill_bytes} B spilled, "
                    f"{shown.stack_bytes} B of stack, {shown.shared_bytes} B static and "
                    f"{kernel.shared_memory_bytes} B dynamic shared memory"
                )
            else:
                print(f"\n---- {name} of {kernel.name} ----\n{shown.rstrip()}")
