"""Runs an op's own samples and checks each result against the oracle, within the guarantee of the plan that ran it.

Samples have odd shapes, strides, every dtype, and values that overflow, cancel or are NaN. A label, or a part of one, selects
samples:

  verify add --device ptx --sample "f32 corners"
  verify matmul --device 0 --variant wgmma --all
  compute-sanitizer python -m baracuda_py verify contiguize --lineinfo

The exit code is 1 if a result is wrong or a kernel faults. Samples that no candidate serves on the device are counted, and are
not failures.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...plan.about.verify import Outcome
    from ...plan.registry import Op
    from ...samples import Sample
    from ...samples.wanted import Wanted
    from ...types import DeviceSpec

__all__ = ["SUMMARY", "arguments", "run"]

SUMMARY = "run an op's samples, checked; emulated without a GPU"
_FALLBACK = "ptx"
_NEAR = 5  # labels that an error names


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("op", help="the op's name")
    parser.add_argument("--sample", metavar="TEXT", help="only the sample of this label, or those with this in it")
    parser.add_argument("--all", action="store_true", help="more shapes of each kind")
    parser.add_argument(
        "--device", help=f"an ordinal, ptx or ptx:ARCH (emulated), or cpu (default: the GPU here, else {_FALLBACK})"
    )
    parser.add_argument("--variant", help="only this variant, where it serves")
    parser.add_argument(
        "--lineinfo", action="store_true", help="kernels know their source lines, for compute-sanitizer and ncu"
    )


def run(given: argparse.Namespace) -> int:
    from ...plan.about.verify import outcome_of, wanted_of, wanted_outcomes
    from ...plan.registry import get_op
    from ...runtime.compile.compiler import line_info
    from ...types import PlanPreference
    from ..terminal import console, current_device, progress
    from .explain import default_device

    op = get_op(given.op)
    spec, note = default_device(given.device, _FALLBACK)
    _refuse(op, given, spec)
    wanted = {w.name: w for w in wanted_of(op.name, given.variant)}
    chosen, pref = _chosen(op, given, wanted), PlanPreference(variant=given.variant)
    if note:
        print(note)
    screen = console()
    outcomes: dict[str, Outcome] = {}
    lines = line_info() if given.lineinfo else contextlib.nullcontext()
    with current_device("verify", given.device, spec), lines, progress(screen) as bar:
        task = bar.add_task(op.name, total=len(chosen))
        for label, sample in chosen.items():
            bar.update(task, description=f"{op.name} {label}")
            if label in wanted:
                outcomes |= wanted_outcomes(wanted[label], pref, spec)
            else:
                outcomes[label] = outcome_of(op, sample, pref, spec)
            bar.advance(task)
    return _report(op, spec, outcomes, each=given.sample is not None)


def _refuse(op: Op, given: argparse.Namespace, spec: DeviceSpec) -> None:
    """Refuses a variant that the op does not have, and source lines of an oracle."""
    from ...types import UnsupportedError

    variants = list(dict.fromkeys(c.variant for c in op.plan.all_candidates()))
    if given.variant is not None and given.variant not in variants:
        raise UnsupportedError(f"{op.name} has no variant {given.variant!r}", f"choose among {', '.join(variants)}")
    if given.lineinfo and spec.host_memory and not spec.emulated:
        raise UnsupportedError(f"verify: {spec} runs no kernel that --lineinfo could be of", "--device 0")


def _chosen(op: Op, given: argparse.Namespace, wanted: Mapping[str, Wanted]) -> dict[str, Sample]:
    """The samples and the wanted problems by distinct labels; InvalidProblemError names some where `--sample` means none."""
    from ...samples.sample import labels_of, meant
    from ...types import InvalidProblemError

    samples = [*op.samples(op.fixed, 0, full=given.all), *(w.sample for w in wanted.values())]
    labels = [*labels_of(samples[: len(samples) - len(wanted)]), *wanted]
    places = range(len(labels)) if given.sample is None else meant(labels, given.sample)
    if not places:
        near = difflib.get_close_matches(given.sample, labels, n=_NEAR, cutoff=0.3) or labels[:_NEAR]
        raise InvalidProblemError(
            f"{op.name}: none of its {len(labels)} samples has {given.sample!r} in its label",
            f"labels are like {', '.join(map(repr, near))}",
        )
    return {labels[i]: samples[i] for i in places}


# ---- output -----------------------------------------------------------------------------------------------------------


def _report(op: Op, spec: DeviceSpec, outcomes: dict[str, Outcome], *, each: bool) -> int:
    from ...types import KernelFault, UnsupportedError
    from ..source import show_source
    from ..terminal import complain, console, show_table

    ran = {label: one for label, one in outcomes.items() if one.selection is not None}
    wrong = {label: one for label, one in outcomes.items() if one.error and not _unserved(one)}
    if not ran and not wrong:
        reason = next(str(one.error) for one in outcomes.values())
        raise UnsupportedError(f"{op.name}: nothing serves any of {len(outcomes)} samples on {spec}", reason)
    for label, one in wrong.items():
        complain(f"{op.name}, sample {label}: {one.error}")
        if isinstance(one.error, KernelFault) and one.selection is not None:
            show_source(one.selection, one.error)
    screen = console()
    if each:
        rows = [
            (label, str(one.selection.sku) if one.selection else "-", _verdict(one)) for label, one in outcomes.items()
        ]
        show_table(screen, ("sample", "plan", "result"), rows)
    else:
        show_table(screen, ("variant", ">samples", ">wrong"), _by_variant(list(ran.values())))
    right, unserved = len(ran) - sum(one.error is not None for one in ran.values()), len(outcomes) - len(ran)
    print(f"\n{op.name} on {spec}: {right} of {len(outcomes)} samples right, {len(wrong)} wrong", end="")
    print(f", {unserved} that nothing serves" if unserved else "")
    return 1 if wrong else 0


def _unserved(one: Outcome) -> bool:
    from ...types import UnsupportedError

    return one.selection is None and isinstance(one.error, UnsupportedError)


def _verdict(one: Outcome) -> Any:
    from rich.text import Text

    if one.error is None:
        return "right"
    return Text("not served", style="dim") if _unserved(one) else Text("WRONG", style="bold red")


def _by_variant(ran: Sequence[Outcome]) -> list[tuple[Any, ...]]:
    """For each chosen variant, the number of samples that it ran, and the number of wrong results."""
    variants: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for one in ran:
        if one.selection is not None:
            variants[one.selection.candidate.variant] += 1
            wrong[one.selection.candidate.variant] += one.error is not None
    return [(variant, count, wrong[variant]) for variant, count in variants.most_common()]
