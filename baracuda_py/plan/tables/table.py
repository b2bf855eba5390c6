"""Tables that a terminal and a notebook show: aligned columns, of which the last is folded at the terminal's width."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Any

from ...types.layout import folded

__all__ = ["Table", "html_table"]

_INDENT = " " * 5


class Table:
    """A title, a head and rows. A subclass has `rows` and gives each row's cells; a cell below a row goes to lines of its own."""

    title: str
    head: tuple[str, ...]
    rows: tuple[Any, ...]

    def cells(self, row: Any) -> tuple[str, ...]:
        raise NotImplementedError

    def below(self, row: Any) -> str:
        """What stands under a row; empty for nothing."""
        return ""

    def to_dict(self) -> dict[str, Any]:
        """The table as JSON types."""
        return {"title": self.title, "rows": [row.to_dict() for row in self.rows]}

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __repr__(self) -> str:
        cells = [self.head, *map(self.cells, self.rows)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(self.head) - 1)]
        lines = folded(self.title)
        for row, line in zip((None, *self.rows), cells):
            lead = "".join(cell.ljust(width) + "  " for cell, width in zip(line, widths))
            lines += folded(line[-1], lead, " " * len(lead))
            if row is not None and (under := self.below(row)):
                lines += folded(under, _INDENT, _INDENT)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        body = [(*self.cells(row), self.below(row)) for row in self.rows]
        return f"<p>{html.escape(self.title)}</p>" + html_table((*self.head, ""), body)


def html_table(head: Sequence[str] | None, body: Sequence[Sequence[str]]) -> str:
    """A table of escaped text."""

    def row(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag} style='text-align:left'>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    return "<table>" + (row("th", head) if head else "") + "".join(row("td", r) for r in body) + "</table>"
