"""Status keys that are figures of a model, each with its unit and with its definition by framework, as
deeplite-profiler has them: docs/metrics.md says in words what ``BY`` of each class computes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, TypeAlias

from tensortide.errors import MetricError, Unavailable
from tensortide.graph.model import Graph
from tensortide.measures.backend import Arguments, Backend, backend_of, leaves
from tensortide.measures.compat.figures import Figure, figures, scaled_flops
from tensortide.measures.compat.graph_profiler import float_operations
from tensortide.measures.compat.keys import Metric, StatusKey
from tensortide.measures.compat.liveness import layer_rows
from tensortide.measures.compat.nodes import node_graph
from tensortide.measures.data import TRAIN, Data
from tensortide.measures.forward_pass import ForwardPass
from tensortide.measures.metric import Missing
from tensortide.targets.counted import count

MIB = 1 << 20
Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A model, the data whose inputs random ones are like, and the options of the functions."""

    model: Any
    data: Data | None
    batch_size: int
    include_weights: bool

    @property
    def backend(self) -> Backend:
        """The framework of the model."""
        return backend_of(self.model)

    @property
    def forward(self) -> ForwardPass:
        """The forward pass of the data. Raises MetricError if there are none."""
        if self.data is None:
            raise MetricError(f"there is no data split {TRAIN!r}, whose batches random inputs are like")
        return self.data.forward

    def random(self, batch_size: int) -> Any:
        """Random arguments."""
        return self.forward.random_arguments(batch_size)

    def graph(self, arguments: Any) -> Graph:
        """The inference forward."""
        return self.backend.forward_graph(self.model, arguments, device=None, call=self.forward.own_call)

    def returned(self) -> Mapping[str, tuple[tuple[int, ...], ...]]:
        """The shapes of what each layer returns. Raises Unavailable where a model does not say it."""
        return self.backend.layer_shapes(self.model, self.random(self.batch_size), call=self.forward.own_call)

    def footprint(self, weights: int) -> float:
        """Bytes of the inputs and of everything that layers return, of a sample, at 4 bytes an element; and, with
        ``include_weights``, of the parameters, which are ``weights``. In units of 2^20 bytes."""
        given = [tuple(leaf.shape) for leaf in leaves(self.random(self.batch_size)) if hasattr(leaf, "shape")]
        elements: int = sum(math.prod(shape) for shape in chain(given, *self.returned().values()))
        return (4 * elements / self.batch_size + (weights if self.include_weights else 0)) / MIB

    @cached_property
    def traced(self) -> tuple[Graph, bool]:
        """The inference forward of a model of PyTorch, on the path of a tracer; True if all inputs are named."""
        from tensortide.recorder.short_cuts import as_for_a_tracer

        arguments = self.random(self.batch_size)
        named = isinstance(arguments, Arguments) and bool(arguments.named) and not arguments.positional
        with as_for_a_tracer():
            return self.graph(arguments), named or isinstance(arguments, Mapping)

    @cached_property
    def figures(self) -> Mapping[str, Figure]:
        """The figures of a model of PyTorch by the engine of 1.2.5. Raises Unavailable where that fails."""
        graph, by_name = self.traced
        made = {one.name: one for one in figures(graph, batch=self.batch_size, keywords=by_name)}
        failed = next((one.missing for one in made.values() if one.missing), None)
        if failed is not None:
            raise Unavailable(failed.reason)
        return made

    @cached_property
    def rows(self) -> Sequence[Row]:
        """The layer table of a model of PyTorch; where the figures fail, so does the table."""
        return [dataclasses.asdict(row) for row in layer_rows(node_graph(self.traced[0]))] if self.figures else []

    @property
    def ops(self) -> Sequence[Row]:
        """A row for each op of a model of TensorFlow Lite: its name and the shapes of its results."""
        graph = self.model.graph
        shapes = [[list(graph.tensors[out].shape) for out in op.outputs] for op in graph.ops]
        rows = zip(graph.ops, shapes, strict=True)
        return [{"op": graph.calls[op.call].op, "output_shape": each} for op, each in rows]


# -- the table ---------------------------------------------------------------------------------------

Definitions: TypeAlias = Mapping[str, Callable[[Asked], Any]]
"""The value of a status key, by the backend of the model."""


class Flops(Metric):
    """Multiply-accumulates of one forward pass, by deeplite-profiler's convention."""

    NAME, TITLE = "flops", "Computational Complexity"
    BY: ClassVar[Definitions] = {
        "torch": lambda asked: asked.figures["flops"].shown,
        "keras": lambda asked: float_operations(count(asked.graph(asked.random(1)))) / 2e9,
        "tflite": lambda asked: 2 * count(asked.model.graph).total.macs / 1e9,
    }

    def get_value(self) -> Any:
        return None if self.value is None else scaled_flops(self.value)[0]

    def get_units(self) -> str:
        return ("Giga" if self.value is None else scaled_flops(self.value)[1]) + "MACs"


class TotalParams(Metric):
    """Elements of the trainable parameters."""

    NAME, TITLE, UNIT = "total_params", "Total Parameters", "Millions"
    BY: ClassVar[Definitions] = {
        "torch": lambda asked: asked.figures["total_params"].shown,
        "keras": lambda asked: asked.backend.sizes(asked.model).trainable / 1e6,
        "tflite": lambda asked: sum(math.prod(shape) for shape, _ in asked.model.tensors) / 1e6,
    }


class ModelSize(Metric):
    """Bytes of the parameters."""

    NAME, TITLE, UNIT = "model_size", "Model Size", "MB"
    BY: ClassVar[Definitions] = {
        "torch": lambda asked: asked.figures["model_size"].shown,
        "keras": lambda asked: asked.backend.sizes(asked.model).trainable_bytes / MIB,
        "tflite": lambda asked: len(asked.model.content) / 1e6,
    }


class MemoryFootprint(Metric):
    """Bytes of the inputs, of what layers return and, with the weights, of the parameters."""

    NAME, TITLE, UNIT = "memory_footprint", "Memory Footprint", "MB"
    BY: ClassVar[Definitions] = {
        "torch": lambda asked: asked.footprint(int(asked.figures["model_size"].theirs or 0)),
        "keras": lambda asked: asked.footprint(asked.backend.sizes(asked.model).trainable_bytes),
        "tflite": lambda asked: 2 * max(math.prod(shape) * size for shape, size in asked.model.tensors) / 1e6,
    }


def tabbed(rows: Sequence[Row]) -> str:
    """Rows as text, tab separated, under the names of their columns."""
    head = "\t".join(rows[0]) if rows else ""
    return "\n".join([head, *("\t".join(map(str, row.values())) for row in rows)])


def _summary(asked: Asked) -> str:
    """The summary of Keras."""
    text: list[str] = []
    asked.model.summary(print_fn=lambda line, **_: text.append(line))
    return "\n".join(text)


class LayerwiseSummary(StatusKey):
    """The layer table as text: no row of the display."""

    NAME = "layerwise_summary"
    BY: ClassVar[Definitions] = {
        "torch": lambda asked: tabbed(asked.rows),
        "keras": _summary,
        "tflite": lambda asked: tabbed(asked.ops),
    }


class LayerwiseData(StatusKey):
    """The layer table as data, a dict by row: no row of the display."""

    NAME = "layerwise_data"
    BY: ClassVar[Definitions] = {
        "torch": lambda asked: asked.rows,
        "keras": lambda asked: [
            {"layer": name, "output_shape": [*map(list, shapes)]} for name, shapes in asked.returned().items()
        ],
        "tflite": lambda asked: asked.ops,
    }


Defined: TypeAlias = type[Flops | TotalParams | ModelSize | MemoryFootprint | LayerwiseSummary | LayerwiseData]


def values(asked: Asked, keys: Iterable[Defined]) -> dict[str, Any]:
    """Compute the values of status keys. One that there is not is Missing, with the reason."""
    found: dict[str, Any] = {}
    for key in keys:
        try:
            found[key.NAME] = key.BY[asked.backend.name](asked)
        except Unavailable as error:
            found[key.NAME] = Missing(str(error))
    return found
