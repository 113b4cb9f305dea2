"""Ops that only the host can run: they hand a value to the program, or work on tensors in the host's memory.

An op whose result has a size that depends on values (``nonzero``, an index with a mask, ``unique``) is none of them: it
runs on a device, and the host of that device waits for it.
"""

from __future__ import annotations

from tensortide.graph.effects import reads_value
from tensortide.graph.model import Graph, Role
from tensortide.placements.graphs.closures import SCALAR_BYTES, Sets, makers_of

_READS = ("aten._local_scalar_dense.default", "aten.item.default")
"""Reads of a value by name: steps that other tools recorded have no tags."""


def value_reads(graph: Graph) -> tuple[int, ...]:
    """The ops that hand the one element of a tensor to the program and make nothing else.

    What an op computes from more than that (whether two tensors are equal) it computes on a device.
    """
    return tuple(
        view.index
        for view in graph
        if not view.outputs
        and (view.name in _READS or (reads_value(view) and all(tensor.numel <= 1 for tensor in view.inputs)))
    )


def host_ops(graph: Graph) -> tuple[int, ...]:
    """The value reads, and in a step of another device the ops that touch nothing but tensors of the host.

    A scalar of the optimizer's state (its count of steps) lies on the host in any case, and what reads it goes with its
    parameter; so do scalars that the host makes for others.
    """
    main, reads = graph.index.main_device, {*value_reads(graph)}
    found = []
    for op in range(len(graph)):
        touched = [graph.storages[storage] for storage in graph.index.touches[op]]
        if all(held.role is Role.OPTIMIZER_STATE and held.nbytes <= SCALAR_BYTES for held in touched):
            continue
        elsewhere = main != "cpu" and all(held.device == "cpu" for held in touched)
        if op in reads or (elsewhere and any(held.nbytes > SCALAR_BYTES for held in touched)):
            found.append(op)
    return tuple(found)


def bound_to_host(graph: Graph) -> frozenset[int]:
    """The ops of ``host_ops`` with all that allocate, view or write a storage that one of them does: the copy of a
    gradient in the host's memory that the host then scales."""
    sets = Sets(len(graph))
    for ops in makers_of(graph):
        for op in ops[1:]:
            sets.join(ops[0], op)
    bound = {sets.find(op) for op in host_ops(graph)}
    return frozenset(op for op in range(len(graph)) if sets.find(op) in bound)
