"""What metrics are computed of: a step or a forward pass as a Graph, and what is known beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tensortide.cost import Count
    from tensortide.graph.model import Graph
    from tensortide.timelines import StorageTimeline
    from tensortide.timing import Durations


class Subject(Protocol):
    """The argument of every metric function. What it does not have raises Unavailable with the reason.

    ``kind`` is ``step`` (of a workload, a script or a file) or ``forward`` (of a model in evaluation mode): figures of
    one kind are not comparable with those of the other.
    """

    kind: str
    name: str

    def graph(self, batch_size: int | None = None) -> Graph:
        """The captured step, or the inference forward at a batch size."""

    def count(self, batch_size: int | None = None) -> Count:
        """The costs of ``graph``."""

    def memory(self, batch_size: int | None = None) -> StorageTimeline:
        """The Timeline of ``graph`` as the framework released its storages, without workspace."""

    def training(self, batch_size: int | None = None) -> Graph:
        """A Graph with a backward: the step itself, or forward and backward of the model in training mode."""

    @property
    def durations(self) -> Durations:
        """The times of the ops of ``graph``."""

    @property
    def model(self) -> Any:
        """The live model."""

    def loader(self, split: str) -> Any:
        """The data of a split."""
