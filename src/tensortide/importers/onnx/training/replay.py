"""The forward pass of a training step: the ops of an inference Graph again, with what their gradients need saved."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator
from typing import TypeAlias

from tensortide.dtypes import DTYPES, Kind
from tensortide.graph.builder import GraphBuilder
from tensortide.graph.handles import Handle, Out
from tensortide.graph.model import OUTSIDE, TENSOR, Graph, OpView, Role, Tensor, Value

SAVES: dict[str, tuple[str, ...]] = {
    "onnx.LSTM": ("gates",), "onnx.GRU": ("gates",), "onnx.RNN": ("gates",), "onnx.Attention": ("log_sum_exp",),
    "onnx.BatchNormalization": ("mean", "inverse_std"), "onnx.LayerNormalization": ("mean", "inverse_std"),
    "onnx.MaxPool": ("places",),
}  # fmt: skip
"""What ops compute beside their results where a gradient will need it."""


Key: TypeAlias = tuple[int, str]
"""A tensor of the inference graph; with a name, what the op that makes it saves beside."""


class Replay:
    """Copies the ops of ``graph`` into a builder. ``handles`` are its tensors by those of ``graph``, ``saved`` what ops
    save beside their results, by op. ``keeps`` are those of a loop's body of which every iteration's is kept."""

    def __init__(self, graph: Graph, needs: frozenset[int], keeps: Collection[Key] = ()) -> None:
        self.graph = graph
        self.needs = needs
        self.builder = GraphBuilder(graph.meta.workload, framework=graph.meta.framework)
        self.handles: dict[int, Handle] = {}
        self.saved: dict[int, dict[str, Handle]] = {}
        self._arms: dict[int, object] = {}
        self._owners = {storage: i for i, t in reversed(list(enumerate(graph.tensors))) for storage in (t.storage,)}
        self.keeps = frozenset(keeps)
        self.stacks: dict[Key, Handle] = {}
        self._given()

    def run(self) -> None:
        """Copy all ops in their order, inside their loops, arms and modules. Of what is kept of each iteration there is
        a stack, outside all loops."""
        for key in sorted(self.keeps):
            self.stacks[key] = self.builder.op("derived.Stack", out=Out((), "variant"))
        self.stretch(range(len(self.graph.ops)), 0)

    def stretch(self, indexes: range, depth: int) -> None:
        """Copy ops that share their first ``depth`` loops."""
        for loop, part in stretches(self.graph, indexes, depth):
            if loop == OUTSIDE:
                for index in part:
                    self._op(self.graph[index])
                continue
            found = self.graph.loops[loop]
            with self.builder.loop(found.name, found.trips, assumed=found.assumed) as carry:
                self.stretch(part, depth + 1)
                for first, following in found.carried:
                    carry(self.handles[first], self.handles[following])

    def _given(self) -> None:
        """Add what exists before the step: named tensors by their names, inputs by their storages'."""
        graph = self.graph
        names = {entry.tensor: entry for entry in reversed(graph.named)}
        for index, tensor in enumerate(graph.tensors):
            storage = graph.storages[tensor.storage]
            if storage.birth is None and self._owners[tensor.storage] == index:
                entry = names.get(index)
                role = entry.role if entry is not None else storage.role
                self.handles[index] = self.builder.value(
                    storage.name, tensor.shape, tensor.dtype, role=role, nbytes=storage.nbytes,
                    trainable=entry is not None and entry.trainable,
                )  # fmt: skip

    def _op(self, view: OpView) -> None:
        op, call = view.op, view.call
        inputs = [self.handles[i] for i in op.inputs]
        outs = [self._out(tensor, op.inputs) for tensor in view.outputs]
        names = [name for name, value in call.arguments if value is TENSOR]
        arguments: dict[str, Value] = {name: value for name, value in call.arguments if value is not TENSOR}
        extra = self._extra(view)
        if call.op == "onnx.BatchNormalization" and extra:
            arguments["training_mode"] = 1
        with self.inside(view):
            made = self.builder.ops(
                call.op, *inputs, outs=[*outs, *extra.values()], names=names, arguments=arguments, tags=call.tags,
                label=op.label,
            )  # fmt: skip
        self.handles.update(zip(op.outputs, made, strict=False))
        self.saved[view.index] = dict(zip(extra, made[len(outs) :], strict=True))
        for key, handle in self.keyed(view):
            if key in self.keeps:
                out = Out(handle.shape, handle.dtype, view_of=handle)
                self.builder.op("derived.Push", self.stacks[key], handle, out=out, tags=("push",))

    def keyed(self, view: OpView) -> Iterator[tuple[Key, Handle]]:
        """List what an op made, each with its key."""
        for i in view.op.outputs:
            yield (i, ""), self.handles[i]
        for name, handle in self.saved[view.index].items():
            yield (view.op.outputs[0], name), handle

    def _out(self, tensor: Tensor, inputs: tuple[int, ...]) -> Out:
        source = next((i for i in inputs if self.graph.tensors[i].storage == tensor.storage), None)
        if source is None:
            return Out(tensor.shape, tensor.dtype)
        return Out(tensor.shape, tensor.dtype, self.handles[source], tensor.strides, tensor.offset)

    def _extra(self, view: OpView) -> dict[str, Out]:
        """Describe what an op saves if its result has a gradient."""
        names = SAVES.get(view.name, ())
        if not names or view.op.outputs[0] not in self.needs or len(view.op.outputs) > 3:
            return {}
        x = view.inputs[0]
        if view.name in ("onnx.LSTM", "onnx.GRU", "onnx.RNN"):
            gates = view.inputs[1].shape[1]
            every = gates + view.inputs[2].shape[2] * (view.name == "onnx.LSTM")
            return {"gates": Out((x.shape[0], x.shape[1], view.inputs[1].shape[0], every), x.dtype)}
        if view.name == "onnx.BatchNormalization":
            return {name: Out((x.shape[1],), "float32") for name in names}
        if view.name == "onnx.LayerNormalization":
            axis = view.arguments.get("axis", -1)
            rows = x.numel // max(1, math.prod(x.shape[axis if isinstance(axis, int) else -1 :]))
            return {} if len(view.op.outputs) > 1 else {name: Out((rows,), "float32") for name in names}
        if view.name == "onnx.MaxPool":
            return {} if len(view.op.outputs) > 1 else {"places": Out(view.outputs[0].shape, "int64")}
        made = view.outputs[0]
        heads = (
            made.shape[:3] if len(made.shape) == 4 else (made.shape[0], view.arguments["q_num_heads"], made.shape[1])
        )
        return {"log_sum_exp": Out(heads, "float32")}  # type: ignore[arg-type]

    @contextlib.contextmanager
    def inside(self, view: OpView, arms: dict[int, object] | None = None) -> Iterator[None]:
        """The ops in this block are in the module and the arm of a conditional that the op is in."""
        module, chain = view.op.module, []
        branch = view.op.branch
        while branch != OUTSIDE:
            chain.append(self.graph.branches[branch])
            branch = chain[-1].parent
        with contextlib.ExitStack() as stack:
            if module != OUTSIDE:
                found = self.graph.modules[module]
                stack.enter_context(self.builder.module(found.path, found.type))
            table = self._arms if arms is None else arms
            for entry in reversed(chain):
                arm = table.setdefault(entry.conditional, self.builder.conditional())
                stack.enter_context(arm(entry.arm))  # type: ignore[operator]
            yield


def stretches(graph: Graph, indexes: range, depth: int) -> Iterator[tuple[int, range]]:
    """Split ops that share their first ``depth`` loops: into those in none deeper, and each loop's."""
    start, now = indexes.start, None
    for index in indexes:
        loop = _at(graph, index, depth)
        if now is not None and loop != now:
            yield now, range(start, index)
            start = index
        now = loop
    if now is not None:
        yield now, range(start, indexes.stop)


def _at(graph: Graph, index: int, depth: int) -> int:
    """Return the loop around an op that is ``depth`` loops deep; OUTSIDE if there is none."""
    chain = []
    loop = graph.ops[index].loop
    while loop != OUTSIDE:
        chain.append(loop)
        loop = graph.loops[loop].parent
    return chain[-1 - depth] if len(chain) > depth else OUTSIDE


FLOATS = frozenset(row.name for row in DTYPES.values() if row.kind is Kind.FLOAT and row.bits >= 16)
"""Dtypes of tensors that have gradients."""


def needing(graph: Graph) -> frozenset[int]:
    """Return the tensors whose gradient is wanted: trainable parameters and what is computed with them."""
    needs = {
        entry.tensor for entry in graph.named
        if entry.role is Role.PARAMETER and entry.trainable and graph.tensors[entry.tensor].dtype in FLOATS
    }  # fmt: skip
    pairs = [pair for loop in graph.loops for pair in loop.carried]
    while True:
        before = len(needs)
        for op in graph.ops:
            if not needs.isdisjoint(op.inputs) and graph.calls[op.call].op not in STOPS:
                needs |= {i for i in op.outputs if graph.tensors[i].dtype in FLOATS}
        needs |= {first for first, following in pairs if following in needs}
        if len(needs) == before:
            return frozenset(needs)


STOPS = frozenset(
    f"onnx.{name}"
    for name in (
        "Shape", "Size", "ArgMax", "ArgMin", "NonZero", "Equal", "Less", "Greater", "Floor", "Ceil", "Round", "Sign",
        "ConstantOfShape", "Range", "EyeLike", "OneHot", "IsNaN", "IsInf", "Not", "RandomNormalLike",
        "RandomUniformLike", "NonMaxSuppression", "Hardmax",
    )
)  # fmt: skip
"""Ops whose results have no gradient."""
