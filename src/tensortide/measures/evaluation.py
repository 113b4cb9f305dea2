"""Evaluation as metrics: any function of a model and a loader, on one split or several, and secondary results.

>>> evaluation = Evaluation(top_k, key="top-1").add_secondary("top-5")
>>> [metric.name for metric in evaluation.metrics]
['eval_metric', 'inference_time', 'top-5']
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, get_args

import msgspec

from tensortide.errors import MetricError, Unavailable
from tensortide.measures.backend import backend_of
from tensortide.measures.data import Data
from tensortide.measures.metric import Comparative, Direction, Metric, Missing, Unit, Value
from tensortide.measures.scores import NO_SCORE, SCORES

MAIN, TIME = "eval_metric", "inference_time"
Split: TypeAlias = str | tuple[str, ...]


@dataclass(frozen=True)
class Secondary:
    """A further result of an evaluation function that returns a dict."""

    key: str
    unit: str
    description: str
    comparative: Comparative
    direction: Direction


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A metric function: the result of an evaluation function, and the wall time of the whole evaluation.

    Attributes:
        function: of the model, a loader (as Data) and options by name; returns a number, or a dict of numbers. It
            finds the model in evaluation mode and without gradients; modes, device and random state are restored.
        key: the main result in a dict of several.
        split: the split that is evaluated by default; several give a metric each, ``eval_metric[split]``.
        unit: of the result. It is known of our own functions, as is ``direction``.
        comparative: how two results are compared.
        direction: the better direction of the result; ``""`` for neither.
        options: of the function, instead of its own defaults. They name those of a function that takes any.
        secondary: further results; ``add_secondary`` adds one.

    Raises MetricError for an option that the function does not take, and for one that is called ``split``.
    """

    function: Callable[..., Any] | None = None
    key: str = ""
    split: Split = "test"
    unit: str = ""
    comparative: Comparative = Comparative.DIFF
    direction: Direction | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    secondary: tuple[Secondary, ...] = ()

    def __post_init__(self) -> None:
        bare = getattr(self.function, "func", self.function)  # of a partial
        known = next((score for function, score in SCORES.items() if function is bare), NO_SCORE)
        settled = {
            "split": self.split if isinstance(self.split, str) else tuple(self.split),
            "unit": self.unit or known.unit,
            "comparative": Comparative.of(self.comparative),
            "direction": known.direction if self.direction is None else self.direction,
            "__signature__": self._signature(),
        }
        for name, value in settled.items():
            object.__setattr__(self, name, value)

    @property
    def __name__(self) -> str:
        """The name of the function."""
        bare = getattr(self.function, "func", self.function)
        return str(getattr(bare, "__name__", type(self if bare is None else bare).__name__))

    def add_secondary(
        self,
        key: str,
        unit: str | None = None,
        description: str = "",
        comparative: Comparative | str | None = None,
        direction: Direction | None = None,
    ) -> Evaluation:
        """Return the evaluation with the result ``key`` as a metric too. Unit, comparative and direction are by default
        those of the main one.

        Raises ValueError if there is no evaluation function yet, or a metric of that name.
        """
        if self.function is None:
            raise ValueError(f"there is no evaluation function yet that could have a result {key!r}")
        if key in (MAIN, TIME, *(one.key for one in self.secondary)):
            raise ValueError(f"the evaluation has a metric {key!r} already")
        one = Secondary(
            key,
            self.unit if unit is None else unit,
            description or f"result {key} of {self.__name__}",
            self.comparative if comparative is None else Comparative.of(comparative),
            (self.direction or "") if direction is None else direction,
        )
        return replace(self, secondary=(*self.secondary, one))

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that are computed by default."""
        return self.metrics_of(self.split)

    def metrics_of(self, split: Split) -> tuple[Metric, ...]:
        """The metrics that an evaluation of ``split`` computes; of several splits each has its own."""
        what = "result of an evaluation function" if self.function is None else f"result of {self.__name__}"
        found = [_metric("Evaluation metric", Secondary(MAIN, self.unit, what, self.comparative, self.direction or ""))]
        found += [Metric(TIME, "Inference time", "ns", "wall time of the whole evaluation")]
        found += [_metric(f"Eval: {one.key}", one) for one in self.secondary]
        return tuple(
            msgspec.structs.replace(one, name=one.name + suffix, title=one.title + suffix.replace("[", " ["))
            for suffix in self._suffixes(split).values()
            for one in found
        )

    def __call__(self, subject: Any, *, split: Split | None = None, **options: Any) -> dict[str, Value]:
        """Evaluate the model of a subject on a split, or on several. Returns values by the names of ``metrics_of``;
        other metrics that are declared are Missing.

        Raises Unavailable without an evaluation function, MetricError for results that are not as declared.
        """
        if self.function is None:
            raise Unavailable("there is no evaluation function: register Evaluation(function)")
        suffixes = self._suffixes(self.split if split is None else split)
        reason = f"evaluated on {', '.join(suffixes)} alone; see {', '.join(MAIN + each for each in suffixes.values())}"
        values: dict[str, Value] = {one.name: Missing(reason) for one in self.metrics}
        for name, suffix in suffixes.items():
            result, ns = self._evaluate(subject.model, Data.of(subject.loader(name)), options)
            found = {MAIN: normalized(result, self.key), TIME: ns}
            found |= {one.key: _number(_item(result, one.key)) for one in self.secondary}
            values |= {key + suffix: value for key, value in found.items()}
        return values

    def _evaluate(self, model: Any, data: Data, options: Mapping[str, Any]) -> tuple[Any, int]:
        """Run the function. Returns its result and the wall time in ns."""
        function, given = self.function, {**self.options, **options}
        assert function is not None
        backend = backend_of(model)
        with backend.evaluating(model):
            return backend.clocked(model, lambda: function(model, data, **given))

    def _suffixes(self, split: Split) -> dict[str, str]:
        """Return what the names of metrics end with, by split: nothing where one split stands for all."""
        if isinstance(split, str):
            return {split: "" if isinstance(self.split, str) else f"[{split}]"}
        if not split:
            raise MetricError("an evaluation is of one split at least")
        return {each: f"[{each}]" for each in split}

    def _signature(self) -> inspect.Signature:
        """The signature of ``__call__`` with the options of the function, by name."""
        kind = inspect.Parameter.KEYWORD_ONLY
        found = {"split": inspect.Parameter("split", kind, default=self.split)}
        for parameter in _parameters(self.function):
            if parameter.name in found:
                raise MetricError(f"{self.__name__} has an option called split, which chooses the data: rename it")
            if parameter.kind is parameter.VAR_KEYWORD:
                found |= {name: inspect.Parameter(name, kind) for name in self.options if name not in found}
            elif parameter.kind is not parameter.VAR_POSITIONAL:
                found[parameter.name] = parameter.replace(kind=kind)
        for name, value in self.options.items():
            if name not in found or name == "split":
                raise MetricError(f"{self.__name__} takes no option {name!r}; it takes {', '.join(found)}")
            found[name] = found[name].replace(default=value)
        subject = inspect.Parameter("subject", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return inspect.Signature([subject, *found.values()])


def normalized(result: Any, key: str = "") -> int | float:
    """The number that an evaluation function returned: by itself, alone in a dict, or under ``key`` in a larger one.

    Raises MetricError for anything else, with the keys that there are.
    """
    alone = isinstance(result, Mapping) and len(result) == 1
    return _number(
        next(iter(result.values())) if alone else _item(result, key) if isinstance(result, Mapping) else result
    )


def _item(result: Any, key: str) -> Any:
    if not isinstance(result, Mapping):
        raise MetricError(f"the evaluation function returned a {type(result).__name__}, which has no result {key!r}")
    if key not in result:
        known = ", ".join(map(repr, result)) or "none"
        wanted = f"no result {key!r}" if key else "several results: say which is the main one (key=...)"
        raise MetricError(f"the evaluation function returned {wanted}; there are {known}")
    return result[key]


def _number(value: Any) -> int | float:
    if not isinstance(value, int | float) and callable(getattr(value, "item", None)):
        with contextlib.suppress(ValueError, RuntimeError):  # of an array with several numbers
            value = value.item()
    if not isinstance(value, int | float):
        raise MetricError(f"an evaluation function returns a number or a dict of numbers, not a {type(value).__name__}")
    return value


def _metric(title: str, one: Secondary) -> Metric:
    """Declare a metric in a unit of the user's: in the base unit of that name, or as a number with the unit in the
    title."""
    base: Any = one.unit if one.unit in get_args(Unit) else "number"
    shown = f"{title} ({one.unit})" if one.unit and base == "number" else title
    return Metric(one.key, shown, base, one.description, one.direction, one.comparative)


def _parameters(function: Callable[..., Any] | None) -> list[inspect.Parameter]:
    """The parameters of an evaluation function after the model and the loader."""
    if function is None:
        return []
    try:
        return [*inspect.signature(function).parameters.values()][2:]
    except ValueError:  # it is no Python function
        return []
