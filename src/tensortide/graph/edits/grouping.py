"""Edits of several ops: fuse them into one, split one into parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tensortide.errors import GraphError
from tensortide.graph.edits.draft import Draft
from tensortide.graph.edits.single import at_op
from tensortide.graph.model import TENSOR, Call, Graph, Op, Tensor, Value, describe

FUSED = "fused"
"""Namespace of fused ops: ``fused.op.NAME``."""


def fuse(graph: Graph, ops: Iterable[int], name: str, *, arguments: Mapping[str, Value] | None = None) -> Graph:
    """Return ``graph`` with ``ops`` as one op ``fused.op.NAME``: it reads what they read from elsewhere, and makes what
    others read of theirs. What only they use is gone.

    ``arguments`` of the new op: with ``macs`` and ``elementwise_flops`` the rule of fused ops prices it, else its cost
    is unknown. It takes the place of the last of ``ops``, or the first. Raises GraphError if they are in different
    loops, branches or phases, or if an op between them has to run after some and before others of them.
    """
    members = sorted({at_op(graph, op) for op in ops})
    if not members:
        raise GraphError("fuse takes at least one op")
    first = graph.ops[members[0]]
    for attribute in ("phase", "branch", "loop"):
        if len({getattr(graph.ops[op], attribute) for op in members}) > 1:
            raise GraphError(f"ops {_listed(members)} are in different {attribute}s and cannot be one op")
    place = _place(graph, members)
    inside = set(members)
    reads, writes = _interface(graph, members, inside)
    written = {graph.tensors[graph.ops[op].inputs[i]].storage for op in members for i in _mutated(graph, op)}
    holes = tuple(i for i, tensor in enumerate(reads) if graph.tensors[tensor].storage in written)
    given = tuple((f"x{i}", TENSOR) for i in range(len(reads)))
    returns: Value = TENSOR if len(writes) == 1 else (TENSOR,) * len(writes) if writes else None
    call = Call(f"{FUSED}.op.{name}", (*given, *(arguments or {}).items()), len(reads), holes, returns)
    draft = Draft(graph)
    op = msgspec.structs.replace(first, call=draft.call(call), inputs=tuple(reads), outputs=tuple(writes), label="")
    draft.order = [
        (old, op if old == place else each) for old, each in draft.order if old == place or old not in inside
    ]
    draft.moved = {old: place for old in members if old != place}
    return draft.finish()


def _listed(ops: Sequence[int]) -> str:
    return ", ".join(map(str, ops))


def _mutated(graph: Graph, op: int) -> tuple[int, ...]:
    return graph.calls[graph.ops[op].call].mutated


def _place(graph: Graph, members: Sequence[int]) -> int:
    """Find the fused op's place: that of its last part if no op between needs them before, else that of the first."""
    between = [op for op in range(members[0], members[-1]) if op not in members]
    early = next(((m, o) for o in between for m in members if m < o and _ordered(graph, m, o)), None)
    if early is None:
        return members[-1]
    late = next(((m, o) for o in between for m in members if m > o and _ordered(graph, m, o)), None)
    if late is None:
        return members[0]
    raise GraphError(
        f"ops {_listed(members)} cannot be one op: op {early[1]} ({graph[early[1]].name}) has to run after op "
        f"{early[0]}, and op {late[0]} after op {late[1]} (a cycle)"
    )


def _ordered(graph: Graph, one: int, other: int) -> bool:
    """Tell whether two ops have to keep their order: one writes a storage that the other uses."""
    return bool(_written(graph, one) & _used(graph, other) or _written(graph, other) & _used(graph, one))


def _used(graph: Graph, op: int) -> set[int]:
    found = graph.ops[op]
    return {graph.tensors[t].storage for t in (*found.inputs, *found.outputs)}


def _written(graph: Graph, op: int) -> set[int]:
    """Storages that an op allocates or mutates."""
    born = {home for home in _used(graph, op) if graph.storages[home].birth == op}
    return born | {graph.tensors[graph.ops[op].inputs[i]].storage for i in _mutated(graph, op)}


def _interface(graph: Graph, members: Sequence[int], inside: set[int]) -> tuple[list[int], list[int]]:
    """The tensors that the members read from elsewhere, and those of theirs that others use, or that stay."""
    made: dict[int, None] = {}
    reads: dict[int, None] = {}
    for op in members:
        reads |= dict.fromkeys(t for t in graph.ops[op].inputs if t not in made)
        made |= dict.fromkeys(graph.ops[op].outputs)
    elsewhere = {t for op in range(len(graph)) if op not in inside for t in graph.ops[op].inputs}
    elsewhere |= {entry.tensor for entry in graph.named}
    elsewhere |= {t for loop in graph.loops for pair in loop.carried for t in pair}
    homes = {graph.tensors[t].storage for t in elsewhere}

    def shown(tensor: int) -> bool:
        storage = graph.storages[home := graph.tensors[tensor].storage]
        born = storage.birth in inside
        return tensor in elsewhere or (born and (storage.death is None or home in homes))

    return [t for t in reads if t not in made], [t for t in made if shown(t)]


def split(graph: Graph, op: int, parts: int, *, inputs: Mapping[int, int], outputs: Mapping[int, int]) -> Graph:
    """Return ``graph`` with op ``op`` in ``parts`` that run one after the other, each on a slice of its tensors.

    ``inputs`` and ``outputs`` say along which dimension which of them are cut, by position; the others are whole:
    ``split(graph, op, 4, inputs={0: 0}, outputs={0: 0})`` cuts the rows of a product. Every output is cut.
    Raises GraphError for a size that the parts do not divide, or a dimension that is not there.
    """
    old = graph.ops[at_op(graph, op)]
    if parts < 1 or set(outputs) != set(range(len(old.outputs))):
        raise GraphError(f"op {op} in {parts} parts: every one of its {len(old.outputs)} outputs needs a dimension")
    if any(not 0 <= i < len(old.inputs) for i in inputs):
        raise GraphError(f"op {op} has {len(old.inputs)} inputs")
    draft = Draft(graph)
    cut: list[Op] = []
    for part in range(parts):
        read = [_slice(draft, t, inputs.get(i), part, parts) for i, t in enumerate(old.inputs)]
        made = [_slice(draft, t, outputs[i], part, parts) for i, t in enumerate(old.outputs)]
        cut.append(msgspec.structs.replace(old, inputs=tuple(read), outputs=tuple(made)))
    draft.order[op : op + 1] = [(op, cut[0]), *((None, each) for each in cut[1:])]
    return draft.finish()


def _slice(draft: Draft, tensor: int, dim: int | None, part: int, parts: int) -> int:
    """Add the slice of a tensor along ``dim``, and return its index; the tensor itself for None."""
    whole = draft.tensors[tensor]
    if dim is None:
        return tensor
    if not 0 <= dim < len(whole.shape) or whole.shape[dim] % parts:
        raise GraphError(f"{describe(whole)} has no dimension {dim} that {parts} parts divide")
    size = whole.shape[dim] // parts
    shape = (*whole.shape[:dim], size, *whole.shape[dim + 1 :])
    offset = whole.offset + part * size * whole.strides[dim]
    draft.tensors.append(Tensor(whole.storage, whole.dtype, shape, whole.strides, offset))
    return len(draft.tensors) - 1
