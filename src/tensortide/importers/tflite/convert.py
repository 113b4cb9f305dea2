"""A flat buffer as a Graph: its first subgraph, those that it calls in place, loops as loops, constants as weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tensortide.collector import no_collection
from tensortide.dtypes import is_float
from tensortide.expr import constant, sized, symbol
from tensortide.graph.builder import GraphBuilder
from tensortide.graph.handles import Handle, Out
from tensortide.graph.model import Graph, Role, Value
from tensortide.importers.imported import Imported
from tensortide.importers.symbols import require_symbols
from tensortide.importers.tflite.schema import Model, Operator, Stored, Subgraph, read_model
from tensortide.importers.tflite.trips import scalar, trips_of, whole_numbers

MOST_OPS = 200_000
"""Ops of a Graph: subgraphs may call each other again and again, each time twice."""

DEEPEST = 32
"""Subgraphs that call each other deeper than this are taken to be recursive."""

BATCH = "batch"

CALLING = frozenset({"WHILE", "IF", "CALL", "STABLEHLO_WHILE", "STABLEHLO_COMPOSITE"})
"""Operators that run subgraphs on their inputs."""


@no_collection()
def import_model(path: Path, settings: dict[str, int]) -> Imported:
    """Convert the flat buffer at ``path``. ``settings`` may give ``batch``, where the file leaves its first axes open,
    and ``trips.NAME``, where nothing tells how often a loop runs.

    Raises FlatBufferError for a damaged file, WorkloadError for a setting that it does not have.
    """
    model = read_model(path)
    conversion = Conversion(model, settings)
    graph = conversion.graph(path.name)
    known = {**({BATCH: conversion.batch} if conversion.open else {}), **conversion.trips}
    require_symbols(path, settings, known)
    return Imported(graph, symbols=known)


class Conversion:
    """The Graph of a model, op by op. ``open``: its first axes are a batch of any size; ``trips`` of loops that are no
    constants."""

    def __init__(self, model: Model, settings: dict[str, int]) -> None:
        self.model, self.settings = model, settings
        self.b = GraphBuilder(framework="TensorFlow Lite")
        self.main = model.subgraphs[0]
        self.open = _has_batch(model)
        self.batch = settings.get(BATCH, 1) if self.open else 1
        self.trips: dict[str, int] = {}
        self.notes: list[str] = []
        self.guesses: list[str] = []
        self._constants: dict[tuple[int, int, str, tuple[int, ...]], Handle] = {}
        self._weights = {span for graph in model.subgraphs for span in _weights(graph)}
        self._names: dict[str, int] = {}
        self._left = MOST_OPS

    def graph(self, name: str) -> Graph:
        """Convert the first subgraph."""
        inputs = [
            self.b.input(self._unique(tensor.name or f"input_{i}"), self._shape(tensor), tensor.dtype)
            for i, tensor in enumerate(self.main.tensors[index] for index in self.main.inputs)
        ]
        self.b.output(*self.run(0, inputs, 0))
        notes = ["lifetimes by last use", *self.notes]
        if self.open and BATCH not in self.settings:
            notes.insert(0, "batch is open in the file: 1, as it is stored (--set batch=...)")
        packed = sum(tensor.packed for graph in self.model.subgraphs for tensor in graph.tensors)
        if packed:
            notes.append(f"{packed} tensors of less than a byte per element are counted with a byte")
        guesses = (*self._guesses(), *self.guesses)
        self.b.meta = msgspec.structs.replace(
            self.b.meta, workload=name, assumptions=(*notes, *guesses), decisive=guesses
        )
        return self.b.build()

    def run(
        self, number: int, given: Sequence[Handle], depth: int, known: Mapping[int, int] | None = None
    ) -> list[Handle]:
        """Append the ops of a subgraph; what it returns. ``known`` are values of its inputs, by their places."""
        if not 0 <= number < len(self.model.subgraphs):
            raise self.model.file.fail(f"an operator calls subgraph {number} of {len(self.model.subgraphs)}")
        graph = self.model.subgraphs[number]
        if depth > DEEPEST:
            raise self.model.file.fail(f"subgraph {graph.name!r}: subgraphs call each other without end")
        if len(given) != len(graph.inputs):
            raise self.model.file.fail(f"subgraph {graph.name!r} takes {len(graph.inputs)} inputs, given {len(given)}")
        here: dict[int, Handle] = dict(zip(graph.inputs, given, strict=True))
        values = {graph.inputs[place]: value for place, value in (known or {}).items()}
        for place, op in enumerate(graph.operators):
            self._left -= 1
            if self._left < 0:
                raise self.model.file.fail(f"it runs over {MOST_OPS} operators, its calls written out")
            inputs = [(i, self._handle(graph, here, index, op)) for i, index in enumerate(op.inputs) if index >= 0]
            given = [handle for _, handle in inputs]
            made = self._called(op, given, depth, f"{graph.name or number}.{place}", self._known(graph, op, values))
            if made is None:
                made = self._plain(graph, op, inputs)
            here.update((index, handle) for index, handle in zip(op.outputs, made, strict=False) if index >= 0)
        return [self._handle(graph, here, index, None) for index in graph.outputs if index >= 0]

    def _plain(self, graph: Subgraph, op: Operator, inputs: Sequence[tuple[int, Handle]]) -> Sequence[Handle]:
        """Append an op that calls nothing."""
        view = inputs[0][1] if op.name in VIEWS and inputs else None
        outs = []
        for index in op.outputs:
            tensor = graph.tensors[index]
            first = first_axis(self.model, graph, op, inputs, tensor) if self.open and tensor.dynamic else None
            shape = self._shape(tensor) if first is None else (first, *tensor.shape[1:])
            alike = (
                view is not None
                and len(op.outputs) == 1
                and math.prod(map(int, view.shape)) == math.prod(map(int, shape))
            )
            outs.append(Out(shape, tensor.dtype, view_of=view if alike else None))
        arguments: dict[str, Value] = {**op.options}
        label = graph.tensors[op.outputs[0]].name if op.outputs else ""
        path = label.split(";")[0].rpartition("/")[0].replace(".", "_").replace("/", ".")
        handles = [handle for _, handle in inputs]
        with self.b.module(path, "scope"):
            return self.b.ops(
                f"tflite.{op.name}", *handles, outs=outs, arguments=arguments, label=label,
                names=operands(op.name, [i for i, _ in inputs]),
            )  # fmt: skip

    def _guesses(self) -> tuple[str, ...]:
        """Say which sizes are open in the file and are no batch: there it stores 1, whatever they are."""
        every = [t for graph in self.model.subgraphs for t in graph.tensors if t.dynamic and not t.span[1]]
        if self.open or not every:
            return ()
        first = next((tensor for tensor in every if tensor.dynamic != (0,)), every[0])
        axes = ", ".join(map(str, first.dynamic))
        return (
            (
                f"sizes of {len(every)} tensors are open in the file and taken to be those stored, mostly 1: "
                f"{first.name or 'a tensor'} is {list(first.shape)}, open in axis {axes}"
            ),
        )

    def _called(
        self, op: Operator, inputs: Sequence[Handle], depth: int, place: str, known: Mapping[int, int]
    ) -> Sequence[Handle] | None:
        """Append the subgraphs that an op runs; None for an op that runs none."""
        if op.name in ("WHILE", "STABLEHLO_WHILE"):
            return self._while(op, inputs, depth, f"while.{place}", known)
        if op.name == "IF":
            return self._if(op, inputs, depth, {place - 1: value for place, value in known.items() if place})
        if op.name in ("CALL", "STABLEHLO_COMPOSITE"):
            return self.run(op.number("body"), inputs, depth + 1, known)
        if op.name == "CALL_ONCE":  # initializes variables, before the first run
            return ()
        return None

    def _while(
        self, op: Operator, inputs: Sequence[Handle], depth: int, name: str, starts: Mapping[int, int]
    ) -> Sequence[Handle]:
        condition, body = (op.number(key) for key in ("cond", "body"))
        known = trips_of(self.model, op, starts)
        count = known
        kept = self._kept(body, starts)
        if known is None:
            key = f"trips.{name}"
            count = self.trips[key] = self.settings.get(key, 1)
            if key not in self.settings:
                self.notes.append(f"nothing tells how often {name} runs: once is assumed (--set {key}=...)")
        assumed = known is None and f"trips.{name}" not in self.settings
        with self.b.loop(name, count or 0, assumed=assumed) as carry:
            self.run(condition, inputs, depth + 1, kept)
            results = self.run(body, inputs, depth + 1, kept)
            if len(results) != len(inputs):
                raise self.model.file.fail(f"{name}: its body takes {len(inputs)} values and returns {len(results)}")
            for before, after in zip(inputs, results, strict=True):
                if before.index == after.index:
                    continue
                if tuple(before.shape) == tuple(after.shape) and before.dtype == after.dtype:
                    carry(before, after)
                else:
                    self.guesses.append(
                        f"{name}: a value is {list(before.shape)} as the loop starts and {list(after.shape)} after a "
                        "trip; the body is priced at the sizes that are stored"
                    )
        return results

    def _if(self, op: Operator, inputs: Sequence[Handle], depth: int, known: Mapping[int, int]) -> Sequence[Handle]:
        if not inputs:
            raise self.model.file.fail("an IF has no condition")
        predicate, *given = inputs
        arm = self.b.conditional()
        arms = []
        for i, key in enumerate(("else", "then")):
            with arm(i):
                arms.append(self.run(op.number(key), given, depth + 1, known))
        if len(arms[0]) != len(arms[1]):
            raise self.model.file.fail("the branches of an IF return different numbers of tensors")
        outs = [Out(handle.shape, handle.dtype, view_of=handle) for handle in arms[1]]
        flat = [handle for pair in zip(*arms, strict=True) for handle in pair]
        return self.b.ops("tflite.IF", predicate, *flat, outs=outs)

    def _known(self, graph: Subgraph, op: Operator, values: Mapping[int, int]) -> dict[int, int]:
        """Return the inputs of an op, by their places, that are whole numbers: stored, or among the ``values`` that the
        subgraph was given."""
        if op.name not in CALLING:
            return {}
        found = {
            place: values.get(index) if index in graph.inputs else scalar(self.model, graph, index)
            for place, index in enumerate(op.inputs)
        }
        return {place: value for place, value in found.items() if value is not None}

    def _kept(self, number: int, starts: Mapping[int, int]) -> dict[int, int]:
        """Return the loop variables of ``starts`` that the body returns as they came: the others change."""
        if not 0 <= number < len(self.model.subgraphs):
            return {}
        body = self.model.subgraphs[number]
        ends = dict(enumerate(zip(body.inputs, body.outputs, strict=False)))
        return {place: value for place, value in starts.items() if place in ends and ends[place][0] == ends[place][1]}

    def _handle(self, graph: Subgraph, here: dict[int, Handle], index: int, op: Operator | None) -> Handle:
        """Return the tensor number ``index``: computed before, or stored."""
        if index in here:
            return here[index]
        tensor = graph.tensors[index]
        if not tensor.span[1] and not tensor.variable and 0 not in tensor.shape:
            reader = f"an operator {op.name}" if op else "the subgraph"
            raise self.model.file.fail(f"{reader} reads tensor {tensor.name!r}, which nothing computes before")
        here[index] = self._stored(tensor)
        return here[index]

    def _stored(self, tensor: Stored) -> Handle:
        """Return a constant, or a variable; the same bytes read twice are one."""
        key = (*tensor.span, tensor.dtype, tensor.shape)
        if tensor.span[1] and key in self._constants:
            return self._constants[key]
        weight = tensor.span[1] > 0 and tensor.span in self._weights
        role = Role.PARAMETER if weight else Role.BUFFER
        handle = self.b.value(
            self._unique(tensor.name or "constant"), tensor.shape, tensor.dtype, role=role, trainable=weight
        )
        if tensor.span[1]:
            self._constants[key] = handle
        return handle

    def _unique(self, name: str) -> str:
        count = self._names[name] = self._names.get(name, 0) + 1
        return name if count == 1 else f"{name}_{count}"

    def _shape(self, tensor: Stored) -> tuple[int, ...]:
        if not self.open or not tensor.dynamic:
            return tensor.shape
        n = tensor.shape[0]
        return (sized(symbol(BATCH) * constant(n), n * self.batch), *tensor.shape[1:])


def _has_batch(model: Model) -> bool:
    """Tell whether the first axis, and no other, is open in inputs and all that follows."""
    inputs = [model.subgraphs[0].tensors[i] for i in model.subgraphs[0].inputs]
    every = [tensor for graph in model.subgraphs for tensor in graph.tensors if tensor.dynamic]
    return bool(every) and any(t.dynamic for t in inputs) and all(t.dynamic == (0,) for t in every)


def _weights(graph: Subgraph) -> set[tuple[int, int]]:
    """Return where the values of weights lie: constants of real numbers, or quantized ones, that have an axis and that
    an operator computes with. What only starts a loop is none."""
    read = {i for op in graph.operators if op.name not in CALLING for i in op.inputs if i >= 0}
    return {
        tensor.span for i, tensor in enumerate(graph.tensors)
        if i in read and tensor.span[1] and (tensor.quantized or is_float(tensor.dtype)) and tensor.shape
    }  # fmt: skip


# -- operands ---------------------------------------------------------------------------------------
# Names of the inputs of operators, and which operators only rename what they take.


VIEWS = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS", "READ_VARIABLE", "STABLEHLO_RESHAPE"})
"""Operators whose output is their first input under another shape."""

_LSTM = (
    "input input_to_input input_to_forget input_to_cell input_to_output recurrent_to_input recurrent_to_forget "
    "recurrent_to_cell recurrent_to_output cell_to_input cell_to_forget cell_to_output input_gate_bias "
    "forget_gate_bias cell_gate_bias output_gate_bias projection projection_bias output_state cell_state"
)
_NAMES = {
    "CONV_2D": "input filter bias",
    "CONV_3D": "input filter bias",
    "DEPTHWISE_CONV_2D": "input filter bias",
    "FULLY_CONNECTED": "input weights bias",
    "TRANSPOSE_CONV": "output_shape filter input bias",
    "CONV_3D_TRANSPOSE": "output_shape filter input bias",
    "BATCH_MATMUL": "x y",
    "EMBEDDING_LOOKUP": "indices params",
    "GATHER": "params indices",
    "GATHER_ND": "params indices",
    "STABLEHLO_GATHER": "params indices",
    "HASHTABLE_LOOKUP": "indices keys params",
    "EMBEDDING_LOOKUP_SPARSE": "ids indices shape weights params",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _LSTM,
    "LSTM": _LSTM,
    "UNIDIRECTIONAL_SEQUENCE_RNN": "input weights recurrent bias state",
    "RNN": "input weights recurrent bias state",
    "BIDIRECTIONAL_SEQUENCE_RNN": "input weights recurrent bias state weights_back recurrent_back bias_back state_back",
    "SVDF": "input weights_feature weights_time bias state",
}


def operands(name: str, present: Sequence[int]) -> tuple[str, ...]:
    """Name the inputs of an operator that are ``present``, by their numbers; others are ``input_3``."""
    names = _NAMES.get(name, "").split()
    return tuple(names[i] if i < len(names) else f"input_{i}" for i in present)


def first_axis(
    model: Model, graph: Subgraph, op: Operator, inputs: Sequence[tuple[int, Handle]], tensor: Stored
) -> int | None:
    """Return the first size of ``tensor``, which ``op`` computes and whose first axis is open, from those of its
    ``inputs`` (by their places); None where they do not tell it. It may carry an expression."""
    opened = [(graph.tensors[op.inputs[place]], handle) for place, handle in inputs]
    source = next(((stored, handle) for stored, handle in opened if stored.dynamic == (0,)), None)
    if source is None:
        return None
    stored, handle = source
    size = handle.shape[0]
    if op.name in ("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"):
        blocks = whole_numbers(model, graph, op.inputs[1]) if len(op.inputs) > 1 else None
        if not blocks or min(blocks) < 1:
            return None
        count = math.prod(blocks)
        return size * count if op.name == "SPACE_TO_BATCH_ND" else size // count
    if op.name in VIEWS:
        return size * math.prod(handle.shape[1:]) // (math.prod(tensor.shape[1:]) or 1)
    return size if tensor.shape[0] == stored.shape[0] else None
