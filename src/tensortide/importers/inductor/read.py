"""Dumps of a step's compiled graphs: one graph of forward, backward and optimizer."""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from collections.abc import Mapping

from tensortide.errors import TraceError
from tensortide.graph.model import OUTSIDE, TENSOR, Call, Graph, Meta, Op, Phase, Role, Source, Value
from tensortide.importers.imported import Imported
from tensortide.importers.inductor.assembly import Assembly, Kernel
from tensortide.importers.inductor.phase import Part, Reading
from tensortide.importers.inductor.syntax import Program, name_of_call, parse
from tensortide.importers.inductor.types import TensorType
from tensortide.importers.inductor.values import call_of
from tensortide.importers.textfile import TextFile, read_text

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
    _mark_written(made)
    if made.unknown:
        symbols = ", ".join(sorted(made.unbound))
        notes.append(f"the sizes of {len(made.unknown)} tensors are unknown and count 0 bytes: no value for {symbols}")
    name = name or next(iter(texts.values())).path
    return Imported(
        _graph(made, name, tuple(notes)),
        kernels=tuple(kernel.text for kernel in made.kernels),
        tensors=tuple(made.names),
        unknown=tuple(made.unknown),
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
                reading.parameters(_matched(program, forward, backward, made, notes))
            case Phase.OPTIMIZER if forward:
                notes.append("without a backward graph, arguments of the optimizer's graph are tensors of their own")
                reading.parameters({})
            case _:
                reading.parameters({})
        reading.nodes()
    return readings


def _matched(
    program: Program, forward: Reading, backward: Reading, made: Assembly, notes: list[str]
) -> dict[str, int | Part | None]:
    """The tensors that parameters of the optimizer's graph stand for; where that is not certain, ``notes`` say so.

    The weights with a gradient, in order, are a run of consecutive parameters of the same types that are all written;
    their gradients are a run that is not. Unless there is exactly one such run, none is taken.
    """
    pairs = [pair for pair in zip(forward.arguments, backward.results, strict=False) if None not in pair]
    types = [made.types[weight][:2] for weight, _ in pairs if weight is not None]
    given = [(one.name, one.type[:2]) for one in program.parameters if isinstance(one.type, TensorType)]
    written = _written(program)
    found: dict[str, int | Part | None] = {}
    unclear = []
    for what, side, wanted in (("weights", 0, True), ("gradients", 1, False)):
        runs = [
            run
            for start in range(len(given) - len(types) + 1)
            for run in [given[start : start + len(types)]]
            if [kind for _, kind in run] == types and all((name in written) is wanted for name, _ in run)
        ]
        if len(runs) == 1 and types:
            found.update({name: pair[side] for (name, _), pair in zip(runs[0], pairs, strict=True)})
        else:
            unclear.append(f"{what} ({len(runs)} ways)")
    if unclear:
        notes.append(
            f"which arguments of the optimizer's graph are {' and '.join(unclear)} is not certain: "
            "they are tensors of their own"
        )
    return found


def _written(program: Program) -> set[str]:
    """Names that ``aten.copy_`` writes."""
    return {
        target.id
        for node in program.nodes
        if name_of_call(node.value) == "torch.ops.aten.copy_.default"
        for target in getattr(node.value, "args", ())[:1]
        if isinstance(target, ast.Name)
    }


def _keep(readings: Mapping[Phase, Reading], made: Assembly) -> None:
    """Roles and ends of what the graphs take and return.

    What the forward returns once and the backward takes is saved for it; what it returns twice is a result as well.
    """
    forward, backward = readings.get(Phase.FORWARD), readings.get(Phase.BACKWARD)
    saved = {tensor for tensor in backward.arguments if tensor is not None} if backward else set()
    for reading in readings.values():
        for tensor, times in Counter(tensor for tensor in reading.results if tensor is not None).items():
            block = made.block(tensor)
            if block.persistent or (reading is forward and times == 1 and tensor in saved):
                continue
            block.kept = True
            if block.role is Role.TEMPORARY:
                block.role = _RETURNED[reading.phase]
    if forward and backward:
        for tensor in saved:  # resident when the backward pass starts
            block = made.block(tensor)
            block.until = max(block.until, backward.first)
            if block.role is Role.TEMPORARY:
                block.role = Role.ACTIVATION
        for weight, gradient in zip(forward.arguments, backward.results, strict=False):
            if weight is not None and gradient is not None:
                made.block(weight).role = Role.PARAMETER


def _mark_written(made: Assembly) -> None:
    """Mark inputs that the forward pass writes as buffers, and those that the optimizer writes as its state."""
    for kernel in made.kernels:
        for _, tensor in kernel.outputs if kernel.name.endswith("copy_.default") else ():
            block = made.block(tensor)
            if block.persistent and block.role is Role.INPUT:
                block.role = Role.BUFFER if kernel.phase is Phase.FORWARD else Role.OPTIMIZER_STATE


_RETURNED = {Phase.FORWARD: Role.OUTPUT, Phase.BACKWARD: Role.GRADIENT, Phase.OPTIMIZER: Role.OPTIMIZER_STATE}


def _graph(made: Assembly, workload: str, notes: tuple[str, ...]) -> Graph:
    calls: dict[Call, int] = {}
    sources: dict[Source, int] = {}
    ops = []
    for kernel in made.kernels:
        call = call_of(kernel.name, kernel.values, kernel.named, _returns(kernel))
        source = OUTSIDE if kernel.source is None else sources.setdefault(kernel.source, len(sources))
        outputs = tuple(tensor for _, tensor in sorted(kernel.outputs))
        number = calls.setdefault(call, len(calls))
        ops.append(Op(number, kernel.inputs, outputs, kernel.phase, source=source, label=kernel.label))
    return Graph(
        ops=tuple(ops),
        calls=tuple(calls),
        tensors=tuple(made.tensors),
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
