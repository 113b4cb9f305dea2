"""The registry of metrics: which function computes each name, ours and yours through one door.

>>> @metric(Metric("widest", "Widest tensor", "amount", "elements of the largest tensor"))
... def widest(subject):
...     return max(tensor.numel for tensor in subject.captured().graph.tensors)
>>> default_registry().register(widest)  # doctest: +SKIP

Packages add to the default set through entry points of the group ``tensortide.measures``, each the name of a decorated
function, as our own modules in ``measures/defaults`` do.
"""

from __future__ import annotations

import copy
import importlib
import importlib.metadata
import inspect
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from tensortide.errors import MetricError
from tensortide.measures.metric import Metric, Missing, Unit, Value
from tensortide.python_object import near

GROUP = "tensortide.measures"
ALIASES = {
    "peak": "step_peak",
    "memory": "step_peak",
    "peak_memory": "step_peak",
    "parameters": "total_params",
    "params": "total_params",
    "time": "step_time",
    "step": "step_time",
    "saved": "saved_activations",
    "accessed_bytes": "bytes",
    "parameter_bytes": "model_size",
    "step_ns": "step_time",
}
"""Other names of metrics. As in data, any may end in its unit: ``peak_bytes``."""
F = TypeVar("F")

Result: TypeAlias = Value | Mapping[str, Any] | None
"""What a metric function returns: the value of its metric, or values by name."""


class UnknownMetric(MetricError, ValueError):
    """There is no metric of that name, or no option."""


class BadFunction(MetricError, TypeError):
    """A metric function is not as it must be, or returns what it did not declare."""


class Conflict(MetricError, RuntimeError):
    """Two functions claim one name, and neither gives way."""


@dataclass(frozen=True, eq=False)
class MetricFunction:
    """A function of a Subject and the metrics that it computes. Its further parameters are options."""

    function: Callable[..., Any]
    metrics: tuple[Metric, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(*args, **options)


def metric(*metrics: Metric) -> Callable[[Callable[..., Any]], MetricFunction]:
    """Declare the ``metrics`` that the decorated function of a Subject computes.

    With one metric the function returns its value; with several, a dict of values by name. Parameters after the first
    are options, which need defaults.

    Raises BadFunction for variadic parameters, for options without a default, and for two metrics of one name.
    """

    def declare(function: Callable[..., Any]) -> MetricFunction:
        return MetricFunction(function, metrics, _options(function, metrics))

    return declare


def _options(function: Callable[..., Any], metrics: tuple[Metric, ...]) -> dict[str, Any]:
    """The options of a function and their defaults."""
    name = getattr(function, "__name__", repr(function))
    names = [one.name for one in metrics]
    if not names or len(set(names)) < len(names):
        raise BadFunction(f"{name} must declare at least one metric, and none of them twice: {', '.join(names)}")
    parameters = [*inspect.signature(function).parameters.values()]
    variadic = [p.name for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if variadic:
        raise BadFunction(f"{name} has variadic parameters ({', '.join(variadic)}): name the options that it takes")
    if not parameters:
        raise BadFunction(f"{name} takes no argument: a metric function takes the subject, then options")
    required = [p.name for p in parameters[1:] if p.default is p.empty]
    if required:
        raise BadFunction(f"{name} needs {', '.join(required)}: options of metric functions have defaults")
    return {p.name: p.default for p in parameters[1:]}


def _declared(function: Any) -> MetricFunction:
    """The function with its metrics. Raises BadFunction if it declares none."""
    if isinstance(function, MetricFunction):
        return function
    metrics = getattr(function, "metrics", ())
    if not metrics or not callable(function):
        name = getattr(function, "__name__", repr(function))
        raise BadFunction(f"{name} declares no metrics: decorate it with @metric(Metric(...))")
    return metric(*metrics)(function)


@dataclass(frozen=True)
class Binding:
    """A name of the registry: its function, its metric, and whether later registrations give way to it."""

    function: MetricFunction
    metric: Metric
    override: bool


class Registry:
    """Metrics by name, each bound to the function that computes it."""

    def __init__(self, functions: Iterable[MetricFunction] = ()) -> None:
        self._bindings: dict[str, Binding] = {}
        for function in functions:
            self.register(function)

    def __contains__(self, name: object) -> bool:
        return name in self._bindings

    def __iter__(self) -> Iterator[str]:
        return iter(self._bindings)

    def __len__(self) -> int:
        return len(self._bindings)

    def __getitem__(self, name: str) -> Binding:
        """Return what a name is bound to. Raises UnknownMetric."""
        if name not in self._bindings:
            raise UnknownMetric(f"there is no metric {name!r}{near(name, self._bindings)}")
        return self._bindings[name]

    @property
    def units(self) -> dict[str, Unit]:
        """The unit of each metric."""
        return {name: binding.metric.unit for name, binding in self._bindings.items()}

    def copy(self) -> Registry:
        """Return a registry of its own with the same bindings."""
        other = Registry()
        other._bindings = copy.copy(self._bindings)
        return other

    def register(self, function: F, override: bool = False) -> F:
        """Bind every metric that ``function`` declares, and return the function. What has ``metrics`` and is callable
        declares them, too.

        A name that is bound already goes to the new function, with a warning unless ``override``. A name bound with
        ``override`` keeps its function; two overrides of one name are an error, and so are two units of one metric.
        Nothing is bound by a call that raises.

        Raises BadFunction for what was not declared with ``@metric``, Conflict.
        """
        declared = _declared(function)
        found: dict[str, Binding] = {}
        for one in declared.metrics:
            old = self._bindings.get(one.name)
            if old is not None and old.metric.unit != one.unit:
                raise Conflict(
                    f"{one.name} of {declared.name} is in {one.unit}; that of {old.function.name} is in "
                    f"{old.metric.unit}: give it another name"
                )
            if old is not None and old.override and override:
                raise Conflict(f"{old.function.name} and {declared.name} both override {one.name}: register one")
            if old is None or not old.override:
                found[one.name] = Binding(declared, one, override)
            if old is not None and not old.override and not override and old.function is not declared:
                text = f"{one.name}: {declared.name} replaces {old.function.name}; name it otherwise to have both"
                warnings.warn(text, stacklevel=outside())
        self._bindings |= found
        return function

    def functions(self) -> tuple[MetricFunction, ...]:
        """Every function that a name is bound to, in the order of their first names."""
        return tuple(dict.fromkeys(binding.function for binding in self._bindings.values()))

    def siblings(self, name: str) -> tuple[str, ...]:
        """The names bound to the function of ``name``, itself among them."""
        function = self[name].function
        return tuple(each for each, binding in self._bindings.items() if binding.function is function)

    def check_options(self, options: Mapping[str, Any], functions: Iterable[MetricFunction]) -> None:
        """Raise UnknownMetric for an option that none of ``functions`` takes."""
        known = sorted({option for function in functions for option in function.options})
        for option in options:
            if option not in known:
                raise UnknownMetric(f"no metric takes the option {option!r}{near(option, known)}")


def values_of(function: MetricFunction, names: Iterable[str], result: Result) -> dict[str, Value]:
    """Sort the ``result`` of a function by the ``names`` that are bound to it. None is Missing without a reason.
    ``name[part]`` goes with the metric ``name``.

    Raises BadFunction if a declared metric is not in it.
    """
    names = tuple(names)
    if not isinstance(result, Mapping):
        if len(function.metrics) != 1:
            declared = ", ".join(one.name for one in function.metrics)
            raise BadFunction(f"{function.name} declares {declared} and returned one value: return a dict")
        result = {function.metrics[0].name: result}
    absent = [name for name in names if name not in result]
    if absent:
        raise BadFunction(f"{function.name} declares {', '.join(absent)} and did not return it")
    parts = [name for name in result if name not in names and name.partition("[")[0] in names]
    return {name: _value(function, name, result[name]) for name in (*names, *parts)}


def _value(function: MetricFunction, name: str, value: Any) -> Value:
    if value is None:
        return Missing("not available")
    if hasattr(value, "item") and not isinstance(value, Value):
        value = value.item()  # a scalar of NumPy or of a framework
    is_row = all(one.row for one in function.metrics if one.name == name)
    if is_row and (not isinstance(value, Value) or isinstance(value, bool)):
        raise BadFunction(f"{name} of {function.name} is a {type(value).__name__}: return a number or a text")
    return value  # type: ignore[no-any-return]


def meant(name: str, units: Mapping[str, Unit]) -> str:
    """Return the metric of ``units`` that a name is another one of, or else the name."""
    for each in (name, *(name.removesuffix(f"_{unit}") for unit in dict.fromkeys(units.values()))):
        found = ALIASES.get(each, each)
        if found in units and each in (name, name.removesuffix(f"_{units[found]}")):
            return found
    return name


def default_registry() -> Registry:
    """Make a registry of the default set: ours, then those of installed packages.

    Raises MetricError for an entry point that cannot be loaded.
    """
    package = importlib.import_module("tensortide.measures.defaults")
    modules = [
        importlib.import_module(f"{package.__name__}.{found.name}") for found in pkgutil.iter_modules(package.__path__)
    ]
    ours = [one for module in modules for one in vars(module).values() if isinstance(one, MetricFunction)]
    registry = Registry(ours)
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda one: one.name):
        try:
            registry.register(entry.load())
        except Exception as error:
            raise MetricError(f"the metric {entry.name!r} ({entry.value}) cannot be loaded: {error!r}") from error
    return registry


def outside() -> int:
    """The ``stacklevel`` at which a warning of the caller names the line that called tensortide."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
        f"{__package__.partition('.')[0]}."
    ):
        frame, level = frame.f_back, level + 1
    return level
