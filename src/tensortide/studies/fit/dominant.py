"""Dominant part of the peak of a step: the group of storages that takes most of it, in one sentence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import TypeAlias

import msgspec

from tensortide.graph.model import Graph, Phase, Role, Source, describe
from tensortide.graph.module_paths import as_one, pattern
from tensortide.timelines import Resident, StorageTimeline
from tensortide.units import format_bytes

_LOSSES = ("_log_softmax", "nll_loss", "_softmax", "cross_entropy", "binary_cross_entropy", "mse_loss")
_STATE = {
    Role.PARAMETER: "parameters",
    Role.GRADIENT: "gradients",
    Role.OPTIMIZER_STATE: "optimizer state",
    Role.BUFFER: "buffers",
    Role.INPUT: "inputs",
    Role.CACHE: "the cache of keys and values",
    Role.LIBRARY: "the workspace of libraries",
}
_UPDATED = (Role.PARAMETER, Role.GRADIENT, Role.OPTIMIZER_STATE)
_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


Shapes: TypeAlias = dict[int, tuple[int, str]]


class Dominant(msgspec.Struct, frozen=True):
    """The group that takes most of the peak: ``nbytes`` in ``count`` storages, and the sentence that says what it is.

    ``source`` is the line that makes the largest of them (``train.py:12``, with its ``code``); ``kind`` is ``loss``
    (copies of logits, or the like), ``kept`` (by repeated modules), ``activations`` or ``state``.
    """

    kind: str
    nbytes: int
    count: int
    share: float
    sentence: str
    source: str
    code: str


def dominant(graph: Graph, line: StorageTimeline) -> Dominant | None:
    """Find what takes most of the peak of ``line``, a Timeline of ``graph``; None if nothing is resident then."""
    alive = line.alive()
    if not alive or not line.peak_bytes:
        return None
    shapes = _widest(graph, alive)
    groups = [*_state(graph, alive), *_repeated(alive, shapes), *_copies(alive, shapes)]
    largest = max(groups, key=lambda group: group.nbytes)
    return msgspec.structs.replace(largest, share=largest.nbytes / line.peak_bytes)


def _state(graph: Graph, alive: Sequence[Resident]) -> Iterable[Dominant]:
    """Return what each role of long-lived storages takes."""
    for role, name in _STATE.items():
        some = [one for one in alive if one.role is role]
        if not some:
            continue
        total, largest = sum(one.nbytes for one in some), max(some, key=lambda one: one.nbytes)
        place, code = _line(_updated(graph) if role in _UPDATED else None)
        what = f"{name}, in {len(some)} tensor{'s' * (len(some) > 1)}"
        most = f", largest: {largest.name}, {format_bytes(largest.nbytes)}" if largest.name and len(some) > 1 else ""
        where = f"; updated at {place}: {code}" if place else ""
        yield Dominant("state", total, len(some), 0.0, f"{what}{most}{where}", place, code)


def _updated(graph: Graph) -> Source | None:
    """The line of the first op of the optimizer."""
    return next((op.source for op in graph if op.phase is Phase.OPTIMIZER and op.source is not None), None)


def _repeated(alive: Sequence[Resident], shapes: Shapes) -> Iterable[Dominant]:
    """Return what repeated modules keep, and their temporaries, by the outermost of them."""
    groups: defaultdict[tuple[str, bool], list[Resident]] = defaultdict(list)
    for one in alive:
        head = _head(one.module)
        if one.role not in _STATE and head is not None:
            groups[head, one.role is Role.TEMPORARY].append(one)
    for (head, is_temporary), some in groups.items():
        prefix = f"{head}." * bool(head)
        total = sum(one.nbytes for one in some)
        alike: defaultdict[tuple[object, ...], list[Resident]] = defaultdict(list)
        for one in some:
            alike[one.nbytes, pattern(one.module), one.op_name, one.source].append(one)
        most = max(alike.values(), key=lambda group: sum(one.nbytes for one in group))
        place, code = _line(most[0].source)
        blocks = [prefix + one.module.removeprefix(prefix).partition(".")[0] for one in some]
        named = as_one(blocks)
        what = f"temporaries of {named}" if is_temporary else f"what {named} keep for the backward pass"
        extent = "most of it" if 2 * sum(one.nbytes for one in most) > total else "the largest part"
        part = f"{extent} {len(most)} x {shapes[most[0].storage][1]} of {_short(most[0].op_name)}"
        shown = f"{what}, in {len(some)} tensor{'s' * (len(some) > 1)}, {part}{_at(place, code)}"
        yield Dominant("activations" if is_temporary else "kept", total, len(some), 0.0, shown, place, code)


def _copies(alive: Sequence[Resident], shapes: Shapes) -> Iterable[Dominant]:
    """Tensors of one size outside of repeated modules: copies of one thing."""
    groups: defaultdict[tuple[int, int], list[Resident]] = defaultdict(list)
    for one in alive:
        if one.role not in _STATE and _head(one.module) is None:
            groups[shapes[one.storage][0], one.nbytes].append(one)
    for some in groups.values():
        total = sum(one.nbytes for one in some)
        maker = next((one for one in some if any(loss in one.op_name for loss in _LOSSES)), None)
        first = maker or some[0]
        place, code = _line(first.source)
        what = "the logits" if maker is not None else f"the result of {_short(first.op_name)}"
        number = _WORDS[len(some)] if len(some) < len(_WORDS) else str(len(some))
        copies = f"{number} {'copies' if len(some) > 1 else 'copy'} of {what}"
        shape = f"{shapes[first.storage][1]} of {format_bytes(some[0].nbytes)}{' each' * (len(some) > 1)}"
        where = "at the loss" if maker is not None else f"in {first.module}"
        shown = f"{copies}, {shape}, {where}{_at(place, code)}"
        yield Dominant("loss" if maker else "activations", total, len(some), 0.0, shown, place, code)


def _at(place: str, code: str) -> str:
    return f", {place}{f': {code}' if code else ''}" if place else ""


def _widest(graph: Graph, alive: Sequence[Resident]) -> Shapes:
    """Elements, and dtype with shape, of the largest tensor of each storage that is resident."""
    found = {one.storage: (0, "") for one in alive}
    for tensor in graph.tensors:
        if tensor.storage in found:
            count = tensor.region_bytes // max(1, tensor.itemsize)
            if count > found[tensor.storage][0]:
                found[tensor.storage] = count, describe(tensor)
    return found


def _head(module: str) -> str | None:
    """The path of the list that the outermost numbered module in ``module`` is in; None if none is numbered."""
    parts = module.split(".")
    at = next((i for i, part in enumerate(parts) if part.isdecimal()), None)
    return None if at is None else ".".join(parts[:at])


def _short(op: str) -> str:
    return op.split(".")[1] if op.startswith("aten.") else op


def _line(source: Source | None) -> tuple[str, str]:
    """A line of code as ``train.py:12``, and its text."""
    return ("", "") if source is None else (f"{PurePath(source.file).name}:{source.line}", source.code)
