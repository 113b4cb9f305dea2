"""A step of several micro-batches: forward and backward passes repeated, gradients added up, the optimizer once.

The Graph that is given is the step of one micro-batch. The result is a Graph too, so that costs, memory and transfers
follow by the same rules as for any other: inputs are repeated, parameters and buffers shared, every gradient after the
first is added to it by an op of its own. Of a tied gradient that goes for what each part contributes, and the
contributions of the parts are added once, after the last micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from tensortide.errors import GraphError
from tensortide.graph.model import TENSOR, Call, Graph, Named, Op, Phase, Role, Storage, Tensor
from tensortide.parallelism.tied import TiedGradient

_ADD = Call("aten.add_.Tensor", (("self", TENSOR), ("other", TENSOR)), 2, (0,), TENSOR)


@dataclass(frozen=True)
class MicroBatches:
    """``graph``: the step of ``count`` micro-batches. By op, ``origin``: the op of the step of one that it repeats (of
    a sum, the last op that made or wrote the gradient); ``micro``: its micro-batch, -1 for what runs once a step."""

    graph: Graph
    count: int
    origin: tuple[int, ...]
    micro: tuple[int, ...]


def micro_batched(graph: Graph, count: int, tied: Sequence[TiedGradient] = ()) -> MicroBatches:
    """The step of ``count`` micro-batches of ``graph``, which has no loops. ``tied``: gradients of which each part
    keeps a sum of its own.

    Raises GraphError for a count below 1, and for a step whose optimizer does not come after its backward pass.
    """
    if count < 1:
        raise GraphError(f"a step of {count} micro-batches")
    head, end = _body(graph)
    if count == 1:
        within = [0 if head <= op < end else -1 for op in range(len(graph))]
        return MicroBatches(graph, 1, tuple(range(len(graph))), tuple(within))
    return _Repeater(graph, head, end, tied).repeat(count)


def _body(graph: Graph) -> tuple[int, int]:
    """The first op that is repeated, and the one after the last: after what readies the gradients, before what uses
    them."""
    phases = [op.phase for op in graph.ops]
    last = graph.index.backward_end - 1
    if last < 0:
        last = max((i for i, phase in enumerate(phases) if phase is Phase.FORWARD), default=len(phases) - 1)
    first = 0
    for op in range(last + 1):
        if phases[op] in (Phase.FORWARD, Phase.BACKWARD):
            break
        if any(graph.storages[s].birth is None for s in graph.index.writes[op]):
            first = op + 1
    early = [i for i in range(first, last + 1) if phases[i] is Phase.OPTIMIZER]
    if early:
        name = graph[early[0]].name
        raise GraphError(
            f"op {early[0]} ({name}) of the optimizer runs before the end of the backward pass, as with LBFGS: choose "
            "an optimizer that steps once after it"
        )
    return first, last + 1


class _Repeater:
    """Repeats the ops of ``head <= op < end``, with storages of their own for what they make and are given to read,
    but for those that add up ``tied`` gradients, which come after the last micro-batch."""

    def __init__(self, graph: Graph, head: int, end: int, tied: Sequence[TiedGradient]) -> None:
        self.graph, self.head, self.end = graph, head, end
        self.once = sorted({op for each in tied for op in (*each.sums, *each.after)})
        self.body = [op for op in range(head, end) if op not in set(self.once)]
        owner = graph.index.owner
        self.contributions = {owner[each.tensor] for one in tied for each in one.contributions}
        self.between = {owner[t] for op in self.once for t in (*graph.ops[op].inputs, *graph.ops[op].outputs)}
        self.between -= {each.storage for each in tied}
        self.calls = (*graph.calls, _ADD)
        self.ops: list[Op] = []
        self.origin: list[int] = []
        self.micro: list[int] = []
        self.storages: list[Storage] = []
        self.tensors: list[Tensor] = []
        self.now: dict[int, int] = {}
        self.views: dict[tuple[int | Tensor, int], int] = {}  # of this micro-batch: a tensor names who made it
        self.sums = self._gradients()
        self.made = self._made()
        self.makers = {owner[t]: op for op in self.body for t in graph.ops[op].outputs if owner[t] in self.sums}
        self.total: dict[int, int] = {}
        self.deaths: dict[int, int] = {}

    def _gradients(self) -> dict[int, int]:
        """Gradients that the body makes and that outlive it, and contributions to tied ones, each with the last op of
        the body that touches it."""
        found = {}
        for op in self.body:
            for storage in self.graph.index.touches[op]:
                held = self.graph.storages[storage]
                gradient = held.role is Role.GRADIENT and held.birth is not None and self._stays(held)
                if gradient or storage in self.contributions:
                    found[storage] = op
        return found

    def _made(self) -> dict[int, list[int]]:
        """For each of those gradients the tensors of it that ops of the body return."""
        found: dict[int, list[int]] = {storage: [] for storage in self.sums}
        for op in self.body:
            for tensor in self.graph.ops[op].outputs:
                storage = self.graph.index.owner[tensor]
                if storage in found:
                    found[storage].append(tensor)
        return found

    def _stays(self, held: Storage) -> bool:
        return held.death is None or held.death > self.end

    def repeat(self, count: int) -> MicroBatches:
        """The step of ``count`` micro-batches."""
        graph = self.graph
        given = [i for i, held in enumerate(graph.storages) if held.birth is None]
        for storage in given:
            self.now[storage] = self._open(storage, None)
        released = graph.index.released
        self._play(range(self.head), -1)
        for turn in range(count):
            for storage in given if turn else ():
                if graph.storages[storage].role is Role.INPUT:
                    self.now[storage] = self._open(storage, None)
            self._play(range(self.head, self.end), turn)
            if turn < count - 1:
                self._leave()
        self.now.update(self.total)
        self._add_once()
        self._play(range(self.end, len(graph)), -1)
        self._release(released[len(graph)])
        length = len(self.ops)
        for storage, held in enumerate(self.storages):
            death = self.deaths.get(storage, held.death)
            self.storages[storage] = msgspec.structs.replace(held, death=None if death is None else min(death, length))
        named = tuple(self._weights())
        made = msgspec.structs.replace(
            graph,
            ops=tuple(self.ops),
            calls=self.calls,
            tensors=tuple(self.tensors),
            storages=tuple(self.storages),
            named=named,
            composites=None,
        )
        return MicroBatches(made, count, tuple(self.origin), tuple(self.micro))

    def _weights(self) -> Iterator[Named]:
        """The names of parameters and buffers, which all micro-batches share."""
        for entry in self.graph.named:
            held = self.graph.storages[self.graph.tensors[entry.tensor].storage]
            if entry.role in (Role.PARAMETER, Role.BUFFER) and held.birth is None:
                yield msgspec.structs.replace(entry, tensor=self._tensor(entry.tensor))

    def _play(self, ops: Iterable[int], turn: int) -> None:
        graph, once = self.graph, set(self.once)
        self.views = {}
        for index in ops:
            self._release(graph.index.released[index])
            if index in once:
                continue
            self._run(index, turn)
            if turn >= 0:
                self._add_up([s for s in graph.index.touches[index] if self.sums.get(s) == index], index, turn)

    def _run(self, index: int, turn: int) -> None:
        for storage in self.graph.index.allocated[index]:
            self.now[storage] = self._open(storage, len(self.ops))
        record = self.graph.ops[index]
        inputs, outputs = (tuple(map(self._tensor, side)) for side in (record.inputs, record.outputs))
        self._append(msgspec.structs.replace(record, inputs=inputs, outputs=outputs), index, turn)

    def _add_once(self) -> None:
        """Add what the parts have contributed to tied gradients; each contribution is released after its last use."""
        self.views = {}
        for index in self.once:
            self._run(index, -1)
            for storage in self.graph.index.touches[index]:
                if storage in self.between:
                    self.deaths[self.now[storage]] = len(self.ops)

    def _leave(self) -> None:
        """Release what a micro-batch made and the step of one keeps beyond its backward pass, but for outputs."""
        for index in self.body:
            for storage in self.graph.index.allocated[index]:
                death = self.graph.storages[storage].death
                if storage not in self.sums and death is not None and death >= self.end:
                    self.deaths[self.now[storage]] = len(self.ops)

    def _add_up(self, gradients: list[int], index: int, turn: int) -> None:
        for storage in gradients:
            if turn == 0:
                self.total[storage] = self.now[storage]
                continue
            held = self.graph.storages[storage]
            whole = Tensor(0, "uint8", (int(held.nbytes),), (1,))
            view = next((self.graph.tensors[t] for t in self.made[storage] if self._covers(t, storage)), whole)
            pair = [self._view(view, s) for s in (self.total[storage], self.now[storage])]
            maker = self.makers.get(storage, index)
            record = self.graph.ops[maker]
            made = msgspec.structs.replace(record, call=len(self.calls) - 1, inputs=tuple(pair), outputs=(pair[0],))
            self.deaths[self.now[storage]] = len(self.ops) + 1
            self._append(made, maker, turn)

    def _covers(self, tensor: int, storage: int) -> bool:
        view = self.graph.tensors[tensor]
        return view.storage == storage and view.nbytes == self.graph.storages[storage].nbytes

    def _append(self, op: Op, origin: int, turn: int) -> None:
        self.ops.append(op)
        self.origin.append(origin)
        self.micro.append(turn)

    def _release(self, storages: tuple[int, ...]) -> None:
        """Release what the step of one releases here; of what is shared, the last release counts."""
        for storage in storages:
            if storage in self.now and storage not in self.between:
                self.deaths[self.now[storage]] = max(len(self.ops), 0)

    def _open(self, storage: int, birth: int | None) -> int:
        self.storages.append(msgspec.structs.replace(self.graph.storages[storage], birth=birth, death=None))
        return len(self.storages) - 1

    def _tensor(self, tensor: int) -> int:
        view = self.graph.tensors[tensor]
        return self._view(view, self.now[view.storage], tensor)

    def _view(self, view: Tensor, storage: int, key: int | None = None) -> int:
        name = (view if key is None else key, storage)
        if name not in self.views:
            self.views[name] = len(self.tensors)
            self.tensors.append(msgspec.structs.replace(view, storage=storage))
        return self.views[name]
