"""A step as its values: a node for each op, with its cost, the bytes of what it makes, and whom it reads.

``static_graph`` makes it of any step: views with their source, the outputs of an op together, writes in place where
sound.

- An op that only renames memory belongs to the node whose storage it renames: it takes no memory, and it runs once,
  because a view outlives the contents that it shows. One that looks at several nodes is a node of 0 bytes.
- What exists before the step, and what is made by calls tagged ``constant``, is resident throughout.
- A write into a storage belongs to the node that allocates it, if no other op has read any of that node's storages
  yet: recomputing the node, with its writes, gives the same contents.
- Any other write runs once. The contents it overwrites cannot be restored: the nodes that read them, and the node
  that made them, are not recomputed after it (``StaticGraph.until``), so the contents stay until their last use. An
  optimizer's update of the weights thus ends the recomputation of the passes before it.
- A gradient op often has an output that the backward pass reads next, and others that only the end of the step reads:
  gradients of weights. These are set aside, resident throughout as far as schedules know, and the op runs once.
- An output that is small beside the others of its op (the statistics of a normalisation) is set aside too, because the
  others would otherwise stay as long as it does; it counts twice, in case the op is recomputed.
- Statistics that a normalisation updates without looking at them are no obstacle: recomputation leaves them alone.

Random ops count as recomputable: the player of the plan replays their random numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from tensortide.errors import PlanError
from tensortide.graph.model import Graph, Phase
from tensortide.graph.unroll import unrolled
from tensortide.memory.lifetimes import Residence, residences


@dataclass(frozen=True, kw_only=True)
class StaticGraph:
    """Input of planners that know the whole step. Nodes are numbered in the order of the step.

    ``cost_ns``: time to compute a node. ``nbytes``: bytes of its result. ``parents``: nodes it reads, ascending.
    ``backward``: whether it comes after the loss that it differentiates. ``until``: the last node before whose first
    computation the node may be recomputed; its own number if it is computed once (see ``static_graph``). ``kept``:
    nodes that the step leaves behind. ``fixed_bytes``: bytes resident throughout. ``fixed_ns``: time of ops that no
    node stands for.

    ``ops``: the ops of the Graph that a node stands for, ascending; ``views`` those of them that only rename memory
    and run once. ``storages``: the storages of the Graph whose bytes it makes. All three are empty in made-up graphs.

    Raises PlanError if a node reads a later one, or if the lengths differ.
    """

    cost_ns: tuple[int, ...]
    nbytes: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...]
    backward: tuple[bool, ...]
    until: tuple[int, ...] = ()
    kept: frozenset[int] = frozenset()
    fixed_bytes: int = 0
    fixed_ns: int = 0
    ops: tuple[tuple[int, ...], ...] = ()
    views: frozenset[int] = frozenset()
    storages: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        count = len(self.cost_ns)
        if not self.until:
            object.__setattr__(self, "until", (count - 1,) * count)
        for name in ("ops", "storages"):
            if not getattr(self, name):
                object.__setattr__(self, name, ((),) * count)
        columns = (self.nbytes, self.parents, self.backward, self.until, self.ops, self.storages)
        if any(len(column) != count for column in columns):
            raise PlanError("the columns of a static graph are of different lengths")
        for node, read in enumerate(self.parents):
            if list(read) != sorted({u for u in read if 0 <= u < node}):
                raise PlanError(f"node {node} reads {read}: its parents are earlier nodes, each once, ascending")

    def __len__(self) -> int:
        return len(self.cost_ns)

    @functools.cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """For each node those that read it, ascending."""
        found: list[list[int]] = [[] for _ in self.parents]
        for node, read in enumerate(self.parents):
            for parent in read:
                found[parent].append(node)
        return tuple(map(tuple, found))

    @property
    def forward(self) -> list[int]:
        """The nodes that are not of the backward pass."""
        return [node for node, later in enumerate(self.backward) if not later]

    @property
    def base_ns(self) -> int:
        """Time of the step when every node is computed once."""
        return sum(self.cost_ns)


def chain(length: int, cost_ns: Sequence[int] = (), nbytes: Sequence[int] = ()) -> StaticGraph:
    """The training step of a linear network of ``length`` layers (Jain et al. 2020, section 4).

    Nodes 0 .. length - 1 are the forward pass, node ``length`` is the loss, node 2 length - i is the gradient of
    forward node i. Each reads the one before it; gradients also read their forward node. Costs and bytes are 1 unless
    given for all 2 length + 1 nodes. The loss counts as a forward node.
    """
    count = 2 * length + 1
    parents = [{node - 1} if node else set() for node in range(count)]
    for layer in range(length):
        parents[2 * length - layer].add(layer)
    return StaticGraph(
        cost_ns=tuple(cost_ns) or (1,) * count,
        nbytes=tuple(nbytes) or (1,) * count,
        parents=tuple(tuple(sorted(read)) for read in parents),
        backward=tuple(node > length for node in range(count)),
    )


_CONSTANT = "constant"

_SMALL = 64
"""What takes at most this part of the bytes of its op is small."""


def static_graph(graph: Graph, durations_ns: Sequence[int], device: str | None = None) -> StaticGraph:
    """The nodes of ``graph``, its loops written out, whose ops take ``durations_ns`` each.

    Bytes are those on ``device``; default ``Index.main_device``. Nodes come in the order of their last ops. See the
    module for which ops become a node, and for what is not recomputed. Raises PlanError if there is not a duration
    for each op.
    """
    graph = unrolled(graph)
    if len(durations_ns) != len(graph):
        raise PlanError(f"there are {len(durations_ns)} durations for {len(graph)} ops")
    collapse = _Collapse(graph)
    for op in range(len(graph)):
        collapse.take(op)
    return collapse.result(durations_ns, graph.index.device(device))


@dataclass(eq=False, slots=True)
class _Node:
    """A node under construction. ``reads``: storages of other nodes; ``renamed``: nodes of views that it reads.
    ``overwritten``: the nodes after which it cannot be recomputed. ``closed``: it accepts no more writes."""

    ops: list[int]
    storages: list[int] = field(default_factory=list)
    reads: set[int] = field(default_factory=set)
    renamed: set[_Node] = field(default_factory=set)
    overwritten: list[_Node] = field(default_factory=list)
    once: bool = False
    closed: bool = False
    last: int = 0


class _Collapse:
    """Takes the ops of a graph one by one. ``maker``: the node that allocates a storage. ``readers``: the nodes that
    depend on its present contents. ``writer``: the node that last wrote into it, not that which allocated it.
    ``renamed``: the nodes of views that have one of their own, by tensor. ``first``: the first op after the forward
    pass."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.allocated = graph.index.allocated
        self.constant = {s for s, storage in enumerate(graph.storages) if storage.birth is None}
        later = (i for i, op in enumerate(graph.ops) if op.phase in (Phase.BACKWARD, Phase.OPTIMIZER))
        self.first = next(later, len(graph))
        self.nodes: list[_Node] = []
        self.views: set[int] = set()
        self.maker: dict[int, _Node] = {}
        self.readers: dict[int, list[_Node]] = {}
        self.renamed: dict[int, _Node] = {}
        self.writer: dict[int, _Node] = {}

    def take(self, index: int) -> None:
        """Put op ``index`` into a node, or leave it out: a constant, or a view of constants."""
        op = self.graph.ops[index]
        if _CONSTANT in self.graph.calls[op.call].tags:
            self.constant.update(self.allocated[index])
            return
        read = set(self.graph.index.needs[index])
        unseen = set(self.graph.index.blind[index])
        written = set(self.graph.index.writes[index]) - unseen - set(self.allocated[index])
        for storage in (read | written | unseen) & self.writer.keys():
            self.writer[storage].closed = True
        if self.graph[index].is_view and not self.allocated[index]:
            self._view(index, read)
            return
        node = self._written_within(written, index)
        if node is None:
            node = _Node([], once=bool(written), closed=bool(written))
            self.nodes.append(node)
        node.ops.append(index)
        node.last = index
        node.storages += self.allocated[index]
        node.renamed |= self._renamed(index)
        self.maker.update(dict.fromkeys(self.allocated[index], node))
        self._overwrite(node, (written if node.once else set()) | unseen)
        self._read(node, read)

    def _read(self, node: _Node, read: Iterable[int]) -> None:
        for storage in read:
            if self.maker.get(storage) is not node:
                self.readers.setdefault(storage, []).append(node)
                if storage in self.maker:
                    node.reads.add(storage)

    def _view(self, index: int, read: set[int]) -> None:
        self.views.add(index)
        renamed = self._renamed(index)
        sources = renamed | {self.maker[storage] for storage in read if storage in self.maker}
        if not sources:
            return
        if len(sources) == 1 and not read & (self.constant | self.writer.keys()):
            sources.pop().ops.append(index)
            return
        node = _Node([index], renamed=renamed, last=index)
        self.nodes.append(node)
        self.renamed.update(dict.fromkeys(self.graph.ops[index].outputs, node))
        self._read(node, read)

    def _renamed(self, index: int) -> set[_Node]:
        """The nodes of views that op ``index`` reads."""
        return {self.renamed[tensor] for tensor in self.graph.ops[index].inputs if tensor in self.renamed}

    def _written_within(self, written: set[int], index: int) -> _Node | None:
        """The node that may take up op ``index``, which writes ``written``; None if the op is a node of its own."""
        makers = {self.maker.get(storage) for storage in written}
        node = makers.pop() if len(makers) == 1 and not self.allocated[index] else None
        if node is None or node.closed or any(self.readers.get(storage) for storage in node.storages):
            return None
        return node

    def _overwrite(self, node: _Node, written: Iterable[int]) -> None:
        """Mark the contents of ``written`` as destroyed by ``node``: their dependents are not recomputed after it."""
        for storage in written:
            users = self.readers.pop(storage, [])
            if storage in self.maker:
                users.append(self.maker[storage])
            for user in users:
                user.closed = True
                if user is not node:
                    user.overwritten.append(node)
            self.writer[storage] = node

    def _is_backward(self, index: int) -> bool:
        """Not of the forward pass, nor before all of the backward pass."""
        phase = self.graph.ops[index].phase
        return phase is not Phase.FORWARD and (phase is not Phase.OTHER or index > self.first)

    def _set_aside(self, nbytes: Sequence[int], residence: Sequence[Residence]) -> tuple[set[int], set[int]]:
        """Storages made beside others that only the end of the step is for, and small ones that their node does not
        write again. The nodes that make the former run once from here on."""
        late, small = set[int](), set[int]()
        for node in self.nodes:
            total = sum(nbytes[storage] for storage in node.storages)
            if self._is_backward(node.last):
                found = {s for s in node.storages if residence[s] is Residence.KEPT or self._waits(s, node.ops)}
                if any(nbytes[storage] for storage in set(node.storages) - found):
                    node.once = node.once or bool(found)
                    late |= found
            again = {s for op in node.ops for s in set(self.graph.index.writes[op]) - set(self.allocated[op])}
            small.update(
                s for s in set(node.storages) - late - again if nbytes[s] * _SMALL <= total and nbytes[s] < total
            )
        return late, small

    def _waits(self, storage: int, made_by: Collection[int]) -> bool:
        """True if only the optimizer has a use for ``storage``."""
        phases = {self.graph.ops[op].phase for op in self.graph.index.users[storage] if op not in made_by}
        return phases == {Phase.OPTIMIZER}

    def result(self, durations_ns: Sequence[int], device: str) -> StaticGraph:
        graph, nodes = self.graph, sorted(self.nodes, key=lambda node: node.last)
        number = {node: index for index, node in enumerate(nodes)}
        residence = residences(graph)
        nbytes = [int(s.nbytes) if s.device == device else 0 for s in graph.storages]
        late, small = self._set_aside(nbytes, residence)
        aside = late | small
        fixed = sum(nbytes[s] for s in self.constant | aside if residence[s] is not Residence.NEVER)
        cost = [sum(int(durations_ns[op]) for op in node.ops if op not in self.views) for node in nodes]
        storages = [tuple(s for s in node.storages if s not in aside) for node in nodes]
        parents = [{number[self.maker[s]] for s in node.reads - aside} for node in nodes]
        return StaticGraph(
            cost_ns=tuple(cost),
            nbytes=tuple(sum(nbytes[s] for s in node.storages if s not in late) for node in nodes),
            parents=tuple(
                tuple(sorted(read | {number[view] for view in node.renamed}))
                for read, node in zip(parents, nodes, strict=True)
            ),
            backward=tuple(self._is_backward(node.last) for node in nodes),
            until=tuple(
                index if node.once else min((number[n] for n in node.overwritten), default=len(nodes) - 1)
                for index, node in enumerate(nodes)
            ),
            kept=frozenset(
                index for index, made in enumerate(storages) if any(residence[s] is Residence.KEPT for s in made)
            ),
            fixed_bytes=fixed,
            fixed_ns=sum(map(int, durations_ns)) - sum(cost),
            ops=tuple(tuple(sorted(node.ops)) for node in nodes),
            views=frozenset(self.views),
            storages=tuple(storages),
        )
