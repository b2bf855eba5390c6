"""Wraps text to the terminal's width, between words only."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap

__all__ = ["folded", "screen_width"]

_LEAST = 40  # columns; a narrower terminal wraps by itself


def screen_width() -> int | None:
    """The width of a line: COLUMNS, else the terminal's; None if stdout is a pipe, so that grep sees whole lines."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return max(int(said), _LEAST)
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return max(shutil.get_terminal_size().columns, _LEAST)


def folded(text: str, first: str = "", rest: str = "") -> list[str]:
    """The wrapped lines of a text. `first` is the prefix of the first line, `rest` that of the others."""
    width = screen_width()
    if width is None:
        return [(first + text).rstrip()]
    lines = textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return lines or [first.rstrip()]
