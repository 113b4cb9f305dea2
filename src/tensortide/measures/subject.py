"""Subjects of metrics: a step or a forward pass as a Graph, and what is known beside it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tensortide.errors import MetricError, Unavailable
from tensortide.graph.model import Phase

if TYPE_CHECKING:
    from tensortide.cost import Count, ModelSizes
    from tensortide.graph.model import Graph
    from tensortide.measures.data import Data
    from tensortide.timelines import StorageTimeline
    from tensortide.timelines.module_figures import ModuleFigures
    from tensortide.timing import Durations


class Subject(Protocol):
    """The argument of every metric function. What it does not have raises Unavailable with the reason.

    ``kind``: ``step`` (of a workload, a script or a file) or ``forward`` (of a model in evaluation mode). Figures of
    one kind are not comparable with those of the other. A ``batch_size`` of None is the subject's own.
    """

    @property
    def kind(self) -> Literal["step", "forward"]:
        """Extent of the main Graph."""

    @property
    def name(self) -> str:
        """Name for people."""

    @property
    def of(self) -> dict[str, Any]:
        """Identity of what is measured, as plain data: workload and hyperparameters, or the class of a model."""

    def replaced(self, **parts: Any) -> Subject:
        """Make the subject with another ``model``, or other ``data_splits``."""

    def sizes(self) -> ModelSizes:
        """Elements and bytes of parameters and buffers."""

    def captured(self, batch_size: int | None = None) -> Captured:
        """The step, or the inference forward at a batch size."""

    def training(self, batch_size: int | None = None) -> Captured:
        """The Graph with a backward: the step, or forward and backward of the model in training mode."""

    @property
    def durations(self) -> Durations:
        """The times of the ops of the step."""

    def forward_times_ns(
        self, batch_size: int | None = None, *, warmup: int, runs: int
    ) -> tuple[list[int], int | None]:
        """Times of forward calls of the live model, and the samples in each (None: not known)."""

    @property
    def model(self) -> Any:
        """The live model."""

    def loader(self, split: str) -> Data:
        """The data of a split."""


@dataclass(frozen=True)
class Captured:
    """A Graph with its costs and its memory over time, each computed once."""

    graph: Graph

    @cached_property
    def count(self) -> Count:
        """The costs of the ops."""
        from tensortide.targets.counted import count

        return count(self.graph)

    @cached_property
    def memory(self) -> StorageTimeline:
        """Memory as the framework released it, with known workspace."""
        from tensortide.timelines import timeline

        return timeline(self.graph)

    @cached_property
    def modules(self) -> dict[str, ModuleFigures]:
        """The own figures of each module that has some, by its path."""
        from tensortide.timelines.module_figures import figures_by_module, module_trees

        return figures_by_module(module_trees(self.count, self.memory))

    @property
    def trains(self) -> bool:
        """True if the Graph has a backward."""
        return any(op.phase is Phase.BACKWARD for op in self.graph.ops)


class StepSubject:
    """A recorded step: of a workload, a script, a file. ``times`` are those of its ops, where they are known."""

    def __init__(self, graph: Graph, *, times: Durations | None = None, name: str = ""):
        from tensortide.graph import unrolled

        self._captured = Captured(unrolled(graph))
        self._times = times
        self.name = name or graph.meta.workload
        self.kind: Literal["step", "forward"] = "step"

    @property
    def of(self) -> dict[str, Any]:
        """The workload and its hyperparameters."""
        meta = self._captured.graph.meta
        return {"workload": meta.workload, "hyperparameters": dict(meta.hyperparameters)}

    def replaced(self, **parts: Any) -> Subject:
        """Raise Unavailable: a recorded step has no model and no data."""
        raise Unavailable(f"a recorded step has no {' and no '.join(parts)} to replace")

    def sizes(self) -> ModelSizes:
        """Elements and bytes of the parameters and buffers that the step reaches."""
        return self._captured.count.sizes

    def captured(self, batch_size: int | None = None) -> Captured:
        """The step. Raises Unavailable for another batch size than its own."""
        if batch_size is not None:
            raise Unavailable(f"a recorded step has the batch size that it was recorded with, not {batch_size}")
        return self._captured

    def training(self, batch_size: int | None = None) -> Captured:
        """The step. Raises Unavailable if it has no backward."""
        found = self.captured(batch_size)
        if not found.trains:
            raise Unavailable("the step has no backward")
        return found

    @property
    def durations(self) -> Durations:
        """The times of the ops. Raises Unavailable where nobody measured or predicted them."""
        if self._times is None:
            raise Unavailable("no times: predict them with --machine h100 (an assertion: time(h100)), or measure them")
        return self._times

    def forward_times_ns(
        self, batch_size: int | None = None, *, warmup: int, runs: int
    ) -> tuple[list[int], int | None]:
        """Raise Unavailable: a recorded step has no live model."""
        raise Unavailable("a recorded step has no live model to call")

    @property
    def model(self) -> Any:
        """Raise Unavailable: a recorded step has no live model."""
        raise Unavailable("a recorded step has no live model")

    def loader(self, split: str) -> Data:
        """Raise Unavailable: a recorded step has no data."""
        raise Unavailable("a recorded step has no data")


def subject_of(target: Any, *, name: str = "", **given: Any) -> Subject:
    """Make the subject of a target: of a Graph, of an opened step (``Imported``), of a text that ``tensortide.open``
    takes, and of anything else as a model, with the further arguments of ``ModelSubject``. A subject is returned.

    Raises WorkloadError for a text that names no target, MetricError for a model of no known framework.
    """
    from tensortide.graph.model import Graph
    from tensortide.importers.door import open as opened
    from tensortide.importers.imported import Imported
    from tensortide.measures.model_subject import ModelSubject

    if callable(getattr(target, "captured", None)) and hasattr(target, "kind"):
        found: Subject = target
        return found
    if isinstance(target, str | os.PathLike):
        target = opened(target, **given)
        given = {}
    if isinstance(target, Imported | Graph):
        if given:
            raise MetricError(f"a recorded step takes no {', '.join(given)}: those go with a model")
        step = Imported(target) if isinstance(target, Graph) else target
        return StepSubject(step.graph, times=step.durations, name=name)
    return ModelSubject(target, **given, name=name)
