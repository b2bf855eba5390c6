"""Runs a problem on random operands and checks the result against the oracle, within the plan's guarantee.

The problem is given as `explain` takes it. With --device ptx the real kernels run without a GPU, from their PTX, and every
access is checked; --device cpu runs the oracle itself:

  run add x1_shape=1000 x2_shape=1000 x1_element=f32 x2_element=f32 --device ptx --trace
  run matmul a_shape=128,256 b_shape=256,128 a_element=bf16 b_element=bf16 --device ptx:sm_80 --order 7 --copies early
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...plan.plan import Plan
    from ...types import DeviceSpec

__all__ = ["SUMMARY", "arguments", "run"]

SUMMARY = "run a problem, checked; emulated without a GPU"
_FALLBACK = "ptx"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("op", help="the op's name")
    parser.add_argument(
        "fields", nargs="*", metavar="key=value", help="the problem; none of them: the fields are listed"
    )
    parser.add_argument(
        "--device", help=f"an ordinal, ptx or ptx:ARCH (emulated), or cpu (default: the GPU here, else {_FALLBACK})"
    )
    parser.add_argument("--variant", help="insist on this variant")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="draws the operands' values (default: 0)")
    emulator = parser.add_argument_group("the emulator")
    emulator.add_argument(
        "--order", metavar="lockstep|SEED", help="all threads together (default), or warps at random, drawn by SEED"
    )
    emulator.add_argument("--copies", help="asynchronous copies arrive late (default), early, or at random")
    emulator.add_argument("--trace", action="store_true", help="list the source lines that ran, with counts")
    emulator.add_argument("--force", action="store_true", help="run a problem that takes minutes")


def run(given: argparse.Namespace) -> int:
    from ...emulator.options import emulation
    from ...plan.registry import get_op
    from ...types import KernelFault, PlanPreference
    from ..source import show_lines, show_source
    from ..terminal import complain, current_device
    from .explain import default_device, described, parse_fields

    op = get_op(given.op)
    desc = described(op, parse_fields(op, given.fields))
    spec, note = default_device(given.device, _FALLBACK)
    options = _options(given, spec)
    plan: Plan[Any] = op.plan.select(desc, PlanPreference(variant=given.variant), device=spec)
    try:
        with current_device("run", given.device, spec), emulation(**options):
            report, words = _checked(plan, given.seed, note)
    except AssertionError as error:
        complain(f"{plan.sku}: {error}")
        return 1
    except KernelFault as fault:
        complain(str(fault))
        show_source(plan.selection, fault)
        return 1
    print(words)
    if report is not None:
        print(f"\n{report}")
        if given.trace:
            show_lines(plan.selection, report.lines)
    return 0


def _options(given: argparse.Namespace, spec: DeviceSpec) -> dict[str, Any]:
    """The emulator's options; raises UnsupportedError if there are any and `spec` is not emulated."""
    from ...types import InvalidProblemError, UnsupportedError

    if given.seed < 0:
        raise InvalidProblemError(f"run: --seed {given.seed} is negative", "--seed 7")
    options: dict[str, Any] = {"copies": given.copies} if given.copies is not None else {}
    if given.order is not None and given.order != "lockstep":
        if not given.order.isdecimal():
            raise InvalidProblemError(f"run: --order {given.order!r:.80} is neither lockstep nor a seed", "--order 7")
        options |= {"order": "random", "seed": int(given.order)}
    if given.force:
        options["force"] = True
    if not spec.emulated and (options or given.order or given.trace):
        raise UnsupportedError(
            f"run: --order, --copies, --trace and --force are the emulator's, and {spec} is not emulated",
            "--device ptx",
        )
    return options


def _checked(plan: Plan[Any], seed: int, note: str) -> tuple[Any, str]:
    """Runs `plan` on random operands, and shows it once they and its kernels are ready. Returns the emulator's report (None
    otherwise) and the lines to print. Raises AssertionError if the result breaks the guarantee."""
    from ...call.host import prepare
    from ...plan.about.verify import placed, verify
    from ...runtime.gpu.device import Device, current_ordinal
    from ..problems import random_operands
    from ..terminal import time_text

    host = plan.device.host_memory
    if plan.device.emulated:
        _refuse_large(plan)
    made = random_operands(plan.desc, seed)
    operands = {name: placed(x, on_host=host) for name, x in made.items()}
    began = time.perf_counter()
    if not plan.device.is_host:
        plan.load()
    loaded = time.perf_counter()
    print(f"{note}{plan}\n")
    report, seconds = None, 0.0

    def timed(whole: dict[str, Any]) -> Any:
        nonlocal report, seconds
        start = time.perf_counter()
        if host:
            call, whole = prepare(plan.selection, whole, accesses=True)
            report = call(0)
            result = plan.result(whole)
        else:
            result = plan.run(**whole)
            Device(current_ordinal()).synchronize()
        seconds = time.perf_counter() - start
        return result

    verify(plan.selection, operands, timed)
    ready = "" if plan.device.is_host else f", after {time_text(loaded - began)} to make its kernels ready"
    return (
        report,
        f"ran in {time_text(seconds)}{ready}; every element is within its bound, {plan.precision_guarantee.bound}",
    )


def _refuse_large(plan: Plan[Any]) -> None:
    """The emulator's refusal of a large problem, before there are operands of that size."""
    from ...emulator.options import current_options
    from ...tensor.axes import span

    layouts = [plan.desc.canonical().layout(o.name) for o in plan.desc.operands if not o.optional]
    spans = [span(x.shape, x.strides, x.element) for x in layouts]
    held = sum(high - low for low, high in spans) + plan.workspace_size
    current_options().refuse_large(plan.desc.op, held, plan.cost.flops, plan.cost.bytes)
