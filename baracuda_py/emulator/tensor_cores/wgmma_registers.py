"""The registers of wgmma: wgmma.fence passes them to the instruction, and a wait returns them.

PTX ISA, Asynchronous Warpgroup-level Matrix Instructions: wgmma.fence. A fence must come between a thread's access to a register
and a product that adds to the register or reads A from it, and before a warpgroup's first product; products of the same shape
may share accumulators without a fence. Copies of registers and of constants do not count as accesses: a compiler places them
anywhere, also after a fence, and ptxas removes them. A copied register counts as accessed where its source was accessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...types.faults import RaceFault
from ..ptx.named import read, registers, written
from ..ptx.syntax import Instruction, Vector
from ..threads.lanes import WARP, Array, Selection

if TYPE_CHECKING:
    from ..wave import Wave

__all__ = ["GROUP", "Fragments", "WgmmaRegisters"]

GROUP = 4 * WARP
NO_USE = -1


class Fragments:
    """The registers of an entry that products add to or read A from, and the registers that are copied into these, by number;
    and the uses of them by instructions."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self._copies = {n: i for n, i in enumerate(instructions) if i.opcode[0] == "mov" and len(i.operands) == 2}
        products = {n: i for n, i in enumerate(instructions) if i.opcode[:2] == ("wgmma", "mma_async")}
        self.sums = {n: tuple(registers(i.operands[0])) for n, i in products.items()}
        self.multiplicands = {
            n: tuple(registers(i.operands[1])) if isinstance(i.operands[1], Vector) else () for n, i in products.items()
        }
        self.shapes = {n: i.opcode[4] for n, i in products.items()}
        names = {x for each in (self.sums, self.multiplicands) for of in each.values() for x in of}
        grows = bool(names)
        while grows:
            sources = {x for i in self._copies.values() if names & written(i) for x in read(i)}
            grows = not sources <= names
            names |= sources
        self.numbers = {name: k for k, name in enumerate(sorted(names))}
        self.uses: list[Uses] = []

    def concerns(self, i: Instruction) -> bool:
        return (
            i.opcode[0] != "wgmma" and bool(self.numbers) and not self.numbers.keys().isdisjoint(read(i) | written(i))
        )

    def use(self, n: int, i: Instruction, *, go_on: bool) -> int | None:
        """Notes the uses of an instruction, together with those of the previous ones if they `go_on` here; returns the number
        of the uses if they begin here."""
        begins = not go_on or not self.uses
        if begins:
            self.uses.append(Uses())
        self.uses[-1].add(self.numbers, n, i, copies=n in self._copies)
        return len(self.uses) - 1 if begins else None


class Uses:
    """The uses of registers, by number, by consecutive instructions: the registers that they read, and steps. A step covers many
    registers, and either copies them (from registers, or from sources that do not matter) or accesses them."""

    def __init__(self) -> None:
        self.reads: dict[int, int] = {}  # and the first instruction that reads it
        self.steps: list[
            tuple[bool, list[tuple[int, int]]]
        ] = []  # (copies, registers with a source or the accessing instruction)

    def add(self, numbers: dict[str, int], n: int, i: Instruction, *, copies: bool) -> None:
        for name in read(i) & numbers.keys():
            self.reads.setdefault(numbers[name], n)
        sources = [numbers.get(x, NO_USE) for x in read(i) - {i.guard}] or [NO_USE] if copies else [n]
        named = written(i) if copies else read(i) | written(i)
        made = [(numbers[x], source) for x in named & numbers.keys() for source in sources]
        if (
            not self.steps
            or self.steps[-1][0] != copies
            or (copies and self._made() & {x for pair in made for x in pair})
        ):
            self.steps.append((copies, []))
        self.steps[-1][1].extend(made)

    def _made(self) -> set[int]:
        return {to for to, _ in self.steps[-1][1]}


class WgmmaRegisters:
    """For the warpgroups of a wave: the last access to each register since the last fence, the products that use it, and the
    shape of the last product that added to it."""

    def __init__(self, wave: Wave) -> None:
        self._wave, self._of = wave, wave.launched.code.fragments
        self._bundle = wave.lanes.bundle(GROUP) if wave.launched.grouped else np.zeros(1, np.intp)
        extent = len(self._of.numbers), int(self._bundle[-1]) + 1
        self._touched, self._shape = np.full(extent, NO_USE, np.int32), np.zeros(extent, np.int16)
        self._busy = np.zeros(extent, bool)
        self._fenced = np.zeros(extent[1], bool)
        self._shapes = {shape: 1 + k for k, shape in enumerate(sorted(set(self._of.shapes.values())))}
        self._uses = [
            (_columns(u.reads.items()), [(copies, *_columns(made)) for copies, made in u.steps]) for u in self._of.uses
        ]
        self._named = {
            n: tuple(
                np.array([self._of.numbers[x] for x in names], np.intp) for names in (d, self._of.multiplicands[n])
            )
            for n, d in self._of.sums.items()
        }

    def _groups(self, s: Selection) -> Array:
        here = np.zeros(self._fenced.shape, bool)
        here[self._bundle[s]] = True
        return np.flatnonzero(here)

    def fence(self, s: Selection) -> None:
        groups = self._groups(s)
        self._touched[:, groups], self._shape[:, groups], self._fenced[groups] = NO_USE, 0, True

    def use(self, k: int, s: Selection) -> None:
        """RaceFault where instructions read registers of a product that these threads have not waited for."""
        groups = self._groups(s)
        (reads, readers), steps = self._uses[k]
        if (busy := self._busy[reads[:, None], groups]).any():
            at, group = (int(x[0]) for x in np.nonzero(busy))
            first = int(np.flatnonzero(self._bundle[s] == groups[group])[0])
            text = "a wgmma's accumulators read before it is waited for"
            raise self._wave.fault(RaceFault, text, int(readers[at]), s, first)
        for copies, to, of in steps:
            into, source = (to[:, None], groups), (of[:, None], groups)
            if not copies:
                self._touched[into] = of[:, None]
                continue
            for plane, least in ((self._touched, NO_USE), (self._shape, 0)):
                held = np.where(of[:, None] == NO_USE, least, plane[source])
                plane[into] = least
                np.maximum.at(plane, into, held)  # a register may be combined from several

    def multiply(self, n: int, s: Selection) -> None:
        """A product begins; RaceFault where no fence passed its registers to it."""
        groups, shape = self._groups(s), self._shapes[self._of.shapes[n]]
        sums, multiplicands = self._named[n]
        if not self._fenced[groups].all():
            raise self._wave.fault(RaceFault, "wgmma with no wgmma.fence ahead of it", n, s, 0)
        for at in ((sums[:, None], groups), (multiplicands[:, None], groups)):
            if (touched := self._touched[at]).max(initial=NO_USE) >= 0:
                item = self._wave.launched.code.instructions[int(touched.max())]
                what = f"wgmma with no wgmma.fence since {item.text!r} ({item.source}) accessed its registers"
                raise self._wave.fault(RaceFault, what, n, s, 0)
        before = self._shape[sums[:, None], groups]
        if ((before != 0) & (before != shape)).any() or self._shape[multiplicands[:, None], groups].any():
            what = (
                "wgmma with no wgmma.fence since another added to its registers, of another shape or for it to multiply"
            )
            raise self._wave.fault(RaceFault, what, n, s, 0)
        self._shape[sums[:, None], groups], self._busy[sums[:, None], groups] = shape, True

    def over(self, n: int, lanes: Array) -> None:
        """Products have been waited for."""
        self._busy[self._named[n][0][:, None], self._groups(lanes)] = False


def _columns(pairs: Iterable[tuple[int, int]]) -> tuple[Array, Array]:
    to, of = np.array(list(pairs), np.int32).reshape(-1, 2).T
    return to, of
