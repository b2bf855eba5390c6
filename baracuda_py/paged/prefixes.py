"""Prefixes whose pages may be shared: a tree of whole pages, found by their tokens and let go the longest unused first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

from .pool import PagePool

__all__ = ["PrefixIndex"]


class Node:
    """A page whose tokens are known, behind those of its parents. Children are found by their tokens: a dict compares them,
    whatever their hashes are."""

    __slots__ = ("children", "page", "parent", "tokens")

    def __init__(self, page: int, tokens: tuple[int, ...], parent: Node | None) -> None:
        self.page = page
        self.tokens = tokens
        self.parent = parent
        self.children: dict[tuple[int, ...], Node] = {}


class PrefixIndex:
    """Holds each of its pages once.

    A sequence that has a page of the tree has those of its parents, too: so a page that no sequence has, an idle one, has only
    idle children, which became idle before it did. The first of `idle` therefore never has children, and is the longest unused.
    """

    def __init__(self, pool: PagePool, page_size: int) -> None:
        self.pool = pool
        self.page_size = page_size
        self.root = Node(-1, (), None)
        self.nodes: dict[int, Node] = {}
        self.idle: OrderedDict[Node, None] = OrderedDict()

    def chunks(self, tokens: Sequence[int], pages: int) -> Iterator[tuple[int, ...]]:
        """The tokens of each of the first `pages` pages."""
        size = self.page_size
        return (tuple(tokens[i * size : (i + 1) * size]) for i in range(pages))

    def match(self, tokens: Sequence[int], max_pages: int) -> list[int]:
        """The pages, `max_pages` at most, that hold how `tokens` begins."""
        node, found = self.root, []
        for chunk in self.chunks(tokens, max_pages):
            child = node.children.get(chunk)
            if child is None:
                break
            found.append(child.page)
            node = child
        return found

    def insert(self, tokens: Sequence[int], pages: Sequence[int]) -> int:
        """Whole pages of a sequence, in order; how many are new. Behind a page that another sequence has put in already, with
        the same tokens, nothing is: a page's parents have to be those of its sequence."""
        node, made = self.root, 0
        for chunk, page in zip(self.chunks(tokens, len(pages)), pages):
            child = node.children.get(chunk)
            if child is None:
                child = node.children[chunk] = self.nodes[page] = Node(page, chunk, node)
                self.pool.hold(page)
                made += 1
            elif child.page != page:
                break
            node = child
        return made

    def is_idle(self, page: int) -> bool:
        return page in self.nodes and self.nodes[page] in self.idle

    def acquire(self, page: int) -> None:
        """A sequence has taken the page."""
        if page in self.nodes:
            self.idle.pop(self.nodes[page], None)

    def release(self, page: int) -> None:
        """A sequence has let go of the page; of several pages, the last one first."""
        if page in self.nodes and self.pool.references[page] == 1:
            self.idle[self.nodes[page]] = None

    def evict(self) -> int:
        """Lets go of the page that has been idle longest."""
        node, _ = self.idle.popitem(last=False)
        assert node.parent is not None and not node.children, f"page {node.page} has children"
        del node.parent.children[node.tokens], self.nodes[node.page]
        self.pool.release(node.page)
        return node.page

    def renumber(self, to: Mapping[int, int]) -> None:
        """The pages were moved so."""
        for node in self.nodes.values():
            node.page = to.get(node.page, node.page)
        self.nodes = {node.page: node for node in self.nodes.values()}
