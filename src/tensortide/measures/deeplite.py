"""The Python surface of deeplite-profiler 1.2.5, of models of PyTorch, Keras and TensorFlow Lite: a script written for
it runs with its imports from here.

>>> from tensortide.measures.deeplite import ComputeComplexity, TorchProfiler
>>> splits = TorchProfiler.enable_forward_pass_data_splits({"train": loader, "test": loader})  # doctest: +SKIP
>>> profiler = TorchProfiler(model, splits, name="Original")  # doctest: +SKIP
>>> profiler.register_profiler_function(ComputeComplexity())  # doctest: +SKIP
>>> profiler.compute_network_status(batch_size=1, print_mode="info")["flops"]  # doctest: +SKIP

Values are by that tool's definitions, in its units, under its names: ``flops`` here is no metric of ours. They are kept
in a Profiler with a registry of its own. The model, its modes, its device and the random state are left as they were.
Options that no function takes are dropped, as there; values are kept by their options, and evaluations weigh every
sample the same.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

from tensortide.importers.tflite.backend import LiteModel
from tensortide.measures.compat.display import DefaultDisplay, NotComputedValue, getLogger, setLogger
from tensortide.measures.compat.functions import (
    ComputeComplexity,
    ComputeEvalMetric,
    ComputeExecutionTime,
    ComputeFlops,
    ComputeLayerwiseSummary,
    ComputeParams,
    ComputeSize,
    EvalLossFunction,
    EvaluationFunction,
    ProfilerFunction,
    get_accuracy,
    get_missclass,
    get_topk,
)
from tensortide.measures.compat.keys import (
    Device,
    DynamicEvalMetric,
    EvalMetric,
    ExecutionTime,
    InferenceTime,
    Metric,
    StatusKey,
)
from tensortide.measures.compat.loaders import (
    DataLoader,
    ForwardPass,
    TensorSampler,
    TFDataLoader,
    TFForwardPass,
    TorchDataLoader,
    TorchForwardPass,
)
from tensortide.measures.compat.sources import (
    Flops,
    LayerwiseData,
    LayerwiseSummary,
    MemoryFootprint,
    ModelSize,
    TotalParams,
)
from tensortide.measures.data import TRAIN
from tensortide.measures.metric import Comparative, Missing
from tensortide.measures.metric import Metric as Declared
from tensortide.measures.model_subject import ModelSubject
from tensortide.measures.profiler import Profiler as Metrics
from tensortide.measures.registry import BadFunction, MetricFunction, Registry, outside

__all__ = [
    "Comparative",
    "ComputeComplexity",
    "ComputeEvalMetric",
    "ComputeExecutionTime",
    "ComputeFlops",
    "ComputeLayerwiseSummary",
    "ComputeParams",
    "ComputeSize",
    "DataLoader",
    "DefaultDisplay",
    "Device",
    "DynamicEvalMetric",
    "EvalLossFunction",
    "EvalMetric",
    "EvaluationFunction",
    "ExecutionTime",
    "Flops",
    "ForwardPass",
    "InferenceTime",
    "LayerwiseData",
    "LayerwiseSummary",
    "MemoryFootprint",
    "Metric",
    "ModelSize",
    "NotComputedValue",
    "Profiler",
    "ProfilerFunction",
    "StatusKey",
    "TFDataLoader",
    "TFForwardPass",
    "TFLiteProfiler",
    "TFProfiler",
    "TensorSampler",
    "TorchDataLoader",
    "TorchForwardPass",
    "TorchProfiler",
    "TotalParams",
    "getLogger",
    "get_accuracy",
    "get_missclass",
    "get_topk",
    "setLogger",
]

PREFIX = "deeplite."
"""Begins the names of these values where metrics are kept by name."""


class Profiler:
    """A model with data splits and registered profiling functions. Subclasses are of one framework.

    Args:
        model: of the framework.
        data_splits: as ``enable_forward_pass_data_splits`` makes them, or plain loaders by split.
        name: for people.
        display: of the status.
    """

    backend = "<None>"
    _loader: ClassVar[type[DataLoader]] = DataLoader
    _forward: ClassVar[type[ForwardPass]] = ForwardPass

    def __init__(
        self, model: Any, data_splits: Any, name: str = "<UnNamedModel>", display: DefaultDisplay | None = None
    ) -> None:
        subject = ModelSubject(self._called(model), data_splits, name=name)
        self._profiler = Metrics(subject, name=name, registry=Registry())
        self._keys: dict[str, StatusKey] = {}
        self._registered: list[tuple[Any, bool]] = []
        """Every registered function in order, and True where it overrides."""
        self.display = DefaultDisplay() if display is None else display

    @classmethod
    def enable_forward_pass_data_splits(cls, data_splits: Mapping[str, Any], forward_pass: Any = None) -> Any:
        """Attach a forward pass to the split ``train``, or one by split, and wrap the loaders."""
        default = cls._forward((0, "_")) if forward_pass is None else forward_pass
        passes = default if isinstance(default, dict) else {TRAIN: default}
        return {split: cls._loader(loader, passes.get(split)) for split, loader in data_splits.items()}

    def _called(self, model: Any) -> Any:
        """Return the model as something that can be called."""
        return model

    @property
    def model(self) -> Any:
        """The model."""
        return self._profiler.subject.model

    @property
    def data_splits(self) -> Any:
        """The loaders by split."""
        subject: Any = self._profiler.subject
        return subject.splits

    @property
    def name(self) -> str:
        """Name for people."""
        return self._profiler.name

    @name.setter
    def name(self, name: str) -> None:
        self._profiler.name = name

    # -- functions ----------------------------------------------------------------------------------

    def register_profiler_function(self, profiler_func: Any, override: bool = False) -> Any:
        """Register a function for its status keys. Raises TypeError for ``*args`` and ``**kwargs`` among its options,
        RuntimeError for a second override of a key."""
        if not profiler_func.can_pipe():
            raise BadFunction(f"{type(profiler_func).__name__} takes *args or **kwargs: name the options that it takes")
        bound = profiler_func.get_bounded_status_keys()
        keys = bound if isinstance(bound, tuple) else (bound,)
        declared = _declared(profiler_func, keys)
        self._profiler.register(declared, override)
        self._registered.append((profiler_func, override))
        for key in keys:
            if self._profiler.registry[PREFIX + key.NAME].function is declared:
                self._keys[key.NAME] = key
        return profiler_func

    def add_secondary_eval_metric(
        self, key: str, unit_name: str | None = None, description: str | None = None, comparative: Any = None
    ) -> None:
        """Make a status key of a further entry of what the evaluation function returns. Raises ValueError if there is
        no such function yet."""
        evaluations = [function for function, _ in self._registered if isinstance(function, ComputeEvalMetric)]
        if not evaluations:
            raise ValueError("there is no evaluation function yet: register ComputeEvalMetric(function) first")
        evaluations[-1].add_secondary_metric(key, unit_name, description, comparative)
        registered, self._registered = self._registered, []
        self._profiler.registry, self._keys = Registry(), {}
        with warnings.catch_warnings(action="ignore"):  # which function replaces which was said
            for function, override in registered:
                self.register_profiler_function(function, override)

    def compute_status(self, status: str, recompute: bool = False, **kwargs: Any) -> Any:
        """Compute a status key, unless it is known at these options. Raises ValueError for one that there is not."""
        if status not in self._keys:
            raise ValueError(f"there is no status {status!r}; there are {', '.join(self._keys) or 'none'}")
        options = self._profiler.registry[PREFIX + status].function.options
        own = {name: value for name, value in kwargs.items() if name in options}
        value = self._profiler.compute(PREFIX + status, recompute, **own)
        if isinstance(value, Missing):
            warnings.warn(f"{status}: {value.reason}", stacklevel=outside())
        return _given(value)

    def compute_network_status(
        self, print_mode: str | None = None, recompute: bool = False, short_print: bool = True, **kwargs: Any
    ) -> dict[str, Any]:
        """Compute all status keys. Returns their values by name."""
        if recompute:
            self.reset_status()
        for status in self._keys:
            self.compute_status(status, **kwargs)
        if print_mode:
            self.display_status(print_mode=print_mode, short_print=short_print)
        return dict(self.status_items())

    def compare(
        self,
        other: Profiler,
        print_mode: str = "info",
        recompute: bool = False,
        short_print: bool = True,
        **kwargs: Any,
    ) -> None:
        """Compute both profilers and display them side by side. Raises ValueError for other status keys."""
        if not isinstance(other, Profiler):
            raise ValueError(f"a profiler is compared with a profiler, not with a {type(other).__name__}")
        if {*self._keys} != {*other._keys}:
            raise ValueError("the profilers have different status keys; tensortide.Profiler compares those, too")
        for one in (self, other):
            one.compute_network_status(None, recompute, **kwargs)
        self.display_status(other, print_mode, short_print)

    def display_status(
        self, other: Profiler | None = None, print_mode: str = "debug", short_print: bool = True
    ) -> None:
        """Log the status of one profiler or two at the level ``print_mode``; long forms add what each key is."""
        self.display.display_status(self, other, print_mode, short_print)

    def clone(self, model: Any = None, data_splits: Any = None, retain_status: bool = False, *, name: str = "") -> Self:
        """Make a profiler with the same functions, for another model or other data; the name is kept unless one is
        given."""
        parts = {"model": None if model is None else self._called(model), "data_splits": data_splits}
        given = {name: part for name, part in parts.items() if part is not None}
        other = copy.copy(self)
        other._profiler = self._profiler.clone(**given, retain_status=retain_status, name=name)
        other._keys, other._registered = dict(self._keys), [*self._registered]
        return other

    # -- the status ---------------------------------------------------------------------------------

    def _known(self, status: str) -> Any:
        name = PREFIX + status
        return _given(self._profiler.get(name)) if name in self._profiler else None

    def status_get(self, sk: str) -> Any:
        """The value of a status key; None if it is not computed. Raises KeyError for one that there is not."""
        self._keys[sk]
        return self._known(sk)

    def status_contains(self, sk: str) -> bool:
        """True if there is such a status key."""
        return sk in self._keys

    def status_keys(self) -> Iterator[str]:
        """The names of the status keys."""
        return iter([*self._keys])

    def status_values(self, to_value: bool = True) -> Iterator[Any]:
        """The values, or copies of the status keys with their values."""
        return iter([*self.status_to_dict(to_value).values()])

    def status_items(self, to_value: bool = True) -> Iterator[tuple[str, Any]]:
        """Names with values, or with copies of the status keys."""
        return iter([*self.status_to_dict(to_value).items()])

    def status_to_dict(self, to_value: bool = True) -> dict[str, Any]:
        """The status as a dict."""
        found = {name: self._known(name) for name in self._keys}
        return found if to_value else {name: self._keys[name].with_value(value) for name, value in found.items()}

    def load_from_dict(self, status_dict: Mapping[str, Any], to_value: bool = True) -> None:
        """Reset the status, then set the values of known keys; others are ignored."""
        values = {name: value if to_value else value.value for name, value in status_dict.items()}
        named = {PREFIX + name: value for name, value in values.items() if name in self._keys and value is not None}
        self._profiler.load_from_dict(named)

    def reset_status(self) -> None:
        """Forget all values."""
        self._profiler.reset()


class TorchProfiler(Profiler):
    """Profiler of a model of PyTorch."""

    backend, _loader, _forward = "TorchBackend", TorchDataLoader, TorchForwardPass


class TFProfiler(Profiler):
    """Profiler of a model of Keras 3, on TensorFlow, JAX or PyTorch."""

    backend, _loader, _forward = "TFBackend", TFDataLoader, TFForwardPass


class TFLiteProfiler(Profiler):
    """Profiler of a model of TensorFlow Lite, given as the bytes of its file. Evaluations need TensorFlow."""

    backend, _loader, _forward = "TFLiteBackend", TFDataLoader, TFForwardPass

    def _called(self, model: Any) -> Any:
        return LiteModel(model) if isinstance(model, bytes) else model


def _given(value: Any) -> Any:
    return None if isinstance(value, Missing) else value


def _declared(function: Any, keys: tuple[StatusKey, ...]) -> MetricFunction:
    """A metric function that calls that of a model and its data splits; its values are those of the ``keys``."""

    def compute(subject: Any, **options: Any) -> dict[str, Any]:
        result = function(subject.model, subject.splits, **options)
        values = result if isinstance(result, dict) else {keys[0].NAME: result}
        return {PREFIX + name: value for name, value in values.items()}

    compute.__name__ = type(function).__name__
    call = getattr(function, "signature", None) or inspect.signature(function)
    options = {one.name: one.default for one in [*call.parameters.values()][2:]}
    required = [name for name, default in options.items() if default is inspect.Parameter.empty]
    if required:
        raise BadFunction(f"{compute.__name__} needs {', '.join(required)}: options have defaults")
    return MetricFunction(compute, tuple(_metric(key) for key in keys), options)


def _metric(key: StatusKey) -> Declared:
    """The metric that a status key is kept as."""
    title, row = (key.friendly_name(), True) if isinstance(key, Metric) else (key.NAME, False)
    about = key.description() if isinstance(key, Metric) else "layer table"
    name = PREFIX + key.NAME
    return Declared(name, title, "number" if row else "text", about, "", Comparative.NONE, row=row)
