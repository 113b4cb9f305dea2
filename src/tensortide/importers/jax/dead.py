"""Dead code: steps whose results nobody reads, which XLA does not run, and the work of a last iteration for values that
nobody reads, which it does run. What only ``shard_map`` reads or makes is as large as one device's part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tensortide.importers.jax.program import Arm, Cell, Choice, Loop, Node, Program, Step, steps


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


# --- per-device sizes ----------------------------------------------------------------------------------


def localize(program: Program) -> None:
    """Give arguments, constants and values between two ``shard_map`` the shape of one device's part, where nothing else
    reads them, and remove the steps that only say so."""
    moves = [step for step, _ in steps(program.nodes) if step.name in ("shard", "unshard")]
    if not moves:
        return
    readers: dict[Cell, list[Step]] = {}
    for step, _ in steps(program.nodes):
        for cell in step.inputs:
            readers.setdefault(cell, []).append(step)
    reads = Counter(cell for node in program.nodes for cell in _read_by_control_flow(node))
    merged: dict[Cell, Cell] = {}
    given = {leaf.cell for leaf in program.inputs} | set(program.constants)
    makers = {step.outputs[0]: step for step in moves if step.name == "unshard"}
    for cell in [*given, *makers]:
        users = readers.get(cell, [])
        source = makers[cell].inputs[0] if cell in makers else cell
        shapes = {user.outputs[0].shape for user in users}
        whole = not users and cell in makers and cell in program.outputs
        local = users and not reads[cell] and all(u.name == "shard" for u in users) and len(shapes) == 1
        if not whole and not (local and (cell in given or source.shape in shapes)):
            continue
        if cell in given:
            cell.shape = shapes.pop()
        merged.update({cell: source} if cell in makers else {})
        merged.update((user.outputs[0], source) for user in users)
    _replace(program.nodes, merged)
    program.outputs = [_last(cell, merged) for cell in program.outputs]
    program.updates = [(leaf, _last(cell, merged)) for leaf, cell in program.updates]
    program.nodes, _ = pruned([node for node in program.nodes if not _merged(node, merged)], program.outputs)


def _merged(node: Node, merged: dict[Cell, Cell]) -> bool:
    return isinstance(node, Step) and node.name in ("shard", "unshard") and node.outputs[0] in merged


def _last(cell: Cell, merged: dict[Cell, Cell]) -> Cell:
    while cell in merged:
        cell = merged[cell]
    return cell


def _read_by_control_flow(node: Node) -> list[Cell]:
    """Return what loops and conditionals read by themselves."""
    if isinstance(node, Loop):
        own = [*(carry.initial for carry in node.carries), *(row.whole for row in node.read), *node.decides]
        own += [carry.following for carry in node.carries] + [row.part for row in node.written]
        return own + [cell for inner in node.body for cell in _read_by_control_flow(inner)]
    if isinstance(node, Choice):
        own = [node.selector, *(cell for arm in node.arms for cell in arm.results)]
        return own + [cell for arm in node.arms for inner in arm.nodes for cell in _read_by_control_flow(inner)]
    return []


def _replace(nodes: list[Node], merged: dict[Cell, Cell]) -> None:
    """Read what the merged cells stand for, at any depth."""
    for step, _ in steps(nodes):
        step.inputs = [_last(cell, merged) for cell in step.inputs]
    for node in nodes:
        if isinstance(node, Loop):
            node.carries = [carry._replace(initial=_last(carry.initial, merged)) for carry in node.carries]
            node.read = [row._replace(whole=_last(row.whole, merged)) for row in node.read]
