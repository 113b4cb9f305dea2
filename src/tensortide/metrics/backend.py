"""What metrics ask of a framework: one protocol, and a table with a row per framework.

A backend turns a model and a batch into Graphs, calls the model, and runs evaluation functions. No framework is
imported to find out whose a model is: rows name the module that must be loaded for a model of theirs to exist.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tensortide.errors import MetricError

if TYPE_CHECKING:
    from tensortide.graph.model import Graph


class Arguments(NamedTuple):
    """The arguments of one call of a model."""

    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = {}


class Backend(Protocol):
    """A framework, as metrics see it. Every method leaves the model, its modes and devices, the global random state and
    the user's objects as they were."""

    name: str

    def recognizes(self, model: object) -> bool:
        """Return whether a model is of this framework."""

    def forward_graph(self, model: Any, arguments: Arguments, *, device: str | None) -> Graph:
        """Capture the inference forward: evaluation mode, no gradients, on fake tensors."""

    def training_graph(self, model: Any, arguments: Arguments, *, device: str | None) -> Graph:
        """Capture a forward in training mode and the backward of the sum of its floating-point outputs."""

    def sample(self, batch: Any) -> Any:
        """Describe a batch, so that random ones can be made: shapes without the batch axis, dtypes, ranges."""

    def random(self, sample: Any, batch_size: int, *, seed: int) -> Any:
        """Make a random batch like the sample, from a generator of its own."""

    def forward_times_ns(
        self, model: Any, arguments: Arguments, *, device: str | None, warmup: int, runs: int
    ) -> list[int]:
        """Measure outermost forward calls in evaluation mode, without gradients, the device synchronized."""

    def evaluating(self, model: Any, device: str | None) -> AbstractContextManager[Any]:
        """Yield the model in evaluation mode without gradients on a device; modes and device are restored after."""


class Row(NamedTuple):
    """A framework: the module that is loaded where its models are, and the ``module:name`` of its Backend."""

    framework: str
    place: str


BACKENDS: dict[str, Row] = {"torch": Row("torch", "tensortide.profile.evaluation.backend:BACKEND")}
"""Every backend by name."""


def backend_of(model: object) -> Backend:
    """Find the backend of a model. Raises MetricError if it is of no framework that has one."""
    for row in BACKENDS.values():
        if row.framework in sys.modules:
            backend = _loaded(row)
            if backend.recognizes(model):
                return backend
    known = ", ".join(BACKENDS)
    raise MetricError(f"{type(model).__name__} is no model of {known}: metrics of a model need one of these")


def _loaded(row: Row) -> Backend:
    module, _, name = row.place.partition(":")
    backend: Backend = getattr(importlib.import_module(module), name)
    return backend
