"""Roles of arguments (parameters, buffers, optimizer state, inputs), by paths and by who reads and replaces them."""

from __future__ import annotations

from tensortide.dtypes import Kind, kind_of
from tensortide.graph.model import Phase, Role
from tensortide.importers.jax.phases import depends, read_before_the_optimizer, read_by
from tensortide.importers.jax.program import Cell, Leaf, Program, module_of, steps

_PARAMETERS = frozenset(("p", "param", "params", "parameters", "w", "weights", "variables", "vars", "model", "theta"))


def roles_of(program: Program) -> dict[Cell, tuple[Role, bool]]:
    """Return the role of every argument and constant, and whether it is trained.

    In a step with gradients a parameter is what the forward pass reads and a result takes the place of, as a gradient
    or as an update; a buffer is such an argument whose new value depends on no gradient; optimizer state is what only
    the optimizer reads. Without gradients names decide (``params``, ``w``, ...), or the first container of arrays.
    """
    trains = any(step.phase is Phase.BACKWARD for step, _ in steps(program.nodes))
    constants = {cell: (_constant(cell), False) for cell in program.constants}
    if not trains:
        first = _first_container(program.inputs)
        return constants | {leaf.cell: _without_gradients(leaf, first) for leaf in program.inputs}
    late = depends(program, Phase.BACKWARD) | depends(program, Phase.OPTIMIZER)
    updates = dict(program.updates)
    kept = read_by(program, Phase.OPTIMIZER) - read_before_the_optimizer(program)
    return constants | {leaf.cell: _with_gradients(leaf, updates.get(leaf), late, kept) for leaf in program.inputs}


def name_by_module(program: Program) -> None:
    """Name arguments after the module that reads them first, where their path goes through a part of its name:
    ``params.params.Dense_0.kernel``, read in ``MLP.Dense_0``, is ``MLP.Dense_0.kernel``. Names stay distinct."""
    readers: dict[Cell, str] = {}
    for step, _ in steps(program.nodes):
        for cell in step.inputs:
            readers.setdefault(cell, module_of(step.place))
    taken = {leaf.cell.name for leaf in program.inputs}
    for leaf in program.inputs:
        module = readers.get(leaf.cell, "")
        parts, last = leaf.path, module.rpartition(".")[2]
        if leaf.optimizer or not last or last not in parts[:-1]:
            continue
        at = max(i for i, part in enumerate(parts[:-1]) if part == last)
        name = ".".join((module, *parts[at + 1 :]))
        if name not in taken:
            taken.add(name)
            leaf.cell.name = name


def _with_gradients(leaf: Leaf, update: Cell | None, late: set[Cell], kept: set[Cell]) -> tuple[Role, bool]:
    if leaf.optimizer:
        return Role.OPTIMIZER_STATE, False
    if leaf.buffer:
        return Role.BUFFER, False
    if leaf.trainable:
        return Role.PARAMETER, True
    if update is None:
        named = leaf.path[0].lower() in _PARAMETERS and _is_real(leaf.cell)
        return (Role.PARAMETER if named else Role.INPUT), False
    if leaf.cell in kept:
        return Role.OPTIMIZER_STATE, False
    return (Role.PARAMETER, True) if update in late and _is_real(leaf.cell) else (Role.BUFFER, False)


def _without_gradients(leaf: Leaf, first: str) -> tuple[Role, bool]:
    if leaf.optimizer:
        return Role.OPTIMIZER_STATE, False
    if leaf.buffer:
        return Role.BUFFER, False
    named = leaf.path[0].lower() in _PARAMETERS or leaf.path[0] == first
    if leaf.trainable or (named and _is_real(leaf.cell)):
        return Role.PARAMETER, True
    return Role.INPUT, False


def _first_container(leaves: list[Leaf]) -> str:
    """Return the name of the first argument if it is a container of several arrays, all of them real numbers."""
    name = leaves[0].path[0] if leaves else ""
    own = [leaf for leaf in leaves if leaf.path[0] == name]
    several = len(own) > 1 and all(len(leaf.path) > 1 and _is_real(leaf.cell) for leaf in own)
    return name if several and len(own) < len(leaves) else ""


def _constant(cell: Cell) -> Role:
    return Role.PARAMETER if _is_real(cell) and len(cell.shape) > 1 else Role.BUFFER


def _is_real(cell: Cell) -> bool:
    return kind_of(cell.dtype) in (Kind.FLOAT, Kind.COMPLEX)
