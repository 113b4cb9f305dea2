"""Per-device sizes: what only shard_map reads or makes is as large as one device's part."""

from __future__ import annotations

from collections import Counter

from tensortide.importers.jax.dead import pruned
from tensortide.importers.jax.program import Cell, Choice, Loop, Node, Program, Step, steps


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
