"""Keras as the Backend that metrics ask, on TensorFlow, PyTorch or JAX."""

from __future__ import annotations

import contextlib
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from tensortide.cost import ModelSizes
from tensortide.dtypes import ITEM_BYTES
from tensortide.errors import MetricError, Unavailable
from tensortide.graph.model import Graph
from tensortide.importers.keras import sampling
from tensortide.importers.keras.sampling import Distribution, Range


class KerasBackend:
    """Answers of Keras to what metrics ask; see ``tensortide.measures.backend.Backend``."""

    name = "keras"

    def recognizes(self, value: object) -> bool:
        """Return whether a model is Keras's, or a tensor is of TensorFlow or JAX, which have no other backend."""
        keras = sys.modules["keras"]
        if isinstance(value, keras.Layer):
            return True
        return type(value).__module__.split(".")[0] in ("tensorflow", "jax", "jaxlib")

    def sizes(self, model: Any) -> ModelSizes:
        """Sum up the weights as Keras counts them, running statistics among them; states of random generators are
        buffers."""
        weights = {id(weight): weight for weight in model.weights}
        trained = {id(weight): weight for weight in model.trainable_weights}
        other = [variable for variable in model.variables if id(variable) not in weights]
        return ModelSizes(
            parameters=_elements(weights.values()),
            trainable=_elements(trained.values()),
            parameter_bytes=_bytes(weights.values()),
            trainable_bytes=_bytes(trained.values()),
            buffers=_elements(other),
            buffer_bytes=_bytes(other),
        )

    def forward_graph(self, model: Any, arguments: Any, *, device: str | None = None, call: Any = None) -> Graph:
        """Trace the inference forward. Raises MetricError for a call of one's own, or a device that is not the CPU."""
        from tensortide.importers.keras.live import import_live

        return import_live(model, inputs=self._inputs(arguments, device, call)).graph

    def training_graph(self, model: Any, arguments: Any, *, device: str | None = None, call: Any = None) -> Graph:
        """Trace a forward in training mode and the gradients of the sum of its outputs."""
        from tensortide.importers.keras.live import import_gradients

        return import_gradients(model, inputs=self._inputs(arguments, device, call)).graph

    def _inputs(self, arguments: Any, device: str | None, call: Any) -> Any:
        positional, named = arguments
        if call is not None:
            raise MetricError(
                "a Keras model is called as model(inputs): a ForwardPass with a call of its own is not traced"
            )
        _require_here(device)
        given = (*positional, *named.values())
        return given[0] if len(given) == 1 and not named else dict(named) if named and not positional else [*given]

    def layer_shapes(
        self, model: Any, arguments: Any, *, call: Any = None
    ) -> Mapping[str, tuple[tuple[int, ...], ...]]:
        """List the shapes of what the layers of a model return: those of its own, a model among them as one."""
        import keras

        batch = next((int(x.shape[0]) for x in keras.tree.flatten([*arguments]) if getattr(x, "shape", ())), 1)
        found: dict[str, tuple[tuple[int, ...], ...]] = {}
        for layer in getattr(model, "layers", ()):
            try:
                returned = keras.tree.flatten(layer.output)
            except (AttributeError, ValueError):
                raise Unavailable(
                    f"the layer {layer.name!r} of {model.name!r} does not say what it returns: those of functional and "
                    "sequential models do"
                ) from None
            shapes = tuple((batch, *x.shape[1:]) for x in returned)
            if any(None in shape for shape in shapes):
                raise Unavailable(
                    f"the layer {layer.name!r} leaves sizes open: build the model with inputs of fixed shapes"
                )
            found[layer.name] = shapes
        return found

    def sample(
        self, arguments: Any, *, distribution: Distribution = "uniform", ranges: Mapping[int | str, Range] | None = None
    ) -> Any:
        """Describe arguments, so that random ones can be made."""
        return sampling.sample(arguments, self.array, distribution=distribution, ranges=ranges)

    def random(self, sample: Any, batch_size: int, *, seed: int = 0) -> Any:
        """Make random arguments like the sample. Raises MetricError for a batch of none."""
        if batch_size < 1:
            raise MetricError(f"a random batch has at least 1 sample, not {batch_size}")
        generator = np.random.default_rng(seed)
        return sampling.mapped(lambda leaf: leaf.random(batch_size, generator), sample)

    def shapes(self, sample: Any) -> tuple[tuple[int, ...], ...]:
        """The shapes of all tensors of a sample, without the batch axis."""
        found: list[tuple[int, ...]] = []
        sampling.mapped(lambda leaf: found.append(leaf.shape), sample)
        return tuple(found)

    def clocked(self, model: Any, function: Callable[[], Any]) -> tuple[Any, int]:
        """Call a function; return its result and the wall time in ns until its numbers are there."""
        start = time.perf_counter_ns()
        result = function()
        sampling.mapped(lambda leaf: self.array(leaf) if hasattr(leaf, "shape") else leaf, result)
        return result, time.perf_counter_ns() - start

    def evaluating(self, model: Any, device: str | None = None) -> AbstractContextManager[Callable[[Any], Any]]:
        """Yield what makes arguments tensors of the framework that Keras runs on. Models infer unless told to train."""
        _require_here(device)
        return self._evaluating()

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[Callable[[Any], Any]]:
        import keras

        def place(value: Any) -> Any:
            return sampling.mapped(self._tensor, value)

        if keras.backend.backend() != "torch":
            yield place
            return
        import torch

        with torch.no_grad():
            yield place

    def _tensor(self, value: Any) -> Any:
        import keras

        return keras.ops.convert_to_tensor(self.array(value)) if hasattr(value, "shape") else value

    @contextlib.contextmanager
    def undisturbed(self, loader: object = None) -> Iterator[None]:
        """Restore the random generators of Python and NumPy on exit; Keras keeps its own beside its layers."""
        python, numbers = random.getstate(), np.random.get_state()
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numbers)

    def ranking(self, scores: Any, count: int, *, last: bool = False) -> np.ndarray[Any, Any]:
        """Rank the classes of each position by their scores, the first ``count`` of them: one row per position.

        Classes lie along axis 1, or along the ``last``. Of equal scores the first class leads. One column, or none, is
        the logit of class 1 against 0. Raises MetricError for what are no scores.
        """
        if not hasattr(scores, "shape"):
            raise MetricError(f"scores of classes are a tensor, not a {type(scores).__name__}")
        found = self.array(scores)
        axis = -1 if last else 1
        if found.ndim < 2 or found.shape[axis] == 1:
            positive = (found > 0).reshape(-1).astype(np.int64)
            rows = np.stack([positive, 1 - positive], 1)
        else:
            by_class = np.moveaxis(found, axis, -1).reshape(-1, found.shape[axis])
            rows = np.argsort(-by_class, axis=1, kind="stable")
        return rows[:, :count]

    def array(self, value: Any) -> np.ndarray[Any, Any]:
        """The numbers of a tensor, an array or a list."""
        detach = getattr(value, "detach", None)
        if detach is not None:
            value = detach().cpu()
        found = np.asarray(value)
        return found.astype(np.float32) if found.dtype.name == "bfloat16" else found


def _require_here(device: str | None) -> None:
    """Raise MetricError for a device that Keras does not run on."""
    import keras

    if device not in (None, "cpu") and not (device == "cuda" and keras.distribution.list_devices("gpu")):
        raise MetricError(
            f"a Keras model runs where Keras does, on {', '.join(keras.distribution.list_devices())}, not on {device!r}"
        )


def _elements(variables: Iterable[Any]) -> int:
    return sum(math.prod(map(int, variable.shape)) for variable in variables)


def _bytes(variables: Iterable[Any]) -> int:
    return sum(math.prod(map(int, variable.shape)) * ITEM_BYTES.get(str(variable.dtype), 4) for variable in variables)


BACKEND = KerasBackend()
"""Keras's row of ``tensortide.measures.backend.BACKENDS``."""
