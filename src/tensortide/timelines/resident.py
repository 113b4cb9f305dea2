"""One storage that is resident at some moment, described in the user's terms."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tensortide.graph.model import OUTSIDE, Graph, Role, Source


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
