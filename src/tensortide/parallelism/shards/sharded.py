"""A step with modules in shards: each op of them once per part, with slices, concatenations and sums between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from tensortide.errors import DegreesError
from tensortide.graph.model import Graph, Named, Role
from tensortide.parallelism.analysis import analyzed
from tensortide.parallelism.draft import compacted, replace
from tensortide.parallelism.shards.axis_split import AxisSplit, Facts
from tensortide.parallelism.shards.regions import Along, Divided, Shard, divided
from tensortide.parallelism.shards.walk import Walk
from tensortide.parallelism.sites import located


class ShardedModule(NamedTuple):
    """A module in shards: its path, the op that decided the axis, the sizes of the parts of that axis, the paths of the
    shards, as of modules inside it."""

    module: str
    along: Along
    op: str
    sizes: tuple[int, ...]
    shards: tuple[str, ...]


class WholeOp(NamedTuple):
    """An op of a sharded module that runs whole although it has the axis: the op with its module and line, and why."""

    op: str
    why: str


class Piece(NamedTuple):
    """The part of a parameter, a gradient or a state: of the storage called ``name``, seen as (``outer``, ``size``,
    ``inner``) elements of ``dtype``, those from ``start`` to ``end`` along its second dimension."""

    name: str
    outer: int
    size: int
    inner: int
    dtype: str
    start: int
    end: int


class Sharded(NamedTuple):
    """A step with ``modules`` in shards.

    Args:
        graph: the Graph of the whole step.
        modules: what is in shards.
        follows: for ops that belong where another one is (sums, concatenations, slices, what runs whole) that op.
        pieces: by name and role the parts of storages that the step has in parts alone.
        whole: ops of sharded modules that run whole.
    """

    graph: Graph
    modules: tuple[ShardedModule, ...] = ()
    follows: Mapping[int, int] = MappingProxyType({})
    pieces: Mapping[tuple[str, Role], Piece] = MappingProxyType({})
    whole: tuple[WholeOp, ...] = ()

    @property
    def shards(self) -> tuple[str, ...]:
        """The paths of all shards."""
        return tuple(path for module in self.modules for path in module.shards)


def sharded(graph: Graph, shards: Sequence[Shard], *, keep_random: bool = False) -> Sharded:
    """Divide modules of ``graph``, which has no loops, as ``shards`` say.

    Of each module one axis is divided, that of its first product: ``batch`` its rows or images, ``output`` its output
    channels (of attention the heads), ``reduction`` what it sums over. All ops of the module that have the axis, also
    in the backward pass, are done part by part, as are the gradients, states and updates of parameters that it alone
    uses. What needs the whole of the axis runs once, and with ``keep_random`` so does what draws random numbers.
    Between them

    - a part of a value is sliced out of the whole (``as_strided`` and ``clone``, where the value is made);
    - parts are concatenated where the whole is read first;
    - partial sums are added, in the order of the parts, where the sum is read first.

    Parts differ by one in size where their number does not divide the axis.

    Raises DegreesError where a request matches nothing or cannot be met; the message names the op.

    Examples:
        >>> from tensortide import capture
        >>> step = sharded(capture("gpt2"), [Shard("transformer.h.*.mlp", "output", 2)])  # doctest: +SKIP
        >>> step.graph, step.shards  # doctest: +SKIP
    """
    if not shards:
        return Sharded(graph)
    if graph.loops:
        raise DegreesError("the step has loops: unroll it first (tensortide.graph.unrolled)")
    facts = Facts(analyzed(graph), keep_random=keep_random)
    found = divided(facts, shards)
    walk = Walk(facts, found)
    for index in range(len(graph.ops)):
        walk.op(index)
    walk.end()
    named = _named(graph, found, walk)
    made, follows = walk.finished(named)
    gone = found.given.keys() | walk.draft.derived
    kept = {s for s, held in enumerate(made.storages) if held.birth is None and s not in gone}
    modules = tuple(
        ShardedModule(
            region.module,
            region.along,
            graph.calls[graph.ops[region.op].call].op,
            region.split.sizes,
            tuple(region.shard(part) for part in range(len(region.split))),
        )
        for region in found.regions
    )
    return Sharded(compacted(made, kept), modules, follows, _pieces(graph, found, walk), _whole_ops(facts, found))


def _named(graph: Graph, found: Divided, walk: Walk) -> tuple[Named, ...]:
    """The named tensors, each of what is in parts once per part."""
    entries: list[Named] = []
    for entry in graph.named:
        storage = graph.tensors[entry.tensor].storage
        if storage in found.beside:
            parts: list[int] | None = walk.replicas[storage]
        else:
            parts = walk.parts_of(entry.tensor) if storage in found.given or walk.only_parts(storage) else None
        if parts is None:
            entries.append(entry)
            continue
        entries += [replace(entry, name=walk.part_name(entry.name, storage, i), tensor=t) for i, t in enumerate(parts)]
    return tuple(entries)


def _pieces(graph: Graph, found: Divided, walk: Walk) -> dict[tuple[str, Role], Piece]:
    pieces = {}
    for storage, region in found.beside.items():
        held = graph.storages[storage]
        whole = Piece(held.name, 1, 1, int(held.nbytes), "uint8", 0, 1)
        for part in range(len(region.split)):
            pieces[walk.part_name(held.name, storage, part), held.role] = whole
    for storage, parts in walk.truth.items():
        held, split = graph.storages[storage], parts.split
        if not held.name or (storage not in found.given and not walk.only_parts(storage)):
            continue
        slab = split.slab(storage)
        assert slab is not None
        for part, (start, size) in enumerate(zip(split.starts, split.sizes, strict=True)):
            name = walk.part_name(held.name, storage, part)
            pieces[name, held.role] = Piece(held.name, *slab, start, start + size)
    return pieces


def _whole_ops(facts: Facts, found: Divided) -> tuple[WholeOp, ...]:
    """The ops that have the axis of their module and are not divided."""
    rows = []
    for index in sorted(found.of):
        split: AxisSplit = found.of[index].split
        if not facts.is_view[index] and split.touched(index) and (why := found.why_whole(index)):
            rows.append(WholeOp(located(facts.graph, index), why))
    return tuple(rows)
