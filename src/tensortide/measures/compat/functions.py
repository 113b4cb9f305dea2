"""The profiling functions of deeplite-profiler, on our capture, our forward passes and our evaluation."""

from __future__ import annotations

import inspect
import statistics
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from tensortide.errors import MetricError
from tensortide.measures import scores
from tensortide.measures.backend import backend_of, forward_times_ns
from tensortide.measures.compat.keys import (
    Device,
    DynamicEvalMetric,
    EvalMetric,
    ExecutionTime,
    InferenceTime,
    StatusKey,
)
from tensortide.measures.compat.sources import (
    Asked,
    Defined,
    Flops,
    LayerwiseData,
    LayerwiseSummary,
    MemoryFootprint,
    ModelSize,
    TotalParams,
    values,
)
from tensortide.measures.data import TRAIN, Data, count
from tensortide.measures.evaluation import MAIN, TIME, Evaluation
from tensortide.measures.metric import Comparative


class ProfilerFunction:
    """A function of a model and its data splits that computes the values of status keys; further parameters of
    ``__call__`` are options."""

    def get_bounded_status_keys(self) -> StatusKey | tuple[StatusKey, ...]:
        """The status keys that it computes. Raises NotImplementedError for a class that says none, by either name."""
        if type(self).get_bounded_status_key is ProfilerFunction.get_bounded_status_key:
            raise NotImplementedError(
                f"{type(self).__name__} does not say what it computes: define get_bounded_status_keys(self), which "
                "returns a StatusKey or a tuple of them"
            )
        return self.get_bounded_status_key()

    def get_bounded_status_key(self) -> StatusKey | tuple[StatusKey, ...]:
        """The same by the name that older scripts have for it."""
        return self.get_bounded_status_keys()

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


class _Figures(ProfilerFunction):
    keys: ClassVar[tuple[Defined, ...]] = ()

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
        del device  # nothing is timed: a footprint calls the model once, where it is
        return values(Asked(model, data_splits.get(TRAIN), batch_size, include_weights), self.keys)


class ComputeComplexity(_Figures):
    """All figures, and the layer table."""

    keys = (Flops, TotalParams, ModelSize, MemoryFootprint, LayerwiseSummary, LayerwiseData)


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
    """Layer table, as text."""

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


class EvalLossFunction(EvaluationFunction):
    """Mean loss of a model over a loader. ``loss_fn`` is a function of the model and a batch that returns the mean over
    the batch, or a dict of means to add up; every sample weighs the same.

    It runs where the model is. A loss with a method ``to_device`` is told the device first."""

    def __init__(self, loss_fn: Callable[[Any, Any], Any]) -> None:
        self.loss_fn = loss_fn

    def __call__(self, model: Any, data_loader: Any, device: Device | str = Device.CPU, transform: Any = None) -> float:
        backend, moved = backend_of(model), getattr(self.loss_fn, "to_device", None)
        if moved is not None:
            moved(Device(device))
        total, samples = 0.0, 0
        with backend.evaluating(model, Device(device).framework) as place:
            for batch in map(place, Data.of(data_loader)):
                given = batch if transform is None else transform(batch)
                found = self.loss_fn(model, given)
                parts = [*found.values()] if isinstance(found, Mapping) else [found]
                size = count(given)
                if size is None:
                    raise MetricError("the batches have no tensor to count samples by: a mean loss needs one")
                total += size * sum(float(backend.array(part).reshape(())) for part in parts)
                samples += size
        if not samples:
            raise MetricError("the loader has no samples to evaluate, or is an iterator that was used up")
        return total / samples
