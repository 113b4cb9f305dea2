"""Gradients that PyTorch's autograd engine sums in place, although every recorder sees it sum them out of place.

Where a tensor feeds several ops, the engine adds their gradients one by one. It adds *into* the first if nothing else
refers to it, but only while no dispatch mode is active; a recorder is one, so under it each sum takes a new storage.
``accumulate_in_place`` restores what an ordinary run does.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from tensortide.graph.model import Call, Graph, Op, Phase, Storage, Tensor

_ADD, ADD_IN_PLACE = "aten.add.Tensor", "aten.add_.Tensor"


def accumulate_in_place(graph: Graph, candidates: Collection[int] | None = None) -> Graph:
    """``graph`` with the engine's sums of gradients done in place where an ordinary run does them so.

    ``candidates`` are the ops that the engine issued itself with gradients disabled, if the recorder knows them;
    by default every ``add`` of the backward phase may be one. Of these, a sum is in place if its first operand is no
    view, is dense, is released right after the op (so nobody else held it), and has the layout of the result.
    The graph itself if there is none.
    """
    storages, tensors = list(graph.storages), graph.tensors
    home = list(range(len(storages)))  # the storage in which each lies once the sums are in place
    owned: set[int] = set()  # tensors that an op made, and not as a view
    sums: set[int] = set()
    for index, op in enumerate(graph.ops):
        call = graph.calls[op.call]
        if (
            call.op == _ADD
            and (candidates is None or index in candidates)
            and _is_sum(op, call)
            and op.inputs[0] in owned
        ):
            first, second, total = (tensors[t] for t in (*op.inputs, *op.outputs))
            old, new = storages[home[first.storage]], storages[total.storage]
            alike = msgspec.structs.replace(first, storage=total.storage) == total
            if alike and first.storage != second.storage and _replaced(old, new, index):
                known = min(old, new, key=lambda storage: storage.role.precedence)
                home[total.storage] = home[first.storage]
                storages[home[first.storage]] = msgspec.structs.replace(
                    old, role=known.role, death=new.death, name=known.name
                )
                sums.add(index)
        (owned.difference_update if "view" in call.tags else owned.update)(op.outputs)
    return _moved(graph, storages, home, sums) if sums else graph


def _is_sum(op: Op, call: Call) -> bool:
    """Tell whether a call of ``add`` may be one of the engine's: in the backward phase, of two tensors and no more."""
    return op.phase is Phase.BACKWARD and not op.recompute and len(op.inputs) == len(call.arguments) == 2


def _replaced(old: Storage, new: Storage, index: int) -> bool:
    """Tell whether the op at ``index`` makes ``new``, of the same size, and ``old`` is released right after it."""
    return old.death == index + 1 and new.birth == index and old.nbytes == new.nbytes


def _moved(graph: Graph, storages: list[Storage], home: list[int], sums: Collection[int]) -> Graph:
    """``graph`` with each storage in its ``home``, those and the tensors numbered anew, and ``sums`` in place."""
    kept = sorted(set(home))
    number = {storage: i for i, storage in enumerate(kept)}
    tensors: dict[Tensor, int] = {}
    renumber = [
        tensors.setdefault(msgspec.structs.replace(t, storage=number[home[t.storage]]), len(tensors))
        for t in graph.tensors
    ]
    summing = sorted({graph.ops[i].call for i in sums})
    in_place = {call: len(graph.calls) + i for i, call in enumerate(summing)}
    calls = [msgspec.structs.replace(graph.calls[i], op=ADD_IN_PLACE, mutated=(0,)) for i in summing]
    ops = tuple(
        [
            msgspec.structs.replace(
                op,
                call=in_place[op.call] if i in sums else op.call,
                inputs=tuple([renumber[t] for t in op.inputs]),
                outputs=tuple([renumber[t] for t in op.outputs]),
            )
            for i, op in enumerate(graph.ops)
        ]
    )
    return msgspec.structs.replace(
        graph,
        ops=ops,
        calls=(*graph.calls, *calls),
        tensors=tuple(tensors),
        storages=tuple(storages[i] for i in kept),
        named=tuple(msgspec.structs.replace(entry, tensor=renumber[entry.tensor]) for entry in graph.named),
        composites=None if graph.composites is None else graph.composites.numbered(renumber.__getitem__),
    )


def sums_in_place(graph: Graph) -> frozenset[int]:
    """The ops that ``accumulate_in_place`` makes, or that look alike: sums in the backward phase, in place."""
    calls = {i for i, call in enumerate(graph.calls) if call.op == ADD_IN_PLACE}
    return frozenset(i for i, op in enumerate(graph.ops) if op.call in calls and _is_sum(op, graph.calls[op.call]))


def partial_sums(graph: Graph) -> frozenset[int]:
    """The ops of the backward pass that add a gradient to a sum and leave nothing of the sum before: they write it in
    place, or it is released right after and the result has a storage of the same size."""
    found = set()
    for index, op in enumerate(graph.ops):
        if graph.calls[op.call].op not in (_ADD, ADD_IN_PLACE) or op.phase is not Phase.BACKWARD or op.recompute:
            continue
        owners = list(dict.fromkeys(graph.tensors[t].storage for t in op.inputs))
        if len(owners) == 2 and op.outputs:
            before, after = owners[0], graph.tensors[op.outputs[0]].storage
            if before == after or _replaced(graph.storages[before], graph.storages[after], index):
                found.add(index)
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
        graph,
        ops=ops,
        calls=tuple(calls),
        tensors=tuple(tensors),
        storages=tuple(storages),
        named=named,
        composites=None,
    )
