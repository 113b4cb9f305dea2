"""A traced Program as Imported: pruned, its phases and roles found, what was assumed said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tensortide.cost import count
from tensortide.importers.imported import Imported
from tensortide.importers.jax.dead import localize, pruned, surplus
from tensortide.importers.jax.emit import bare_graph, graph_of
from tensortide.importers.jax.phases import classify
from tensortide.importers.jax.program import Program, Step, loops, steps
from tensortide.importers.jax.roles import name_by_module, roles_of

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
