"""The order in which the nodes of a graph file run, the outcomes of conditionals under which they do, their phases; and
the roles of variables."""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from tensortide.graph.model import Branch, Phase, Role
from tensortide.importers.tensorflow.optypes import MERGES, QUESTIONS, READERS, SWITCHES, VARIABLES, updates
from tensortide.importers.tensorflow.program import OUTSIDE, MetaGraphError, Program, Ref


def loop_chain(program: Program, loop: int) -> tuple[int, ...]:
    """Return the loops around a node of ``loop``, outermost first."""
    chain: list[int] = []
    while loop != OUTSIDE:
        chain.append(loop)
        loop = program.loops[loop].parent
    return tuple(reversed(chain))


def order(program: Program) -> list[int]:
    """Indexes of all nodes in an order in which they can run: by data and control, by the file where both are silent.

    Every loop's body is one stretch. Questions about a shape come as early as they can: nothing need be kept for them.
    Raises MetaGraphError for a cycle that is no loop.
    """
    chains = [loop_chain(program, node.loop) for node in program.nodes]
    return list(_ordered(program, chains, range(len(program.nodes)), 0))


def _ordered(program: Program, chains: list[tuple[int, ...]], members: Collection[int], depth: int) -> Iterator[int]:
    """``members``, which share their first ``depth`` loops, in order; deeper loops are one unit each."""
    unit = {i: chains[i][depth] if len(chains[i]) > depth else -i - 2 for i in members}
    inside: dict[int, list[int]] = defaultdict(list)
    for i in members:
        inside[unit[i]].append(i)
    waiting: dict[int, set[int]] = {u: set() for u in inside}
    after: dict[int, set[int]] = defaultdict(set)
    for i in members:
        for before in _needs(program, chains, i):
            if before in unit and unit[before] != unit[i]:
                waiting[unit[i]].add(unit[before])
                after[unit[before]].add(unit[i])
    first = {u: (program.nodes[min(nodes)].type not in QUESTIONS, min(nodes)) for u, nodes in inside.items()}
    ready = [(first[u], u) for u, needs in waiting.items() if not needs]
    heapq.heapify(ready)
    done = 0
    while ready:
        _, now = heapq.heappop(ready)
        done += 1
        yield from inside[now] if now < OUTSIDE else _ordered(program, chains, inside[now], depth + 1)
        for later in after[now]:
            waiting[later].discard(now)
            if not waiting[later]:
                heapq.heappush(ready, (first[later], later))
    if done < len(inside):
        stuck = min(first[u][1] for u, needs in waiting.items() if needs)
        raise MetaGraphError(f"node {program.nodes[stuck].name}: it needs its own result, and not through a loop")


def _needs(program: Program, chains: list[tuple[int, ...]], index: int) -> Iterator[int]:
    """Nodes that run before: not those of the iteration before, and not what a loop controls outside of it."""
    node = program.nodes[index]
    for ref in node.inputs:
        if not program.is_back_edge(node, ref):
            yield ref.node
    for before in node.control:
        if chains[index][: len(chains[before])] == chains[before]:
            yield before


Context = tuple[tuple[Ref, int], ...]
"""Predicates with their outcomes, outermost first."""

_PASSED = SWITCHES | {"Identity"}


def branches(program: Program, order: Collection[int]) -> tuple[dict[int, int], tuple[Branch, ...]]:
    """Return the branch of each node that runs under an outcome of a conditional, and the table of branches.

    A Switch that is not a loop's sends its input to one of two arms; what depends on an arm runs only if it is taken,
    up to the Merge where arms meet.
    """
    heads = {
        i for i, node in enumerate(program.nodes) if node.type in SWITCHES and len(node.inputs) > 1
        and program.nodes[program.source(node.inputs[1], _PASSED).node].type == "LoopCond"
    }  # fmt: skip
    contexts: dict[int, Context] = {}
    for index in order:
        node = program.nodes[index]
        found = max((_arm(program, contexts, heads, ref) for ref in node.inputs), key=len, default=())
        found = max([found, *(contexts.get(i, ()) for i in node.control)], key=len)
        if node.type in MERGES and found and not any(program.is_back_edge(node, ref) for ref in node.inputs):
            found = found[:-1]
        contexts[index] = found
    return _table(contexts)


def _arm(program: Program, contexts: dict[int, Context], heads: Collection[int], ref: Ref) -> Context:
    """Return the outcomes under which the tensor ``ref`` exists."""
    node = program.nodes[ref.node]
    context = contexts.get(ref.node, ())
    if node.type in SWITCHES and ref.node not in heads and len(node.inputs) > 1:
        return (*context, (program.source(node.inputs[1], _PASSED), ref.output))
    return context


def _table(contexts: dict[int, Context]) -> tuple[dict[int, int], tuple[Branch, ...]]:
    found: dict[Context, int] = {(): OUTSIDE}
    conditionals: dict[tuple[Context, Ref], int] = {}
    table: list[Branch] = []
    for context in contexts.values():
        for depth in range(1, len(context) + 1):
            if context[:depth] not in found:
                around, (predicate, arm) = context[: depth - 1], context[depth - 1]
                conditional = conditionals.setdefault((around, predicate), len(conditionals))
                found[context[:depth]] = len(table)
                table.append(Branch(conditional, arm, found[around]))
    return {i: found[context] for i, context in contexts.items() if context}, tuple(table)


_SCOPE = re.compile(r"(?:^|/)(?:gradients|gradient_tape)(?:_\d+)?/")


def phases(program: Program, order: Iterable[int]) -> list[Phase]:
    """Return the phase of every node.

    Backward is what stands in the gradient scope (except what it does in forward loops, to keep values, and questions
    about shapes of the forward pass, which run in it) and what follows from that; of this, the optimizer is what
    updates variables, what reads them outside the scope, and what comes after either.
    """
    found = [Phase.FORWARD] * len(program.nodes)
    for index in order:
        node = program.nodes[index]
        asked_early = node.type in QUESTIONS and all(found[ref.node] is Phase.FORWARD for ref in node.inputs)
        if _SCOPE.search(node.name) and not asked_early:
            loop = None if node.loop == OUTSIDE else program.loops[node.loop]
            kept = loop is not None and not _SCOPE.search(loop.name) and loop.gradient_of == OUTSIDE
            found[index] = Phase.FORWARD if kept else Phase.BACKWARD
            continue
        before = {found[ref.node] for ref in node.inputs} | {found[i] for i in node.control}
        reads = any(program.nodes[program.source(ref, READERS).node].type in VARIABLES for ref in node.inputs)
        if Phase.OPTIMIZER in before or (Phase.BACKWARD in before and (reads or updates(node.type))):
            found[index] = Phase.OPTIMIZER
        elif Phase.BACKWARD in before:
            found[index] = Phase.BACKWARD
    return found


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
        parts = name.split("/")
        prefixes = ("/".join(parts[:n]) for n in range(len(parts) - 1, 0, -1))
        owner = next((program.nodes[indexes[p]] for p in prefixes if p in trainable), None)
        shape = program.nodes[index].outputs[0].shape
        alike = owner is not None and owner.outputs[0].shape == shape
        slot = bool(shape) and (index in slots or alike)
        roles[index] = Role.PARAMETER if name in trainable else Role.OPTIMIZER_STATE if slot else Role.BUFFER
    return roles
