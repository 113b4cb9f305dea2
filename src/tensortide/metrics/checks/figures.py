"""Figures of each module: its own, so that those of all modules add up to the step's."""

from __future__ import annotations

import fnmatch
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

import msgspec

from tensortide.graph.model import Graph, Op, Role
from tensortide.metrics.defaults.memory import saved_storages
from tensortide.metrics.subject import Captured
from tensortide.timelines.resident import home_of, storage_homes


class Figures(msgspec.Struct, frozen=True, omit_defaults=True):
    """Costs of a module's own ops, and its own tensors, in base units.

    ``saved`` are bytes that its ops make and the backward reads, ``peak`` bytes of its tensors, and of the workspace of
    its op, that are resident at the peak of the step. ``unknown`` of its ``ops`` have no cost rule.
    """

    flops: int = 0
    macs: int = 0
    bytes: int = 0
    ops: int = 0
    unknown: int = 0
    recomputed_flops: int = 0
    recomputed_ops: int = 0
    parameters: int = 0
    parameter_bytes: int = 0
    saved: int = 0
    peak: int = 0

    def __add__(self, other: Figures) -> Figures:
        return Figures(*map(sum, zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)))


NONE = Figures()

BY_MODULE: Mapping[str, Callable[[Figures], int]] = {
    "flops": lambda one: one.flops,
    "macs": lambda one: one.macs,
    "elementwise_flops": lambda one: one.flops - 2 * one.macs,
    "bytes": lambda one: one.bytes,
    "ops": lambda one: one.ops,
    "unknown_ops": lambda one: one.unknown,
    "recomputed_flops": lambda one: one.recomputed_flops,
    "recomputed_ops": lambda one: one.recomputed_ops,
    "total_params": lambda one: one.parameters,
    "model_size": lambda one: one.parameter_bytes,
    "saved_activations": lambda one: one.saved,
    "step_peak": lambda one: one.peak,
}
"""Metrics that are sums over modules, and how figures state each."""


def figures_by_module(captured: Captured) -> dict[str, Figures]:
    """Return the figures of each module that has some, in the order of the model; ``(root)`` and ``(outside)`` too."""
    graph, found = captured.graph, defaultdict[int, Counter[str]](Counter)
    for (module, recompute), total in captured.count.by(_place).items():
        amounts = {"flops": int(total.flops), "macs": int(total.macs), "bytes": int(total.bytes)}
        found[module].update(amounts, ops=total.ops, unknown=total.unknown)
        if recompute:
            found[module].update(recomputed_flops=int(total.flops), recomputed_ops=total.ops)
    known = {module.path: index for index, module in enumerate(graph.modules)}
    seen: set[int] = set()
    for named in graph.named:
        if named.role is Role.PARAMETER and named.tensor not in seen:
            seen.add(named.tensor)
            tensor, home = graph.tensors[named.tensor], home_of(named.name, known)
            found[home].update(parameters=tensor.numel, parameter_bytes=tensor.numel * tensor.itemsize)
    homes = storage_homes(graph)
    for index in saved_storages(graph):
        found[homes[index]].update(saved=graph.storages[index].nbytes)
    memory = captured.memory
    at = max(0, memory.peak_op)
    for index, nbytes, birth, death in memory.storages():
        if birth <= at < death:
            found[homes[index]].update(peak=nbytes)
    if len(graph):
        found[graph.ops[at].module].update(peak=int(memory.workspace[at]))
    return _in_order(graph, found)


def _place(op: Op) -> tuple[int, bool]:
    return op.module, op.recompute


def _in_order(graph: Graph, found: Mapping[int, Counter[str]]) -> dict[str, Figures]:
    """Join what modules of one path have."""
    joined: dict[str, Figures] = {}
    for index in sorted(found, key=lambda one: (one < 0, one)):
        figures = Figures(**found[index])
        if figures != NONE:
            path = graph.module_path(index)
            joined[path] = joined.get(path, NONE) + figures
    return joined


def matching(pattern: str, paths: Iterable[str]) -> set[str]:
    """Return the ``paths`` that a ``pattern`` matches, or that are inside a module that it matches."""
    return {path for path in paths if any(fnmatch.fnmatchcase(each, pattern) for each in _ancestry(path))}


def _ancestry(path: str) -> list[str]:
    """The path, and those of the modules around it."""
    parts = path.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
