"""A graph without loops: every iteration written out, with storages of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from tensortide.errors import GraphError
from tensortide.graph.model import OUTSIDE, TENSOR, Call, Graph, Op, Role, Storage, Tensor
from tensortide.graph.trips import guess_text, guessed_trips

LONGEST = 2_000_000
"""Most ops that a graph is unrolled to."""


def unrolled(graph: Graph) -> Graph:
    """``graph`` with the bodies of its loops repeated; the graph itself if it has none. Sizes become numbers.

    What a body allocates is a new storage every iteration; what a loop carries is read as the iteration before left
    it. An op with the tag ``push`` keeps its result under its first input, ``pop`` takes the last that was kept;
    ``write`` keeps its third input until an op with the tag ``gather``. What is taken or gathered is among the inputs
    of the op that does so, as the argument ``kept``. Storages are released after their last use.
    Raises GraphError for more than ``LONGEST`` ops.
    """
    return written_out(graph)[0]


def written_out(graph: Graph) -> tuple[Graph, tuple[range, ...]]:
    """``unrolled(graph)``, and which of its ops are those of each outermost loop, all iterations together."""
    if not graph.loops:
        return graph, ()
    count = sum(graph.trips(index) for index in range(len(graph)))
    if count > LONGEST:
        raise GraphError(f"the loops written out would be {count:,} ops, more than {LONGEST:,}")
    unrolling = _Unrolling(graph)
    return unrolling.graph(), tuple(unrolling.stretches)


class _Unrolling:
    def __init__(self, graph: Graph) -> None:
        self.source = graph
        self.ops: list[Op] = []
        self.stretches: list[range] = []
        self.calls: dict[Call, int] = {}  # calls that take what was kept
        self.tensors: list[Tensor] = []
        self.storages: list[Storage] = []
        self.last: list[int] = []
        self.now: dict[int, int] = {}  # the copy of a tensor that was made last
        self.copy: dict[int, int] = {}  # the copy of a storage that was made last
        self.carried: dict[int, int] = {}  # what a tensor starts an iteration as
        self.latest: frozenset[int] = frozenset()  # the copies of storages that the last iterations made
        self.kept: dict[int, list[int]] = defaultdict(list)  # tensors kept under a handle's storage
        self.births: dict[int, list[int]] = defaultdict(list)
        for index, storage in enumerate(graph.storages):
            if storage.birth is None:
                self.copy[index] = self._add(storage)
            else:
                self.births[storage.birth].append(index)
        made = {tensor for op in graph.ops for tensor in op.outputs}
        for index, tensor in enumerate(graph.tensors):  # those that precede the step
            if index not in made and (home := self.copy.get(tensor.storage)) is not None:
                self.now[index] = len(self.tensors)
                self.tensors.append(_plain(tensor, home))
        self.chains = [self._chain(op.loop) for op in graph.ops]

    def graph(self) -> Graph:
        """The unrolled graph."""
        self._run(range(len(self.source)), 0)
        self.latest = frozenset(self.copy.values())
        meta = self.source.meta
        named = tuple(
            msgspec.structs.replace(entry, tensor=self._current(entry.tensor))
            for entry in self.source.named
            if self.source.tensors[entry.tensor].storage in self.copy
        )
        return msgspec.structs.replace(
            self.source,
            ops=tuple(self.ops),
            calls=(*self.source.calls, *self.calls),
            tensors=tuple(self.tensors),
            storages=tuple(self._ended(i) for i in range(len(self.storages))),
            named=named,
            loops=(),
            composites=None,
            meta=msgspec.structs.replace(
                meta, assumptions=(*meta.assumptions, self._said()), guessed_trips=guessed_trips(self.source)
            ),
        )

    def _said(self) -> str:
        trips = ", ".join(f"{count:,}" for count in self.source.loop_trips)
        said = f"Loops are written out, iteration by iteration; their bodies run {trips} times"
        guessed = guessed_trips(self.source)
        return f"{said}; {guess_text(guessed)}." if guessed else f"{said}."

    def _ended(self, index: int) -> Storage:
        storage = self.storages[index]
        if storage.birth is None or (storage.role is Role.OUTPUT and index in self.latest):
            return storage
        return msgspec.structs.replace(storage, death=self.last[index] + 1)

    def _chain(self, loop: int) -> tuple[int, ...]:
        chain: list[int] = []
        while loop != OUTSIDE:
            chain.append(loop)
            loop = self.source.loops[loop].parent
        return tuple(reversed(chain))

    def _run(self, indexes: Sequence[int], depth: int) -> None:
        """Ops that share their first ``depth`` loops, in order. What only stands among a loop's ops goes before it."""
        ends: dict[int, int] = {}
        for position, index in enumerate(indexes):
            for loop in self.chains[index][depth : depth + 1]:
                ends[loop] = position
        position = 0
        while position < len(indexes):
            inner = self.chains[indexes[position]][depth : depth + 1]
            if not inner:
                self._emit(indexes[position])
                position += 1
                continue
            (loop,) = inner
            stretch = indexes[position : ends[loop] + 1]
            self._run([i for i in stretch if loop not in self.chains[i]], depth)
            self._iterate(loop, [i for i in stretch if loop in self.chains[i]], depth)
            position = ends[loop] + 1

    def _iterate(self, loop: int, body: Sequence[int], depth: int) -> None:
        pairs = self.source.loops[loop].carried
        for first, _ in pairs:
            self.carried.pop(first, None)
        start, before = len(self.ops), self._outer(pairs, body)
        for _ in range(int(self.source.loops[loop].trips)):
            self._run(body, depth + 1)
            follow = {first: self._current(last) for first, last in pairs}
            self.carried |= {first: tensor for first, tensor in follow.items() if first not in before}
            self.now |= {first: tensor for first, tensor in follow.items() if first in before}
        self.now |= before
        if not depth:
            self.stretches.append(range(start, len(self.ops)))

    def _current(self, tensor: int) -> int:
        """Return the copy of ``tensor`` that was made last: of one that no op makes, the one of its storage."""
        found = self.now.get(tensor)
        if found is None:
            old = self.source.tensors[tensor]
            found = self.now[tensor] = len(self.tensors)
            self.tensors.append(_plain(old, self.copy[old.storage]))
        return found

    def _outer(self, pairs: Sequence[tuple[int, int]], body: Sequence[int]) -> dict[int, int]:
        """Return the tensors that a body reads as an iteration starts and none of its ops makes: as they are before the
        loop."""
        made = {tensor for index in body for tensor in self.source.ops[index].outputs}
        return {first: self._current(first) for first, _ in pairs if first not in made}

    def _emit(self, index: int) -> None:
        """One run of an op."""
        op, call = self.source.ops[index], self.source.calls[self.source.ops[index].call]
        inputs = [self._current(tensor) for tensor in op.inputs]
        start = next((self.carried[tensor] for tensor in op.outputs if tensor in self.carried), None)
        if start is not None:
            inputs[0] = start
        for storage in self.births[index]:
            fresh = msgspec.structs.replace(self.source.storages[storage], birth=len(self.ops), death=None)
            self.copy[storage] = self._add(fresh)
        shared = {
            self.source.tensors[old].storage: self._storage(new) for old, new in zip(op.inputs, inputs, strict=True)
        }
        taken = self._taken(call.tags, inputs)
        for tensor in op.outputs:
            old = self.source.tensors[tensor]
            home = self._storage(taken[0]) if "pop" in call.tags else shared.get(old.storage, self.copy[old.storage])
            self.now[tensor] = len(self.tensors)
            self.tensors.append(_plain(old, home))
        outputs = [self.now[tensor] for tensor in op.outputs]
        if "push" in call.tags:
            self.kept[self._storage(inputs[0])].append(outputs[0])
        elif "write" in call.tags:
            self.kept[self._storage(inputs[0])].append(inputs[2])
        inputs += taken
        for tensor in (*inputs, *outputs):
            self.last[self._storage(tensor)] = len(self.ops)
        made = self._call(op.call, len(taken))
        self.ops.append(
            msgspec.structs.replace(op, call=made, inputs=tuple(inputs), outputs=tuple(outputs), loop=OUTSIDE)
        )

    def _taken(self, tags: tuple[str, ...], inputs: Sequence[int]) -> list[int]:
        """Return the tensors that an op takes from those kept under its first input."""
        if "pop" in tags:
            return [self.kept[self._storage(inputs[0])].pop()]
        return self.kept.pop(self._storage(inputs[0]), []) if "gather" in tags else []

    def _call(self, index: int, taken: int) -> int:
        """The call of an op that takes so many kept tensors beside its inputs."""
        if not taken:
            return index
        call = self.source.calls[index]
        call = msgspec.structs.replace(call, arguments=(*call.arguments, ("kept", (TENSOR,) * taken)))
        return self.calls.setdefault(call, len(self.source.calls) + len(self.calls))

    def _storage(self, tensor: int) -> int:
        return self.tensors[tensor].storage

    def _add(self, storage: Storage) -> int:
        self.storages.append(msgspec.structs.replace(storage, nbytes=int(storage.nbytes)))
        self.last.append(-1 if storage.birth is None else storage.birth)
        return len(self.storages) - 1


def _plain(tensor: Tensor, storage: int) -> Tensor:
    shape, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.strides))
    return Tensor(storage, tensor.dtype, shape, strides, int(tensor.offset))
