"""Figures of each module: its own, so that those of all modules add up to the step's."""

from __future__ import annotations

import fnmatch
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Annotated, Self

from tensortide.cost import Total
from tensortide.differences import Amounts
from tensortide.graph.model import Graph, Op, Role
from tensortide.measures.defaults.memory import saved_storages
from tensortide.measures.subject import Captured
from tensortide.shown import Show
from tensortide.timelines.resident import home_of, storage_homes


class Figures(Amounts, frozen=True, omit_defaults=True):
    """Costs of a module's own ops, and its own tensors, in base units.

    ``saved_bytes`` are those that its ops make and the backward reads, ``peak_bytes`` those of its tensors, and of the
    workspace of its op, that are resident at the peak of the step. With ``unknown_ops``, which no rule prices, costs
    are lower bounds. ``time_ns`` is None without times.
    """

    flops: Annotated[int, Show("FLOPs")] = 0
    macs: Annotated[int, Show("MACs")] = 0
    accessed_bytes: Annotated[int, Show("Bytes")] = 0
    ops: Annotated[int, Show("Ops")] = 0
    unknown_ops: Annotated[int, Show("Ops without a rule")] = 0
    recomputed_flops: Annotated[int, Show("Recomputed")] = 0
    recomputed_ops: Annotated[int, Show("Recomputed ops")] = 0
    parameters: Annotated[int, Show("Params", "amount")] = 0
    parameter_bytes: Annotated[int, Show("Model size")] = 0
    saved_bytes: Annotated[int, Show("Saved")] = 0
    peak_bytes: Annotated[int | None, Show("At peak")] = 0
    time_ns: Annotated[int | None, Show("Time")] = None

    def nothing(self) -> Self:
        """Return the figures of what is missing: of its time nothing is known where no times are."""
        return type(self)(time_ns=None if self.time_ns is None else 0)

    @property
    def elementwise_flops(self) -> Annotated[int, Show("Elementwise")]:
        """FLOPs of what is no product of matrices."""
        return self.flops - 2 * self.macs


NONE = Figures()

BY_MODULE: Mapping[str, str] = {
    **{name: name for name in ("flops", "macs", "elementwise_flops", "ops", "unknown_ops")},
    **{name: name for name in ("recomputed_flops", "recomputed_ops")},
    "bytes": "accessed_bytes",
    "total_params": "parameters",
    "model_size": "parameter_bytes",
    "saved_activations": "saved_bytes",
    "step_peak": "peak_bytes",
}
"""Metrics that are sums over modules, and the field or property of figures that each is."""


def costs_of(total: Total) -> dict[str, int]:
    """Return the costs of ops as fields of Figures."""
    costs = {"flops": int(total.flops), "macs": int(total.macs), "accessed_bytes": int(total.accessed_bytes)}
    return {**costs, "ops": total.ops, "unknown_ops": total.unknown_ops}


def figures_by_module(captured: Captured) -> dict[str, Figures]:
    """Return the figures of each module that has some, in the order of the model; ``(root)`` and ``(outside)`` too."""
    graph, found = captured.graph, defaultdict[int, Counter[str]](Counter)
    for (module, recompute), total in captured.count.by(_place).items():
        found[module].update(costs_of(total))
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
        found[homes[index]].update(saved_bytes=graph.storages[index].nbytes)
    memory = captured.memory
    at = max(0, memory.peak_op)
    for index, nbytes, birth, death in memory.storages():
        if birth <= at < death:
            found[homes[index]].update(peak_bytes=nbytes)
    if len(graph):
        found[graph.ops[at].module].update(peak_bytes=int(memory.workspace[at]))
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
