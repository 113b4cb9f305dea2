"""The step as it is placed: loops written out, sums of gradients apart, ops over many parameters as one op each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tensortide.graph.model import TENSOR, Call, Graph, Op, Value, count_slots
from tensortide.graph.unroll import unrolled
from tensortide.memory.accumulate import accumulate_apart, sums_in_place

_MANY = ("aten._foreach_", "aten._fused_")
_FURTHER = "further entry of a list"
"""Tag of the ops after the first one that an op over lists becomes: the host issues them with it."""


def continues_list(call: Call) -> bool:
    """Tell whether a call is of the same op over lists as the op before."""
    return _FURTHER in call.tags


def placeable(graph: Graph) -> Graph:
    """``graph`` with what ties ops of different modules together on one device taken apart.

    Autograd adds the gradients of a tensor that several ops use in place, so that the gradient of a residual stream is
    one storage through all layers. Here each sum has a storage of its own, as a sum across devices does. An op of the
    optimizer over lists of tensors (``aten._foreach_add_``, ``aten._fused_adam_``) becomes one op per tensor.
    """
    graph = unrolled(graph)
    return _one_each(accumulate_apart(graph, sums_in_place(graph)))


def _one_each(graph: Graph) -> Graph:
    """``graph`` with its ops over lists as one op for each entry of their lists."""
    calls = [_parts(call) if call.op.startswith(_MANY) else None for call in graph.calls]
    if not any(calls):
        return graph
    made, numbers = list(graph.calls), dict[Call, int]()
    ops: list[Op] = []
    first: list[int] = []
    for record in graph.ops:
        first.append(len(ops))
        parts = calls[record.call]
        if parts is None:
            ops.append(record)
            continue
        for part, inputs, outputs in parts:
            if part not in numbers:
                numbers[part] = len(made)
                made.append(part)
            ins, outs = tuple(record.inputs[i] for i in inputs), tuple(record.outputs[i] for i in outputs)
            ops.append(msgspec.structs.replace(record, call=numbers[part], inputs=ins, outputs=outs))
    return _renumbered(graph, ops, made, [*first, len(ops)])


def _renumbered(graph: Graph, ops: Sequence[Op], calls: Sequence[Call], first: Sequence[int]) -> Graph:
    """The graph with those ops: births are at the op that has the storage among its outputs."""
    born: dict[int, int] = {}
    for op, record in enumerate(ops):
        for tensor in record.outputs:
            born.setdefault(graph.tensors[tensor].storage, op)
    storages = [
        msgspec.structs.replace(
            held,
            birth=None if held.birth is None else born.get(number, first[held.birth]),
            death=None if held.death is None else first[held.death],
        )
        for number, held in enumerate(graph.storages)
    ]
    return msgspec.structs.replace(graph, ops=tuple(ops), calls=tuple(calls), storages=tuple(storages), composites=None)


def _parts(call: Call) -> list[tuple[Call, list[int], list[int]]] | None:
    """The calls of one entry each, with the positions of their inputs and outputs; None where lists do not match."""
    lists = [value for _, value in call.arguments if isinstance(value, tuple) and count_slots(value) == len(value) > 0]
    count = len(lists[0]) if lists else 0
    outs = count_slots(call.returns)
    if not count or any(len(value) != count for value in lists) or outs not in (0, count):
        return None
    found = []
    for entry in range(count):
        arguments: list[tuple[str, Value]] = []
        inputs: list[int] = []
        slot, mutated = 0, []
        for name, value in call.arguments:
            holes = count_slots(value)
            if isinstance(value, tuple) and holes == count == len(value):
                if slot + entry in call.mutated:
                    mutated.append(len(inputs))
                inputs.append(slot + entry)
                arguments.append((name, (TENSOR,)))
            elif holes == 0 and isinstance(value, tuple) and len(value) == count:
                arguments.append((name, (value[entry],)))
            else:
                mutated += [len(inputs) + hole for hole in range(holes) if slot + hole in call.mutated]
                inputs.extend(range(slot, slot + holes))
                arguments.append((name, value))
            slot += holes
        returns: Value = (TENSOR,) if outs else ()
        tags = (*call.tags, _FURTHER) if entry else call.tags
        part = msgspec.structs.replace(
            call, arguments=tuple(arguments), mutated=tuple(mutated), returns=returns, tags=tags
        )
        found.append((part, inputs, [entry] if outs else []))
    return found
