"""The printed table of deeplite-profiler: one model, or two side by side, to a logger that may be replaced."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tensortide.errors import MetricError
from tensortide.measures.compat.keys import DynamicEvalMetric, Metric, StatusKey
from tensortide.measures.compat.sources import LayerwiseSummary
from tensortide.measures.metric import Comparative

TITLE = "Deeplite Profiler"
_WIDTHS = {1: (40, 20), 2: (40, 25, 25, 25)}
"""Widths of the columns, by the number of models."""


class _Printer(logging.Handler):
    """Prints messages to what standard output is at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stdout.write(f"{self.format(record)}\n")


class _Redirected:
    """A logger that hands everything to another one, which may be replaced. What is logged is printed, from ``info``
    on, while ``to`` is the logger it began with and nobody has configured logging: scripts do not, and see tables."""

    def __init__(self, to: logging.Logger) -> None:
        self.to = self._first = to
        self._printing = logging.Logger(to.name, logging.INFO)
        self._printing.addHandler(_Printer())

    def __getattr__(self, name: str) -> Any:
        printed = self.to is self._first and not self.to.hasHandlers() and name in _SAID
        return getattr(self._printing if printed else self.to, name)


_SAID = ("log", "debug", "info", "warning", "error", "exception", "critical")
_LOGGER = _Redirected(logging.getLogger("tensortide.measures.deeplite"))


def getLogger(name: str = "") -> Any:  # noqa: N802
    """Return the logger that displays go to, also after ``setLogger``."""
    del name
    return _LOGGER


def setLogger(logger: logging.Logger) -> None:  # noqa: N802
    """Have displays go to another logger."""
    _LOGGER.to = logger


class NotComputedValue:
    """In place of a value that was not computed; formats as text in a column of numbers."""

    def __format__(self, spec: str) -> str:
        return format(str(self), spec.partition(".")[0])

    def __repr__(self) -> str:
        return "<NotComputed>"


class Column(NamedTuple):
    """A model in the table: its name, the label of its backend, and its status keys."""

    name: str
    backend: str
    keys: Mapping[str, StatusKey]


class DefaultDisplay:
    """The display of a profiler's status.

    Args:
        logger: where tables go (default: the logger that ``setLogger`` sets).
        order: names of status keys in order (default: that of ``_FIRST``).
        include_leftovers: keys that the order does not name follow.
        exclude: names of keys that are left out.
    """

    def __init__(
        self,
        logger: Any = None,
        order: Iterable[str] | None = None,
        include_leftovers: bool = True,
        exclude: str | Collection[str] | None = None,
    ) -> None:
        self.logger = _LOGGER if logger is None else logger
        self.order = None if order is None else tuple(order)
        self.include_leftovers = include_leftovers
        self.exclude = {exclude} if isinstance(exclude, str) else {*(exclude or ())}

    def display_status(
        self, profiler: Any, other: Any = None, print_mode: str = "debug", short_print: bool = True
    ) -> None:
        """Log the status of one profiler or two at the level ``print_mode``; the long form explains each row, and has
        the layer table at the level ``debug``. A level that does not exist shows nothing."""
        profilers = [one for one in (profiler, other) if one is not None]
        columns = [Column(one.name, one.backend, one.status_to_dict(to_value=False)) for one in profilers]
        level = logging.getLevelNamesMapping().get(print_mode.upper())
        if level is not None:
            self.logger.log(level, "\n%s", self.table(columns, short=short_print))
        for column in () if short_print else columns:
            if (summary := column.keys.get(LayerwiseSummary.NAME)) is not None and summary.value is not None:
                self.logger.debug("\n%s", summary.value)

    def rows(self, keys: Mapping[str, StatusKey]) -> list[Metric]:
        """The keys that are rows of the table, in order."""
        places = {name: place for place, name in enumerate(_FIRST if self.order is None else self.order)}

        def place(key: Metric) -> int:
            secondary = isinstance(key, DynamicEvalMetric) and key.NAME not in places
            return places.get("" if secondary else key.NAME, len(places))

        shown = [key for key in keys.values() if isinstance(key, Metric) and key.NAME not in self.exclude]
        found = sorted(shown, key=place)
        return found if self.include_leftovers else [key for key in found if place(key) < len(places)]

    def table(self, columns: Sequence[Column], *, short: bool = True) -> str:
        """Draw the status of one model, or of two with their comparison; names that do not fit end with an ellipsis."""
        several, widths = len(columns) > 1, _WIDTHS[len(columns)]
        inner = f"+{'+'.join('-' * (width + 1) for width in widths)}+"
        outer = f"+{'-' * (len(inner) - 2)}+"
        backends = [f"Backend: {column.backend}" for column in columns]
        alike = len({column.name for column in columns}) < len(columns)
        words = ("First", "Second") if alike else ("Value", "Value")  # names that are equal do not tell columns apart
        named = (f"{word} ({column.name})" for word, column in zip(words, columns, strict=False))
        heads = ["Enhancement", *named] if several else ["Value"]
        first = "Param Name" if several else f"Param Name ({columns[0].name})"
        lines = [outer, f"|{TITLE:^{len(outer) - 2}}|", inner, _line([first, *heads], widths)]
        lines += [_line(["", "", *backends] if several else [backends[0], ""], widths), inner]
        rows = [key for key in self.rows(columns[0].keys) if all(key.NAME in column.keys for column in columns)]
        lines += [_line(_cells([column.keys[key.NAME] for column in columns]), widths) for key in rows]
        lines.append(inner)
        if not short:
            lines += ["Note:", *(f"* {key.friendly_name()}: {key.description()}" for key in rows), outer]
        return "\n".join(lines)


_FIRST = (
    *("eval_metric", "", "model_size", "flops", "total_params", "memory_footprint"),
    *("execution_time", "inference_time"),
)
"""The order of rows; the empty name stands for secondary results. All others follow."""


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


def _cells(keys: Sequence[Any]) -> list[str]:
    """Name and unit of a row, the comparison of two models, and the values."""
    unit = keys[0].get_units()
    named = f"{keys[0].friendly_name()} ({unit})" if unit else keys[0].friendly_name()
    values = [_text(key) for key in keys]
    return [named, *([compared(*keys)] if len(keys) > 1 else []), *values]


def _text(key: Metric) -> str:
    value = NotComputedValue() if key.value is None else key.get_value()
    return format(value, ".4f") if isinstance(value, int | float | NotComputedValue) else str(value)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    fitted = [_fit(cell, width) for cell, width in zip(cells, widths, strict=True)]
    return f"|{fitted[0]} | {'| '.join(fitted[1:])}|"


def _fit(text: str, width: int) -> str:
    return f"{text:>{width}}" if len(text) <= width else text[: width - 1] + "…"
