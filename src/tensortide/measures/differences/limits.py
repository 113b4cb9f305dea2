"""Limits on how much a metric may change: ``peak=+2%``, ``flops=+1G``, ``time=+5ms``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec

from tensortide.errors import CheckError, MetricError
from tensortide.measures.checks.limits import amount
from tensortide.measures.comparison import Comparison, MetricPair
from tensortide.measures.metric import Unit
from tensortide.measures.registry import ALIASES, meant
from tensortide.python_object import near
from tensortide.shown import Show

LimitOutcome: TypeAlias = Literal["held", "exceeded", "undecided"]
_TEXT = re.compile(
    r"\s*(?P<name>[\w.-]+(?:\[\w+\])?)\s*=\s*(?P<sign>[+-]?)\s*(?P<amount>[0-9.].*?)(?P<percent>\s*%)?\s*"
)


class Limit(msgspec.Struct, frozen=True):
    """The most that a metric may change for the worse: a ``share`` of the reference, or an ``amount`` in its unit.

    ``+2%`` of a metric of which less is better is that it may grow by 2 %; ``-2%``, that it must shrink by 2 %. Where
    more is better, ``-2%`` is what it may lose, and ``+2%`` what it must gain.
    """

    text: str
    metric: str
    share: float | None = None
    amount: float | None = None

    def allowed(self, reference: float) -> float:
        """Return the value at which the limit is reached."""
        return reference + (self.share * abs(reference) if self.share is not None else self.amount or 0.0)


class Threshold(NamedTuple):
    """A limit tried on one of the others: the pair of values, the value that is allowed, and the outcome.

    ``undecided``: ops without a cost rule leave open whether it is exceeded, which is no pass.
    """

    limit: Limit
    letter: str
    pair: MetricPair
    allowed: float
    outcome: LimitOutcome

    @property
    def reference(self) -> Annotated[float | None, Show(unit="number", data=True)]:
        """The value of the reference."""
        return None if self.pair.numbers is None else self.pair.numbers.a

    @property
    def value(self) -> Annotated[float | None, Show(unit="number", data=True)]:
        """The value of the other."""
        return None if self.pair.numbers is None else self.pair.numbers.b


def parse_limit(text: str, units: dict[str, Unit] | None) -> Limit:
    """Read ``NAME=+2%`` or ``NAME=+100MiB``; ``units`` are those of all metrics by name (None: not known yet, any is).

    Raises MetricError for a metric that there is not, and for an amount without a sign or in another unit.
    """
    match = _TEXT.fullmatch(text)
    if match is None or not match["sign"]:
        raise MetricError(f"a threshold is NAME=+2% or NAME=+100MiB, with a sign, not {text!r}")
    name, number = match["name"] if units is None else meant(match["name"], units), match["amount"]
    if units is not None and name not in units:
        raise MetricError(f"there is no metric {match['name']!r}{near(name, [*ALIASES, *units])}")
    sign = -1 if match["sign"] == "-" else 1
    try:
        if match["percent"]:
            return Limit(text.strip(), name, share=sign * float(amount(number, "number")) / 100)
        return Limit(text.strip(), name, amount=None if units is None else sign * float(amount(number, units[name])))
    except CheckError as error:
        raise MetricError(f"--threshold {text.strip()}: {error}") from None


def tried(limits: Iterable[Limit], found: Comparison, letters: Sequence[str]) -> Iterator[Threshold]:
    """Try each limit on each other, which ``letters`` name. Raises MetricError where a side has no such value."""
    for limit in limits:
        for number, letter in enumerate(letters):
            pair = found.pair(limit.metric, number)
            if pair.numbers is None:
                raise MetricError(f"--threshold {limit.text}: {pair.words}")
            reference, value = pair.numbers
            allowed = limit.allowed(reference)
            over = value < allowed if pair.metric.direction == "higher" else value > allowed
            undecided = any(pair.bounds) and not (over and pair.bounds == (False, True))
            outcome: LimitOutcome = "undecided" if undecided else "exceeded" if over else "held"
            yield Threshold(limit, letter, pair, allowed, outcome)
