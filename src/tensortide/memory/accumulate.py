"""Gradients that PyTorch's autograd engine sums in place, although every recorder sees it sum them out of place.

Where a tensor feeds several ops, the engine adds their gradients one by one. It adds *into* the first if nothing else
refers to it, but only while no dispatch mode is active; a recorder is one, so under it each sum takes a new storage.
``accumulate_in_place`` restores what an ordinary run does.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from tensortide.graph.model import Call, Graph, Named, Op, Phase, Storage, Tensor

_ADD, _ADD_IN_PLACE = "aten.add.Tensor", "aten.add_.Tensor"


def accumulate_in_place(graph: Graph, candidates: Collection[int] | None = None) -> Graph:
    """``graph`` with the engine's sums of gradients done in place where an ordinary run does them so.

    ``candidates`` are the ops that the engine issued itself with gradients disabled, if the recorder knows them;
    by default every ``add`` of the backward phase may be one. Of these, a sum is in place if its first operand is no
    view, is dense, is released right after the op (so nobody else held it), and has the layout of the result.
    The graph itself if there is none.
    """
    merged = _Merged(graph)
    producer: dict[int, int] = {}
    sums: set[int] = set()
    for i, op in enumerate(graph.ops):
        call = graph.calls[op.call]
        if call.op == _ADD and (candidates is None or i in candidates) and _in_place(graph, merged, producer, i):
            merged.join(i)
            sums.add(i)
        for tensor in op.outputs:
            producer[tensor] = i
    return merged.graph(sums) if sums else graph


def _in_place(graph: Graph, merged: _Merged, producer: dict[int, int], index: int) -> bool:
    op = graph.ops[index]
    call = graph.calls[op.call]
    if op.phase is not Phase.BACKWARD or op.recompute or len(op.inputs) != 2 or len(call.arguments) != 2:
        return False
    first, total = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if first.storage == graph.tensors[op.inputs[1]].storage or op.inputs[0] not in producer:
        return False
    if "view" in graph.calls[graph.ops[producer[op.inputs[0]]].call].tags:
        return False
    alike = (first.dtype, first.shape, first.strides, first.offset) == (total.dtype, total.shape, total.strides, 0)
    old, new = merged.storages[merged.root(first.storage)], graph.storages[total.storage]
    return alike and old.death == index + 1 and new.birth == index and old.nbytes == new.nbytes


class _Merged:
    """Storages of a graph while pairs of them become one."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.storages = list(graph.storages)
        self._into: dict[int, int] = {}

    def root(self, storage: int) -> int:
        """The storage that ``storage`` has become part of."""
        while storage in self._into:
            storage = self._into[storage]
        return storage

    def join(self, index: int) -> None:
        """The result of the sum at op ``index`` lies in the storage of its first operand."""
        op, tensors = self._graph.ops[index], self._graph.tensors
        old, new = self.root(tensors[op.inputs[0]].storage), tensors[op.outputs[0]].storage
        a, b = self.storages[old], self.storages[new]
        known = min(a, b, key=lambda s: s.role.precedence)
        self.storages[old] = Storage(a.nbytes, a.device, known.role, a.birth, b.death, known.name)
        self._into[new] = old

    def graph(self, sums: Collection[int]) -> Graph:
        """The graph with storages and tensors numbered anew and the ops ``sums`` in place."""
        source = self._graph
        kept = [i for i in range(len(self.storages)) if i not in self._into]
        number = {storage: i for i, storage in enumerate(kept)}
        tensors: dict[Tensor, int] = {}
        renumber = [
            tensors.setdefault(msgspec.structs.replace(t, storage=number[self.root(t.storage)]), len(tensors))
            for t in source.tensors
        ]
        calls = list(source.calls)
        in_place = {op: _in_place_call(calls, op) for op in {source.ops[i].call for i in sums}}
        ops = tuple(
            msgspec.structs.replace(
                op,
                call=in_place[op.call] if i in sums else op.call,
                inputs=tuple([renumber[t] for t in op.inputs]),
                outputs=tuple([renumber[t] for t in op.outputs]),
            )
            for i, op in enumerate(source.ops)
        )
        return msgspec.structs.replace(
            source,
            ops=ops,
            calls=tuple(calls),
            tensors=tuple(tensors),
            storages=tuple(self.storages[i] for i in kept),
            named=_renamed(source.named, renumber),
        )


def _in_place_call(calls: list[Call], index: int) -> int:
    """Index of the in-place twin of call ``index``, appended to ``calls``."""
    calls.append(msgspec.structs.replace(calls[index], op=_ADD_IN_PLACE, mutated=(0,)))
    return len(calls) - 1


def _renamed(named: tuple[Named, ...], renumber: list[int]) -> tuple[Named, ...]:
    return tuple(msgspec.structs.replace(entry, tensor=renumber[entry.tensor]) for entry in named)


def sums_in_place(graph: Graph) -> frozenset[int]:
    """The ops that ``accumulate_in_place`` makes, or that look alike: sums in the backward phase, in place."""
    calls = {i for i, call in enumerate(graph.calls) if call.op == _ADD_IN_PLACE and len(call.arguments) == 2}
    ops = enumerate(graph.ops)
    return frozenset(i for i, op in ops if op.call in calls and op.phase is Phase.BACKWARD and not op.recompute)


def partial_sums(graph: Graph) -> frozenset[int]:
    """The ops of the backward pass that add a gradient to a sum and leave nothing of the sum before: they write it in
    place, or it is released right after and the result has a storage of the same size."""
    found = []
    for index, op in enumerate(graph.ops):
        if graph.calls[op.call].op not in (_ADD, _ADD_IN_PLACE) or op.phase is not Phase.BACKWARD or op.recompute:
            continue
        owners = dict.fromkeys(graph.tensors[t].storage for t in op.inputs)
        if len(owners) == 2 and op.outputs:
            before, after = next(iter(owners)), graph.tensors[op.outputs[0]].storage
            old, new = graph.storages[before], graph.storages[after]
            if before == after or (old.death == index + 1 and new.birth == index and old.nbytes == new.nbytes):
                found.append(index)
    return frozenset(found)


def accumulate_apart(graph: Graph, sums: Collection[int]) -> Graph:
    """``graph``, whose ops ``sums`` are in place, with a new storage for the result of each of them: what is run while
    a dispatch mode is active. The graph itself if there is none."""
    if not sums:
        return graph
    storages, tensors, calls = list(graph.storages), list(graph.tensors), list(graph.calls)
    now: dict[int, int] = {}
    moved: dict[tuple[int, int], int] = {}
    apart: dict[int, int] = {}

    def tensor(index: int) -> int:
        storage = now.get(graph.tensors[index].storage)
        if storage is None:
            return index
        if (index, storage) not in moved:
            moved[index, storage] = len(tensors)
            tensors.append(msgspec.structs.replace(graph.tensors[index], storage=storage))
        return moved[index, storage]

    def op(index: int, record: Op) -> Op:
        inputs = tuple(map(tensor, record.inputs))
        if index in sums:
            origin = graph.tensors[record.inputs[0]].storage
            old = now.get(origin, origin)
            now[origin] = len(storages)
            storages.append(msgspec.structs.replace(storages[old], birth=index))
            storages[old] = msgspec.structs.replace(storages[old], death=index + 1)
            if record.call not in apart:
                apart[record.call] = len(calls)
                calls.append(msgspec.structs.replace(calls[record.call], op=_ADD, mutated=()))
            record = msgspec.structs.replace(record, call=apart[record.call])
        return msgspec.structs.replace(record, inputs=inputs, outputs=tuple(map(tensor, record.outputs)))

    ops = tuple([op(index, record) for index, record in enumerate(graph.ops)])
    named = tuple(msgspec.structs.replace(entry, tensor=tensor(entry.tensor)) for entry in graph.named)
    return msgspec.structs.replace(
        graph, ops=ops, calls=tuple(calls), tensors=tuple(tensors), storages=tuple(storages), named=named
    )
