"""A repeated call. Nothing is described, selected or checked again, except for what a key does not cover."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...plan.selection import Selection
from ...runtime.gpu.streams import LEGACY, stream_getter, stream_pointer
from ...tensor.pytorch import is_tensor, note_written
from ..operands.key import NO_TORCH, is_cupy_array
from ..results.outputs import Output
from .recipe import Recipe, not_passed

__all__ = ["MISSED", "Ready"]

_NONE: Mapping[str, Any] = {}
MISSED: Any = object()  # the call must take the long path


class Ready:
    """A selection, its validated recipe, and the allocators of the outputs that a call with this key does not pass."""

    __slots__ = (
        "_converted",
        "_defaults",
        "_derived",
        "_made",
        "_mixed",
        "_on_torch",
        "_op",
        "_result",
        "_torch_stream",
        "_written",
        "operand_count",
        "recipe",
        "selection",
        "used",
    )

    def __init__(
        self, selection: Selection, recipe: Recipe, given: Mapping[str, Any], made: Mapping[str, Output],
        defaults: Mapping[str, Any] = _NONE,
    ) -> None:  # fmt: skip
        """`given` are the operands of such a call, without the outputs in `made`. `defaults` are the run-time values that it
        does not pass."""
        self.selection, self.recipe, self.used = selection, recipe, 0
        self._defaults = dict(defaults)
        self._derived = selection.desc.resolve if defaults and selection.desc.derived else None
        self.operand_count = sum(x is not None for x in given.values())
        self._op, self._result = selection.desc.op, selection.result
        self._torch_stream: Callable[[int], Any] = stream_getter("torch")
        places = {operand.name: i for i, operand in enumerate(selection.operands)}
        self._made = tuple((places[name], name, output) for name, output in made.items())
        self._converted = tuple((name, output) for name, output in made.items() if output.converts)
        written = [given.get(o.name) for o in selection.operands if o.written]
        self._written = [o.name for o in selection.operands if o.written and is_tensor(given.get(o.name))]
        self._mixed = any(map(is_cupy_array, given.values()))
        # A call whose result is a torch tensor runs on torch's stream.
        self._on_torch = any(is_tensor(x) for x in written) or any(o.uses_torch for o in made.values())

    def launch(
        self, given: Mapping[str, Any], pointers: list[int], values: Mapping[str, Any], stream: Any, ordinal: int
    ) -> Any:
        """Launches and returns the result, or MISSED. `ordinal` is the CUDA ordinal of the torch tensors."""
        recipe = self.recipe
        if self._derived is not None:
            values = self._derived(values)[1]
        elif self._defaults:
            values = {**self._defaults, **values} if values else self._defaults
        if recipe.refuses(pointers, given):
            return MISSED
        handle = None if stream is None else stream_pointer(stream)
        torch_stream = None
        if ordinal != NO_TORCH:
            torch_stream = self._torch_stream(ordinal)
            if handle is None:
                handle = torch_stream if self._on_torch else recipe.current_stream()
                if self._mixed and handle != recipe.current_stream():  # one stream must wait for the other
                    return MISSED
            if handle != torch_stream:
                return MISSED
        if stream is None:
            # If the other framework's current stream is being captured, the graph would silently lack this call.
            other = self._torch_stream(recipe.ordinal) if torch_stream is None else recipe.stream_of().ptr
            if other is not None and other > LEGACY:
                mine = recipe.stream_of().ptr if handle is None else handle
                if other != mine and recipe.is_capturing(other):
                    return MISSED
        if not self._made:
            recipe.launch(pointers, values, 0, handle)
            if self._written:
                note_written([given[name] for name in self._written])
            return self._result(given)
        if recipe.elsewhere():  # an output must be allocated on the operands' device
            return MISSED
        current: int = recipe.stream_of().ptr if torch_stream is None else torch_stream
        queue = current if handle is None else handle
        capturing = queue > LEGACY and recipe.is_capturing(queue)
        if capturing and not recipe.may_allocate:
            raise not_passed(self._op, self._made[0][1])
        whole = dict(given)
        for place, name, output in self._made:
            # a call of torch tensors allocates with CuPy where torch lacks the dtype
            known = not capturing and (output.uses_torch or torch_stream is None)
            fresh = whole[name] = output.make(queue, current if known else None)
            pointers[place] = output.address(fresh)
        recipe.launch_on_current_device(pointers, values, 0, queue)
        for name, output in self._converted:
            whole[name] = output.finished(whole[name], queue)
        if self._written:
            note_written([whole[name] for name in self._written])
        return self._result(whole)
