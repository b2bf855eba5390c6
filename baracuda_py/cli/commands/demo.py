"""Embeds the bytes of this repository's README with a seeded table and appends them token by token to a bf16 cache.

The whole cache is checked byte for byte against NumPy, the written part and the part that must stay as it was. Then it
shows the plan, the path and the time per append, the fraction of copy bandwidth on a large write, two elementwise ops and a
matrix product against their guarantees, and a decode loop: one CUDA graph, or emulated. With a GPU through CuPy, else on the
NumPy reference backend. Exit code 1 on any mismatch.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ..machine import POISON, SEED, Machine, check
from ..terminal import indent, title
from .demo_decode import decode
from .demo_products import exact_gelu, products

__all__ = ["SUMMARY", "arguments", "checkout", "readme", "run"]

SUMMARY = "a checked example: its plan, its path, its speed"


class Size(NamedTuple):
    """The sizes of a run. The host's are smaller, because the reference backend copies the whole cache for every append."""

    heads: int
    head_dim: int
    tokens: int
    spare: int  # rows that must stay poisoned
    large: int  # bytes
    huge: int  # bytes, with --large


GPU = Size(32, 128, 4096, 64, 1 << 30, 5 << 30)  # 5 GiB: offsets beyond 32 bits
HOST = Size(8, 64, 512, 16, 64 << 20, 512 << 20)

MOST_TOKENS = 1 << 18  # a cache of 2 GiB on a GPU


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", help="cpu, or a GPU's ordinal (default: the GPU here, else cpu)")
    parser.add_argument(
        "--tokens", type=int, metavar="N", help=f"tokens to append (default: {GPU.tokens}, on the host {HOST.tokens})"
    )
    parser.add_argument(
        "--large", action="store_true", help="a larger bandwidth step: 5 GiB on a GPU, 512 MiB on the host"
    )


def run(given: argparse.Namespace) -> int:
    from ...runtime.gpu.device import device
    from ...types import InvalidProblemError
    from ..terminal import console

    if given.tokens is not None and not 1 <= given.tokens <= MOST_TOKENS:
        raise InvalidProblemError(f"demo: --tokens {given.tokens}", f"give 1 to {MOST_TOKENS:,}")
    where = Machine.of(given.device)
    screen = console()
    size = (HOST if where.ordinal is None else GPU)._replace(
        **({} if given.tokens is None else {"tokens": given.tokens})
    )
    large = size.huge if given.large else size.large
    steps: tuple[Callable[[], str], ...] = (
        lambda: _append(screen, where, size), lambda: _large(screen, where, large), lambda: _elementwise(screen, where),
        lambda: products(screen, where), lambda: decode(screen, where, readme()[0], size.tokens),
    )  # fmt: skip
    wrong = 0
    with where.current(), device("cpu" if where.ordinal is None else where.ordinal):
        _headline(screen, where)
        for step in steps:
            try:
                screen.print(f"  [bold green]ok[/]  {step()}")
            except AssertionError as error:
                wrong += 1
                screen.print("  [bold red]FAIL[/]", end="  ")
                screen.print(str(error), markup=False)
    passed = f"{len(steps) - wrong} of {len(steps)} checks"
    screen.print(f"\n[bold red]FAILED[/]: {passed}" if wrong else f"\n[bold green]PASSED[/]: {passed}")
    return int(wrong > 0)


# ---- the embedded text --------------------------------------------------------------------------------------------


def checkout() -> Path | None:
    """The root of the checkout that contains this package; None for an installed wheel."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "pyproject.toml").is_file() and (root / "kernels").is_dir() else None


def readme() -> tuple[bytes, str]:
    """The README's bytes and where they come from: the checkout, the wheel's metadata, else the package's docstring."""
    import baracuda_py

    root = checkout()
    if root is not None and (root / "README.md").is_file():
        return (root / "README.md").read_bytes(), "README.md"
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        meta = importlib.metadata.metadata("baracuda-py")
        payload = meta.get_payload()  # type: ignore[attr-defined]
        text = payload if isinstance(payload, str) and payload.strip() else meta.json.get("description", "")
        if isinstance(text, str) and text.strip():
            return text.encode(), "the README in the installed wheel"
    return (baracuda_py.__doc__ or "baracuda").encode(), "the package's docstring (no README here)"


# ---- steps --------------------------------------------------------------------------------------------------------


def _headline(screen: Any, where: Machine) -> None:
    import platform

    from ... import __version__
    from ...runtime.system.toolchain import installed_version

    numpy = installed_version("numpy")
    screen.print(f"[bold]baracuda_py {__version__}[/] on Python {platform.python_version()}, NumPy {numpy}", end="")
    if where.ordinal is not None:
        screen.print(f", CuPy {where.xp.__version__}, device {where.ordinal}: {where.spec}")
        return
    screen.print("\n[yellow]No GPU is used: this is the NumPy reference backend, right and slow.[/]")
    screen.print(f"  {where.why}", markup=False)


def _append(screen: Any, where: Machine, size: Size) -> str:
    """The decode loop: appends one row of the table after another to the cache, and then compares the whole cache."""
    import numpy as np

    from ...call.cache import plan_cache
    from ...ops.shape_layout.write_slice import WriteSliceDescriptor, WriteSlicePlan, write_slice
    from ...types import ElementKind
    from ..terminal import bytes_text, progress, time_text

    heads, dim, count = size.heads, size.head_dim, size.tokens
    text, origin = readme()
    tokens = np.resize(np.frombuffer(text, np.uint8), count)
    bf16 = ElementKind.BF16.dtype
    table = np.random.default_rng(SEED).standard_normal((256, heads, dim)).astype(bf16)
    shape = (count + size.spare, heads, dim)
    title(screen, "1", f"append {count} tokens to a cache bf16{list(shape)} ({bytes_text(math.prod(shape) * 2)})")
    screen.print(
        f"  tokens are the bytes of {origin} ({len(text)} B), rows those of a seeded bf16[256, {heads}, {dim}] table"
    )

    rows = [row[None] for row in where.xp.asarray(table)]
    cache = where.poisoned(shape, bf16)
    window = [(0, heads), (0, dim)]
    plan_cache.clear()
    began = time.perf_counter()
    write_slice(cache, rows[tokens[0]], [(0, 1), *window])
    where.synchronize()
    first = time.perf_counter() - began
    spent = 0.0
    with progress(screen) as bar:
        task = bar.add_task("appending", total=count, completed=1)
        for chunk in range(1, count, 256):
            stop = min(chunk + 256, count)
            began = time.perf_counter()
            for t, token in enumerate(tokens[chunk:stop].tolist(), chunk):
                write_slice(cache, rows[token], [(t, t + 1), *window])
            spent += time.perf_counter() - began
            bar.update(task, completed=stop)
        began = time.perf_counter()
        where.synchronize()
        spent += time.perf_counter() - began
    plans = plan_cache.info()

    plan = WriteSlicePlan.select(WriteSliceDescriptor.of(cache, rows[0], [(0, 1), *window]))
    indent(screen, str(plan))
    shown = plan
    if where.ordinal is None:
        shown = WriteSlicePlan.select(WriteSliceDescriptor.of(cache, rows[0], [(0, 1), *window]), device="h200")
        screen.print("  the same problem on a GPU:")
    indent(screen, repr(shown.explain()))
    per = f"{time_text(spent / (count - 1))} per append" if count > 1 else "one append"
    screen.print(
        f"  {per} (the first, with select: {time_text(first)}); {_in_graph(plan, cache, rows[0])}", highlight=False
    )
    ready = f", {plans.hits} calls found ready" if where.ordinal is not None else ""
    screen.print(f"  plan cache: {plans.plans} plan for {count} appends{ready}")

    expected = np.full(math.prod(shape) * 2, POISON, np.uint8).view(bf16).reshape(shape)
    expected[:count] = table[tokens]
    got, wanted = where.host(cache).view(np.uint8), expected.view(np.uint8)
    differing = int(np.count_nonzero(got != wanted))
    check(not differing, f"{differing} of {got.size} bytes of the cache differ from NumPy's")
    return f"all {got.size:,} bytes of the cache equal NumPy's, the {size.spare} rows beyond the last token untouched"


def _in_graph(plan: Any, cache: Any, row: Any) -> str:
    """The time of one append on the device, if it can be measured."""
    from ..terminal import time_text

    if plan.device.is_host:
        return "the path is the NumPy oracle"
    seconds = plan.profile(dest=cache, source=row)
    return f"{time_text(seconds)} each in a CUDA graph; the path is {plan.sku.backend}.{plan.sku.variant}"


def _large(screen: Any, where: Machine, nbytes: int) -> str:
    """Times one write of `nbytes` and a copy of the same size: contiguous, then a window of half the heads."""
    import numpy as np

    from ...ops.shape_layout.write_slice import WriteSliceDescriptor, WriteSlicePlan
    from ...types import ElementKind
    from ..terminal import bytes_text, rate_text, show_table

    bf16, heads, dim = ElementKind.BF16.dtype, 32, 128
    if where.ordinal is not None:
        nbytes = min(nbytes, int(where.xp.cuda.runtime.memGetInfo()[0]) // 5)
    rows = nbytes // (heads * dim * 2)
    title(
        screen, "2", f"one large write of {bytes_text(rows * heads * dim * 2)}, beside a plain copy of the same bytes"
    )
    source = where.xp.arange(rows * heads * dim, dtype="uint16").view(bf16).reshape(rows, heads, dim)
    cells = []
    for label, part in (("contiguous", heads), ("half the heads", heads // 2)):
        dest = where.poisoned((rows + 1, heads, dim), bf16)
        ranges = [(1, rows + 1), (0, part), (0, dim)]
        piece = source.reshape(-1)[: rows * part * dim].reshape(rows, part, dim)
        plan = WriteSlicePlan.select(WriteSliceDescriptor.of(dest, piece, ranges))
        bound = plan.bind(dest=dest, source=piece)
        ours = where.seconds(bound)
        same = where.xp.array_equal(dest[1:, :part].view(np.uint16), piece.view(np.uint16))
        rest = dest[0].view(np.uint16), dest[1:, part:].view(np.uint16)
        kept = all(bool((x == POISON * 0x101).all()) for x in rest)
        check(bool(same) and kept, f"the large write ({label}) is wrong")
        target = where.xp.empty_like(piece)
        copy = where.seconds(_plain_copy(where, target, piece))
        moved = 2 * piece.nbytes
        path = f"{plan.sku.backend}.{plan.sku.variant}"
        cells.append(
            (label, path, f"{ours * 1e3:.2f}", rate_text(moved / ours), rate_text(moved / copy), f"{copy / ours:.0%}")
        )
        del dest, target, bound
    plain = "memcpy" if where.ordinal is not None else "np.copyto"
    show_table(screen, ("window", "path", ">ms", ">read + written", f">{plain}", ">of it"), cells)
    if where.ordinal is None:
        screen.print(
            "  the oracle copies the whole destination first; on a GPU this is one device copy at memory speed"
        )
    return "every element of both windows is right, and nothing beside them changed"


def _plain_copy(where: Machine, dest: Any, source: Any) -> Callable[[], Any]:
    if where.ordinal is None:
        return lambda: where.xp.copyto(dest, source)
    return lambda: dest.data.copy_from_device_async(source.data, source.nbytes, where.xp.cuda.get_current_stream())


def _elementwise(screen: Any, where: Machine) -> str:
    """Compares add and gelu with values computed here in float64, within the plan's bound."""
    import numpy as np

    from ...plan.registry import get_op
    from ...types import ElementKind, ulp_of
    from ..terminal import show_table

    title(screen, "3", "elementwise ops against their guarantee (exact values worked out in float64)")
    rng = np.random.default_rng(SEED)
    exact: dict[str, Callable[..., Any]] = {"add": np.add, "gelu": exact_gelu}
    cells = []
    for name, kind in (
        ("add", ElementKind.BF16),
        ("add", ElementKind.F32),
        ("gelu", ElementKind.BF16),
        ("gelu", ElementKind.F32),
    ):
        op = get_op(name)
        operands = {
            n: (rng.standard_normal((64, 513)) * 3).astype(kind.dtype)
            for n in (("x1", "x2") if name == "add" else ("x",))
        }
        arrays = {n: where.xp.asarray(x) for n, x in operands.items()}
        plan = op.plan.select(op.of(**arrays))
        got = where.host(op.function(*arrays.values()))
        wide = exact[name](*(x.astype(np.float64) for x in operands.values()))
        plan.precision_guarantee.check(got, wide, operands, output=kind)
        plan.verify(**arrays)  # and against the library's own oracle
        worst = float((np.abs(got.astype(np.float64) - wide) / ulp_of(wide, kind)).max())
        cells.append(
            (name, f"{kind}[64, 513]", plan.sku.variant, f"{worst:.3f} ulp", str(plan.precision_guarantee.bound))
        )
    show_table(screen, ("op", "operands", "variant", ">worst error", "promised"), cells)
    return "every element is within its bound"
