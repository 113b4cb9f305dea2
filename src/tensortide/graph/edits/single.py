"""Edits of single ops: delete, insert, replace, and which tensor an op reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tensortide.dtypes import storage_bytes
from tensortide.errors import GraphError
from tensortide.graph.calls import Bound, bound
from tensortide.graph.edits.draft import Draft
from tensortide.graph.handles import Given, Out, checked_shape, contiguous
from tensortide.graph.model import TENSOR, Call, Graph, Op, Phase, Storage, Tensor, Value, describe


def at_op(graph: Graph, op: int) -> int:
    """Return ``op`` if the graph has it. Raises GraphError."""
    if not 0 <= op < len(graph):
        raise GraphError(f"there is no op {op} in a graph of {len(graph)} ops")
    return op


def delete(graph: Graph, ops: Iterable[int]) -> Graph:
    """Return ``graph`` without ``ops``. Raises GraphError if an op that stays reads what one of them makes, or a name
    or a loop needs it."""
    gone = {at_op(graph, op) for op in ops}
    draft = Draft(graph)
    draft.order = [(old, op) for old, op in draft.order if old not in gone]
    made = {i for i, storage in enumerate(graph.storages) if storage.birth in gone}
    carried = {t for loop in graph.loops for pair in loop.carried for t in pair}
    for tensor in {entry.tensor for entry in graph.named} | carried:
        if graph.tensors[tensor].storage in made:
            raise GraphError(f"tensor {tensor} has a name or is carried by a loop: the op that makes it stays")
    return draft.finish()


def insert(
    graph: Graph,
    at: int,
    name: str,
    *inputs: Given,
    outs: Sequence[Out] = (),
    arguments: Mapping[str, Given] | None = None,
    names: Sequence[str] = (),
    like: int | None = None,
) -> Graph:
    """Return ``graph`` with an op before op ``at``; its outputs are the last tensors of the new graph.

    ``inputs`` and ``arguments`` are those of ``GraphBuilder.ops``, tensors given by ``edits.tensor``. The op has the
    phase, module, line, loop and branch of op ``like``, by default of the one before which it stands.
    Raises GraphError for an input that is not there yet.
    """
    if not 0 <= at <= len(graph):
        raise GraphError(f"there is no place {at} in a graph of {len(graph)} ops")
    draft = Draft(graph)
    call = bound(name, inputs, arguments or {}, names, None)
    place = min(at, len(graph) - 1) if like is None else at_op(graph, like)
    first = len(draft.tensors)
    homes = [_output(draft, call, out) for out in outs]
    outputs = tuple(range(first, len(draft.tensors)))
    index = draft.call(_call(call, len(outs)))
    read = tuple(handle.index for handle in call.handles)
    if graph.ops:
        op = msgspec.structs.replace(graph.ops[place], call=index, inputs=read, outputs=outputs, label="")
    else:
        op = Op(index, read, outputs, Phase.FORWARD)
    draft.order.insert(at, (None, op))
    draft.born |= {home: op for home in homes if home is not None}
    return draft.finish()


def _output(draft: Draft, call: Bound, out: Out) -> int | None:
    """Add the tensor of an output, and its storage, whose index is returned."""
    dtype = out.dtype or (call.handles[0].dtype if call.handles else "float32")
    shape = checked_shape(call.op, out.shape, dtype)
    strides = contiguous(shape) if out.strides is None else tuple(out.strides)
    if out.view_of is not None:
        home = draft.tensors[out.view_of.index].storage
        draft.tensors.append(Tensor(home, dtype, shape, strides, out.offset))
        return None
    device = draft.storages[draft.tensors[call.handles[0].index].storage].device if call.handles else "cpu"
    draft.storages.append(Storage(storage_bytes(dtype, shape), device, out.role, 0, 0, out.name))
    draft.tensors.append(Tensor(len(draft.storages) - 1, dtype, shape, strides, out.offset))
    return len(draft.storages) - 1


def _call(call: Bound, outputs: int) -> Call:
    returns: Value = TENSOR if outputs == 1 else (TENSOR,) * outputs if outputs else None
    return Call(call.op, call.arguments, call.positional, call.mutated, returns)


def replace(
    graph: Graph,
    op: int,
    name: str,
    *inputs: Given,
    arguments: Mapping[str, Given] | None = None,
    names: Sequence[str] = (),
) -> Graph:
    """Return ``graph`` with another call in the place of op ``op``: its outputs stay what they are.

    Raises GraphError for an input that is not there yet.
    """
    draft = Draft(graph)
    call = bound(name, inputs, arguments or {}, names, None)
    old = graph.ops[at_op(graph, op)]
    index = draft.call(_call(call, len(old.outputs)))
    read = tuple(handle.index for handle in call.handles)
    draft.order[op] = op, msgspec.structs.replace(old, call=index, inputs=read)
    return draft.finish()


def rewire(graph: Graph, tensors: Mapping[int, int], ops: Iterable[int] | None = None) -> Graph:
    """Return ``graph`` with ops that read other tensors: for each of ``tensors`` the one in its place; all ops, or
    ``ops``.

    Raises GraphError where shapes or dtypes differ, and if an op would read what is not made yet.
    """
    for old, new in tensors.items():
        if not (0 <= old < len(graph.tensors) and 0 <= new < len(graph.tensors)):
            raise GraphError(f"tensors {old} and {new} of {len(graph.tensors)}")
        before, after = graph.tensors[old], graph.tensors[new]
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise GraphError(f"tensor {new} is {describe(after)}, and cannot take the place of {describe(before)}")
    chosen = set(range(len(graph))) if ops is None else {at_op(graph, op) for op in ops}
    draft = Draft(graph)
    for at, (old_op, op) in enumerate(draft.order):
        if at in chosen:
            read = tuple([tensors.get(tensor, tensor) for tensor in op.inputs])
            draft.order[at] = old_op, msgspec.structs.replace(op, inputs=read)
    return draft.finish()
