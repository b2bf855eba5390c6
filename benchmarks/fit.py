"""``python -m benchmarks.fit [table …]``: fits the quantities of cost models to measured times, and says how far today's are.

Times are those of the committed files of a GPU (``results/sweeps/*.jsonl`` of ``benchmarks.sweep``, ``results/*.jsonl`` of
``benchmarks``), or those of ``--file``. Half of the problems are fitted, the others are held out, and both errors are printed. A
quantity stays within ``--bound`` times of its value; whole numbers, and what no time depends on, are left alone and listed.
``--write`` writes the tables of which times that were held out are predicted better into ``baracuda_py/fitted/<gpu>``; without
it nothing changes. It needs no GPU.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from baracuda_py.ops._fitted import FITTED, MEASURED, Fitted, measured
from baracuda_py.plan.registry import all_ops
from baracuda_py.types import DeviceSpec

from .fitting import BOUND, ITERATIONS, Fit, fit, models_read
from .timings import Timing, committed, device_of, timings_of

__all__ = ["lines_of", "main", "models", "rewritten"]

DIGITS = 3  # significant ones of a fitted value


def models() -> dict[str, type[Fitted]]:
    """Every cost model of the package with fitted quantities, by its table."""
    all_ops()
    return {kind.table: kind for kind in Fitted.__subclasses__() if kind.__module__.startswith("baracuda_py.")}


def lines_of(found: Fit) -> list[str]:
    """What a fit found, for people."""
    lines = [f"{found.model.table}"]
    for half, was, now in zip(("fitted  ", "held out"), found.before, found.after):
        lines += [f"  {half} today {was}", f"  {half} fit   {now}"]
    for name in found.fitted:
        lines.append(f"  {name:40} {_text(found.start[name]):>24} -> {_text(found.values[name])}")
    if found.unread:
        lines.append(f"  no time depends on: {', '.join(found.unread)}")
    if found.few:
        lines.append(f"  too few times to fit: {', '.join(found.few)}")
    if found.counts:
        lines.append(f"  whole numbers, not fitted: {', '.join(found.counts)}")
    return lines


def _text(value: Any) -> str:
    """A value as toml writes it."""
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_text, value))}]"
    return repr(value) if isinstance(value, int) else f"{value:.{DIGITS + 4}g}"


def _rounded(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_rounded(v) for v in value]
    return value if isinstance(value, int) else float(f"{value:.{DIGITS}g}")


# ---- the file of a family --------------------------------------------------------------------------------------------------


def rewritten(text: str, gpu: str, fits: Iterable[Fit], today: str, source: str) -> str:
    """A family's file for a GPU, from the text of `text`: fitted quantities have new values, the date and the way; others of a
    file that is another GPU's say that they are that GPU's."""
    file = tomllib.loads(text)
    other, name = file["gpu"], DeviceSpec.named(gpu).name
    by_table = {found.model.table.partition(".")[2]: found for found in fits}
    lines, table = [], ""
    for line in text.splitlines():
        head = line.partition("=")[0].strip()
        if line.startswith("["):
            table = line[1:].partition("]")[0]
        elif head == "gpu" and not table:
            line = f'gpu = "{name}"'
        elif head == "how" and name != other and table:
            line = f'how = "values of the {other}: {_escaped(file[table]["how"])}"'
        elif table and isinstance(file[table].get(head), dict):
            line = _quantity(head, file[table][head], by_table.get(table), today, source, keep=name == other)
        lines.append(line)
    return "\n".join(lines) + "\n"


def _quantity(name: str, said: Mapping[str, Any], found: Fit | None, today: str, source: str, *, keep: bool) -> str:
    said = dict(said)
    if found is not None and name in found.fitted:
        said["value"] = _rounded(found.values[name])
        said["date"], said["how"] = today, f"python -m benchmarks.fit: {source}; held out: {found.after[1]}"
        if not keep:  # what was estimated for devices without a file
            said.pop("unmeasured", None)
    order = ("value", "unit", "what", "date", "how", "unmeasured")
    return f"{name} = {{ {', '.join(f'{key} = {_toml(said[key])}' for key in order if key in said)} }}"


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return f'"{_escaped(value)}"'
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(v)}' for key, v in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def write(gpu: str, fits: Sequence[Fit], source: str) -> list[Path]:
    """Writes the tables that predict better; the other tables of their families' files are unchanged."""
    kept = [found for found in fits if found.fitted and found.better]
    written = []
    for family in sorted({found.model.table.partition(".")[0] for found in kept}):
        path = FITTED / gpu / f"{family}.toml"
        held = path if path.exists() else FITTED / MEASURED / path.name
        own = [found for found in kept if found.model.table.startswith(f"{family}.")]
        text = rewritten(held.read_text(encoding="utf-8"), gpu, own, str(date.today()), source)
        for found in own:  # what is written can be read again
            assert measured(tomllib.loads(text), found.model.table.partition(".")[2]).keys() == found.values.keys()
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


# ---- the command line ------------------------------------------------------------------------------------------------------


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit", description=__doc__)
    parser.add_argument(
        "tables", nargs="*", metavar="table", help="gemm.wgmma, gemm, ...; without any, all that have times"
    )
    parser.add_argument("--gpu", default=MEASURED, help=f"short name of the GPU ({MEASURED})")
    parser.add_argument("--file", type=Path, nargs="*", help="files of times, in the place of the committed ones")
    parser.add_argument(
        "--bound", type=float, default=BOUND, help=f"times smaller or larger a quantity may become ({BOUND:g})"
    )
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help=f"of a fit ({ITERATIONS}); 0 only lists")
    parser.add_argument("--write", action="store_true", help="write the tables that predict better")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Runs what the command line asks for."""
    asked = _arguments(given)
    files = asked.file or committed(asked.gpu)
    device = device_of(asked.gpu)
    wanted = {t: m for t, m in models().items() if not asked.tables or any(_is_of(t, a) for a in asked.tables)}
    if not wanted:
        print(f"no table is called {', '.join(asked.tables)}: {', '.join(sorted(models()))}", file=sys.stderr)
        return 2
    timings: list[Timing] = [t for path in files for t in timings_of(path, asked.gpu)]
    print(f"{len(timings)} times of {', '.join(path.name for path in files) or 'no file'}", flush=True)
    by_model = models_read(timings, device)
    fits = []
    for _, model in sorted(wanted.items()):
        if model in by_model:
            found = fit(model, by_model[model], device, bound=asked.bound, iterations=asked.iterations)
            print(*lines_of(found), sep="\n", flush=True)
            fits.append(found)
    missing = [f"{table}: all" for table, model in sorted(wanted.items()) if model not in by_model]
    missing += [f"{found.model.table}: {', '.join(left)}" for found in fits if (left := found.unread + found.few)]
    if missing:
        print("without times, not fitted:", *missing, sep="\n  ")
    if asked.write:
        source = f"least squares over {', '.join(path.name for path in files)}, within {asked.bound:g} times"
        print("written:", *write(asked.gpu, fits, source))
    return 0


def _is_of(table: str, asked: str) -> bool:
    return table == asked or table.startswith(f"{asked}.")


if __name__ == "__main__":
    sys.exit(main())
