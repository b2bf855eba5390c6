"""Output of the commands: a console, one style of table, progress bars. Rich is imported on use."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..types.layout import screen_width
from ..types.units import bytes_text, rate_text, time_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from ..types import DeviceSpec

__all__ = [
    "bytes_text",
    "complain",
    "console",
    "current_device",
    "device_of",
    "indent",
    "progress",
    "rate_text",
    "show_table",
    "time_text",
    "title",
]

# A pipe has no width unless COLUMNS says one: lines are as long as their text, so that grep and diff see whole rows.
_PIPE_WIDTH = 1000


def console(*, stderr: bool = False) -> Console:
    """A console on the present stdout (or stderr), as wide as the terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr, width=None if stream.isatty() else screen_width() or _PIPE_WIDTH, highlight=False, emoji=False
    )


def complain(text: str) -> None:
    """One red line on stderr, never wrapped."""
    from rich.text import Text

    line = " ".join(text.split())
    console(stderr=True).print(Text(f"error: {line}", style="red"), soft_wrap=True)


def show_table(screen: Console, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "") -> None:
    """Prints a table. In a narrow terminal texts wrap inside their columns, except for the first column and numbers.

    A column whose head begins with ``>`` is of numbers. Cells are Rich Text or plain text, never markup.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, column in enumerate(columns):
        number = column.startswith(">")
        fixed = number or i == 0
        made.add_column(
            column.removeprefix(">"), justify="right" if number else "left",
            no_wrap=fixed, overflow="ellipsis" if fixed else "fold",
        )  # fmt: skip
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    if title:
        screen.print(Text(f"\n{title}", style="bold"))
    if screen.is_terminal:
        screen.print(made)
        return
    with screen.capture() as drawn:
        screen.print(made)
    for line in drawn.get().splitlines():  # without the spaces that fill every line up to the table's width
        screen.out(line.rstrip(), highlight=False)


def title(screen: Console, number: str, text: str) -> None:
    """The heading of a step."""
    screen.print(f"\n[bold cyan]{number}[/]", end="  ")
    screen.print(text, style="bold", markup=False)


def indent(screen: Console, text: str) -> None:
    """A block that belongs to a step, its lines cut at the terminal's width."""
    for line in text.splitlines():
        screen.print(f"    {line}", markup=False, style="dim", no_wrap=True, overflow="ellipsis")


def progress(screen: Console) -> Progress:
    """A progress bar that vanishes when done; silent where the console is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)


def device_of(text: str | None) -> Any:
    """``--device``: an ordinal, a name, or None."""
    return int(text) if text is not None and text.isdigit() else text


def current_device(what: str, text: str | None, spec: DeviceSpec) -> contextlib.AbstractContextManager[Any]:
    """Makes the CUDA device that ``--device`` names by its ordinal the current one; UnsupportedError where there is none."""
    from ..runtime.gpu.driver import require_gpu

    if spec.host_memory:
        return contextlib.nullcontext()
    cuda, which = require_gpu(f"{what} on {spec}").cuda, device_of(text)
    return cuda.Device(which) if isinstance(which, int) else contextlib.nullcontext()
