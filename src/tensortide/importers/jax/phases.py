"""Phase of every step, what is recomputed, and which convolutions are gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tensortide.graph.model import Phase
from tensortide.importers.jax.program import Cell, Choice, Loop, Node, Program, Step, made, steps, taken

LAYOUT = frozenset(
    ("rev", "reshape", "transpose", "squeeze", "expand_dims", "convert_element_type", "copy", "broadcast")
)
"""Primitives that show the same numbers in another order or precision."""
_CONVOLUTION = "conv_general_dilated"


def classify(program: Program) -> None:
    """Set ``phase`` and ``recompute`` of all steps of ``program``, which is pruned.

    Backward is what transposition made (``transpose(`` in the name stack), recomputed what a checkpoint rebuilds and
    what the backward pass computes from the same operands as the forward pass. Of the rest the optimizer's is what
    depends on gradients, or only on what no forward or backward step reads; everything else is forward.
    """
    everything = [step for step, _ in steps(program.nodes)]
    for step in everything:
        step.recompute = "rematted_computation" in step.place.stack
        step.phase = Phase.BACKWARD if "transpose(" in step.place.stack else Phase.FORWARD
    if any(step.phase is Phase.BACKWARD for step in everything):
        _optimizer(program.nodes, {leaf.cell for leaf in program.inputs})
    _repeated(program.nodes, {})
    _gradients(program.nodes, _Origins())


def _has(node: Node, phase: Phase) -> bool:
    return any(step.phase is phase for step, _ in steps([node]))


def _differentiated(node: Node) -> bool:
    return any("jvp(" in step.place.stack for step, _ in steps([node]))


def _optimizer(nodes: Sequence[Node], given: set[Cell]) -> None:
    """Mark the optimizer's steps among ``nodes``, whose inputs are ``given``."""
    needed, forward = set[Cell](), set[Node]()
    for node in reversed(nodes):  # what the forward and backward pass read, at any distance
        if _differentiated(node) or _has(node, Phase.BACKWARD) or not needed.isdisjoint(made(node)):
            forward.add(node)
            needed.update(taken(node))
    state = {cell for cell in given if cell not in needed}
    gradients = set[Cell]()
    for node in nodes:
        after = not gradients.isdisjoint(taken(node))
        if isinstance(node, Loop) and _has(node, Phase.BACKWARD) and not _wholly(node):
            _optimizer(node.body, {carry.start for carry in node.carries})
        elif not _differentiated(node) and not _has(node, Phase.BACKWARD):
            reads = not state.isdisjoint(taken(node))
            if after or (node not in forward and reads):
                for step, _ in steps([node]):
                    step.phase = Phase.OPTIMIZER
            if reads and node not in forward:
                state.update(made(node))
        if after or _has(node, Phase.BACKWARD):
            gradients.update(made(node))


def _wholly(loop: Loop) -> bool:
    """Tell a transposed loop from one whose body holds a whole training step."""
    return "transpose(" in loop.place.stack or not any(
        step.phase is not Phase.BACKWARD and "jvp(" in step.place.stack for step, _ in steps(loop.body)
    )


def _repeated(nodes: Sequence[Node], numbers: dict[object, int]) -> None:
    """Mark steps of the backward pass that repeat a step of the forward pass: same primitive, operands, arguments."""
    seen: dict[object, tuple[int, ...]] = {}

    def number(cell: Cell) -> int:
        key: object = cell if cell.literal is None else (cell.literal, cell.dtype)
        return numbers.setdefault(key, len(numbers))

    for node in nodes:
        if isinstance(node, Loop):
            _repeated(node.body, numbers)
        elif isinstance(node, Choice):
            for arm in node.arms:
                _repeated(arm.nodes, numbers)
        elif not node.kept and any(cell.literal is None for cell in node.inputs):
            key = (node.name, repr(sorted(node.arguments.items())), tuple(map(number, node.inputs)))
            if key in seen:
                numbers.update(zip(node.outputs, seen[key], strict=True))
                node.recompute |= node.phase is Phase.BACKWARD and node.name not in LAYOUT
            elif node.phase is Phase.FORWARD or node.name in LAYOUT:
                seen[key] = tuple(map(number, node.outputs))


@dataclass
class _Origins:
    """The step that made a cell, through loops: a value that a loop carries comes from before it."""

    maker: dict[Cell, Step] = field(default_factory=dict)
    outer: dict[Cell, Cell] = field(default_factory=dict)

    def is_gradient(self, cell: Cell) -> bool:
        """Return whether the backward pass made ``cell``: not only turned or reordered what precedes it."""
        while True:
            step = self.maker.get(cell)
            if step is None:
                if cell not in self.outer:
                    return False
                cell = self.outer[cell]
            elif step.name in LAYOUT:
                cell = step.inputs[0]
            else:
                return step.phase is Phase.BACKWARD and not step.recompute


def _gradients(nodes: Sequence[Node], origins: _Origins) -> None:
    """Tell convolutions that are gradients: of the input where the first operand is a gradient, else of the weight."""
    for node in nodes:
        if isinstance(node, Step):
            if node.name == _CONVOLUTION and node.phase is Phase.BACKWARD and not node.recompute:
                left, right = map(origins.is_gradient, node.inputs[:2])
                if left != right:
                    node.arguments = {**node.arguments, "gradient_of": "input" if left else "weight"}
            origins.maker.update((cell, node) for cell in node.outputs)
        elif isinstance(node, Loop):
            origins.outer.update((carry.start, carry.initial) for carry in node.carries)
            origins.outer.update((row.part, row.whole) for row in node.read)
            _gradients(node.body, origins)
            origins.outer.update((carry.final, carry.following) for carry in node.carries)
            origins.outer.update((row.whole, row.part) for row in node.written)
        else:
            for arm in node.arms:
                _gradients(arm.nodes, origins)
            origins.outer.update(zip(node.outputs, node.arms[0].results, strict=True))


def read_before_the_optimizer(program: Program) -> set[Cell]:
    """Return what forward and backward steps read, and the loops and conditionals that they are in."""
    read = read_by(program, Phase.FORWARD) | read_by(program, Phase.BACKWARD)
    for node in program.nodes:
        if not isinstance(node, Step) and not _has(node, Phase.OPTIMIZER):
            read.update(taken(node))
    return read


def read_by(program: Program, phase: Phase) -> set[Cell]:
    """Return what steps of ``phase`` read."""
    return {cell for step, _ in steps(program.nodes) if step.phase is phase for cell in step.inputs}


def depends(program: Program, phase: Phase) -> set[Cell]:
    """Return the cells that steps of ``phase`` make or that depend on such steps, at the top level."""
    found = set[Cell]()
    for node in program.nodes:
        if _has(node, phase) or not found.isdisjoint(taken(node)):
            found.update(made(node))
    return found
