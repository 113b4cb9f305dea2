"""Dumps of a step's compiled graphs: one graph of forward, backward and optimizer."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping

from tensortide.errors import TraceError
from tensortide.graph.model import TENSOR, Call, Graph, Meta, Phase, Role, Source, Value
from tensortide.importers.imported import Imported
from tensortide.importers.inductor.assembly import Assembly, Kernel, graph_op, graph_tensor
from tensortide.importers.inductor.calls import call_of
from tensortide.importers.inductor.optimizer import matched
from tensortide.importers.inductor.phase import Reading
from tensortide.importers.inductor.syntax import Program, parse
from tensortide.importers.textfile import TextFile, read_text

__all__ = ["read_dumps", "trace_of_texts"]

_VIEWS = "which ops are views follows from their names, and results are dense where a dump has no strides"


def read_dumps(
    forward: str | os.PathLike[str] | None = None,
    backward: str | os.PathLike[str] | None = None,
    weight: str | os.PathLike[str] | None = None,
    *,
    bind: Mapping[str, int] | None = None,
) -> Imported:
    """The step of up to three graphs that PyTorch's compiler dumped (``fx_graph_transformed.py`` or
    ``fx_graph_readable.py``, plain or ``.gz``): forward (or inference), backward, optimizer. They are never executed.

    Kernels are all calls but getitem, in the order of the graphs. Tensors are numbered as they come up: parameters of
    the forward graph first. A backward parameter is the forward tensor of its name; what the backward defines is new,
    whatever its name. Parameters of the optimizer graph are the forward's and the gradients if shapes, in order, leave
    one way only to tell which; else they are tensors of their own, and the graph's assumptions say so.

    ``bind``: values of symbolic dimensions. The tensors whose size needs another are ``unknown``.

    Raises:
        TraceError: a file cannot be read, is no such dump, is damaged, or contradicts itself or another; no file is
            given, or none has a kernel. The message names file, line and column.
    """
    paths = {Phase.FORWARD: forward, Phase.BACKWARD: backward, Phase.OPTIMIZER: weight}
    return trace_of_texts({phase: read_text(path) for phase, path in paths.items() if path is not None}, bind=bind)


def trace_of_texts(
    texts: Mapping[Phase, TextFile], *, bind: Mapping[str, int] | None = None, name: str = ""
) -> Imported:
    """The same of texts that are not in files. ``name`` is that of the workload."""
    programs = {phase: parse(texts[phase]) for phase in Phase if phase in texts}
    for program in programs.values():
        if all(parameter.type is None for parameter in program.parameters) and not any(n.type for n in program.nodes):
            raise TraceError(
                f"{program.file.path}: nothing in it has a type, so no size is known: "
                "give fx_graph_transformed.py or fx_graph_readable.py"
            )
    made = Assembly(bind or {})
    notes = [_VIEWS]
    _check_bindings(bind or {}, programs)
    readings = _read(programs, made, notes)
    if not made.kernels:
        raise TraceError(f"{', '.join(text.path for text in texts.values())}: no kernel in it")
    _keep(readings, made)
    unknown = tuple(index for index, tensor in enumerate(made.tensors) if not tensor.known)
    if unknown:
        symbols = ", ".join(sorted(made.unbound))
        notes.append(f"the sizes of {len(unknown)} tensors are unknown and count 0 bytes: no value for {symbols}")
    name = name or next(iter(texts.values())).path
    return Imported(
        _graph(made, name, tuple(notes)),
        kernels=tuple(kernel.text for kernel in made.kernels),
        tensors=tuple(tensor.name for tensor in made.tensors),
        unknown=unknown,
    )


def _check_bindings(bind: Mapping[str, int], programs: Mapping[Phase, Program]) -> None:
    """Raise TraceError for a value that is no size, or of a symbol that no dump has."""
    for name, value in bind.items():
        if value < 0:
            raise TraceError(f"{name} is a size: {value} is none")
        word = re.compile(rf"\b{re.escape(name)}\b")
        if not any(word.search(line) for program in programs.values() for line in program.file.lines):
            files = ", ".join(program.file.path for program in programs.values())
            raise TraceError(f"no dimension {name} in {files}")


def _read(programs: Mapping[Phase, Program], made: Assembly, notes: list[str]) -> dict[Phase, Reading]:
    """Every program's names, after its kernels and tensors were put into ``made``."""
    readings: dict[Phase, Reading] = {}
    for phase, program in programs.items():
        reading = readings[phase] = Reading(program, phase, made)
        forward, backward = readings.get(Phase.FORWARD), readings.get(Phase.BACKWARD)
        match phase:
            case Phase.BACKWARD:
                reading.parameters(forward.names if forward else {}, local=forward is not None)
            case Phase.OPTIMIZER if forward and backward:
                known, note = matched(program, forward, backward, made)
                notes.extend([note] if note else [])
                reading.parameters(known)
            case Phase.OPTIMIZER if forward:
                notes.append("without a backward graph, arguments of the optimizer's graph are tensors of their own")
                reading.parameters({})
            case _:
                reading.parameters({})
        reading.nodes()
    return readings


def _keep(readings: Mapping[Phase, Reading], made: Assembly) -> None:
    """Roles and ends of what the graphs take and return.

    What the forward returns once and the backward takes is saved for it; what it returns twice is a result as well.
    """
    forward, backward = readings.get(Phase.FORWARD), readings.get(Phase.BACKWARD)
    saved = set(backward.taken) if backward else set()
    for reading in readings.values():
        for tensor, times in Counter(reading.returned).items():
            block = made.blocks[made.tensors[tensor].block]
            if block.persistent or (reading is forward and times == 1 and tensor in saved):
                continue
            block.kept = True
            if block.role is Role.TEMPORARY:
                block.role = _RETURNED[reading.phase]
    if forward and backward:
        _mark_saved(saved & set(forward.made), backward.first, made)
        for weight, gradient in zip(forward.arguments, backward.results, strict=False):
            if weight is not None and gradient is not None:
                made.blocks[made.tensors[weight].block].role = Role.PARAMETER
    for kernel in made.kernels:
        _mark_written(kernel, made)


def _mark_saved(saved: set[int], backward: int, made: Assembly) -> None:
    """Mark saved activations as resident when the backward pass starts, at the kernel ``backward``."""
    for tensor in saved:
        block = made.blocks[made.tensors[tensor].block]
        block.until = max(block.until, backward)
        if block.role is Role.TEMPORARY:
            block.role = Role.ACTIVATION


_RETURNED = {Phase.FORWARD: Role.OUTPUT, Phase.BACKWARD: Role.GRADIENT, Phase.OPTIMIZER: Role.OPTIMIZER_STATE}


def _mark_written(kernel: Kernel, made: Assembly) -> None:
    """Mark inputs that the forward pass writes as buffers, and those that the optimizer writes as its state."""
    for _, tensor in kernel.outputs:
        block = made.blocks[made.tensors[tensor].block]
        copied = kernel.name.endswith("copy_.default") and block.persistent and block.role is Role.INPUT
        if copied:
            block.role = Role.BUFFER if kernel.phase is Phase.FORWARD else Role.OPTIMIZER_STATE


def _graph(made: Assembly, workload: str, notes: tuple[str, ...]) -> Graph:
    calls: dict[Call, int] = {}
    sources: dict[Source, int] = {}
    ops = []
    for kernel in made.kernels:
        call = call_of(kernel.name, kernel.values, kernel.named, _returns(kernel))
        ops.append(graph_op(kernel, calls.setdefault(call, len(calls)), sources))
    return Graph(
        ops=tuple(ops),
        calls=tuple(calls),
        tensors=tuple(map(graph_tensor, made.tensors)),
        storages=tuple(block.storage(len(ops)) for block in made.blocks),
        sources=tuple(sources),
        meta=Meta(workload=workload, framework="fx dump", captured_on="file", assumptions=notes),
    )


def _returns(kernel: Kernel) -> Value:
    """The result with holes for the outputs that have names."""
    if kernel.typed:
        return TENSOR
    paths = sorted(path for path, _ in kernel.outputs)
    if paths and all(len(path) == 1 for path in paths) and len(set(paths)) == len(paths) and paths[-1][0] < 256:
        return tuple(TENSOR if (index,) in paths else None for index in range(paths[-1][0] + 1))
    return (TENSOR,) * len(paths)
