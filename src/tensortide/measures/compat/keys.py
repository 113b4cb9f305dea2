"""Status keys by the names of deeplite-profiler, and how it displays and compares them."""

from __future__ import annotations

import copy
import enum
from collections.abc import Mapping, Sequence
from typing import Any

from tensortide.errors import MetricError
from tensortide.measures.compat.figures import scaled_flops
from tensortide.measures.metric import Comparative


class Device(enum.Enum):
    """Place to run. ``Device("cpu")`` in any case; anything but these two is a ValueError."""

    CPU = "cpu"
    GPU = "gpu"

    @classmethod
    def _missing_(cls, value: object) -> Device | None:
        lower = str(value).lower()
        return next((one for one in cls if one.value == lower and lower != value), None)

    @property
    def framework(self) -> str:
        """The device by the framework's name."""
        return "cpu" if self is Device.CPU else "cuda"


class StatusKey:
    """A named entry of a profiler's status, with its value."""

    NAME = ""

    def __init__(self) -> None:
        self.value: Any = None

    def with_value(self, value: Any) -> StatusKey:
        """Return a copy with a value."""
        other = copy.copy(self)
        other.value = value
        return other


class LayerwiseSummary(StatusKey):
    """The layer table as text: no row of the display."""

    NAME = "layerwise_summary"


class Metric(StatusKey):
    """A status key that is displayed: title, description, unit and comparative. Subclasses may override each."""

    TITLE, UNIT = "", ""
    COMPARATIVE: Comparative | str = Comparative.RECIPROCAL

    def friendly_name(self) -> str:
        """Title for people."""
        return self.TITLE or self.NAME

    def description(self) -> str:
        """One line on what it is."""
        return (type(self).__doc__ or "").partition("\n")[0]

    def get_units(self) -> str:
        """Unit of the displayed value."""
        return self.UNIT

    def get_comparative(self) -> Comparative | str:
        """Return how two values are compared."""
        return self.COMPARATIVE

    def get_value(self) -> Any:
        """Value as displayed."""
        return self.value


class Flops(Metric):
    """Multiply-accumulates of one forward pass, by deeplite-profiler's convention."""

    NAME, TITLE = "flops", "Computational Complexity"

    def get_value(self) -> Any:
        return None if self.value is None else scaled_flops(self.value)[0]

    def get_units(self) -> str:
        return ("Giga" if self.value is None else scaled_flops(self.value)[1]) + "MACs"


class TotalParams(Metric):
    """Elements of the trainable parameters."""

    NAME, TITLE, UNIT = "total_params", "Total Parameters", "Millions"


class ModelSize(Metric):
    """Trainable parameters at 4 bytes each, in units of 2^20 bytes."""

    NAME, TITLE, UNIT = "model_size", "Model Size", "MB"


class MemoryFootprint(Metric):
    """Four times the live bytes of a forward pass, in units of 2^20 bytes."""

    NAME, TITLE, UNIT = "memory_footprint", "Memory Footprint", "MB"


class ExecutionTime(Metric):
    """Mean time of a forward call per sample."""

    NAME, TITLE, UNIT = "execution_time", "Execution Time", "ms"


class InferenceTime(Metric):
    """Wall time of the evaluation function."""

    NAME, TITLE, UNIT = "inference_time", "Inference Time", "s"


class EvalMetric(Metric):
    """Result of the evaluation function."""

    NAME, TITLE = "eval_metric", "Evaluation Metric"

    def __init__(self, unit_name: str = "", comparative: Comparative | str = Comparative.DIFF) -> None:
        super().__init__()
        self.unit_name, self.comparative = unit_name, comparative

    def get_units(self) -> str:
        return self.unit_name

    def get_comparative(self) -> Comparative | str:
        return self.comparative


class DynamicEvalMetric(EvalMetric):
    """A further result of the evaluation function."""

    def __init__(
        self, name: str, unit_name: str = "", description: str | None = None, comparative: Any = Comparative.DIFF
    ) -> None:
        super().__init__(unit_name, comparative)
        self.NAME, self.TITLE = name, f"Eval: {name}"
        self._about = description or f"Entry {name} of the result of the evaluation function."

    def description(self) -> str:
        return self._about


# -- display -----------------------------------------------------------------------------------------

_FIRST = ("eval_metric", "", "model_size", "flops", "total_params", "memory_footprint", "execution_time")
"""The order of rows; the empty name stands for secondary results. Inference time and all others follow."""


def ordered(keys: Mapping[str, StatusKey]) -> list[Metric]:
    """The keys that are displayed, in order."""
    shown = [key for key in keys.values() if isinstance(key, Metric)]
    names = [*_FIRST, "inference_time"]
    places = {name: place for place, name in enumerate(names)}
    return sorted(shown, key=lambda key: 1 if isinstance(key, DynamicEvalMetric) else places.get(key.NAME, len(names)))


def compared(one: Metric, other: Metric) -> str:
    """The comparative of two values as displayed; ``one`` is the reference."""
    if one.value is None or other.value is None:
        return "---"
    try:
        how = one.get_comparative()
        comparative = how if isinstance(how, Comparative) else Comparative.of(how)
    except MetricError:
        return "<Error Comparing>"
    if comparative is Comparative.NONE:
        return "---"
    if one.get_units() != other.get_units():
        return "<Unsupported units>"
    value = comparative.of_values(one.get_value(), other.get_value())
    if value is None:
        return "INF"
    return f"{value:.2f}" if comparative is Comparative.DIFF else f"{value:.2f}x"


def box(title: str, names: Sequence[str], columns: Sequence[Mapping[str, StatusKey]], *, short: bool = True) -> str:
    """Draw the status of one model, or of two with their comparison; names that do not fit end with an ellipsis."""
    width = 63 if len(columns) == 1 else 122
    rule = f"+{'-' * width}+"
    lines = [rule, f"|{title:^{width}}|", rule, _line(["", *_head(names)]), rule]
    for key in ordered(columns[0]):
        others = [column.get(key.NAME) for column in columns]
        keys = [other for other in others if isinstance(other, Metric)]
        unit = key.get_units()
        cells = [_text(one) for one in keys]
        if len(keys) == 2:
            cells = [compared(keys[0], keys[1]), *cells]
        lines.append(_line([f"{key.friendly_name()} ({unit})" if unit else key.friendly_name(), *cells]))
    if not short:
        lines.append(rule)
        lines += [f"{key.friendly_name()}: {key.description()}" for key in ordered(columns[0])]
    return "\n".join([*lines, rule])


def _head(names: Sequence[str]) -> list[str]:
    return [*names] if len(names) == 1 else ["Enhancement", *names]


def _text(key: Metric) -> str:
    if key.value is None:
        return "<NotComputed>"
    value = key.get_value()
    return f"{value:.4f}" if isinstance(value, int | float) else str(value)


def _line(cells: Sequence[str]) -> str:
    if len(cells) == 2:
        return f"|{_fit(cells[0], 40)} | {_fit(cells[1], 20)}|"
    return f"|{_fit(cells[0], 40)} |" + "".join(f"{_fit(cell, 25)} |" for cell in cells[1:])


def _fit(text: str, width: int) -> str:
    return f"{text:>{width}}" if len(text) <= width else text[: width - 1] + "…"
