"""Models of TensorFlow Lite as a Backend that metrics ask: read from their bytes, run by TensorFlow's interpreter."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from tensortide.cost import ModelSizes
from tensortide.dtypes import ITEM_BYTES
from tensortide.errors import MetricError, NotHere, Unavailable
from tensortide.graph.model import Graph, Role
from tensortide.importers.keras.backend import KerasBackend
from tensortide.importers.keras.sampling import mapped
from tensortide.importers.tflite.convert import Conversion
from tensortide.importers.tflite.schema import Model, parse_model

Array: TypeAlias = "np.ndarray[Any, Any]"


class LiteModel:
    """A model by the bytes of its file. A call runs it on an array, of any number of samples; numbers of a quantized
    model are those that its integers stand for."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    @cached_property
    def parsed(self) -> Model:
        """The model in the file. Raises FlatBufferError for one that is damaged."""
        return parse_model("the model", self.content)

    @cached_property
    def graph(self) -> Graph:
        """The inference of one sample."""
        return Conversion(self.parsed, {}).graph("model")

    @property
    def tensors(self) -> tuple[tuple[tuple[int, ...], int], ...]:
        """The shape, and the bytes of an element, of every tensor of the subgraph that runs, constants among them."""
        return tuple((tensor.shape, ITEM_BYTES[tensor.dtype]) for tensor in self.parsed.subgraphs[0].tensors)

    @cached_property
    def _interpreter(self) -> Any:
        try:
            import tensorflow as tf
        except ImportError:
            raise NotHere("a model of TensorFlow Lite is run by TensorFlow: pip install tensorflow") from None
        return tf.lite.Interpreter(model_content=self.content)

    def __call__(self, x: Any) -> Array:
        interpreter, given = self._interpreter, np.asarray(x)
        asked, answer = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
        scale, zero = asked["quantization"]
        if scale and np.issubdtype(given.dtype, np.floating):
            bounds = np.iinfo(asked["dtype"])
            given = np.clip(np.round(given / scale + zero), bounds.min, bounds.max)
        # Files fix the samples of a call: they are given so many at once, the last ones filled up.
        size = int(asked["shape"][0])
        padded = np.resize(given, (-(-len(given) // size) * size, *given.shape[1:])).astype(asked["dtype"])
        interpreter.allocate_tensors()
        results = []
        for start in range(0, len(padded), size):
            interpreter.set_tensor(asked["index"], padded[start : start + size])
            interpreter.invoke()
            results.append(interpreter.get_tensor(answer["index"]))
        found: Array = np.concatenate(results)[: len(given)]
        scale, zero = answer["quantization"]
        return scale * (found.astype(np.float32) - zero) if scale else found


class LiteBackend(KerasBackend):
    """Answers about a LiteModel; arrays and random inputs are those of Keras, as NumPy arrays."""

    name = "tflite"

    def recognizes(self, value: object) -> bool:
        """Return whether a model is a LiteModel, or a tensor is of TensorFlow."""
        return isinstance(value, LiteModel) or type(value).__module__.split(".")[0] == "tensorflow"

    def sizes(self, model: Any) -> ModelSizes:
        """Sum up the constants of a model; none of them is trained."""
        graph = model.graph
        held = {named.tensor for named in graph.named if named.role is Role.PARAMETER}
        tensors = [graph.tensors[index] for index in held]
        elements, size = sum(tensor.numel for tensor in tensors), sum(tensor.nbytes for tensor in tensors)
        return ModelSizes(elements, 0, size, 0, 0, 0)

    def forward_graph(self, model: Any, arguments: Any, *, device: str | None = None, call: Any = None) -> Graph:
        """Return the inference of one sample."""
        graph: Graph = model.graph
        return graph

    def training_graph(self, model: Any, arguments: Any, *, device: str | None = None, call: Any = None) -> Graph:
        """Raise Unavailable: such a model is not trained."""
        raise Unavailable("a model of TensorFlow Lite has no backward")

    def layer_shapes(
        self, model: Any, arguments: Any, *, call: Any = None
    ) -> Mapping[str, tuple[tuple[int, ...], ...]]:
        """Raise Unavailable: a file has ops and no layers."""
        raise Unavailable("a model of TensorFlow Lite has no layers")

    def evaluating(self, model: Any, device: str | None = None) -> AbstractContextManager[Callable[[Any], Any]]:
        """Yield what makes arguments NumPy arrays. Raises MetricError for a device that is not the CPU."""
        if device not in (None, "cpu"):
            raise MetricError(f"a model of TensorFlow Lite runs on the CPU, not on {device!r}")
        return self._arrays()

    @contextlib.contextmanager
    def _arrays(self) -> Iterator[Callable[[Any], Any]]:
        yield lambda value: mapped(lambda leaf: self.array(leaf) if hasattr(leaf, "shape") else leaf, value)


BACKEND = LiteBackend()
"""The row of TensorFlow Lite in ``tensortide.measures.backend.BACKENDS``."""
