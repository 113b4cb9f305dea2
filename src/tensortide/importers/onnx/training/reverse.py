"""The backward pass: the ops in reverse, each by the rule of its kind; a tensor's gradients of all its uses add up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tensortide.graph.handles import Body, Handle, Out
from tensortide.graph.model import OUTSIDE, TENSOR, OpView, Value
from tensortide.importers.onnx.training.replay import Key, Replay, stretches


class Back:
    """One op whose gradients are wanted: what a rule reads and gives."""

    def __init__(self, engine: Reverse, view: OpView) -> None:
        self.engine = engine
        self.view = view
        self.names = [name for name, value in view.call.arguments if value is TENSOR]

    @property
    def kind(self) -> str:
        """The op's type without its domain."""
        return self.view.name.removeprefix("onnx.").rpartition("::")[2]

    def place(self, name: str) -> int:
        """Return the number of the input called ``name``; -1 if it is not given."""
        return self.names.index(name) if name in self.names else -1

    def input(self, place: int) -> Handle:
        """Return an input."""
        return self.engine.replay.handles[self.view.op.inputs[place]]

    def output(self, place: int = 0) -> Handle:
        """Return an output."""
        return self.engine.replay.handles[self.view.op.outputs[place]]

    def saved(self, *names: str) -> list[Handle]:
        """Return what the op saved, as far as it did."""
        found = self.engine.replay.saved.get(self.view.index, {})
        return [found[name] for name in names if name in found]

    def gradient(self, place: int = 0) -> Handle | None:
        """Return the gradient of an output; None if it has none."""
        return self.engine.gradients.get(self.view.op.outputs[place])

    @property
    def dy(self) -> Handle:
        """The gradient of the first output; zeros if only others have one."""
        found = self.gradient()
        return found if found is not None else self.emit("Zeros", out=Out(self.output().shape, self.output().dtype))

    def wanted(self, place: int) -> bool:
        """Return whether the gradient of an input is wanted."""
        return 0 <= place < len(self.view.op.inputs) and self.view.op.inputs[place] in self.engine.replay.needs

    def attr(self, name: str, default: Value = None) -> Value:
        """Return an attribute."""
        return dict(self.view.call.arguments).get(name, default)

    def emit(
        self, name: str, *inputs: Handle, out: Sequence[int] | Out, names: Sequence[str] = (), **arguments: Value
    ) -> Handle:
        """Append a derived op with one output."""
        made = out if isinstance(out, Out) else Out(out)
        return self.engine.emit(name, inputs, (made,), names, arguments, self.view.op.label)[0]

    def emit_all(
        self, name: str, *inputs: Handle, outs: Sequence[Out], names: Sequence[str] = (), **arguments: Value
    ) -> tuple[Handle, ...]:
        """Append a derived op with several outputs."""
        return self.engine.emit(name, inputs, outs, names, arguments, self.view.op.label)

    def give(self, place: int, gradient: Handle) -> None:
        """Give an input its gradient: summed to its shape where it was broadcast, added to that of other uses."""
        if not self.wanted(place):
            return
        shape = self.input(place).shape
        if gradient.shape != shape:
            if math.prod(map(int, gradient.shape)) == math.prod(map(int, shape)):
                gradient = self.emit("View", gradient, out=Out(shape, gradient.dtype, gradient))
            else:
                gradient = self.emit("SumTo", gradient, out=shape)
        self.engine.add(self.view.op.inputs[place], gradient)


Rule: TypeAlias = Callable[[Back], None]


def parts(*rows: str) -> Rule:
    """Make the rule of an op whose inputs each get a gradient of its own, in their order: that of the result where the
    row is empty, else an op of it and of what follows, inputs by their numbers or results (``y``, ``y1``)."""
    return lambda back: _give(back, rows)


def each(row: str) -> Rule:
    """Make the rule of an op that gives every input the gradient of one row, of the shape of the result."""
    return lambda back: _give(back, (row,) * len(back.view.op.inputs))


def moved(*rows: str) -> Rule:
    """Make the rule of an op whose inputs get gradients of their shapes and dtypes, in their order."""
    return lambda back: _give(back, rows, like_input=True)


def _give(back: Back, rows: Sequence[str], like_input: bool = False) -> None:
    dy, results = back.dy, {"y": 0, "y1": 1}
    for place, row in enumerate(rows[: len(back.view.op.inputs)]):
        if not back.wanted(place):
            continue
        name, *held = row.split() or [""]
        there = [one for one in held if results.get(one, 0) < len(back.view.op.outputs)]
        given = [back.output(results[one]) if one in results else back.input(int(one)) for one in there]
        x = back.input(place)
        out = Out(x.shape, x.dtype) if like_input else Out(dy.shape)
        back.give(place, back.emit(name, dy, *given, out=out) if name else dy)


class Reverse:
    """Walks back over the ops of a replayed forward pass. ``gradients`` are those of tensors of the inference graph.
    ``unknown`` are op types whose gradient no rule knows, ``read`` what it reads of single iterations of loops."""

    def __init__(self, replay: Replay) -> None:
        from tensortide.importers.onnx.training.rules import BACKWARD

        self.replay = replay
        self.builder = replay.builder
        self.gradients: dict[int, Handle] = {}
        self.unknown: dict[str, None] = {}
        self._rules = BACKWARD
        self._arms: dict[int, object] = {}
        self._inner: list[tuple[int, dict[int, Handle]]] = []
        self._index = {handle.index: old for old, handle in replay.handles.items()}
        self._loop_of = {i: op.loop for op in replay.graph.ops for i in op.outputs}
        self._made_by = {i: at for at, op in enumerate(replay.graph.ops) for i in op.outputs}
        self.read: set[Key] = set()
        self._keys = {handle.index: key for view in replay.graph for key, handle in replay.keyed(view)}

    def emit(
        self, name: str, inputs: Sequence[Handle], outs: Sequence[Out], names: Sequence[str],
        arguments: dict[str, Value], label: str = "",
    ) -> tuple[Handle, ...]:  # fmt: skip
        """Append a derived op; note what it reads of an iteration of a loop."""
        for key in filter(None, (self._keys.get(handle.index) for handle in inputs)):
            if self._loop_of[key[0]] != OUTSIDE:
                self.read.add(key)
        return self.builder.ops(
            f"derived.{name}", *inputs, outs=outs, names=names, arguments=arguments,
            label=f"{label}/gradient" if label else "",
        )  # fmt: skip

    def add(self, tensor: int, gradient: Handle) -> None:
        """Add to the gradient of a tensor. In a loop, that of what comes from outside adds up over all iterations."""
        if self._inner and self._loop_of.get(tensor, OUTSIDE) != self._inner[-1][0]:
            total = self._inner[-1][1].get(tensor)
            if total is not None:
                self.emit_in_place(total, gradient)
                return
        held = self.gradients.get(tensor)
        if held is None:
            self.gradients[tensor] = gradient
            return
        (self.gradients[tensor],) = self.emit(
            "AddGradients", (held, gradient), (Out(gradient.shape, gradient.dtype),), (), {}
        )

    def emit_in_place(self, total: Handle, gradient: Handle) -> None:
        """Add a gradient to an accumulator."""
        out = Out(total.shape, total.dtype, view_of=total)
        self.builder.op("derived.Accumulate", total, gradient, out=out, mutates=(total,))

    def run(self) -> None:
        """Walk over all ops."""
        self._walk(range(len(self.replay.graph.ops)), 0)

    def _walk(self, indexes: range, depth: int) -> None:
        for loop, part in reversed(list(stretches(self.replay.graph, indexes, depth))):
            if loop != OUTSIDE:
                self._loop(loop, part, depth)
                continue
            for index in reversed(part):
                self._op(self.replay.graph[index])

    def _op(self, view: OpView) -> None:
        """Give the inputs of an op their gradients."""
        if not any(i in self.gradients for i in view.op.outputs) or self.replay.needs.isdisjoint(view.op.inputs):
            return
        with self.replay.inside(view, self._arms):
            back = Back(self, view)
            rule = self._rules.get(view.name)
            if rule is None:
                self._unknown(back)
            else:
                rule(back)

    def _unknown(self, back: Back) -> None:
        """Give gradients of the right sizes by an op whose cost nobody knows."""
        self.unknown[back.view.name] = None
        places = [i for i in range(len(back.view.op.inputs)) if back.wanted(i)]
        outs = [Out(back.input(i).shape, back.input(i).dtype) for i in places]
        kind = back.view.name.removeprefix("onnx.")
        every = [back.input(i) for i in range(len(back.view.op.inputs))]
        made = back.emit_all(f"{kind}Grad", back.dy, *every, outs=outs)
        for place, handle in zip(places, made, strict=True):
            back.give(place, handle)

    def _loop(self, loop: int, part: range, depth: int) -> None:
        """Walk over the body of a loop in a loop of as many trips, from the last iteration to the first."""
        graph, found = self.replay.graph, self.replay.graph.loops[loop]
        inside = {i for index in part for i in graph.ops[index].outputs}
        carried = [pair for pair in found.carried if pair[0] in self.replay.needs]
        stacked = {i for i in self.gradients if i in inside}
        if not stacked:
            return
        used = {i for index in part for i in graph.ops[index].inputs if i not in inside and i in self.replay.needs}
        totals = {i: self._zeros(i) for i in sorted(used) if self._constant(i, part)}
        seeds = {}
        for _, following in carried:
            seed = self.gradients.pop(following) if following in self.gradients else self._zeros(following)
            seeds[following] = seed
        trips = found.trips
        around = self.builder.loop(f"{found.name}/gradient", trips, assumed=found.assumed, gradient_of=Body(loop))
        self._inner.append((loop, totals))
        with around as carry:
            entering = {}
            for following, seed in seeds.items():
                out = Out(seed.shape, seed.dtype, view_of=seed)
                entering[following] = self.builder.op("derived.Loop.state", seed, out=out)
                self.add(following, entering[following])
            self._pop(loop)
            self._walk(part, depth + 1)
            for first, following in carried:
                if (gradient := self.gradients.get(first)) is not None:
                    carry(entering[following], gradient)
        self._inner.pop()
        for tensor, total in totals.items():
            self.add(tensor, total)

    def _pop(self, loop: int) -> None:
        """Take what the iteration that is retraced kept."""
        for key in sorted(self.replay.keeps):
            if self._loop_of[key[0]] != loop:
                continue
            tensor, name = key
            maker = self._made_by[tensor]
            held = self.replay.saved[maker][name] if name else self.replay.handles[tensor]
            out = Out(held.shape, held.dtype, view_of=held)
            taken = self.builder.op("derived.Pop", self.replay.stacks[key], out=out, tags=("pop",))
            if name:
                self.replay.saved[maker][name] = taken
            else:
                self.replay.handles[tensor] = taken

    def _constant(self, tensor: int, part: range) -> bool:
        """Return whether a loop's body uses a tensor as it is, not as the state that it begins with."""
        graph = self.replay.graph
        return any(
            tensor in graph.ops[index].inputs and not graph.calls[graph.ops[index].call].op.endswith(".state")
            for index in part
        )

    def _zeros(self, tensor: int) -> Handle:
        handle = self.replay.handles[tensor]
        return self.builder.op("derived.Zeros", out=Out(handle.shape, handle.dtype))
