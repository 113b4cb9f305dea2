"""Is a Graph consistent? Every index in range, every op within the life of the storages it touches."""

from __future__ import annotations

from tensortide.dtypes import DTYPES, storage_bytes
from tensortide.errors import GraphError
from tensortide.graph.composites import check_composites
from tensortide.graph.model import OUTSIDE, Call, Graph, Loop, Tensor, count_slots

_MOST_BYTES = 1 << 62  # of a tensor, and of all storages together: sums must fit in 64 bits


def require_graph(graph: object, function: str) -> None:
    """Raise GraphError for what is no Graph where a ``function`` of ``tensortide`` takes one."""
    if not isinstance(graph, Graph):
        what = "None" if graph is None else f"a {type(graph).__name__}"
        how = f"tensortide.{function}(tensortide.open({graph!r}).graph)" if isinstance(graph, str) else ""
        how = how or "tensortide.capture(...), or tensortide.open(...).graph"
        raise GraphError(f"{function} takes a Graph, not {what}: {how}")


def validate(graph: Graph) -> None:
    """Check ``graph``; raises GraphError that says what is wrong and where."""
    spans = _checked_spans(graph)
    for index, tensor in enumerate(graph.tensors):
        _check_tensor(graph, index, tensor)
    slots = [sum(count_slots(value) for _, value in call.arguments) for call in graph.calls]
    returned = [count_slots(call.returns) for call in graph.calls]
    for index, call in enumerate(graph.calls):
        _check_call(index, call, slots[index])
    _check_ops(graph, slots, returned, spans)
    for index, branch in enumerate(graph.branches):
        if not OUTSIDE <= branch.parent < index:
            raise GraphError(f"branch {index} lies in branch {branch.parent}, which does not come before it")
    for index, loop in enumerate(graph.loops):
        _check_loop(graph, index, loop)
    for entry in graph.named:
        if not 0 <= entry.tensor < len(graph.tensors):
            raise GraphError(f"name {entry.name!r} refers to tensor {entry.tensor} of {len(graph.tensors)}")
    if graph.composites is not None:
        check_composites(graph.composites, graph)


def _checked_spans(graph: Graph) -> list[tuple[int, int]]:
    """The ops between which each storage is resident."""
    count, spans = len(graph.ops), []
    for index, storage in enumerate(graph.storages):
        birth = -1 if storage.birth is None else storage.birth
        death = count if storage.death is None else storage.death
        if storage.nbytes < 0:
            raise GraphError(f"storage {index} has {storage.nbytes} bytes")
        if not -1 <= birth < max(count, 1) or not 0 <= death <= count or death <= birth:
            raise GraphError(f"storage {index} lives from op {storage.birth} to {storage.death} of {count} ops")
        spans.append((birth, death))
    if sum(int(storage.nbytes) for storage in graph.storages) >= _MOST_BYTES:
        raise GraphError("its storages take more memory than any machine has: 4 EiB or more")
    return spans


def _check_tensor(graph: Graph, index: int, tensor: Tensor) -> None:
    if not 0 <= tensor.storage < len(graph.storages):
        raise GraphError(f"tensor {index} views storage {tensor.storage} of {len(graph.storages)}")
    if tensor.dtype not in DTYPES:
        raise GraphError(f"tensor {index} has the unknown dtype {tensor.dtype!r}")
    shape = tuple(map(int, tensor.shape))  # the numbers alone: arithmetic on expressions takes long
    if len(shape) != len(tensor.strides) or tensor.offset < 0 or min(shape, default=0) < 0:
        raise GraphError(f"tensor {index} has shape {tensor.shape}, strides {tensor.strides}, offset {tensor.offset}")
    if storage_bytes(tensor.dtype, shape) >= _MOST_BYTES:
        raise GraphError(f"tensor {index} has shape {tensor.shape}: it takes 4 EiB or more")


def _check_loop(graph: Graph, index: int, loop: Loop) -> None:
    if not OUTSIDE <= loop.parent < index:
        raise GraphError(f"loop {index} lies in loop {loop.parent}, which does not come before it")
    if not OUTSIDE <= loop.gradient_of < len(graph.loops) or loop.gradient_of == index:
        raise GraphError(f"loop {index} retraces loop {loop.gradient_of} of {len(graph.loops)}")
    if loop.trips < 0:
        raise GraphError(f"loop {index} runs {loop.trips} times")
    if any(not 0 <= tensor < len(graph.tensors) for pair in loop.carried for tensor in pair):
        raise GraphError(f"loop {index} carries a tensor that is not there")


def _check_call(index: int, call: Call, slots: int) -> None:
    if not 0 <= call.positional <= len(call.arguments):
        raise GraphError(f"call {index} ({call.op}) has {call.positional} positional arguments")
    if any(not 0 <= slot < slots for slot in call.mutated):
        raise GraphError(f"call {index} ({call.op}) mutates holes {call.mutated} of {slots}")


def _check_ops(graph: Graph, slots: list[int], returned: list[int], spans: list[tuple[int, int]]) -> None:
    calls, modules, sources = len(graph.calls), len(graph.modules), len(graph.sources)
    tensors, branches = len(graph.tensors), len(graph.branches)
    owner = [tensor.storage for tensor in graph.tensors]
    for index, op in enumerate(graph.ops):
        if not 0 <= op.call < calls:
            raise GraphError(f"op {index} makes call {op.call} of {calls}")
        if len(op.inputs) != slots[op.call] or len(op.outputs) != returned[op.call]:
            raise GraphError(f"op {index} ({graph.calls[op.call].op}) does not fill the holes of its call")
        if not (OUTSIDE <= op.module < modules and OUTSIDE <= op.source < sources and OUTSIDE <= op.branch < branches):
            raise GraphError(f"op {index} refers to a module, source or branch that is not there")
        if not OUTSIDE <= op.loop < len(graph.loops):
            raise GraphError(f"op {index} runs in loop {op.loop} of {len(graph.loops)}")
        for tensor in (*op.inputs, *op.outputs):
            if not 0 <= tensor < tensors:
                raise GraphError(f"op {index} uses tensor {tensor} of {tensors}")
            birth, death = spans[owner[tensor]]
            if not birth <= index < death:
                raise GraphError(
                    f"op {index} ({graph.calls[op.call].op}) uses storage {owner[tensor]}, "
                    f"which lives from op {birth} to {death}"
                )
