"""Programs written by hand: a few nodes that stand for what TensorFlow writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensortide.expr import Expr, as_expr
from tensortide.importers.tensorflow.program import OUTSIDE, Attribute, Loop, Node, Program, Ref, Spec

Size = int | str | Expr


class Builder:
    """A Program under construction. Nodes are named by their index; ``ref`` is an output of one."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.loops: list[Loop] = []
        self.hints: dict[str, int] = {}

    def spec(self, shape: Sequence[Size] | None, dtype: str = "float32") -> Spec:
        return Spec(dtype, None if shape is None else tuple(map(as_expr, shape)))

    def add(
        self,
        type: str,
        inputs: Sequence[Ref | int] = (),
        shapes: Sequence[Sequence[Size] | None] = ((),),
        *,
        name: str = "",
        dtype: str = "float32",
        control: Sequence[int] = (),
        loop: int = OUTSIDE,
        **attributes: Attribute,
    ) -> int:
        """Append a node; ``shapes`` are those of its outputs. Returns its index."""
        refs = tuple(ref if isinstance(ref, Ref) else Ref(ref) for ref in inputs)
        specs = tuple(self.spec(shape, dtype) for shape in shapes)
        self.nodes.append(Node(name or f"n{len(self.nodes)}", type, refs, tuple(control), specs, attributes, loop=loop))
        return len(self.nodes) - 1

    def feed_back(self, merge: int, step: int) -> None:
        """The value that ``step`` carries is what ``merge`` starts the next iteration with."""
        node = self.nodes[merge]
        inputs = (*node.inputs, Ref(step))
        self.nodes[merge] = Node(
            node.name, node.type, inputs, node.control, node.outputs, node.attributes, loop=node.loop
        )

    def program(self, **fields: Any) -> Program:
        return Program(nodes=tuple(self.nodes), loops=tuple(self.loops), hints=self.hints, **fields)


def accumulating(trips: Size = "t", shared: bool = False) -> Program:
    """``for _ in range(t): total += x * x`` on a vector of n; with ``shared``, the start is read elsewhere too."""
    b = Builder()
    b.hints = {"n": 6, "t": 4}
    b.loops.append(Loop("loop", OUTSIDE, as_expr(trips)))
    x = b.add("Placeholder", shapes=[["n"]], name="x")
    start = b.add("ZerosLike", [x], [["n"]], name="start")
    enter = b.add("Enter", [start], [["n"]], name="enter")
    constant = b.add("Enter", [x], [["n"]], name="constant", is_constant=True)
    merge = b.add("Merge", [enter], [["n"], []], name="merge", loop=0)
    condition = b.add("LoopCond", [Ref(merge, 1)], [[]], name="condition", dtype="bool", loop=0)
    switch = b.add("Switch", [merge, condition], [["n"], ["n"]], name="switch", loop=0)
    body = b.add("Identity", [Ref(switch, 1)], [["n"]], name="body", loop=0)
    square = b.add("Mul", [constant, constant], [["n"]], name="square", loop=0)
    added = b.add("Add", [body, square], [["n"]], name="added", loop=0)
    step = b.add("NextIteration", [added], [["n"]], name="step", loop=0)
    b.feed_back(merge, step)
    b.add("Exit", [switch], [["n"]], name="exit")
    if shared:
        b.add("Neg", [start], [["n"]], name="elsewhere")
    return b.program(roots=("exit",))
