"""Trips of a loop whose condition compares a counter with a bound, in the graph of any vocabulary."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

V = TypeVar("V", bound=Hashable)
FAR = (1 << 31) - 1
"""From here on a maximum of trips says nothing of how many there are, where data may end a loop."""

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "ne")
}
MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "ne": "ne"}
"""Comparisons, and what they are with their sides exchanged."""

NOTHING: tuple[str, Sequence[Any]] = "", ()
"""An op that counting does not know."""


def steps_until(comparison: str, limit: int, start: int, step: int) -> int | None:
    """Count the steps of a counter while its ``comparison`` with ``limit`` holds; None if it never fails."""
    if not _COMPARISONS[comparison](start, limit):
        return 0
    if comparison == "ne":
        found = None if step == 0 or (limit - start) % step else (limit - start) // step
        return found if found is not None and found > 0 else None
    rises = comparison in ("lt", "le")
    if step == 0 or rises != (step > 0):
        return None
    distance = (limit - start if rises else start - limit) + (comparison in ("le", "ge"))
    return max(0, -(-distance // abs(step)))


class Counter(NamedTuple, Generic[V]):
    """A value that the loop carries in ``variable``, or that is a known number more: ``start`` before the first trip,
    ``step`` more after each."""

    variable: V
    start: Any
    step: Any


@dataclass(frozen=True)
class Counting(Generic[V]):
    """The values of a loop's condition and body. Numbers are integers, or expressions.

    ``made`` names the op that makes a value (``lt``, ``le``, ``gt``, ``ge``, ``ne``, ``and``, ``add``, ``sub``;
    ``same`` passes its first input on) with its inputs. ``number`` is the constant that a value is, if it is one;
    ``carried`` are the start of what a loop carries, if known, and the value that the next trip reads; None for what it
    does not carry. ``zero`` is of the kind of the numbers.
    """

    made: Callable[[V], tuple[str, Sequence[V]]]
    number: Callable[[V], Any]
    carried: Callable[[V], tuple[Any, V] | None]
    zero: Any = 0

    def source(self, value: V) -> V:
        """Follow a value back through ops that pass it on."""
        seen: set[V] = set()
        while value not in seen and self.carried(value) is None:
            seen.add(value)
            name, inputs = self.made(value)
            if name != "same" or not inputs:
                break
            value = inputs[0]
        return value

    def known(self, value: V) -> Any:
        """Return the number that a value is in every trip: a constant, or carried as it came."""
        value = self.source(value)
        carry = self.carried(value)
        if carry is None:
            return self.number(value)
        return carry[0] if self.source(carry[1]) == value else None

    def parts(self, condition: V) -> list[V]:
        """List the conditions that must all hold."""
        waiting, found = [condition], dict[V, None]()
        seen: set[V] = set()
        while waiting:
            value = self.source(waiting.pop())
            name, inputs = self.made(value)
            if name != "and":
                found[value] = None
            elif value not in seen:
                waiting += reversed(inputs)
            seen.add(value)
        return [*found]

    def shifted(self, value: V) -> tuple[V, Any] | None:
        """Find what a loop carries that ``value`` is a known number more than, and that number."""
        offset, seen = self.zero, set[V]()
        while (value := self.source(value)) not in seen:
            seen.add(value)
            if self.carried(value) is not None:
                return value, offset
            name, inputs = self.made(value)
            if name not in ("add", "sub") or len(inputs) != 2:
                break
            value, more = inputs
            if name == "add" and self.known(value) is not None:
                value, more = more, value
            by = self.known(more)
            if by is None:
                break
            offset = offset - by if name == "sub" else offset + by
        return None

    def counter(self, value: V) -> Counter[V] | None:
        """Describe the counter that a value is, if it is one."""
        found = self.shifted(value)
        if found is None:
            return None
        variable, offset = found
        start, following = self.carried(variable) or (None, variable)
        step = None if start is None else self.shifted(following)
        return None if step is None or step[0] != variable else Counter(variable, start + offset, step[1])

    def compared(self, condition: V) -> Iterator[tuple[str, Counter[V], V]]:
        """Read a condition as comparisons of a counter, on the left, with another value."""
        name, inputs = self.made(self.source(condition))
        if name not in MIRRORED or len(inputs) != 2:
            return
        for kind, (left, right) in ((name, inputs), (MIRRORED[name], inputs[::-1])):
            counter = self.counter(left)
            if counter is not None:
                yield kind, counter, right

    def trips(self, condition: V, holds: V | None = None) -> int | None:
        """Count how often ``condition`` is true from the start, in whole numbers; None where data decide it. ``holds``
        is true in every trip."""
        least: int | None = None
        for part in self.parts(condition):
            if part == holds:
                continue
            counts = [
                steps_until(kind, limit, counter.start, counter.step)
                for kind, counter, other in self.compared(part)
                if (limit := self.known(other)) is not None
            ]
            if not counts or counts[0] is None:
                return None
            least = counts[0] if least is None else min(least, counts[0])
        return least
