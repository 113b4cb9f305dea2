"""The Profiler: a subject, a registry, and the status of what was computed."""

from __future__ import annotations

import copy
import enum
import hashlib
import os
import pickle
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from tensortide.errors import MetricError, TensortideError, Unavailable
from tensortide.measures.metric import Metric, Missing, Value
from tensortide.measures.registry import BadFunction, MetricFunction, Registry, default_registry, values_of
from tensortide.measures.status import Entry, Status, load_status, now, versions
from tensortide.measures.subject import subject_of
from tensortide.shown import Shown

if TYPE_CHECKING:
    from tensortide.measures.comparison import Comparison
    from tensortide.measures.forward_pass import ForwardPass
    from tensortide.measures.layers import By, Layers


F = TypeVar("F")


class Given(enum.Enum):
    """In place of an argument that was not given: None and empty containers are values."""

    NOT = enum.auto()


NOT_GIVEN = Given.NOT


class Profiler(Shown):
    """Computes metrics of a subject, and keeps them by the options that they were computed with.

    >>> profiler = tensortide.Profiler(model, {"train": loader})  # doctest: +SKIP
    >>> profiler.compute("flops", batch_size=4), profiler["flops"]  # doctest: +SKIP
    >>> profiler.compare(tensortide.Profiler(other, {"train": loader}))  # doctest: +SKIP

    Args:
        target: what metrics are computed of: a model, a Graph, a target as ``tensortide.open`` takes it, a Subject.
        data_splits: of a model: loaders by split, or in place of a loader the arguments of one call.
        forward_pass: of a model: how batches become arguments (default: the first element of a batch).
        device: of a model, to capture for and to time on.
        name: for people (default: the subject's own).
        registry: of the metrics (default: the default set); it is copied.
    """

    SECTION = "metrics"

    def __init__(
        self,
        target: Any,
        data_splits: Mapping[str, Any] | None = None,
        forward_pass: ForwardPass | Mapping[str, ForwardPass] | None = None,
        *,
        device: str | None = None,
        name: str = "",
        registry: Registry | None = None,
    ) -> None:
        given = {"data_splits": data_splits, "forward_pass": forward_pass, "device": device}
        self.subject = subject_of(target, name=name, **{key: one for key, one in given.items() if one is not None})
        self.name = name or self.subject.name
        self.registry = default_registry() if registry is None else registry.copy()
        self._kept: dict[tuple[str, str], Entry] = {}
        """Every computed entry by its metric and the text of its options."""
        self._latest: dict[str, Entry] = {}

    # -- computing ----------------------------------------------------------------------------------

    def register(self, function: F, override: bool = False) -> F:
        """Register a function as ``Registry.register`` does; what its names had before is forgotten."""
        before = {name: self.registry[name].function for name in self.registry}
        self.registry.register(function, override)
        for name in [name for name in before if self.registry[name].function is not before[name]]:
            self._forget(name)
        return function

    def compute(self, key: str, recompute: bool = False, **options: Any) -> Value:
        """Return the value of the metric ``key`` at these options, computed unless it is known.

        Raises UnknownMetric for a metric or an option that there is not, MetricError for a function that fails.
        """
        function = self.registry[key].function
        self.registry.check_options(options, [function])
        given = {**function.options, **options}
        kept = self._kept.get((key, _text(given)))
        if kept is None or recompute:
            try:
                self._store(function, key, given)
            except BadFunction:
                raise
            except TensortideError as error:
                raise MetricError(f"{key}: {function.name} failed: {error}") from error
            except Exception as error:
                raise MetricError(f"{key}: {function.name} raised {type(error).__name__}: {error}") from error
        self._latest[key] = self._kept[key, _text(given)]
        return self._latest[key].value

    def compute_all(self, *, recompute: bool = False, **options: Any) -> dict[str, Value]:
        """Compute every metric; each function gets the options that it has.

        A function that fails is named by a warning, its metrics are Missing with the reason, and the others go on.
        Raises UnknownMetric for an option that no function has.
        """
        functions = self.registry.functions()
        self.registry.check_options(options, functions)
        if recompute:
            self.reset()
        for function in functions:
            own = {name: value for name, value in options.items() if name in function.options}
            names = [name for name in self.registry if self.registry[name].function is function]
            for name in names:
                try:
                    self.compute(name, **own)
                except MetricError as error:
                    warnings.warn(str(error), stacklevel=2)
                    self._fail(names, {**function.options, **own}, str(error))
                    break
        return self.to_dict()

    def _store(self, function: MetricFunction, key: str, options: Mapping[str, Any]) -> None:
        """Call a function and keep the values of all metrics that are bound to it."""
        names = self.registry.siblings(key)
        try:
            values = values_of(function, names, function(self.subject, **options))
        except Unavailable as error:
            values = dict.fromkeys(names, Missing(str(error)))
        for name, value in values.items():
            self._keep(name, value, options)

    def _fail(self, names: list[str], options: Mapping[str, Any], reason: str) -> None:
        for name in names:
            self._keep(name, Missing(reason), options)

    def _keep(self, name: str, value: Value, options: Mapping[str, Any]) -> None:
        entry = Entry(self._metric(name), value, dict(options))
        self._kept[name, _text(options)] = self._latest[name] = entry

    def _metric(self, name: str) -> Metric:
        """The metric of a name; ``eval_metric[val]`` is ``eval_metric``, of a split of its own."""
        base, bracket, split = name.partition("[")
        if name in self.registry or not bracket or base not in self.registry:
            return self.registry[name].metric
        metric = self.registry[base].metric
        return msgspec.structs.replace(metric, name=name, title=f"{metric.title} [{split}")

    # -- the status ---------------------------------------------------------------------------------

    def get(self, name: str, default: Value | None = None) -> Value | None:
        """Return the value that was computed last, a copy; ``default`` if none was. Raises UnknownMetric."""
        if name not in self._latest:
            self.registry[name]
            return default
        return copy.deepcopy(self._latest[name].value)

    def __getitem__(self, name: str) -> Value | None:
        return self.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self.registry

    def __iter__(self) -> Iterator[str]:
        return iter(self.registry)

    def __len__(self) -> int:
        return len(self.registry)

    def keys(self) -> list[str]:
        """The names of all metrics, computed or not."""
        return list(self.registry)

    def values(self) -> list[Value | None]:
        """The values in the order of ``keys``; None where none was computed."""
        return [self.get(name) for name in self.registry]

    def items(self) -> list[tuple[str, Value | None]]:
        """The names and values of all metrics."""
        return [(name, self.get(name)) for name in self.registry]

    def to_dict(self) -> dict[str, Value]:
        """The computed values by name."""
        return {name: copy.deepcopy(entry.value) for name, entry in self._ordered().items()}

    def metrics(self) -> dict[str, Metric]:
        """The metrics by name, computed or not."""
        return {name: self.registry[name].metric for name in self.registry}

    def load_from_dict(self, values: Mapping[str, Value], *, ignore_unknown: bool = False) -> None:
        """Reset, then set the ``values`` of known metrics.

        Raises UnknownMetric for others, unless ``ignore_unknown``; nothing is changed then.
        """
        unknown = [name for name in values if name not in self.registry]
        if unknown and not ignore_unknown:
            self.registry[unknown[0]]
        self.reset()
        for name in (name for name in self.registry if name in values):
            self._keep(name, copy.deepcopy(values[name]), self.registry[name].function.options)

    def reset(self) -> None:
        """Forget every value."""
        self._kept.clear()
        self._latest.clear()

    def _forget(self, name: str) -> None:
        self._latest.pop(name, None)
        for key in [key for key in self._kept if key[0] == name]:
            del self._kept[key]

    def _ordered(self) -> dict[str, Entry]:
        names = dict.fromkeys([*self.registry, *self._latest])
        return {name: self._latest[name] for name in names if name in self._latest}

    @property
    def status(self) -> Status:
        """Return what was computed last of each metric, as data: with units, options, versions and the date."""
        rows = {name: entry for name, entry in self._ordered().items() if entry.metric.row}
        of = self.subject.of
        return Status(name=self.name, kind=self.subject.kind, of=of, entries=rows, versions=versions(), date=now())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the status as JSON, all or nothing."""
        return self.status.save(path)

    def load(self, path: str | os.PathLike[str], *, ignore_unknown: bool = False) -> None:
        """Take the values of a saved status. Raises MetricError for a file that is none, or of another kind."""
        found = load_status(path)
        if found.kind != self.subject.kind:
            raise MetricError(f"{path} is of a {found.kind}, {self.name} is a {self.subject.kind}")
        known = [name for name in found.entries if name in self.registry or name.partition("[")[0] in self.registry]
        if len(known) < len(found.entries) and not ignore_unknown:
            self.registry[next(name for name in found.entries if name not in known)]
        self.reset()
        for name in known:
            self._keep(name, found[name].value, found[name].options)

    def layers(self, by: By = "op", batch_size: int | None = None) -> Layers:
        """Make the layer table: a row per op, or per module without those inside it; see ``metrics.layers``."""
        from tensortide.measures.layers import layers

        return layers(self.subject, by, batch_size)

    # -- others -------------------------------------------------------------------------------------

    def clone(
        self,
        model: Any = NOT_GIVEN,
        data_splits: Any = NOT_GIVEN,
        retain_status: bool = False,
        *,
        name: str = "",
    ) -> Self:
        """Make a profiler of the same class with the same registry, for another model or other data where given.

        Values are kept if the model is the same, or with ``retain_status``. The name is kept unless one is given.
        Raises Unavailable for a model or data where the subject is a recorded step.
        """
        other = copy.copy(self)
        other.registry = self.registry.copy()
        other.name = name or self.name
        if model is not NOT_GIVEN or data_splits is not NOT_GIVEN:
            other.subject = self.subject.replaced(
                **({} if model is NOT_GIVEN else {"model": model}),
                **({} if data_splits is NOT_GIVEN else {"data_splits": data_splits}),
            )
        same = model is NOT_GIVEN or model is self.subject.model
        keep = same or retain_status
        other._kept = copy.deepcopy(self._kept) if keep else {}
        other._latest = copy.deepcopy(self._latest) if keep else {}
        return other

    def compare(self, *others: Profiler | Status, reference: int = 0) -> Comparison:
        """Compare what was computed with ``others``; ``reference`` is the place, this one's is 0, of the reference."""
        from tensortide.measures.comparison import compare_statuses

        given: tuple[object, ...] = others
        for one in given:
            if not isinstance(one, Profiler | Status):
                raise MetricError(f"a profiler is compared with profilers and saved statuses, not {type(one).__name__}")
        several = [self.status, *(one if isinstance(one, Status) else one.status for one in others)]
        return compare_statuses(several, reference=reference)


def _text(options: Mapping[str, Any]) -> str:
    """The text of options, by which values are kept; of one that is no plain value, the digest of its contents."""
    return repr([(name, _plain(options[name])) for name in sorted(options)])


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, tuple | list):
        return tuple(map(_plain, value))
    try:
        return hashlib.sha256(pickle.dumps(value)).hexdigest()
    except (pickle.PicklingError, TypeError, AttributeError):
        return id(value)
