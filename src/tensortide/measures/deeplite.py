"""The Python surface of deeplite-profiler 1.2.5: a script written for it runs with its imports from here.

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
import logging
import time
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Self

from tensortide.measures.backend import Arguments
from tensortide.measures.compat.functions import (
    ComputeComplexity,
    ComputeEvalMetric,
    ComputeExecutionTime,
    ComputeFlops,
    ComputeLayerwiseSummary,
    ComputeParams,
    ComputeSize,
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
    Flops,
    InferenceTime,
    LayerwiseSummary,
    MemoryFootprint,
    Metric,
    ModelSize,
    StatusKey,
    TotalParams,
    box,
)
from tensortide.measures.data import TRAIN, Data
from tensortide.measures.forward_pass import ForwardPass
from tensortide.measures.metric import Comparative, Missing
from tensortide.measures.metric import Metric as Declared
from tensortide.measures.model_subject import ModelSubject
from tensortide.measures.profiler import Profiler
from tensortide.measures.registry import BadFunction, MetricFunction, Registry

__all__ = [
    "Comparative",
    "ComputeComplexity",
    "ComputeEvalMetric",
    "ComputeExecutionTime",
    "ComputeFlops",
    "ComputeLayerwiseSummary",
    "ComputeParams",
    "ComputeSize",
    "Device",
    "DynamicEvalMetric",
    "EvalMetric",
    "EvaluationFunction",
    "ExecutionTime",
    "Flops",
    "InferenceTime",
    "LayerwiseSummary",
    "MemoryFootprint",
    "Metric",
    "ModelSize",
    "ProfilerFunction",
    "StatusKey",
    "TorchDataLoader",
    "TorchForwardPass",
    "TorchProfiler",
    "TotalParams",
    "getLogger",
    "get_accuracy",
    "get_missclass",
    "get_topk",
]

PREFIX = "deeplite."
"""Begins the names of these values where metrics are kept by name."""
_LOGGER = logging.getLogger(__name__)


def getLogger(name: str = "") -> logging.Logger:  # noqa: N802
    """Return the logger that displays go to."""
    return _LOGGER.getChild(name) if name else _LOGGER


class TorchForwardPass(ForwardPass):
    """Conversion of a batch to arguments, by the method names of that tool: override ``extract_model_inputs``,
    ``create_random_model_inputs``, ``model_call`` or ``get_model_input_shapes``.

    Raises TypeError without a pattern and an own extraction, and without own random inputs where those are not common.
    """

    def __init__(self, model_input_pattern: Any = None, expecting_common_inputs: bool = True) -> None:
        if model_input_pattern is None and not self._own("extract_model_inputs"):
            raise TypeError("a TorchForwardPass needs a model_input_pattern, or its own extract_model_inputs(batch)")
        if not expecting_common_inputs and not self._own("create_random_model_inputs"):
            raise TypeError("inputs that are not common need an own create_random_model_inputs(batch_size)")
        super().__init__(model_input_pattern, common=expecting_common_inputs)
        self.expecting_common_inputs = expecting_common_inputs

    def _own(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(TorchForwardPass, name)

    def extract_model_inputs(self, batch: Any) -> Any:
        """Extract the inputs from a batch."""
        return super().inputs(batch)

    def create_random_model_inputs(self, batch_size: int) -> Any:
        """Make random inputs."""
        return _plain(super().random_inputs(batch_size))

    def model_call(self, model: Any, x: Any, device: Device) -> Any:
        """Call the model."""
        del device
        if not self.common:
            raise TypeError("inputs that are not common need an own model_call(model, x, device)")
        return model(**x) if isinstance(x, Mapping) else model(*x)

    def get_model_input_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of all inputs, without the batch axis."""
        return super().shapes()

    def random_perform(self, model: Any, batch_size: int, device: Device | str = Device.CPU) -> Any:
        """Call the model on random inputs."""
        return self.perform_random(model, batch_size, device=Device(device).framework)

    # what our own machinery calls

    def inputs(self, batch: Any) -> Any:
        """Extract the inputs from a batch."""
        return self.extract_model_inputs(batch)

    def random_inputs(self, batch_size: int) -> Any:
        """Make random inputs."""
        return self.create_random_model_inputs(batch_size)

    def call(self, model: Any, inputs: Any) -> Any:
        """Call the model."""
        return self.model_call(model, _plain(inputs), Device.CPU)


def _plain(inputs: Any) -> Any:
    """Arguments as that tool passes them: a tuple, or a dict of named ones."""
    return (inputs.named or inputs.positional) if isinstance(inputs, Arguments) else inputs


class TorchDataLoader(Data):
    """A loader with its forward pass."""

    def __init__(self, dl: Any, fp: ForwardPass | None = None) -> None:
        super().__init__(dl, fp)

    @property
    def native_dl(self) -> Any:
        """The loader."""
        return self.loader

    @property
    def forward_pass(self) -> ForwardPass:
        """Return how its batches become arguments."""
        return self.forward

    @property
    def dataset_size(self) -> int | None:
        """Samples in all batches; None if the loader does not tell."""
        return self.samples

    def sample_forward(self, model: Any, device: Device | str = Device.CPU) -> Any:
        """Call the model on the first batch."""
        return self.forward.perform(model, self.first(), device=Device(device).framework)

    def sample_random_forward(
        self, model: Any, batch_size: int | None = None, device: Device | str = Device.CPU
    ) -> Any:
        """Call the model on random inputs."""
        size = (self.batch_size or 1) if batch_size is None else batch_size
        return self.forward.perform_random(model, size, device=Device(device).framework)

    def timed_forward(self, model: Any, device: Device | str = Device.CPU) -> float:
        """Seconds of a call on the first batch."""
        begun = time.perf_counter()
        self.sample_forward(model, device)
        return time.perf_counter() - begun

    def timed_random_forward(self, model: Any, batch_size: int, device: Device | str = Device.CPU) -> float:
        """Seconds of a call on random inputs."""
        begun = time.perf_counter()
        self.sample_random_forward(model, batch_size, device)
        return time.perf_counter() - begun


class TorchProfiler:
    """A model with data splits and registered profiling functions.

    Args:
        model: of PyTorch.
        data_splits: as ``enable_forward_pass_data_splits`` makes them, or plain loaders by split.
        name: for people.
        display_status_filter_func: of the status keys by name, before they are displayed.
    """

    def __init__(
        self, model: Any, data_splits: Any, name: str = "<UnNamedModel>", display_status_filter_func: Any = None
    ) -> None:
        self._profiler = Profiler(ModelSubject(model, data_splits, name=name), name=name, registry=Registry())
        self._keys: dict[str, StatusKey] = {}
        self.display_status_filter_func = display_status_filter_func or dict
        self.backend = "TorchBackend"

    @classmethod
    def enable_forward_pass_data_splits(cls, data_splits: Mapping[str, Any], forward_pass: Any = None) -> Any:
        """Attach a forward pass to the split ``train``, or one by split, and wrap the loaders."""
        default = TorchForwardPass((0, "_")) if forward_pass is None else forward_pass
        passes = default if isinstance(default, dict) else {TRAIN: default}
        return {split: TorchDataLoader(loader, passes.get(split)) for split, loader in data_splits.items()}

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
        for key in keys:
            if self._profiler.registry[PREFIX + key.NAME].function is declared:
                self._keys[key.NAME] = key
        return profiler_func

    def compute_status(self, status: str, recompute: bool = False, **kwargs: Any) -> Any:
        """Compute a status key, unless it is known at these options. Raises ValueError for one that there is not."""
        if status not in self._keys:
            raise ValueError(f"there is no status {status!r}; there are {', '.join(self._keys) or 'none'}")
        options = self._profiler.registry[PREFIX + status].function.options
        own = {name: value for name, value in kwargs.items() if name in options}
        value = self._profiler.compute(PREFIX + status, recompute, **own)
        if isinstance(value, Missing):
            warnings.warn(f"{status}: {value.reason}", stacklevel=2)
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
        other: TorchProfiler,
        print_mode: str = "info",
        recompute: bool = False,
        short_print: bool = True,
        **kwargs: Any,
    ) -> None:
        """Compute both profilers and display them side by side. Raises ValueError for other status keys."""
        if not isinstance(other, TorchProfiler):
            raise ValueError(f"a profiler is compared with a profiler, not with a {type(other).__name__}")
        if {*self._keys} != {*other._keys}:
            raise ValueError("the profilers have different status keys; tensortide.Profiler compares those, too")
        for one in (self, other):
            one.compute_network_status(None, recompute, **kwargs)
        self.display_status(other, print_mode, short_print)

    def display_status(
        self, other: TorchProfiler | None = None, print_mode: str = "debug", short_print: bool = True
    ) -> None:
        """Log the status of one profiler or two at the level ``print_mode``; long forms add what each key is."""
        profilers = [self] if other is None else [self, other]
        columns = [one.display_status_filter_func(one.status_to_dict(to_value=False)) for one in profilers]
        title = "deeplite-profiler's figures, by tensortide"
        text = box(title, [one.name for one in profilers], columns, short=short_print)
        level = logging.getLevelNamesMapping().get(print_mode.upper())
        if level is not None:  # a level that there is not shows nothing, as there
            _LOGGER.log(level, "\n%s", text)
        for one in profilers if not short_print else ():
            _LOGGER.debug("\n%s", one._known(LayerwiseSummary.NAME))

    def clone(self, model: Any = None, data_splits: Any = None, retain_status: bool = False) -> Self:
        """Make a profiler with the same functions, for another model or other data; the name is kept."""
        parts = {"model": model, "data_splits": data_splits}
        given = {name: part for name, part in parts.items() if part is not None}
        other = copy.copy(self)
        other._profiler = self._profiler.clone(**given, retain_status=retain_status)
        other._keys = dict(self._keys)
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
