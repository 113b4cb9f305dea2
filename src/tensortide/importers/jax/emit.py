"""A Program as a Graph."""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tensortide.graph import Graph, GraphBuilder, Handle, Out, Role
from tensortide.graph.handles import contiguous
from tensortide.graph.model import Value
from tensortide.importers.jax.program import (
    NOWHERE,
    Arm,
    Cell,
    Choice,
    Loop,
    Node,
    Program,
    Slice,
    SourceInfo,
    Step,
    kind_of,
    module_of,
)
from tensortide.importers.jax.views import Layout, layout_of

OPERANDS = {
    **dict.fromkeys(("dot_general", "conv_general_dilated", "ragged_dot_general"), ("lhs", "rhs", "sizes")),
    **dict.fromkeys(("gather", "dynamic_slice"), ("operand", "indices")),
    **dict.fromkeys(
        ("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max", "scatter-sub"),
        ("operand", "indices", "updates"),
    ),
    "dynamic_update_slice": ("operand", "update"),
    "select_n": ("which",),
    "pad": ("operand", "padding_value"),
    **dict.fromkeys(("reduce_sum", "reduce_prod", "reduce_max", "reduce_min"), ("operand",)),
    **dict.fromkeys(("reduce_and", "reduce_or", "reduce_xor", "argmax", "argmin", "reduce"), ("operand",)),
}
"""Names of operands that cost rules ask for; others are x0, x1, ..."""
_TENSORS = ("operand", "updates", "update")
"""Operands whose shape is the cost: a number that the program spells out there is a tensor, too."""


@dataclass
class Emitter:
    """Writes nodes into a GraphBuilder. ``handles`` are the tensors of cells, ``layouts`` how they lie in memory,
    ``written`` the ops of every step."""

    builder: GraphBuilder
    handles: dict[Cell, Handle] = field(default_factory=dict)
    layouts: dict[int, Layout] = field(default_factory=dict)
    count: int = 0
    ops: dict[Step, int] = field(default_factory=dict)

    def nodes(self, nodes: Sequence[Node]) -> None:
        """Write ``nodes`` in order."""
        for node in nodes:
            if isinstance(node, Step):
                self._step(node)
            elif isinstance(node, Loop):
                self._loop(node)
            else:
                self._choice(node)

    def handle(self, cell: Cell) -> Handle:
        """Return the tensor of ``cell``; a number that the program spells out becomes a constant of its own."""
        found = self.handles.get(cell)
        if found is None:
            value: dict[str, Value] = {} if cell.literal is None else {"value": cell.literal}
            found = self.builder.op("jax.constant", out=Out(cell.shape, cell.dtype), arguments=value)
            self.handles[cell] = found
            self.count += 1
        return found

    def _step(self, step: Step) -> None:
        with self._at(step.place, step):
            names = OPERANDS.get(step.name, ())
            called = [names[i] if i < len(names) else f"x{i}" for i in range(len(step.inputs))]
            spelled = [
                cell.literal is not None and name not in _TENSORS
                for name, cell in zip(called, step.inputs, strict=True)
            ]
            tensors = [(i, self.handle(cell)) for i, cell in enumerate(step.inputs) if not spelled[i]]
            literals = {called[i]: cell.literal for i, cell in enumerate(step.inputs) if spelled[i]}
            views = self._views(step)
            outs = [
                Out(cell.shape, cell.dtype) if views is None else _part(tensors[0][1], cell.shape, views[i])
                for i, cell in enumerate(step.outputs)
            ]
            mutated = [handle for i, handle in tensors if i in step.mutates]
            made = self.builder.ops(
                f"jax.{step.name}", *(handle for _, handle in tensors), outs=outs,
                names=[called[i] for i, _ in tensors], arguments={**literals, **step.arguments}, mutates=mutated,
            )  # fmt: skip
            self.ops[step] = self.count
            self.count += 1
            for i, (cell, handle) in enumerate(zip(step.outputs, made, strict=True)):
                self.handles[cell] = handle
                if views is not None:
                    self.layouts[handle.index] = views[i]

    def _views(self, step: Step) -> list[Layout] | None:
        source = step.inputs[0] if step.inputs else None
        if source is None or source.literal is not None or not step.outputs or step.mutates:
            return None
        handle = self.handle(source)
        if any(cell.dtype != handle.dtype for cell in step.outputs):
            return None
        layout = self.layout(handle)
        shapes = [cell.shape for cell in step.outputs]
        found = layout_of(step.name, handle.shape, layout.strides, layout.offset, shapes, step.arguments)
        return None if found is None or any(stride < 0 for one in found for stride in one.strides) else found

    def layout(self, handle: Handle) -> Layout:
        """Return how a tensor lies in its storage."""
        return self.layouts.get(handle.index) or Layout(contiguous(handle.shape), 0)

    def _loop(self, loop: Loop) -> None:
        initial = [self.handle(carry.initial) for carry in loop.carries]
        whole = [self.handle(row.whole) for row in loop.read]
        made = [self._bare("jax.empty", (), Out(row.whole.shape, row.whole.dtype), loop.place) for row in loop.written]
        with self.builder.loop(loop.name, loop.trips, assumed=loop.assumed) as carry:
            for entry, handle in zip(loop.carries, initial, strict=True):
                shape, layout = entry.start.shape, self.layout(handle)
                self.handles[entry.start] = self._view("jax.carry", handle, shape, layout, loop.place)
            for row, handle in zip(loop.read, whole, strict=True):
                layout = self.layout(handle)
                part = Layout(layout.strides[1:], layout.offset)
                self.handles[row.part] = self._view("jax.row", handle, row.part.shape, part, loop.place)
            self.nodes(loop.body)
            for row, handle in zip(loop.written, made, strict=True):
                self._write(row, handle, loop.place)
            for entry in loop.carries:
                carry(self.handles[entry.start], self.handle(entry.following))
        for entry in loop.carries:
            self.handles[entry.final] = self.handle(entry.following)
        self.handles.update(zip((row.whole for row in loop.written), made, strict=True))

    def _write(self, row: Slice, whole: Handle, place: SourceInfo) -> None:
        """Write the row of an iteration into the array of all of them."""
        with self._at(place):
            self.builder.ops("jax.write_row", whole, self.handle(row.part), names=("whole", "row"), mutates=(whole,))
            self.count += 1

    def _choice(self, choice: Choice) -> None:
        arm = self.builder.conditional()
        selector = [] if choice.selector.literal is not None else [self.handle(choice.selector)]
        results = [self._bare("jax.empty", (), Out(cell.shape, cell.dtype), choice.place) for cell in choice.outputs]
        for which, branch in enumerate(choice.arms):
            with arm(which):
                self._arm(branch, results, selector, choice.place)
        self.handles.update(zip(choice.outputs, results, strict=True))

    def _arm(self, branch: Arm, results: Sequence[Handle], selector: Sequence[Handle], place: SourceInfo) -> None:
        """Write one branch: its last op puts what it computed where the results are."""
        self.nodes(branch.nodes)
        values = [self.handle(cell) for cell in branch.results]
        if results:
            with self._at(place):
                self.builder.ops("jax.result", *results, *values, *selector, mutates=results)
                self.count += 1

    def _bare(self, name: str, inputs: Sequence[Handle], out: Out, place: SourceInfo) -> Handle:
        with self._at(place):
            self.count += 1
            return self.builder.op(name, *inputs, out=out)

    def _view(self, name: str, source: Handle, shape: Sequence[int], layout: Layout, place: SourceInfo) -> Handle:
        made = self._bare(name, (source,), _part(source, shape, layout), place)
        self.layouts[made.index] = layout
        return made

    def _at(self, place: SourceInfo, step: Step | None = None) -> ExitStack:
        """The module, source line and phase of what is written next."""
        stack = ExitStack()
        if step is not None:
            stack.enter_context(self.builder.phase(step.phase, recompute=step.recompute))
        path = module_of(place)
        stack.enter_context(self.builder.module(path, kind_of(path) or self.builder.meta.workload))
        if place.source is not None:
            file, line, function = place.source
            stack.enter_context(self.builder.source(file, line, function, linecache.getline(file, line).strip()))
        return stack


def _part(source: Handle, shape: Sequence[int], layout: Layout) -> Out:
    """Return a view of ``source``."""
    return Out(shape, source.dtype, view_of=source, strides=layout.strides, offset=layout.offset)


def graph_of(program: Program, roles: Mapping[Cell, tuple[Role, bool]], **meta: Any) -> tuple[Graph, dict[Step, int]]:
    """Return the Graph of ``program``, which is pruned and classified, and the index of the op of every step."""
    builder = GraphBuilder(program.name, framework=program.version)
    emitter = Emitter(builder)
    for cell in (*(leaf.cell for leaf in program.inputs), *program.constants):
        role, trains = roles[cell]
        emitter.handles[cell] = builder.value(cell.name, cell.shape, cell.dtype, role=role, trainable=trains)
    emitter.nodes(program.nodes)
    builder.output(*(emitter.handle(cell) for cell in program.outputs))
    builder.meta = msgspec.structs.replace(builder.meta, **meta)
    return builder.build(), emitter.ops


def bare_graph(steps: Sequence[Step]) -> Graph:
    """Return a Graph of ``steps`` alone, each on operands of its own: what they would cost."""
    builder = GraphBuilder("apart")
    emitter = Emitter(builder)
    for number, step in enumerate(steps):
        for cell in step.inputs:
            if cell.literal is None:
                emitter.handles[cell] = builder.input(f"{number}.{len(emitter.handles)}", cell.shape, cell.dtype)
        emitter.nodes([Step(step.name, step.inputs, step.outputs, step.arguments, NOWHERE)])
    return builder.build()
