"""Minimum closures: ops of a step that must share a device, each with its reason.

Ops must share a device that

- allocate, view or write one storage (in-place chains are a case of it);
- update one parameter: what makes or adds up its gradient, and all of the optimizer that reads or writes the parameter,
  its gradient or its state;
- draw random numbers, with ``keep_random``: their order decides what they draw where one generator serves all. Without
  it every device has a generator of its own.

A backward op follows the forward op whose gradient it computes, unless backward ops are free. The recorder gives a
backward op the module and the line of its forward op; among the forward ops there it is the one that shares most
storages with it, and of these the last.

Ops that stand ``apart`` (``host_ops``) are tied by the storages that they allocate, view or write, and by nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from types import MappingProxyType

from tensortide.graph.effects import draws_random
from tensortide.graph.model import Graph, Phase, Role
from tensortide.graph.module_paths import named_after

SCALAR_BYTES = 16
"""A storage of no more bytes is a scalar: one that two parameters share (a norm, a learning rate) ties nothing."""

_STATE = (Role.PARAMETER, Role.GRADIENT, Role.OPTIMIZER_STATE)


class Sets:
    """Disjoint sets of numbers, joined by pairs; a set is known by its least member."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))

    def find(self, item: int) -> int:
        """The least member of the set of ``item``."""
        parent = self._parent
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    def join(self, a: int, b: int) -> None:
        """Make one set of those of ``a`` and ``b``."""
        a, b = sorted((self.find(a), self.find(b)))
        self._parent[b] = a


def closures(
    graph: Graph,
    *,
    free_backward: bool = False,
    keep_random: bool = False,
    follows: Mapping[int, int] = MappingProxyType({}),
    apart: Collection[int] = frozenset(),
) -> Sets:
    """The minimum closures of the ops of ``graph``, which has no loops. ``follows``: for some ops another one, where
    they belong whatever their module says. ``apart``: ops that no parameter, forward op or generator ties."""
    sets = Sets(len(graph))
    makers = makers_of(graph)
    for ops in makers:
        for op in ops[1:]:
            sets.join(ops[0], op)
    _join_updates(graph, sets, makers, apart)
    if keep_random:
        drawing = [
            op for op, record in enumerate(graph.ops) if op not in apart and draws_random(graph.calls[record.call])
        ]
        for op in drawing[1:]:
            sets.join(drawing[0], op)
    if not free_backward:
        for op, forward in forward_ops(graph, apart).items():
            if op not in follows:
                sets.join(op, forward)
    for op, other in follows.items():
        if op not in apart and other not in apart:
            sets.join(op, other)
    return sets


def makers_of(graph: Graph) -> tuple[tuple[int, ...], ...]:
    """For each storage the ops that allocate, view or write it, ascending."""
    owner = graph.index.owner
    found: list[list[int]] = [[] for _ in graph.storages]
    for op, (record, writes) in enumerate(zip(graph.ops, graph.index.writes, strict=True)):
        for storage in sorted({*writes, *(owner[tensor] for tensor in record.outputs)}):
            found[storage].append(op)
    return tuple(map(tuple, found))


def _join_updates(graph: Graph, sets: Sets, every: tuple[tuple[int, ...], ...], apart: Collection[int]) -> None:
    """Join what updates each parameter: its gradient's makers, and the optimizer's ops on it and on its state.
    ``every``: the makers of each storage."""
    makers = [tuple(op for op in ops if op not in apart) for ops in every]
    parameters = {s.name: i for i, s in enumerate(graph.storages) if s.role is Role.PARAMETER and s.name}
    anchors = {storage: makers[storage][0] for storage in parameters.values() if makers[storage]}
    gradients = {s.name: i for i, s in enumerate(graph.storages) if s.role is Role.GRADIENT}  # the last sum of each
    state = [i for i, s in enumerate(graph.storages) if s.role is Role.OPTIMIZER_STATE]
    for storage in (*gradients.values(), *state):
        parameter = named_after(graph.storages[storage].name, parameters)
        if parameter and makers[storage]:
            sets.join(makers[storage][0], anchors.setdefault(parameters[parameter], makers[storage][0]))
    for op, record in enumerate(graph.ops):
        if record.phase is Phase.OPTIMIZER and op not in apart:
            for storage in (*graph.index.reads[op], *graph.index.writes[op]):
                if _ties(graph, storage, makers[storage]):
                    sets.join(op, anchors.get(storage, makers[storage][0] if makers[storage] else op))


def _ties(graph: Graph, storage: int, makers: tuple[int, ...]) -> bool:
    """Return whether ops of the optimizer that use ``storage`` belong to one parameter: it is its state, or no scalar
    and made by the optimizer itself."""
    held = graph.storages[storage]
    if held.role in _STATE:
        return True
    return held.nbytes > SCALAR_BYTES and any(graph.ops[op].phase is Phase.OPTIMIZER for op in makers)


def forward_ops(graph: Graph, apart: Collection[int] = frozenset()) -> dict[int, int]:
    """For each backward op that is no view the forward op that it follows, if its module has any; neither is one of
    ``apart``."""
    by_line: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    by_module: defaultdict[int, list[int]] = defaultdict(list)
    touches = [{*group} for group in graph.index.touches]
    views = [view.is_view for view in graph]
    for op, record in enumerate(graph.ops):
        if record.phase is Phase.FORWARD and not views[op] and op not in apart:
            by_line[record.module, record.source].append(op)
            by_module[record.module].append(op)
    made: dict[int, int] = {}
    found: dict[int, int] = {}
    for op, record in enumerate(graph.ops):
        if record.phase is not Phase.BACKWARD or views[op] or op in apart:
            continue
        there = by_line.get((record.module, record.source)) or by_module.get(record.module) or []
        shared, follows = max([(len(touches[op] & touches[one]), one) for one in there], default=(0, None))
        if not shared:  # nothing in common: what made its operands leads the way
            before = [made[storage] for storage in graph.index.reads[op] if storage in made]
            near = [one for one in before if one in there]
            follows = near[-1] if near else (follows if there else (before[-1] if before else None))
        if follows is not None:
            found[op] = follows
            made.update(dict.fromkeys(graph.index.writes[op], follows))
    return found
