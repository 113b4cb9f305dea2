"""A Graph taken apart for an edit, and put together again."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from tensortide.errors import GraphError
from tensortide.graph.handles import Handle
from tensortide.graph.model import Call, Graph, Op, Storage, Tensor
from tensortide.graph.validate import validate


class Draft:
    """The tables of a Graph as lists. ``order`` has its ops, each with its number in the source, None for a new one.

    Births and deaths of ``storages`` count ops of the source; ``born`` are new storages by their new op's identity.
    """

    def __init__(self, graph: Graph) -> None:
        self.source = graph
        self.order: list[tuple[int | None, Op]] = list(enumerate(graph.ops))
        self.calls: list[Call] = list(graph.calls)
        self.tensors: list[Tensor] = list(graph.tensors)
        self.storages: list[Storage] = list(graph.storages)
        self.born: dict[int, Op] = {}
        self.moved: dict[int, int] = {}
        self.gone: set[int] = set()

    def call(self, call: Call) -> int:
        """Add a call, and return its index."""
        self.calls.append(call)
        return len(self.calls) - 1

    def finish(self) -> Graph:
        """Put the Graph together: unused tables left out, lifetimes over the new order. Raises GraphError.

        A storage that ended right after its last use still does; another one ends before the same op as it did.
        """
        self._check_made()
        position = {old: new for new, (old, _) in enumerate(self.order) if old is not None}
        position |= {old: position[new] for old, new in self.moved.items()}
        last = self._last()
        storages = [self._placed(i, storage, position, last) for i, storage in enumerate(self.storages)]
        made = msgspec.structs.replace(
            self.source,
            ops=tuple(op for _, op in self.order),
            calls=tuple(self.calls),
            tensors=tuple(self.tensors),
            storages=tuple(storages),
            composites=None,
        )
        found = compacted(made, self.gone)
        validate(found)
        return found

    def _placed(self, index: int, storage: Storage, position: dict[int, int], last: dict[int, int]) -> Storage:
        """``storage`` with its birth and death in the new order."""
        count = len(self.order)
        if index in self.born:
            birth: int | None = next(i for i, (_, op) in enumerate(self.order) if op is self.born[index])
        else:
            birth = None if storage.birth is None else position.get(storage.birth, -1)
        if birth == -1:  # it was made by an op that is gone, and nobody uses it
            self.gone.add(index)
            return storage
        least = max(last.get(index, -1), -1 if birth is None else birth) + 1
        if index in self.born:
            return msgspec.structs.replace(storage, birth=birth, death=least if storage.death is not None else None)
        if storage.death is None:
            return msgspec.structs.replace(storage, birth=birth)
        users = self.source.index.users[index]
        if storage.death == max([*users, -1 if storage.birth is None else storage.birth]) + 1:
            death = least
        else:
            after = (new for new, (old, _) in enumerate(self.order) if old is not None and old >= storage.death)
            death = max(least, min(after, default=count))
        return msgspec.structs.replace(storage, birth=birth, death=max(death, 0))

    def _last(self) -> dict[int, int]:
        """The last op that uses each storage."""
        last: dict[int, int] = {}
        for new, (_, op) in enumerate(self.order):
            for used in (*op.inputs, *op.outputs):
                last[self.tensors[used].storage] = new
        return last

    def _check_made(self) -> None:
        """Raise GraphError for an op that uses what no op before it makes."""
        now = {old for old, _ in self.order if old is not None} | set(self.moved)
        there = {i for i, s in enumerate(self.storages) if s.birth is None and i not in self.born}
        makers: dict[int, list[int]] = {}
        for index, storage in enumerate(self.storages):
            if index not in self.born and storage.birth in now and storage.birth is not None:
                makers.setdefault(self.moved.get(storage.birth, storage.birth), []).append(index)
        fresh: dict[int, list[int]] = {}
        for index, op in self.born.items():
            fresh.setdefault(id(op), []).append(index)
        for new, (old, op) in enumerate(self.order):
            there.update(makers.get(old, ()) if old is not None else ())
            there.update(fresh.get(id(op), ()))
            for used in (*op.inputs, *op.outputs):
                if self.tensors[used].storage not in there:
                    name = self.calls[op.call].op
                    raise GraphError(
                        f"op {new if old is None else old} ({name}) uses tensor {used}, which no op before it makes: "
                        "delete it too, or rewire it"
                    )


def compacted(graph: Graph, without: Collection[int] = ()) -> Graph:
    """Return ``graph`` without calls, tensors and storages that nothing uses, and ``without`` these storages.

    What exists before the step stays."""
    carried = (t for loop in graph.loops for pair in loop.carried for t in pair)
    used = [t for op in graph.ops for t in (*op.inputs, *op.outputs)]
    kept = sorted({*used, *(entry.tensor for entry in graph.named), *carried})
    homes = {graph.tensors[t].storage for t in kept}
    lasting = {i for i, s in enumerate(graph.storages) if s.birth is None and i not in without}
    born = {i for i, s in enumerate(graph.storages) if s.birth is not None and i in homes and i not in without}
    storages = _renumbered(lasting | born)
    tensors = _renumbered(kept)
    calls = _renumbered(dict.fromkeys(op.call for op in graph.ops))
    replace = msgspec.structs.replace
    return replace(
        graph,
        ops=tuple(
            replace(
                op,
                call=calls[op.call],
                inputs=tuple([tensors[t] for t in op.inputs]),
                outputs=tuple([tensors[t] for t in op.outputs]),
            )
            for op in graph.ops
        ),
        calls=tuple(graph.calls[i] for i in calls),
        tensors=tuple(replace(graph.tensors[i], storage=storages[graph.tensors[i].storage]) for i in tensors),
        storages=tuple(graph.storages[i] for i in storages),
        named=tuple(replace(entry, tensor=tensors[entry.tensor]) for entry in graph.named),
        loops=tuple(replace(p, carried=tuple((tensors[a], tensors[b]) for a, b in p.carried)) for p in graph.loops),
        composites=None,
    )


def _renumbered(kept: Iterable[int]) -> dict[int, int]:
    """Number what is kept, in its order: sets by size."""
    order = sorted(kept) if isinstance(kept, set) else list(kept)
    return {old: new for new, old in enumerate(order)}


def tensor(graph: Graph, index: int) -> Handle:
    """Return a handle of tensor ``index``, for ``insert`` and ``replace``. Raises GraphError if there is none."""
    if not 0 <= index < len(graph.tensors):
        raise GraphError(f"tensor {index} of {len(graph.tensors)}")
    found = graph.tensors[index]
    return Handle(index, found.shape, found.dtype)
