"""Caches of steps that only infer: the keys, values and states that one step leaves for the next.

They are recognized by what the step does to them, whatever holds them: a static cache is written, a growing one is
replaced by its concatenation with what is new, and that of a first step is made in it and returned beside its results.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

import torch
from msgspec.structs import replace

from tensortide.cost.access import OVERWRITING
from tensortide.graph.model import Named, Op, Phase, Role
from tensortide.recorder.found import reached
from tensortide.recorder.recorder import Recorder
from tensortide.recorder.steady import is_result

_RANK = 3
"""Least number of dimensions of a cache: others that a step writes are statistics and counters."""
_HELD = (Role.INPUT, Role.BUFFER)
"""Roles of what a program keeps from step to step, in variables or in modules."""


def infers(ops: Sequence[Op]) -> bool:
    """Tell whether a step of ``ops`` trains nothing."""
    return not any(op.phase in (Phase.BACKWARD, Phase.OPTIMIZER) for op in ops)


def returned(recorder: Recorder, leaves: Sequence[Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield what objects among the ``leaves`` that an inferring step returns beside tensors hold, and it has made."""
    if not infers(recorder.ops) or not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return
    objects = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
    for name, tensor in reached(objects[0] if len(objects) == 1 else objects, "output").tensors.items():
        storage = recorder.storage_of(tensor)
        if storage is not None and recorder.storages[storage].birth is not None and tensor.dim() >= _RANK:
            yield name, tensor


def with_caches(recorder: Recorder, named: Sequence[Named]) -> tuple[Named, ...]:
    """Give the role of a cache to those of ``named`` that are one, and their names to what takes their places."""
    if not infers(recorder.ops):
        return tuple(named)
    outputs = {recorder.tensors[entry.tensor].storage for entry in named if is_result(entry.name)}
    written, grown = _written(recorder), _grown(recorder, outputs)
    replacing: set[int] = set()
    found: list[Named] = []
    for entry in named:
        storage = recorder.tensors[entry.tensor].storage
        held = entry.role in _HELD and recorder.storages[storage].birth is None
        if not held or len(recorder.tensors[entry.tensor].shape) < _RANK or storage not in written | grown.keys():
            found.append(entry)
            continue
        found.append(replace(entry, role=Role.CACHE))
        if storage in grown:
            found.append(replace(entry, role=Role.CACHE, tensor=grown[storage]))
            replacing.add(recorder.tensors[grown[storage]].storage)
    # what replaces a cache has its name, not that of the variable it is left in
    left = (each.role is Role.OUTPUT and recorder.tensors[each.tensor].storage in replacing for each in found)
    return tuple(each for each, again in zip(found, left, strict=True) if not again)


def _written(recorder: Recorder) -> set[int]:
    """Storages that the step writes, and that have in it what an earlier step wrote: neither those that are overwritten
    as a whole before anything reads them, as a batch is copied into its place, nor operands of in-place arithmetic."""
    ops, calls, tensors, storages = recorder.ops, recorder.calls, recorder.tensors, recorder.storages
    overwritten, carried, written = set[int](), set[int](), set[int]()
    for op in ops:
        call = calls[op.call]
        name = call.op.split(".")[1]
        for place, tensor in enumerate(op.inputs):
            storage = tensors[tensor].storage
            if place not in call.mutated:
                if "view" not in call.tags and storage not in overwritten:
                    carried.add(storage)
                continue
            if name in OVERWRITING.split() and tensors[tensor].nbytes == storages[storage].nbytes:
                overwritten.add(storage)
            elif name in OVERWRITING.split() or "pointwise" not in call.tags:
                carried.add(storage)
            else:
                continue
            written.add(storage)
    return written & carried


def _grown(recorder: Recorder, outputs: Container[int]) -> dict[int, int]:
    """By each storage that is concatenated with others, the result, where that outlives the step and is no output."""
    grown: dict[int, int] = {}
    for op in recorder.ops:
        if recorder.calls[op.call].op == "aten.cat.default":
            (result,) = op.outputs
            storage = recorder.tensors[result].storage
            if storage not in outputs and recorder.storages[storage].death is None:
                grown.update(dict.fromkeys([recorder.tensors[each].storage for each in op.inputs], result))
    return grown
