"""Status keys by the names of deeplite-profiler."""

from __future__ import annotations

import copy
import enum
from typing import Any

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
