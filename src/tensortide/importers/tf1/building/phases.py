"""The phase of a step that each node of a graph file belongs to, and the roles of its variables."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tensortide.graph.model import Phase, Role
from tensortide.importers.tf1.optypes import READERS, VARIABLES, updates
from tensortide.importers.tf1.program import OUTSIDE, Node, Program

__all__ = ["phases", "variable_roles"]

_SCOPE = re.compile(r"(?:^|/)gradients(?:_\d+)?/")


def phases(program: Program, order: Iterable[int]) -> list[Phase]:
    """Return the phase of every node.

    Backward is what stands in the gradient scope (except what it does in forward loops, to keep values) and what
    follows from that; of this, the optimizer is what updates variables, what reads them outside the scope, and what
    comes after either.
    """
    found = [Phase.FORWARD] * len(program.nodes)
    for index in order:
        node = program.nodes[index]
        if _SCOPE.search(node.name):
            found[index] = Phase.FORWARD if _in_forward_loop(program, node) else Phase.BACKWARD
            continue
        before = {found[ref.node] for ref in node.inputs} | {found[i] for i in node.control}
        reads = any(program.nodes[program.source(ref, READERS).node].type in VARIABLES for ref in node.inputs)
        if Phase.OPTIMIZER in before or (Phase.BACKWARD in before and (reads or updates(node.type))):
            found[index] = Phase.OPTIMIZER
        elif Phase.BACKWARD in before:
            found[index] = Phase.BACKWARD
    return found


def _in_forward_loop(program: Program, node: Node) -> bool:
    return (
        node.loop != OUTSIDE
        and not _SCOPE.search(program.loops[node.loop].name)
        and (program.loops[node.loop].gradient_of == OUTSIDE)
    )


def variable_roles(program: Program) -> dict[int, Role]:
    """Return the role of each variable: a parameter if it is trained; optimizer state if an optimizer's step names it
    so, or if it belongs to a parameter by name and shape; else a buffer."""
    indexes = {node.name: i for i, node in enumerate(program.nodes) if node.type in VARIABLES}
    trainable = {name for name in program.trainable if name in indexes}
    slots = {
        program.source(ref, READERS).node
        for node in program.nodes
        if updates(node.type) and "Apply" in node.type
        for ref in node.inputs[1:]
    }
    roles: dict[int, Role] = {}
    for name, index in indexes.items():
        owner = next((p for p in _prefixes(name) if p in trainable), "")
        if name in trainable:
            roles[index] = Role.PARAMETER
        elif program.nodes[index].outputs[0].shape and (index in slots or _alike(program, index, indexes.get(owner))):
            roles[index] = Role.OPTIMIZER_STATE
        else:
            roles[index] = Role.BUFFER
    return roles


def _prefixes(name: str) -> Iterable[str]:
    parts = name.split("/")
    return ("/".join(parts[:n]) for n in range(len(parts) - 1, 0, -1))


def _alike(program: Program, index: int, owner: int | None) -> bool:
    shapes = [program.nodes[i].outputs[0].shape for i in (index, owner) if i is not None]
    return len(shapes) == 2 and shapes[0] == shapes[1]
