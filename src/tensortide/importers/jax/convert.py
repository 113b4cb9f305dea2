"""A traced Program as Imported: pruned, its phases and roles found, what was assumed said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tensortide.cost import count
from tensortide.dtypes import Kind, kind_of
from tensortide.graph.model import Phase, Role
from tensortide.importers.imported import Imported
from tensortide.importers.jax.dead import localize, pruned, surplus
from tensortide.importers.jax.emit import bare_graph, graph_of
from tensortide.importers.jax.phases import classify, depends, read_before_the_optimizer, read_by
from tensortide.importers.jax.program import Cell, Leaf, Program, Step, loops, module_of, steps

LAST_USE = "lifetimes by last use: XLA fuses ops and reuses memory, so that a compiled step holds less at a time"


def converted(program: Program, *, keep_dead: bool = False) -> Imported:
    """Return the step that ``program`` is. Steps whose results nobody reads are left out, as XLA does, unless
    ``keep_dead``."""
    written = [step for step, _ in steps(program.nodes)]
    runs = dict(steps(program.nodes))
    alive, needed = pruned(program.nodes, program.outputs)
    kept = {step for step, _ in steps(alive)}
    dead = [step for step in written if step not in kept]
    if not keep_dead:
        program.nodes = alive
        program.constants = [cell for cell in program.constants if cell in needed]
    last = surplus(alive, program.outputs)
    localize(program)
    classify(program)
    roles = roles_of(program)
    notes = [LAST_USE, *_dead(dead, runs, keep_dead), *_surplus(last), *_recomputed(program), *_loops(program)]
    notes += _devices(program) + _donated(program)
    name_by_module(program)
    graph, _ = graph_of(program, roles, assumptions=tuple(notes))
    return Imported(graph)


def _macs(entries: Sequence[tuple[Step, int]]) -> int:
    """Return the multiply-accumulates of steps that run so often each."""
    total = 0
    for step, times in entries:
        total += count(bare_graph([step])).total.cost.macs * times
    return total


def _dead(dead: Sequence[Step], runs: dict[Step, int], keep: bool) -> list[str]:
    if not dead:
        return []
    macs = _macs([(step, runs[step]) for step in dead if _is_product(step)])
    what = ", here they are kept" if keep else ", and so does this"
    ops = "1 op" if len(dead) == 1 else f"{len(dead):,} ops"
    return [f"dead code: {ops} with {macs:,} MACs whose results nobody reads: XLA leaves them out{what}{_listed(dead)}"]


def _surplus(last: Sequence[tuple[Step, int]]) -> list[str]:
    products = [(step, times) for step, times in last if _is_product(step)]
    macs = _macs(products)
    if not macs:
        return []
    return [f"surplus: {macs:,} MACs of last iterations give only what a next one would read; they run and count"]


def _recomputed(program: Program) -> list[str]:
    repeated = [
        step
        for step, _ in steps(program.nodes)
        if step.recompute and _is_product(step) and "rematted_computation" not in step.place.stack
    ]
    if not repeated:
        return []
    count = f"{len(repeated):,} products"
    return [f"recomputed: {count} of the backward pass repeat one of the forward pass; XLA may merge them"]


def _loops(program: Program) -> list[str]:
    found = []
    for loop in loops(program.nodes):
        if loop.assumed:
            most = f", at most {loop.most:,} by its condition" if loop.most else ""
            found.append(
                f"the trip count of {loop.name} is not known: {loop.why}{most}; one iteration is counted; give it with "
                f"--set trips.{loop.name}=N"
            )
    return found


def _devices(program: Program) -> list[str]:
    if program.devices > 1:
        return [f"one device of {program.devices}: sizes and ops under shard_map are those of each device"]
    if program.partitioned > 1:
        several = f"{program.partitioned} devices share the arrays and XLA divides the work"
        return [f"{several}: sizes and ops are those of all devices together"]
    return []


def _donated(program: Program) -> list[str]:
    count = sum(leaf.donated for leaf in program.inputs)
    if not count:
        return []
    plural = "s" * (count > 1)
    return [f"{count:,} donated argument{plural}: XLA may write results into their memory; here results have their own"]


def _is_product(step: Step) -> bool:
    return step.name in ("dot_general", "conv_general_dilated", "ragged_dot_general")


def _listed(dead: Sequence[Step]) -> str:
    counts = Counter(step.name for step in dead if _is_product(step))
    return f" ({', '.join(f'{name} x{number}' for name, number in counts.items())})" if counts else ""


# -- roles ------------------------------------------------------------------------------------------
# Roles of arguments (parameters, buffers, optimizer state, inputs), by paths and by who reads and replaces them.


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
