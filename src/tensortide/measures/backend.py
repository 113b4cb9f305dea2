"""Questions that metrics ask of a framework: one protocol, and a table with a row per framework.

A backend turns a model and a batch into Graphs, calls the model, and runs evaluation functions. No framework is
imported to find out whose a model is: rows name the module that must be loaded for a model of theirs to exist.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

from tensortide.collector import no_collection
from tensortide.errors import MetricError

if TYPE_CHECKING:
    import numpy as np

    from tensortide.cost import ModelSizes
    from tensortide.graph.model import Graph


class Arguments(NamedTuple):
    """The arguments of one call of a model."""

    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = {}


Call: TypeAlias = Callable[[Any, Any], Any]
"""A function that calls a model with arguments, where that is not ``model(*positional, **named)``."""
Range: TypeAlias = tuple[float, float]
"""Least and greatest value."""
Distribution: TypeAlias = Literal["uniform", "normal"]


class Backend(Protocol):
    """A framework, as metrics see it. Every method leaves the model, its modes and devices, the global random state and
    the user's objects as they were."""

    name: str

    def recognizes(self, value: object) -> bool:
        """Return whether a model or a tensor is of this framework."""

    def sizes(self, model: Any) -> ModelSizes:
        """Sum up elements and bytes of the parameters, tied ones once, and buffers of a model. What a quantized module
        has packed counts as parameters, by its true size."""

    def forward_graph(
        self, model: Any, arguments: Arguments, *, device: str | None = None, call: Call | None = None
    ) -> Graph:
        """Capture the inference forward: evaluation mode, no gradients, on fake tensors."""

    def training_graph(
        self, model: Any, arguments: Arguments, *, device: str | None = None, call: Call | None = None
    ) -> Graph:
        """Capture a forward in training mode and the backward of the sum of its floating-point outputs. Raises
        Unavailable if no output takes gradients."""

    def layer_shapes(
        self, model: Any, arguments: Arguments, *, call: Call | None = None
    ) -> Mapping[str, tuple[tuple[int, ...], ...]]:
        """List the shapes of the tensors that each layer returns in an inference forward, by the name of the layer. A
        layer that is called again has those of its last call; sequences and lists of layers are no layers. Raises
        Unavailable where the model does not say it."""

    def sample(
        self,
        arguments: Arguments,
        *,
        distribution: Distribution = "uniform",
        ranges: Mapping[int | str, Range] | None = None,
    ) -> Any:
        """Describe arguments, so that random ones can be made: shapes without the batch axis, dtypes, ranges."""

    def random(self, sample: Any, batch_size: int, *, seed: int = 0) -> Any:
        """Make random arguments like the sample, as a pair of positional and named ones, from a generator of its own.
        Raises MetricError for a batch size below 1."""

    def shapes(self, sample: Any) -> tuple[tuple[int, ...], ...]:
        """List the shapes of all tensors of a sample, without the batch axis."""

    def clocked(self, model: Any, function: Callable[[], Any]) -> tuple[Any, int]:
        """Call a function; return its result and the wall time in ns until the devices of the model have finished."""

    def evaluating(self, model: Any, device: str | None = None) -> AbstractContextManager[Callable[[Any], Any]]:
        """Have the model in evaluation mode without gradients on a device (None: where it is). Yield the function that
        puts tensors in nested containers beside it. Raises MetricError for a device that is not here."""

    def undisturbed(self, loader: object = None) -> AbstractContextManager[None]:
        """Restore the global random state, and that of a loader's own generators, on exit."""

    def ranking(self, scores: Any, count: int, *, last: bool = False) -> np.ndarray[Any, Any]:
        """Rank the classes of each position by their scores, the first ``count`` of them: one row per position.

        Classes lie along axis 1, or along the ``last``. One column, or none, is the logit of class 1 against 0."""

    def array(self, value: Any) -> np.ndarray[Any, Any]:
        """Return the numbers of a tensor, an array or a list."""


class Row(NamedTuple):
    """A framework: the module that is loaded where its models are, and the ``module:name`` of its Backend."""

    framework: str
    place: str


BACKENDS: dict[str, Row] = {
    "torch": Row("torch", "tensortide.profile.evaluation.backend:BACKEND"),
    "keras": Row("keras", "tensortide.importers.keras.backend:BACKEND"),
    "tflite": Row("tensortide.importers.tflite.backend", "tensortide.importers.tflite.backend:BACKEND"),
}
"""Every backend by name. Of two that recognize a model the later one answers: a Keras model on PyTorch is both."""


def backend_of(model: object) -> Backend:
    """Find the backend of a model. Raises MetricError if it is of no framework that has one."""
    if found := [backend for backend in loaded() if backend.recognizes(model)]:
        return found[-1]
    known = ", ".join(BACKENDS)
    raise MetricError(f"{type(model).__name__} is no model of {known}: metrics of a model need one of these")


def backend_of_tensors(value: Any) -> Backend:
    """Find the backend of the first tensor in nested containers; NumPy arrays go with any that is loaded. Raises
    MetricError if no framework is loaded."""
    backends = [*loaded()]
    for leaf in leaves(value):
        for backend in backends:
            if backend.recognizes(leaf):
                return backend
    if not backends:
        raise MetricError(f"there are no tensors without a framework: none of {', '.join(BACKENDS)} is loaded")
    return backends[0]


def loaded() -> Iterator[Backend]:
    """Every backend whose framework is loaded."""
    for row in BACKENDS.values():
        if row.framework in sys.modules:
            module, _, name = row.place.partition(":")
            yield getattr(importlib.import_module(module), name)


def forward_times_ns(
    backend: Backend,
    model: Any,
    arguments: Arguments,
    *,
    device: str | None = None,
    warmup: int = 5,
    runs: int = 10,
    call: Call | None = None,
) -> list[int]:
    """Measure ``runs`` forward calls after ``warmup`` others, in evaluation mode, the devices synchronized. Raises
    MetricError for no run."""
    if runs < 1 or warmup < 0:
        raise MetricError(f"cannot time {runs} calls after {warmup}: runs is at least 1, warmup at least 0")
    calling = call or (lambda model, given: model(*given[0], **given[1]))
    with backend.evaluating(model, device) as place:
        given = place(arguments)
        with no_collection():
            times = [backend.clocked(model, lambda: calling(model, given))[1] for _ in range(warmup + runs)]
    return times[warmup:]


@contextlib.contextmanager
def undisturbed(loader: object) -> Iterator[None]:
    """Restore the random state of every framework that is loaded, and that of a loader's own generators, on exit."""
    with contextlib.ExitStack() as stack:
        for backend in loaded():
            stack.enter_context(backend.undisturbed(loader))
        yield


def leaves(value: Any) -> Iterator[Any]:
    """Everything in nested tuples, lists and mappings."""
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, tuple | list):
        for item in value:
            yield from leaves(item)
    else:
        yield value
