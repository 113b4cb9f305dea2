"""Dumps of a step's compiled graphs: one graph of forward, backward and optimizer."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from tensortide.errors import TraceError
from tensortide.graph.model import OUTSIDE, TENSOR, Call, Graph, Meta, Op, Phase, Role, Source, Value
from tensortide.importers.imported import Imported
from tensortide.importers.inductor.assembly import Assembly, Kernel
from tensortide.importers.inductor.connect import Readings, Step, read_step
from tensortide.importers.inductor.phase import Reading
from tensortide.importers.inductor.syntax import Program, parse
from tensortide.importers.inductor.values import call_of
from tensortide.importers.textfile import TextFile, read_text

_VIEWS = "which ops are views follows from their names, and results are dense where a dump has no strides"


Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str] | None] | None


class Texts(NamedTuple):
    """The dumped graphs of a step: forward graphs in the order of execution, the backward graph of each if there is
    one, and the optimizer's."""

    forward: Sequence[TextFile | None]
    backward: Sequence[TextFile | None] = ()
    weight: TextFile | None = None

    def all(self) -> list[TextFile]:
        """List the texts, forward first."""
        return [text for text in (*self.forward, *self.backward, self.weight) if text is not None]


def read_dumps(
    forward: Paths = None,
    backward: Paths = None,
    weight: str | os.PathLike[str] | None = None,
    *,
    bind: Mapping[str, int] | None = None,
) -> Imported:
    """The step of graphs that PyTorch's compiler dumped (``fx_graph_transformed.py`` or ``fx_graph_readable.py``, plain
    or ``.gz``): forward (or inference), backward, optimizer. They are never executed. Several forward graphs are parts
    of the step in the order in which they run, each with its backward graph at the same place, or None.

    Kernels are all calls but getitem, in the order of the graphs; backward graphs run in reverse. Tensors are numbered
    as they come up: parameters of the forward graph first. A backward parameter is the forward tensor of its name; what
    the backward defines is new, whatever its name. Parameters of a further forward graph are results of earlier ones,
    and those of the optimizer graph the forward's and the gradients, if shapes, in order, leave one way only to tell
    which; else the former is an error, and the latter are tensors of their own, as the graph's assumptions say.

    ``bind``: values of symbolic dimensions. The tensors whose size needs another are ``unknown``.

    Raises:
        TraceError: a file cannot be read, is no such dump, is damaged, or contradicts itself or another; no file is
            given, or none has a kernel. The message names file, line and column.
    """
    return trace_of_texts(
        Texts(_texts(forward), _texts(backward), None if weight is None else read_text(weight)), bind=bind
    )


def _texts(paths: Paths) -> list[TextFile | None]:
    given = [paths] if paths is None or isinstance(paths, (str, os.PathLike)) else paths
    return [None if path is None else read_text(path) for path in given]


def trace_of_texts(texts: Texts, *, bind: Mapping[str, int] | None = None, name: str = "") -> Imported:
    """The same of texts that are not in files. ``name`` is that of the workload."""
    count = max(len(texts.forward), len(texts.backward))
    forward, backward = ((*given, *[None] * (count - len(given))) for given in (texts.forward, texts.backward))
    step = Step(tuple(map(_program, forward)), tuple(map(_program, backward)), _program(texts.weight))
    made = Assembly(bind or {})
    notes = [_VIEWS]
    _check_bindings(bind or {}, texts.all())
    readings = read_step(step, made, notes)
    if not made.kernels:
        raise TraceError(f"{', '.join(text.path for text in texts.all())}: no kernel in it")
    _keep(readings, made)
    _mark_written(made)
    if made.unknown:
        symbols = ", ".join(sorted(made.unbound))
        notes.append(f"the sizes of {len(made.unknown)} tensors are unknown and count 0 bytes: no value for {symbols}")
    name = name or texts.all()[0].path
    return Imported(
        _graph(made, name, tuple(notes)),
        kernels=tuple(kernel.text for kernel in made.kernels),
        tensors=tuple(made.names),
        unknown=tuple(made.unknown),
    )


def _program(text: TextFile | None) -> Program | None:
    if text is None:
        return None
    program = parse(text)
    if all(parameter.type is None for parameter in program.parameters) and not any(n.type for n in program.nodes):
        raise TraceError(
            f"{program.file.path}: nothing in it has a type, so no size is known: "
            "give fx_graph_transformed.py or fx_graph_readable.py"
        )
    return program


def _check_bindings(bind: Mapping[str, int], texts: Sequence[TextFile]) -> None:
    """Raise TraceError for a value that is no size, or of a symbol that no dump has."""
    for name, value in bind.items():
        if value < 0:
            raise TraceError(f"{name} is a size: {value} is none")
        word = re.compile(rf"\b{re.escape(name)}\b")
        if not any(word.search(line) for text in texts for line in text.lines):
            raise TraceError(f"no dimension {name} in {', '.join(text.path for text in texts)}")


def _keep(readings: Readings, made: Assembly) -> None:
    """Roles and ends of what the graphs take and return.

    What the forward returns once and the backward takes is saved for it; what it returns twice is a result as well.
    What one graph returns and the next takes ends with its last use.
    """
    for forward, backward in reversed(readings.pairs):  # as gradients are passed on
        saved = {tensor for tensor in backward.arguments if tensor is not None} if backward else set()
        _returned(forward, saved, readings.passed, made)
        _returned(backward, set(), readings.passed, made)
        if not forward or not backward:
            continue
        for tensor in saved:  # resident when the backward pass starts
            block = made.block(tensor)
            block.until = max(block.until, backward.first)
            if block.role is Role.TEMPORARY:
                block.role = Role.ACTIVATION
        for weight, gradient in zip(forward.arguments, backward.results, strict=False):
            if weight is not None and gradient is not None and weight not in readings.passed:
                made.block(weight).role = Role.PARAMETER
    _returned(readings.weight, set(), readings.passed, made)


def _returned(reading: Reading | None, saved: Set[int], passed: Set[int], made: Assembly) -> None:
    """Roles of what a graph returns, which lives beyond the step unless it is ``saved`` or ``passed`` on."""
    for tensor, times in Counter(reading.results if reading else ()).items():
        block = None if tensor is None else made.block(tensor)
        if block is None or block.persistent or (times == 1 and tensor in saved):
            continue
        if tensor not in passed:
            block.kept = True
        elif reading and reading.phase is Phase.FORWARD:
            continue
        if reading and block.role is Role.TEMPORARY:
            block.role = _RETURNED[reading.phase]


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
