"""Lists of arrays as one step: their checks, and the table of their chunks, which one launch takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from operator import is_
from typing import Any

import numpy as np

from ...call.operands.key import detect_frameworks, read
from ...call.operands.list_key import ListKey, key_of_list
from ...call.operands.stream import framework_stream
from ...runtime.gpu.driver import require_cupy
from ...runtime.gpu.streams import current_stream, is_capturing, stream_pointer
from ...runtime.scope import is_recording
from ...runtime.untraced import untraced
from ...tensor import HOST_ORDINAL, Tensor, intake
from ...tensor.axes import c_strides
from ...tensor.pytorch import is_tensor, note_written
from ...types import (
    DeviceMismatchError,
    InvalidProblemError,
    OperandTypeError,
    OverlapError,
    UnsupportedError,
)
from ...types.errors import Renamed
from ._table import BLOCK, LEAD, rows_of
from ._tables import table_found, table_made

__all__ = ["GRADIENTS", "PARAMETERS", "call_on_lists"]

PARAMETERS, GRADIENTS = "params", "grads"
SCALARS = {"learning_rate": "lr", "beta1": "betas[0]", "beta2": "betas[1]"}  # what functions for lists call them
ALIGN = 16  # elements between the starts of arrays in host memory

Array = np.ndarray[Any, Any]


@untraced
def call_on_lists(
    op: str, function: Callable[..., Any], lists: Mapping[str, Any], written: Collection[str], scalars: Mapping[str, Any],
    *, counted: bool = False, blocks: Collection[str] = (), **options: Any,
) -> Any:  # fmt: skip
    """What `function`, which takes one array of each list, returns of whole lists; its table counts an array's rows if `counted`.
    An array of `blocks` has an entry for BLOCK elements of the others.

    `lists` maps its operands to (what the list is called, its arrays or None), those that are `written` among them; `scalars`
    are the arrays that all share, `options` other arguments.
    """
    places, arrays = _gathered(op, lists)
    first, stream = next(iter(next(iter(arrays.values()))), None), options.get("stream")
    renamed = Renamed(function.__name__, op, partial(_of_lists, lists, places[:1]))
    keys = None if first is None else _keys_of(op, arrays)
    found = None if keys is None else table_found((op, *keys.items()))
    if found is not None and not found.reaches(_addresses(scalars.values())):
        queue = _queue(first, stream)
        found.used_on(queue)
        if stream is None and _waits_for_nothing(queue, [first, *scalars.values()]):
            options = {**options, "stream": queue}
    else:
        tensors = _checked(op, lists, arrays, places, written, scalars, blocks)
        pers = [BLOCK if name in blocks else 1 for name in tensors]
        detect_frameworks()
        ordinal = next(iter(tensors.values()))[0].ordinal if first is not None else HOST_ORDINAL
        if ordinal == HOST_ORDINAL:
            with renamed:
                made = _call_on_host(op, function, tensors, written, scalars, options, counted, pers)
            note_written(x for name in written for x in arrays.get(name, ()))
            return made
        keys = _keys_of(op, arrays)  # frameworks have been detected
        spans = [x.interval() for held in tensors.values() for x in held]
        with require_cupy("a table of arrays").cuda.Device(ordinal):
            key = None if keys is None else (op, *keys.items())
            found = table_made(key, _queue(first, stream), *_rows_of(tensors, counted, pers), spans)
    bases = {name: held[found.base] for name, held in arrays.items()}
    with renamed:
        made = function(**bases, **scalars, table=found.rows, **options)
    noted = [name for name in written if name in arrays and (keys is None or keys[name].has_tensors)]
    note_written(chain.from_iterable(arrays[name] for name in noted))
    return made


def _keys_of(op: str, arrays: Mapping[str, list[Any]]) -> dict[str, ListKey] | None:
    """What names the arrays of a call, and all for which they could be refused; None if some array requires the long path."""
    keys = dict[str, ListKey]()
    for name, held in arrays.items():
        if (key := key_of_list(held, (op, name))) is None:
            return None
        keys[name] = key
    return keys


def _addresses(scalars: Iterable[Any]) -> list[int]:
    """Of the scalars in device memory that have one at hand: all others are refused, or cannot be written."""
    found = list[int]()
    for x in scalars:
        read((x,), None, [], found)
    return found


def _of_lists(lists: Mapping[str, Any], first: Sequence[int], text: str) -> str:
    """A text on the arrays of one parameter, said of the lists: what it says of a kind, all arrays of a list have in common with
    the first one that has a gradient."""
    called = {name: known for name, (known, _) in lists.items()}

    def own(match: re.Match[str]) -> str:
        before, name = match.groups()
        if name not in called:
            return before + SCALARS[name]
        return before + str(called[name]) + (f"[{first[0]}]" if first and not before else "")

    return re.sub(rf"\b(without |)(?<!\ba )(?<!\bno )({'|'.join((*called, *SCALARS))})\b", own, text)


def _gathered(op: str, lists: Mapping[str, Any]) -> tuple[Sequence[int], dict[str, list[Any]]]:
    """The lists that there are, by operand, of one length, and the places in them of what is taken: a parameter whose gradient is
    None is left out."""
    if lists["grad"][1] is None:
        raise OperandTypeError(f"{op}: {lists['grad'][0]} is None", "pass a list of arrays")
    found = {name: (called, _listed(op, called, given)) for name, (called, given) in lists.items() if given is not None}
    first, leading = next(iter(found.values()))
    for called, arrays in found.values():
        if len(arrays) != len(leading):
            raise InvalidProblemError(
                f"{op}: {first} has {len(leading)} arrays and {called} {len(arrays)}", "pass one for each parameter"
            )
    grads = found["grad"][1]
    if not any(map(is_, grads, repeat(None))):
        return range(len(grads)), {name: arrays for name, (_, arrays) in found.items()}
    with_gradient = [i for i, x in enumerate(grads) if x is not None]
    return with_gradient, {name: [arrays[i] for i in with_gradient] for name, (_, arrays) in found.items()}


def _listed(op: str, called: str, given: Any) -> list[Any]:
    """A list of a list, a tuple, an iterator, or one array."""
    if hasattr(given, "shape"):
        return [given]
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidProblemError(f"{op}: {called} is a {type(given).__name__}", "pass a list of arrays")
    return list(given)


def _checked(
    op: str, lists: Mapping[str, Any], arrays: Mapping[str, list[Any]], places: Sequence[int], written: Collection[str],
    scalars: Mapping[str, Any], blocks: Collection[str],
) -> dict[str, list[Tensor]]:  # fmt: skip
    """The arrays as tensors, of one device, one kind a list and one shape a parameter, in C order, none of which shares memory
    with one that is written."""
    called = {name: [f"{lists[name][0]}[{place}]" for place in places] for name in arrays}
    tensors = {
        name: [intake(x, what=f"{op}: {called[name][i]}") for i, x in enumerate(held)] for name, held in arrays.items()
    }
    leading = next(iter(tensors))
    for i, lead in enumerate(tensors[leading]):
        for name, held in tensors.items():
            what = called[name][i]
            shape = (-(-_length(lead) // BLOCK),) if name in blocks else lead.shape
            _check_one(op, what, held[i], held[0], shape, called[leading][i], lead.shape)
            if held[i].readonly and name in written:
                raise OperandTypeError(
                    f"{op}: {what} is written and the {held[i].framework} array is read-only", "pass a writable array"
                )
            first = tensors[leading][0]
            if held[i].ordinal != first.ordinal:
                raise DeviceMismatchError(
                    f"{op}: {called[leading][0]} is on {_device(first)} and {what} on {_device(held[i])}",
                    "pass arrays of one device",
                )
    spans = [
        (*x.interval(), name in written, called[name][i]) for name, held in tensors.items() for i, x in enumerate(held)
    ]
    shared = {name: intake(x, what=f"{op}: {name}") for name, x in scalars.items() if hasattr(x, "shape")}
    _refuse_shared(op, [*spans, *((*x.interval(), name == "step", name) for name, x in shared.items())])
    return tensors


def _check_one(
    op: str, what: str, x: Tensor, first: Tensor, shape: tuple[int, ...], leading: str, of: tuple[int, ...]
) -> None:
    if x.element is not first.element:
        raise OperandTypeError(
            f"{op}: {what} holds {x.element}, and the first of its list {first.element}",
            "call it once for each kind",
        )
    if x.shape != shape:
        fix = "pass arrays of one shape" if shape == of else f"pass one of {shape}: an entry for {BLOCK} elements"
        raise InvalidProblemError(f"{op}: {leading} has shape {of} and {what} {x.shape}", fix)
    wanted = c_strides(x.shape)
    if any(n > 1 and a != b for n, a, b in zip(x.shape, x.strides, wanted)) and 0 not in x.shape:
        raise InvalidProblemError(
            f"{op}: {what} of shape {x.shape} has strides {x.strides}", "pass C-ordered arrays, such as x.contiguous()"
        )


def _device(x: Tensor) -> str:
    return "the host" if x.ordinal == HOST_ORDINAL else f"CUDA device {x.ordinal}"


def _refuse_shared(op: str, spans: list[tuple[int, int, bool, str]]) -> None:
    """Raises where an array that is written overlaps another, in one pass over the arrays by address."""
    ends: dict[bool, tuple[int, str]] = {False: (0, ""), True: (0, "")}  # the last end of all, and of those written
    for low, high, written, what in sorted(spans):
        end, other = ends[not written]
        if low < high and low < end:
            raise OverlapError(
                f"{op}: {what} and {other} share memory, and one is written", "pass a copy of one of them"
            )
        if low < high:
            ends[False] = max(ends[False], (high, what))
            ends[True] = max(ends[True], (high, what)) if written else ends[True]


def _sizes(tensors: Mapping[str, list[Tensor]]) -> list[int]:
    return [held[0].element.bits // 8 for held in tensors.values()]


def _length(x: Tensor) -> int:
    return int(np.prod(x.shape, dtype=np.int64))


def _rows_of(tensors: Mapping[str, list[Tensor]], counted: bool, pers: list[int]) -> tuple[int, Array]:
    """Which arrays the rows of a table count from, that have elements if any have, and the rows."""
    lengths = [_length(x) for x in next(iter(tensors.values()))]
    base = max(range(len(lengths)), key=lengths.__getitem__)
    begins = [[x.pointer - held[base].pointer for x in held] for held in tensors.values()]
    return base, rows_of(lengths, begins, _sizes(tensors), pers, counted=counted)


def _queue(x: Any, stream: Any) -> int:
    """The stream of a call."""
    own = framework_stream(x) if stream is None else stream_pointer(stream)
    return current_stream() if own is None else own


def _waits_for_nothing(queue: int, arrays: Iterable[Any]) -> bool:
    """Whether a call on torch's stream `queue` may name it. One that names no stream waits for CuPy's current one; here the only
    CuPy array is the table, which is copied in the order of `queue`. A capture of either stream is left to the call's checks."""
    if not all(map(is_tensor, arrays)) or (own := current_stream()) == queue:
        return False
    return not (is_capturing(queue) or is_capturing(own))


def _call_on_host(
    op: str, function: Callable[..., Any], tensors: Mapping[str, list[Tensor]], written: Collection[str],
    scalars: Mapping[str, Any], options: Any, counted: bool, pers: list[int],
) -> Any:  # fmt: skip
    """A call on host arrays: they are copied into one array a list, and what is written is copied back."""
    if is_recording():
        raise UnsupportedError(f"{op}: a recording cannot hold lists of host arrays", "pass arrays of a GPU")
    lengths = [_length(x) for x in next(iter(tensors.values()))]
    align = max(ALIGN, *pers)  # whole blocks of each
    whole = np.cumsum([0, *(-(-n // align) * align for n in lengths)])
    starts = {name: whole // per for name, per in zip(tensors, pers)}
    flat = {name: _packed(held, starts[name]) for name, held in tensors.items()}
    rows = np.zeros((0, LEAD + len(tensors) + counted), np.int64)
    if lengths:
        sizes = _sizes(tensors)
        begins = [[int(start) * size for start in own[:-1]] for own, size in zip(starts.values(), sizes)]
        rows = rows_of(lengths, begins, sizes, pers, counted=counted)
    made = function(**flat, **scalars, table=rows, **options)
    for name in written:
        for part, x in zip(_parts(flat[name], tensors[name], starts[name]), tensors[name]) if name in tensors else ():
            x.array()[...] = part
    return made


def _packed(held: list[Tensor], starts: Array) -> Array:
    made = np.zeros(int(starts[-1]), held[0].element.dtype if held else np.float32)
    for part, x in zip(_parts(made, held, starts), held):
        part[...] = x.array()
    return made


def _parts(flat: Array, held: list[Tensor], starts: Array) -> Iterator[Array]:
    return (flat[start : start + _length(x)].reshape(x.shape) for start, x in zip(starts, held))
