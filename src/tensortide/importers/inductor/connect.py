"""Connections between the dumped graphs of one step: which parameter of a graph is what of another.

A backward graph names the forward tensors that it takes. Between other graphs only types and their order can tell.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tensortide.dtypes import Kind, kind_of
from tensortide.errors import TraceError
from tensortide.graph.model import Phase
from tensortide.importers.inductor.assembly import Assembly
from tensortide.importers.inductor.phase import Part, Reading
from tensortide.importers.inductor.syntax import Program, name_of_call
from tensortide.importers.inductor.types import TensorType

Known = Mapping[str, int | Part | None]
_ONE_ALONE = "name the files of one graph (--compiled captures all graphs of a workload or script together)"


class Step(NamedTuple):
    """The programs of a step: forward graphs in the order of execution, the backward graph of each or None, and the
    optimizer's."""

    forward: tuple[Program | None, ...]
    backward: tuple[Program | None, ...]
    weight: Program | None


class Readings(NamedTuple):
    """The graphs of a step, read: forward and backward in pairs. ``passed`` are tensors that one graph returns for
    another of the same phase."""

    pairs: list[tuple[Reading | None, Reading | None]]
    weight: Reading | None
    passed: set[int]


def read_step(step: Step, made: Assembly, notes: list[str]) -> Readings:
    """Put kernels and tensors of every program into ``made``. Raises TraceError for graphs that are not connected."""
    passed: set[int] = set()
    forwards: list[Reading | None] = []
    returned: list[list[int]] = []
    for program, backward in zip(step.forward, step.backward, strict=True):
        reading = None if program is None else Reading(program, Phase.FORWARD, made)
        if reading is not None:
            taken = _taken(reading.program, returned, made) if returned else {}
            passed.update(taken.values())
            reading.parameters(taken)
            reading.nodes()
        forwards.append(reading)
        returned.append([] if reading is None else _results(reading, backward))
    if len(forwards) > 1:
        notes.append(
            f"{len(forwards)} forward graphs are connected by the types of what they take and return, in the order in "
            "which they were compiled; what several take from outside counts once for each"
        )
    backwards: list[Reading | None] = []
    gradients: dict[int, list[int | None]] = {}
    """Of a result of a forward graph, what backward graphs return for it."""
    for program, forward, results in reversed(list(zip(step.backward, forwards, returned, strict=True))):
        reading = None if program is None else Reading(program, Phase.BACKWARD, made)
        if reading is not None:
            given = _given(reading.program, results, gradients, made) if len(forwards) > 1 else {}
            passed.update(given.values())
            reading.parameters({**(forward.names if forward else {}), **given}, local=forward is not None)
            reading.nodes()
            for argument, gradient in zip(forward.arguments if forward else (), reading.results, strict=False):
                if argument in passed:
                    gradients.setdefault(argument, []).append(gradient)
        backwards.append(reading)
    pairs = list(zip(forwards, reversed(backwards), strict=True))
    return Readings(pairs, _optimizer(step.weight, pairs, passed, made, notes), passed)


def _results(forward: Reading, backward: Program | None) -> list[int]:
    """Results that a forward graph returns to the program: the first ones. Those saved for the backward follow."""
    saved = 0 if backward is None else sum(not one.name.startswith("tangents_") for one in backward.parameters)
    returned = forward.results[: max(0, len(forward.results) - saved)]
    return [tensor for tensor in returned if tensor is not None]


def _taken(program: Program, earlier: Sequence[Sequence[int]], made: Assembly) -> dict[str, int]:
    """The results of ``earlier`` graphs that parameters of ``program`` stand for. Of each type they are those of the
    nearest graphs; raises TraceError unless these are as many."""
    wanted: dict[tuple[object, ...], list[str]] = {}
    for one in program.parameters:
        if isinstance(one.type, TensorType):
            wanted.setdefault(one.type[:2], []).append(one.name)
    found: dict[str, int] = {}
    for kind, names in wanted.items():
        results: list[int] = []
        for returned in reversed(earlier):
            if len(results) < len(names):
                results[:0] = [tensor for tensor in dict.fromkeys(returned) if made.types[tensor][:2] == kind]
        if results and len(results) != len(names):
            raise TraceError(
                f"{program.file.path}: which of {', '.join(names)} earlier graphs of the step return is not clear from "
                f"their type, which {len(results)} results of theirs have: {_ONE_ALONE}"
            )
        found.update(zip(names, results, strict=False))
    if not found:
        raise TraceError(
            f"{program.file.path}: takes nothing that earlier graphs return, as one compiled anew or of another step: "
            f"{_ONE_ALONE}"
        )
    return found


def _given(
    program: Program, results: Sequence[int], gradients: Mapping[int, list[int | None]], made: Assembly
) -> dict[str, int]:
    """The gradients that parameters of a backward graph stand for: of results of its forward graph that one other
    graph takes. Any other is a sum, or the program's own."""
    tangents = [one for one in program.parameters if one.name.startswith("tangents_")]
    trained = [tensor for tensor in results if kind_of(made.types[tensor].dtype) in (Kind.FLOAT, Kind.COMPLEX)]
    found: dict[str, int] = {}
    for one, tensor in zip(tangents, trained, strict=False) if len(tangents) == len(trained) else ():
        given = gradients.get(tensor, [])
        alone = given[0] if len(given) == 1 else None
        if alone is not None and isinstance(one.type, TensorType) and made.types[alone][:2] == one.type[:2]:
            found[one.name] = alone
    return found


def _optimizer(
    program: Program | None,
    pairs: Sequence[tuple[Reading | None, Reading | None]],
    passed: set[int],
    made: Assembly,
    notes: list[str],
) -> Reading | None:
    if program is None:
        return None
    reading = Reading(program, Phase.OPTIMIZER, made)
    trained = [
        (weight, gradient)
        for forward, backward in pairs
        if forward and backward
        for weight, gradient in zip(forward.arguments, backward.results, strict=False)
        if weight is not None and gradient is not None and weight not in passed
    ]
    if any(backward for _, backward in pairs) and any(forward for forward, _ in pairs):
        reading.parameters(_matched(program, trained, made, notes))
    else:
        if any(forward for forward, _ in pairs):
            notes.append("without a backward graph, arguments of the optimizer's graph are tensors of their own")
        reading.parameters({})
    reading.nodes()
    return reading


def _matched(program: Program, trained: Sequence[tuple[int, int]], made: Assembly, notes: list[str]) -> Known:
    """The tensors that parameters of the optimizer's graph stand for; where that is not certain, ``notes`` say so.

    The weights with a gradient, in order, are a run of consecutive parameters of the same types that are all written;
    their gradients are a run that is not. Unless there is exactly one such run, none is taken.
    """
    types = [made.types[weight][:2] for weight, _ in trained]
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
            found.update({name: pair[side] for (name, _), pair in zip(runs[0], trained, strict=True)})
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
