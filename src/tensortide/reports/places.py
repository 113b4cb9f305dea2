"""Ops and storages in a reader's words: phase, signature, source line, module."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from tensortide.graph.model import OUTSIDE, Graph, Op, Tensor, describe

__all__ = ["home_of", "pattern", "phase_of", "shared", "signatures", "source_place", "storage_homes", "widest_tensors"]

RECOMPUTE = "recompute"
"""Phase of recomputed ops in a report; in the graph that is a flag."""

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


def phase_of(op: Op) -> str:
    """Phase of ``op`` in a report: recomputation is one of its own."""
    return RECOMPUTE if op.recompute else op.phase.value


def signatures(graph: Graph) -> tuple[str, ...]:
    """Signature of each op: ``f32[8,16], f32[16,4] -> f32[8,4]``."""
    shown = [describe(tensor) for tensor in graph.tensors]
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], str] = {}
    for op in graph.ops:
        if (key := (op.inputs, op.outputs)) not in known:
            inputs, outputs = (", ".join([shown[i] for i in side]) for side in key)
            known[key] = f"{inputs} -> {outputs}".strip()
    return tuple(known[op.inputs, op.outputs] for op in graph.ops)


def source_place(graph: Graph, index: int) -> str:
    """Source line ``index`` of ``graph``, short enough to show: ``train.py:12``."""
    return "" if index < 0 else f"{PurePath(graph.sources[index].file).name}:{graph.sources[index].line}"


def widest_tensors(graph: Graph) -> dict[int, str]:
    """Dtype and shape of the largest tensor in each storage: what the storage is, for a reader."""
    widest: dict[int, Tensor] = {}
    for tensor in graph.tensors:
        known = widest.get(tensor.storage)
        if known is None or tensor.region_bytes > known.region_bytes:
            widest[tensor.storage] = tensor
    return {storage: describe(tensor) for storage, tensor in widest.items()}


def storage_homes(graph: Graph) -> list[int]:
    """Module of each storage: that of the parameter it belongs to by name, else that of the op that allocated it."""
    known = {module.path: i for i, module in enumerate(graph.modules)}
    homes = []
    for storage in graph.storages:
        home = home_of(storage.name, known) if storage.role.row.of_module else OUTSIDE
        born = OUTSIDE if storage.birth is None else graph.ops[storage.birth].module
        homes.append(born if home == OUTSIDE else home)
    return homes


def home_of(name: str, known: Mapping[str, int]) -> int:
    """The module that owns the parameter, buffer, gradient or state ``name``: the longest known prefix of it."""
    prefix = name
    while prefix:
        prefix = prefix.rpartition(".")[0]
        if prefix in known:
            return known[prefix]
    return OUTSIDE


def pattern(path: str) -> str:
    """``path`` with every number that is a whole name replaced by ``*``."""
    return _NUMBER.sub("*", path)


def shared(paths: Sequence[str]) -> str:
    """The parts common to ``paths`` of one pattern, ``*`` where they differ: ``h.*.0`` of ``h.1.0`` and ``h.2.0``."""
    levels = zip(*(path.split(".") for path in set(paths)), strict=False)
    return ".".join(names[0] if len(set(names)) == 1 else "*" for names in levels)
