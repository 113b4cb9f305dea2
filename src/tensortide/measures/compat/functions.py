"""The profiling functions of deeplite-profiler, on our capture, our forward passes and our evaluation."""

from __future__ import annotations

import inspect
import statistics
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from tensortide.errors import MetricError
from tensortide.graph.model import Graph
from tensortide.measures import scores
from tensortide.measures.backend import Arguments, backend_of, forward_times_ns
from tensortide.measures.compat.figures import Figure, figures
from tensortide.measures.compat.keys import (
    Device,
    DynamicEvalMetric,
    EvalMetric,
    ExecutionTime,
    Flops,
    InferenceTime,
    LayerwiseSummary,
    MemoryFootprint,
    ModelSize,
    StatusKey,
    TotalParams,
)
from tensortide.measures.compat.liveness import layer_rows
from tensortide.measures.compat.nodes import node_graph
from tensortide.measures.data import Data
from tensortide.measures.evaluation import MAIN, TIME, Evaluation
from tensortide.measures.metric import Comparative, Missing


class ProfilerFunction:
    """A function of a model and its data splits that computes the values of status keys; further parameters of
    ``__call__`` are options."""

    def get_bounded_status_keys(self) -> StatusKey | tuple[StatusKey, ...]:
        """The status keys that it computes."""
        raise NotImplementedError

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Compute the value of the key, or a dict of values by name of key."""
        raise NotImplementedError

    def can_pipe(self) -> bool:
        """True if its options have names: no ``*args`` and no ``**kwargs``."""
        kinds = [parameter.kind for parameter in self.signature.parameters.values()]
        return inspect.Parameter.VAR_KEYWORD not in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds

    @property
    def signature(self) -> inspect.Signature:
        """The signature: model, data splits, options."""
        return inspect.signature(self)


# -- figures -----------------------------------------------------------------------------------------


def traced_forward(model: Any, data: Data, batch_size: int) -> tuple[Graph, bool]:
    """Capture the inference forward on the path that a tracer takes. Returns it, and True if all inputs are named."""
    from tensortide.recorder.short_cuts import as_for_a_tracer

    arguments = data.forward.random_arguments(batch_size)
    by_name = isinstance(arguments, Arguments) and bool(arguments.named) and not arguments.positional
    with as_for_a_tracer():
        graph = backend_of(model).forward_graph(model, arguments, device=None, call=data.forward.own_call)
    return graph, by_name or isinstance(arguments, Mapping)


class _Figures(ProfilerFunction):
    keys: ClassVar[tuple[type[StatusKey], ...]] = ()

    def get_bounded_status_keys(self) -> tuple[StatusKey, ...]:
        return tuple(key() for key in self.keys)

    def __call__(
        self,
        model: Any,
        data_splits: Mapping[str, Data],
        batch_size: int = 1,
        device: Device | str = Device.CPU,
        include_weights: bool = True,
    ) -> dict[str, Any]:
        del device, include_weights  # nothing is run, and weights are never part of the footprint
        graph, by_name = traced_forward(model, data_splits["train"], batch_size)
        found: dict[str, Any] = {one.name: _value(one) for one in figures(graph, batch=batch_size, keywords=by_name)}
        if LayerwiseSummary in self.keys:
            failed = next((value for value in found.values() if isinstance(value, Missing)), None)
            found[LayerwiseSummary.NAME] = failed or layer_table(graph)
        return {key.NAME: found[key.NAME] for key in self.keys}


def _value(figure: Figure) -> float | Missing:
    return figure.missing or figure.shown or 0.0


def layer_table(graph: Graph) -> str:
    """The layer table as text, tab separated."""
    rows = layer_rows(node_graph(graph))
    fields = ("index", "weight", "bias", "input_shape", "output_shape", "in_tensors", "out_tensors", "scope", "ram")
    return "\n".join(["\t".join(fields), *("\t".join(str(getattr(row, name)) for name in fields) for row in rows)])


class ComputeComplexity(_Figures):
    """All figures, and the layer table."""

    keys = (Flops, TotalParams, ModelSize, MemoryFootprint, LayerwiseSummary)


class ComputeFlops(_Figures):
    """Multiply-accumulates by that tool's convention."""

    keys = (Flops,)


class ComputeParams(_Figures):
    """Trainable parameters."""

    keys = (TotalParams,)


class ComputeSize(_Figures):
    """Size of the model and its footprint."""

    keys = (ModelSize, MemoryFootprint)


class ComputeLayerwiseSummary(_Figures):
    """Layer table."""

    keys = (LayerwiseSummary,)


class ComputeExecutionTime(ProfilerFunction):
    """Mean time of a forward call per sample, in ms: of outermost calls alone, where that tool averages in those of
    nested modules of the same class."""

    def get_bounded_status_keys(self) -> StatusKey:
        return ExecutionTime()

    def __call__(
        self,
        model: Any,
        data_splits: Mapping[str, Data],
        split: str = "train",
        batch_size: int = 1,
        device: Device | str = Device.CPU,
    ) -> float:
        forward = data_splits[split].forward
        times = forward_times_ns(
            backend_of(model),
            model,
            forward.random_arguments(batch_size),
            device=Device(device).framework,
            warmup=5,
            runs=10,
            call=forward.own_call,
        )
        return statistics.fmean(times) / batch_size / 1e6


# -- evaluation --------------------------------------------------------------------------------------


class EvaluationFunction:
    """A function of a model and a loader that returns a number or a dict of numbers."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Evaluate the model."""
        raise NotImplementedError


class ComputeEvalMetric(ProfilerFunction):
    """The result of an evaluation function on one split, and the wall time of the evaluation."""

    def __init__(
        self,
        func: Callable[..., Any],
        key: str | None = None,
        default_split: str = "test",
        unit_name: str = "",
        comparative: Comparative | str = Comparative.DIFF,
    ) -> None:
        self.func, self.key, self.default_split = func, key, default_split
        self.unit_name, self.comparative = unit_name, comparative
        self.secondary_metrics: list[DynamicEvalMetric] = []

    def add_secondary_metric(
        self,
        key: str,
        unit_name: str | None = None,
        description: str | None = None,
        comparative: Comparative | str | None = None,
    ) -> None:
        """Make a status key of a further entry of the dict that the function returns."""
        unit = self.unit_name if unit_name is None else unit_name
        how = self.comparative if comparative is None else comparative
        self.secondary_metrics.append(DynamicEvalMetric(key, unit, description, how))

    def get_bounded_status_keys(self) -> tuple[StatusKey, ...]:
        return EvalMetric(self.unit_name, self.comparative), InferenceTime(), *self.secondary_metrics

    def can_pipe(self) -> bool:
        kinds = [parameter.kind for parameter in inspect.signature(self.func).parameters.values()]
        return inspect.Parameter.VAR_KEYWORD not in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds

    @property
    def signature(self) -> inspect.Signature:
        """The value of the function, with ``split``."""
        options = [*inspect.signature(self.func).parameters.values()][2:]
        kind = inspect.Parameter.KEYWORD_ONLY
        names = [inspect.Parameter(name, kind) for name in ("model", "data_splits")]
        split = inspect.Parameter("split", kind, default=self.default_split)
        return inspect.Signature([*names, split, *(one.replace(kind=kind) for one in options if one.name != "split")])

    def __call__(self, model: Any, data_splits: Mapping[str, Data], **options: Any) -> dict[str, Any]:
        split = options.pop("split", None) or self.default_split
        evaluation = Evaluation(self.func, self.key or "", split)
        for one in self.secondary_metrics:
            evaluation = evaluation.add_secondary(one.NAME)
        found: dict[str, Any] = evaluation(_Evaluated(model, data_splits), **options)
        return {**found, MAIN: found[MAIN], TIME: found[TIME] / 1e9}


class _Evaluated:
    """Questions that an evaluation asks of a subject."""

    def __init__(self, model: Any, splits: Mapping[str, Data]) -> None:
        self.model, self._splits = model, splits

    def loader(self, split: str) -> Data:
        if split not in self._splits:
            raise MetricError(f"there is no data split {split!r}; there are {', '.join(map(repr, self._splits))}")
        return self._splits[split]


def get_accuracy(model: Any, data_loader: Any, device: Device | str = Device.CPU, transform: Any = None) -> float:
    """Percentage of right labels; every sample weighs the same."""
    return scores.accuracy(model, data_loader, device=Device(device).framework, transform=transform)


def get_missclass(model: Any, data_loader: Any, device: Device | str = Device.CPU, transform: Any = None) -> float:
    """Percentage of wrong labels; every sample weighs the same."""
    return scores.misclassification(model, data_loader, device=Device(device).framework, transform=transform)


def get_topk(
    model: Any,
    data_loader: Any,
    device: Device | str = Device.CPU,
    topk: int | tuple[int, ...] = (1, 5),
    transform: Any = None,
) -> dict[str, float]:
    """Percentage of labels among the highest scores, as ``top-1``, ``top-5``."""
    return scores.top_k(model, data_loader, k=topk, device=Device(device).framework, transform=transform)
