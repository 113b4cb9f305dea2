"""Trips of a loop whose condition compares a counter with a bound, in the graph of any vocabulary."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from tensortide.expr import Size, expr_of, maximum, minimum, sized

V = TypeVar("V", bound=Hashable)
FAR = (1 << 31) - 1
"""From here on a maximum of trips says nothing of how many there are, where data may end a loop."""

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "ne", "eq")
}
MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "ne": "ne", "eq": "eq"}
"""Comparisons, and what they are with their sides exchanged."""
_NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "ne": "eq", "eq": "ne"}
_COMBINED = frozenset({"and", "or", "not"})
MOST_PARTS = 256
"""Conditions of more parts than these that are not all to hold are taken to be data."""

NOTHING: tuple[str, Sequence[Any]] = "", ()
"""An op that counting does not know."""


def steps_until(comparison: str, limit: int, start: int, step: int) -> int | None:
    """Count the steps of a counter while its ``comparison`` with ``limit`` holds; None if it never fails."""
    if not _COMPARISONS[comparison](start, limit):
        return 0
    if comparison == "ne":
        found = None if step == 0 or (limit - start) % step else (limit - start) // step
        return found if found is not None and found > 0 else None
    if comparison == "eq":
        return None if step == 0 else 1
    rises = comparison in ("lt", "le")
    if step == 0 or rises != (step > 0):
        return None
    distance = (limit - start if rises else start - limit) + (comparison in ("le", "ge"))
    count = -(-distance // abs(step))
    return sized(maximum(0, expr_of(count)), count) if isinstance(count, Size) else max(0, count)


def smaller(a: int, b: int) -> int:
    """Return the smaller of two counts; of counts with expressions the minimum in their symbols."""
    if isinstance(a, Size) or isinstance(b, Size):
        return sized(minimum(expr_of(a), expr_of(b)), min(int(a), int(b)))
    return min(a, b)


class Counter(NamedTuple, Generic[V]):
    """A value that the loop carries in ``variable``, or that is a known number more: ``start`` before the first trip,
    ``step`` more after each."""

    variable: V
    start: Any
    step: Any


@dataclass(frozen=True)
class Counting(Generic[V]):
    """The values of a loop's condition and body. Numbers are integers, or expressions.

    ``made`` names the op that makes a value (``lt``, ``le``, ``gt``, ``ge``, ``ne``, ``eq``, ``and``, ``or``, ``not``,
    ``add``, ``sub``; ``same`` passes its first input on) with its inputs. ``number`` is the constant that a value is,
    if it is one; ``carried`` are the start of what a loop carries, if known, and the value that the next trip reads;
    None for what it does not carry. ``zero`` is of the kind of the numbers.
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
        """Count how often ``condition`` is true from the start, in whole numbers; None where data decide it, or nothing
        ends the loop. ``holds`` is true in every trip."""
        least: int | None = None
        for part in self.parts(condition):
            if part == holds:
                continue
            count = self._until(part, holds)
            if count is None:
                return None
            if isinstance(count, int):
                least = count if least is None else smaller(least, count)
        return least

    def _until(self, part: V, holds: V | None) -> int | float | None:
        """Return the first trip in which a condition does not hold; infinity if there is none, None where data decide
        it."""
        name, inputs = self.made(part)
        negated = name == "not" and self.made(self.source(inputs[0]))[0] not in _COMBINED
        if negated or name not in _COMBINED:
            found = self._comparison(self.source(inputs[0]) if negated else part)
            if found is None:
                return None
            kind, *numbers = found
            count = steps_until(_NEGATED[kind] if negated else kind, *numbers)
            return math.inf if count is None else count
        atoms = self._atoms(part)
        if atoms is None or any(isinstance(number, Size) for _, *numbers in atoms.values() for number in numbers):
            return None
        # A comparison changes only where its counter passes the limit: between these trips nothing does.
        passes = [(limit - start) // step for _, limit, start, step in atoms.values() if step]
        for trip in sorted({0, *(at + more for at in passes for more in range(3) if at + more > 0)}):
            known: dict[V, bool | None] = {} if holds is None else {holds: True}
            value = self._value(part, trip, atoms, known)
            if not value:
                return trip if value is False else None
        return math.inf

    def _comparison(self, value: V) -> tuple[str, Any, Any, Any] | None:
        """Read a condition as a comparison of a counter: with which limit, from which start, by which step."""
        for kind, counter, other in self.compared(value):
            if (limit := self.known(other)) is not None:
                return kind, limit, counter.start, counter.step
        return None

    def _atoms(self, condition: V) -> dict[V, tuple[str, Any, Any, Any]] | None:
        """Return the comparisons among the parts of a condition; None where there are too many parts."""
        waiting, seen, found = [condition], set[V](), dict[V, tuple[str, Any, Any, Any]]()
        while waiting:
            value = self.source(waiting.pop())
            if value in seen:
                continue
            seen.add(value)
            name, inputs = self.made(value)
            if name in _COMBINED:
                waiting += inputs
            elif (comparison := self._comparison(value)) is not None:
                found[value] = comparison
            if len(seen) > MOST_PARTS:
                return None
        return found

    def _value(
        self, value: V, trip: int, atoms: dict[V, tuple[str, Any, Any, Any]], known: dict[V, bool | None]
    ) -> bool | None:
        """Tell whether a condition holds in a trip; None where data decide it."""
        value = self.source(value)
        if value in known:
            return known[value]
        known[value] = None  # of what depends on itself nothing is known
        name, inputs = self.made(value)
        if name in _COMBINED:
            given = [self._value(one, trip, atoms, known) for one in inputs]
            decides = name == "or"  # true decides an or, false an and
            known[value] = decides if decides in given else None if None in given else not decides
            if name == "not":
                known[value] = None if given[0] is None else not given[0]
        elif value in atoms:
            kind, limit, start, step = atoms[value]
            known[value] = _COMPARISONS[kind](start + step * trip, limit)
        return known[value]
