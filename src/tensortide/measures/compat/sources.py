"""Values of the status keys of deeplite-profiler, by the framework of the model: each by the definition that the tool
has for that framework.

| | PyTorch | Keras | TensorFlow Lite |
|---|---|---|---|
| ``flops`` / 10^9 | charges of traced nodes | half of the float operations of the graph profiler | 2 per product |
| ``total_params`` / 10^6 | trainable | trainable | elements of all tensors |
| ``model_size`` | 4 bytes each, / 2^20 | by their dtype, / 2^20 | bytes of the file, / 10^6 |
| ``memory_footprint`` | what layers return, inputs, parameters, / 2^20 | the same | twice the largest tensor, / 10^6 |
| ``layerwise_summary`` | rows of traced nodes | the summary of Keras | one row per op |
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any, TypeAlias

from tensortide.errors import MetricError, Unavailable
from tensortide.graph.model import Graph
from tensortide.measures.backend import Arguments, Backend, backend_of, leaves
from tensortide.measures.compat.figures import Figure, figures
from tensortide.measures.compat.graph_profiler import float_operations
from tensortide.measures.compat.liveness import layer_rows
from tensortide.measures.compat.nodes import node_graph
from tensortide.measures.data import TRAIN, Data
from tensortide.measures.forward_pass import ForwardPass
from tensortide.measures.metric import Missing
from tensortide.targets.counted import count

MIB = 1 << 20
FLOPS, PARAMS, SIZE, FOOTPRINT = "flops", "total_params", "model_size", "memory_footprint"
SUMMARY, DATA = "layerwise_summary", "layerwise_data"
Row: TypeAlias = dict[str, Any]
Values: TypeAlias = Mapping[str, Callable[[], Any]]
"""Functions that compute the values of status keys, by name."""


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


def of_torch(asked: Asked) -> Values:
    """Values of a model of PyTorch: those of the engine of 1.2.5, on a traced graph, and the footprint of the published
    tables."""

    @cache
    def traced() -> tuple[Graph, bool]:
        """The inference forward on the path that a tracer takes; True if all inputs are named."""
        from tensortide.recorder.short_cuts import as_for_a_tracer

        arguments = asked.random(asked.batch_size)
        named = isinstance(arguments, Arguments) and bool(arguments.named) and not arguments.positional
        with as_for_a_tracer():
            return asked.graph(arguments), named or isinstance(arguments, Mapping)

    @cache
    def found() -> dict[str, Figure]:
        graph, by_name = traced()
        made = {one.name: one for one in figures(graph, batch=asked.batch_size, keywords=by_name)}
        failed = next((one.missing for one in made.values() if one.missing), None)
        if failed is not None:
            raise Unavailable(failed.reason)
        return made

    def rows() -> list[Row]:
        found()  # where it fails, so does the layer table
        return [dataclasses.asdict(row) for row in layer_rows(node_graph(traced()[0]))]

    return {
        **{name: partial(lambda name: found()[name].shown, name) for name in (FLOPS, PARAMS, SIZE)},
        FOOTPRINT: lambda: asked.footprint(int(found()[SIZE].theirs or 0)),
        SUMMARY: lambda: tabbed(rows()),
        DATA: rows,
    }


def of_keras(asked: Asked) -> Values:
    """Values of a model of Keras: those of the TensorFlow backend. Float operations are those of one sample."""
    sizes = asked.backend.sizes(asked.model)

    def summary() -> str:
        text: list[str] = []
        asked.model.summary(print_fn=lambda line, **_: text.append(line))
        return "\n".join(text)

    return {
        FLOPS: lambda: float_operations(count(asked.graph(asked.random(1)))) / 2e9,
        PARAMS: lambda: sizes.trainable / 1e6,
        SIZE: lambda: sizes.trainable_bytes / MIB,
        FOOTPRINT: lambda: asked.footprint(sizes.trainable_bytes),
        SUMMARY: summary,
        DATA: lambda: [
            {"layer": name, "output_shape": [*map(list, shapes)]} for name, shapes in asked.returned().items()
        ],
    }


def of_lite(asked: Asked) -> Values:
    """Values of a model of TensorFlow Lite: two per product, all tensors of the file, and decimal units."""
    model = asked.model
    return {
        FLOPS: lambda: 2 * count(model.graph).total.macs / 1e9,
        PARAMS: lambda: sum(math.prod(shape) for shape, _ in model.tensors) / 1e6,
        SIZE: lambda: len(model.content) / 1e6,
        FOOTPRINT: lambda: 2 * max(math.prod(shape) * size for shape, size in model.tensors) / 1e6,
        SUMMARY: lambda: tabbed(_ops(model.graph)),
        DATA: lambda: _ops(model.graph),
    }


def _ops(graph: Graph) -> list[Row]:
    """A row for each op: its name and the shapes of its results."""
    shapes = [[list(graph.tensors[out].shape) for out in op.outputs] for op in graph.ops]
    return [{"op": graph.calls[op.call].op, "output_shape": each} for op, each in zip(graph.ops, shapes, strict=True)]


def tabbed(rows: Sequence[Row]) -> str:
    """Rows as text, tab separated, under the names of their columns."""
    head = "\t".join(rows[0]) if rows else ""
    return "\n".join([head, *("\t".join(map(str, row.values())) for row in rows)])


SOURCES: dict[str, Callable[[Asked], Values]] = {"torch": of_torch, "keras": of_keras, "tflite": of_lite}
"""The values of a model by the name of its backend."""


def values(asked: Asked, names: Iterable[str]) -> dict[str, Any]:
    """Compute the values of status keys. One that there is not is Missing, with the reason."""
    source = SOURCES[asked.backend.name](asked)
    found: dict[str, Any] = {}
    for name in names:
        try:
            found[name] = source[name]()
        except Unavailable as error:
            found[name] = Missing(str(error))
    return found
