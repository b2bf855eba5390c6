"""Pages and how many hold each: taken and given back in constant time."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["PagePool"]


class PagePool:
    """`total` pages. One that nobody holds is free; the free ones are a stack, of which the lowest comes first at the start and
    after `renumber`."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.references = [0] * total
        self.free = list(range(total - 1, -1, -1))

    def take(self) -> int:
        """A free page, held once."""
        page = self.free.pop()
        self.references[page] = 1
        return page

    def hold(self, page: int) -> None:
        """One more holds a page that is held already."""
        assert self.references[page] > 0, f"page {page} is free"
        self.references[page] += 1

    def release(self, page: int) -> None:
        """One fewer holds the page."""
        assert self.references[page] > 0, f"page {page} is free"
        self.references[page] -= 1
        if not self.references[page]:
            self.free.append(page)

    def moves(self) -> list[tuple[int, int]]:
        """(page, where to) that put all pages that are held before all that are free: the lowest free page takes the lowest
        page behind the end."""
        held = self.total - len(self.free)
        holes = (page for page in range(held) if not self.references[page])
        behind = (page for page in range(held, self.total) if self.references[page])
        return list(zip(behind, holes, strict=True))

    def renumber(self, moves: Iterable[tuple[int, int]]) -> None:
        """The pages were moved so: those behind the held ones are free, the lowest first."""
        for source, dest in moves:
            self.references[dest], self.references[source] = self.references[source], 0
        self.free = [page for page in range(self.total - 1, -1, -1) if not self.references[page]]
