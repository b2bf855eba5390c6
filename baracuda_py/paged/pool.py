"""A pool of pages with reference counts; taking and releasing a page takes constant time."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["PagePool"]


class PagePool:
    """`total` pages. A page with reference count 0 is free. The free pages are a stack, with the lowest on top initially and
    after `renumber`."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.references = [0] * total
        self.free = list(range(total - 1, -1, -1))

    def take(self) -> int:
        """Takes a free page, with reference count 1."""
        page = self.free.pop()
        self.references[page] = 1
        return page

    def hold(self, page: int) -> None:
        """Increments the reference count of a held page."""
        assert self.references[page] > 0, f"page {page} is free"
        self.references[page] += 1

    def release(self, page: int) -> None:
        """Decrements the reference count of a page."""
        assert self.references[page] > 0, f"page {page} is free"
        self.references[page] -= 1
        if not self.references[page]:
            self.free.append(page)

    def moves(self) -> list[tuple[int, int]]:
        """The moves (page, destination) that put all held pages before all free ones. The lowest free page receives the lowest
        page behind the end."""
        held = self.total - len(self.free)
        holes = (page for page in range(held) if not self.references[page])
        behind = (page for page in range(held, self.total) if self.references[page])
        return list(zip(behind, holes, strict=True))

    def renumber(self, moves: Iterable[tuple[int, int]]) -> None:
        """Applies moves: the pages behind the held ones become free, the lowest first."""
        for source, dest in moves:
            self.references[dest], self.references[source] = self.references[source], 0
        self.free = [page for page in range(self.total - 1, -1, -1) if not self.references[page]]
