"""Storages that are resident at some moment, in the user's terms: their modules, and which a forward saves."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tensortide.graph.model import OUTSIDE, Graph, Phase, Role, Source, Tensor, describe

GIVEN = (Role.PARAMETER, Role.BUFFER, Role.OPTIMIZER_STATE, Role.INPUT, Role.CACHE, Role.GRADIENT, Role.LIBRARY)
"""Roles of storages that are no results of the forward."""
_LIKE = ("aten.ones_like", "aten.zeros_like", "aten.empty_like", "aten.full_like")
"""Ops that read the shape of their input, not its values: the gradient of a loss begins with one."""


class Resident(msgspec.Struct, frozen=True):
    """A storage that is resident during an op.

    ``nbytes`` is after rounding. ``name`` is its name in the model or optimizer ("" if it has none). ``op`` and
    ``op_name`` tell the op that allocated it (None and "" if it existed before the step); ``module`` (for display)
    and ``source`` are where that op stands. It is resident during ops ``birth`` to ``death - 1``; None means from
    before, or beyond the end of, the step.
    """

    storage: int
    nbytes: int
    role: Role
    name: str
    op: int | None
    op_name: str
    module: str
    source: Source | None
    birth: int | None
    death: int | None


def resident(graph: Graph, index: int, nbytes: int, death: int, paths: Mapping[str, int]) -> Resident:
    """Storage ``index`` of ``graph`` with its counted bytes and its death; ``paths`` are the modules by path."""
    storage = graph.storages[index]
    op_name, module, source = "", graph.module_path(home_of(storage.name, paths)), None
    if storage.birth is not None:
        op = graph[storage.birth]
        op_name, module, source = op.name, op.module, op.source
    return Resident(
        storage=index,
        nbytes=nbytes,
        role=storage.role,
        name=storage.name,
        op=storage.birth,
        op_name=op_name,
        module=module,
        source=source,
        birth=storage.birth,
        death=None if death > len(graph) else death,
    )


def home_of(name: str, known: Mapping[str, int]) -> int:
    """The module that owns the parameter, buffer, gradient or state ``name``: the longest known prefix of it."""
    prefix = name
    while prefix:
        prefix = prefix.rpartition(".")[0]
        if prefix in known:
            return known[prefix]
    return OUTSIDE


def storage_homes(graph: Graph) -> list[int]:
    """Module of each storage: that of the parameter it belongs to by name, else that of the op that allocated it."""
    known = {module.path: i for i, module in enumerate(graph.modules)}
    homes = []
    for storage in graph.storages:
        home = home_of(storage.name, known) if storage.role.row.of_module else OUTSIDE
        born = OUTSIDE if storage.birth is None else graph.ops[storage.birth].module
        homes.append(born if home == OUTSIDE else home)
    return homes


def widest_tensors(graph: Graph) -> dict[int, str]:
    """Dtype and shape of the largest tensor in each storage: what the storage is, for a reader."""
    widest: dict[int, Tensor] = {}
    for tensor in graph.tensors:
        known = widest.get(tensor.storage)
        if known is None or tensor.region_bytes > known.region_bytes:
            widest[tensor.storage] = tensor
    return {storage: describe(tensor) for storage, tensor in widest.items()}


def saved_storages(graph: Graph) -> set[int]:
    """The storages that ops before the backward make and ops of the backward read; none without a backward."""
    phases = [op.phase for op in graph.ops]
    if Phase.BACKWARD not in phases:
        return set()
    first = phases.index(Phase.BACKWARD)
    made = {
        index
        for index, storage in enumerate(graph.storages)
        if storage.birth is not None and storage.birth < first and storage.role not in GIVEN
    }
    shaped = [call.op.startswith(_LIKE) for call in graph.calls]
    backward = (
        op for op in range(first, len(graph)) if phases[op] is Phase.BACKWARD and not shaped[graph.ops[op].call]
    )
    return made & {storage for op in backward for storage in graph.index.reads[op]}
