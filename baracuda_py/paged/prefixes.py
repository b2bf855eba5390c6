"""The index of shareable prefixes: a tree of whole pages by their tokens, with least-recently-used eviction."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

from .pool import PagePool

__all__ = ["PrefixIndex"]


class Node:
    """A page with known tokens, which follow those of its parents. Children are keyed by their tokens; a dict compares keys, so
    equal hashes are harmless."""

    __slots__ = ("children", "page", "parent", "tokens")

    def __init__(self, page: int, tokens: tuple[int, ...], parent: Node | None) -> None:
        self.page = page
        self.tokens = tokens
        self.parent = parent
        self.children: dict[tuple[int, ...], Node] = {}


class PrefixIndex:
    """Holds one reference to each of its pages.

    A sequence that has a page of the tree also has the pages of its parents. So an idle page, which no sequence has, has only
    idle children, which became idle earlier. Therefore the first page of `idle` has no children and is the least recently used.
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
        """The cached pages, at most `max_pages`, of the longest prefix of `tokens`."""
        node, found = self.root, []
        for chunk in self.chunks(tokens, max_pages):
            child = node.children.get(chunk)
            if child is None:
                break
            found.append(child.page)
            node = child
        return found

    def insert(self, tokens: Sequence[int], pages: Sequence[int]) -> int:
        """Inserts the whole pages of a sequence, in order, and returns the number of new ones. It stops at a page whose tokens
        another sequence has inserted already, because a page's parents must be those of its sequence."""
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
        """Records that a sequence uses the page."""
        if page in self.nodes:
            self.idle.pop(self.nodes[page], None)

    def release(self, page: int) -> None:
        """Records that a sequence has released the page. Of several pages, the last one comes first."""
        if page in self.nodes and self.pool.references[page] == 1:
            self.idle[self.nodes[page]] = None

    def evict(self) -> int:
        """Evicts the least recently used idle page."""
        node, _ = self.idle.popitem(last=False)
        assert node.parent is not None and not node.children, f"page {node.page} has children"
        del node.parent.children[node.tokens], self.nodes[node.page]
        self.pool.release(node.page)
        return node.page

    def renumber(self, to: Mapping[int, int]) -> None:
        """Applies moves of pages."""
        for node in self.nodes.values():
            node.page = to.get(node.page, node.page)
        self.nodes = {node.page: node for node in self.nodes.values()}
