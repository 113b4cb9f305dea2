"""Dead code: steps whose results nobody reads, which XLA does not run, and the work of a last iteration for values that
nobody reads, which it does run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tensortide.importers.jax.program import Arm, Choice, Loop, Node, Step, steps


def pruned(nodes: Sequence[Node], live: Iterable[object]) -> tuple[list[Node], set[object]]:
    """Return the nodes that ``live`` cells need, in order, and the cells that are live before them. Loops carry only
    what is read after them or in a later iteration."""
    wanted = set(live)
    kept: list[Node] = []
    for node in reversed(nodes):
        alive = _alive(node, wanted)
        if alive is not None:
            kept.append(alive)
    return kept[::-1], wanted


def _alive(node: Node, wanted: set[object]) -> Node | None:
    """Return what of ``node`` is needed for the cells ``wanted``, and add to them what that reads."""
    if isinstance(node, Step):
        if not node.kept and wanted.isdisjoint(node.outputs):
            return None
        wanted.update(node.inputs)
        return node
    return _loop(node, wanted) if isinstance(node, Loop) else _choice(node, wanted)


def _loop(loop: Loop, wanted: set[object]) -> Node | None:
    carries = [carry for carry in loop.carries if carry.final in wanted]
    written = [row for row in loop.written if row.whole in wanted]
    kept = any(step.kept for step, _ in steps(loop.body))
    if not carries and not written and not kept:
        return None
    while True:  # what an iteration reads of the one before is carried, too
        roots = [*(carry.following for carry in carries), *(row.part for row in written), *loop.decides]
        body, inside = pruned(loop.body, roots)
        more = [carry for carry in loop.carries if carry.start in inside and carry not in carries]
        if not more:
            break
        carries += more
    read = [row for row in loop.read if row.part in inside]
    wanted |= inside
    wanted.update(carry.initial for carry in carries)
    wanted.update(row.whole for row in read)
    order = [carry for carry in loop.carries if carry in carries]
    return replace(loop, body=body, carries=order, read=read, written=written)


def _choice(choice: Choice, wanted: set[object]) -> Node | None:
    places = [i for i, cell in enumerate(choice.outputs) if cell in wanted]
    if not places and not any(step.kept for arm in choice.arms for step, _ in steps(arm.nodes)):
        return None
    arms = []
    for arm in choice.arms:
        results = [arm.results[i] for i in places]
        nodes, inside = pruned(arm.nodes, results)
        arms.append(Arm(nodes, results))
        wanted |= inside
    wanted.add(choice.selector)
    return replace(choice, arms=arms, outputs=[choice.outputs[i] for i in places])


def surplus(nodes: Sequence[Node], live: Iterable[object], runs: int = 1) -> list[tuple[Step, int]]:
    """Return the steps of last iterations that make only what the next one would read, and how often each runs so in
    vain. ``nodes`` are pruned."""
    wanted, found = set(live), []
    for node in reversed(nodes):
        if isinstance(node, Loop) and node.trips:
            ends = [carry.following for carry in node.carries if carry.final in wanted]
            last, _ = pruned(node.body, [*ends, *(row.part for row in node.written), *node.decides])
            needed = {step for step, _ in steps(last)}
            found += [(step, runs * times) for step, times in steps(node.body) if step not in needed]
            following = [carry.following for carry in node.carries]
            inside = surplus(node.body, [*following, *(row.part for row in node.written)], runs * node.trips)
            found += [entry for entry in inside if entry[0] not in {step for step, _ in found}]
        _alive(node, wanted)
    return found
