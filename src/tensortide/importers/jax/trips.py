"""Trip counts of while loops, as far as the program spells them out: from constants alone, in bounded work."""

from __future__ import annotations

import ctypes
import functools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tensortide.dtypes import Kind, is_float, kind_of
from tensortide.importers.jax.program import Carry, Cell, Node, Step
from tensortide.importers.trips import NOTHING, Counting, steps_until

LONGEST = 100_000
"""Most iterations that are followed one by one."""

_SAME = ("copy", "reshape", "squeeze", "stop_gradient", "broadcast_in_dim")
_OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "lt", "le", "gt", "ge", "eq", "ne", "neg")},
    "and": operator.and_,
    "or": operator.or_,
    "max": max,
    "min": min,
    "select_n": lambda which, *cases: cases[int(which)],
    "not": operator.not_,
    **dict.fromkeys(_SAME, lambda value: value),
}
_PASSES = frozenset({*_SAME, "convert_element_type"})


def value_of(step: Step, known: Mapping[Cell, Any]) -> Any:
    """Return the number that ``step`` makes of numbers; None if that is not known, or not a single number."""
    made = step.outputs[0] if len(step.outputs) == 1 else None
    given: list[Any] = [known.get(cell) if cell.literal is None else cell.literal for cell in step.inputs]
    if made is None or made.shape or any(value is None for value in given):
        return None
    if step.name == "convert_element_type":
        return _converted(given[0], made.dtype)
    operation = _OPERATIONS.get(step.name)
    if operation is None or (step.name == "not" and made.dtype != "bool"):
        return None
    return _held(operation(*given), made.dtype)


def _converted(value: Any, dtype: str) -> Any:
    if isinstance(value, complex) or kind_of(dtype) is Kind.COMPLEX:
        return None
    if dtype == "bool":
        return bool(value)
    if kind_of(dtype) is not Kind.INTEGER:
        return _held(float(value), dtype)
    if isinstance(value, float) and not (math.isfinite(value) and _held(int(value), dtype) == int(value)):
        return None  # what a compiler makes of a number that is too large is its own
    return _held(int(value), dtype)


def _held(value: Any, dtype: str) -> Any:
    """Return ``value`` as ``dtype`` holds it: integers wrap around, floating-point numbers are rounded."""
    lowest, count, rounded = _kept(dtype)
    if count:
        return (int(value) - lowest) % count + lowest
    return value if rounded is None else rounded(value)


@functools.cache
def _kept(dtype: str) -> tuple[int, int, Callable[[float], float] | None]:
    """Return the least integer of ``dtype`` and how many it has, and what rounds to it, as far as that is needed."""
    integer = re.fullmatch(r"(u?)int(\d+)", dtype)
    if integer is not None:
        bits = int(integer[2])
        return 0 if integer[1] else -(1 << (bits - 1)), 1 << bits, None
    if not is_float(dtype) or dtype == "float64":
        return 0, 0, None
    if dtype == "float32":
        return 0, 0, lambda value: ctypes.c_float(value).value
    import jax.numpy as jnp
    import numpy as np

    kind = jnp.dtype(dtype).type

    def rounded(value: float) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            return float(kind(value))

    return 0, 0, rounded


class Trips(NamedTuple):
    """The trips of a while loop; None if they are not known, for the reason ``why``. ``most``: a bound that one part of
    its condition sets, 0 if there is none."""

    trips: int | None
    most: int = 0
    why: str = ""


DATA, ENDLESS = "data decide it", "nothing ends the loop: what its condition reads stays as it is"
LONG = f"it is over {LONGEST:,}, and no counter of whole numbers with a constant bound"


def trip_count(
    condition: Sequence[Node], goes_on: Cell, body: Sequence[Node], carries: Sequence[Carry], known: Mapping[Cell, Any]
) -> Trips:
    """Return how often a while loop runs, as far as its constants tell.

    ``condition`` computes ``goes_on`` of what the loop carries, as ``body`` computes what it carries next; ``known``
    are numbers that the program spells out.
    """
    makers = {cell: step for step in [*condition, *body] if isinstance(step, Step) for cell in step.outputs}
    counting = _counting(makers, carries, known)
    found = _followed(goes_on, makers, carries, known, counting)
    if found.why != DATA:
        return found
    parts = counting.parts(goes_on)
    bounds = [_followed(part, makers, carries, known, counting).trips for part in parts] if len(parts) > 1 else []
    return found._replace(most=min((bound for bound in bounds if bound is not None), default=0))


def _followed(
    goes_on: Cell, makers: Mapping[Cell, Step], carries: Sequence[Carry], known: Mapping[Cell, Any],
    counting: Counting[Cell],
) -> Trips:  # fmt: skip
    """Follow only what ``goes_on`` depends on, until it is false."""
    by_start = {carry.start: carry for carry in carries}
    needed: list[Step] = []
    starts: dict[Cell, Carry] = {}
    seen = set[Cell]()

    def need(cell: Cell) -> bool:
        """Collect the steps that make ``cell``, in order. False if one of them is no number that can be followed."""
        if cell in seen or cell.literal is not None or cell in known:
            return True
        seen.add(cell)
        if cell in by_start:
            carry = starts[cell] = by_start[cell]
            initial = carry.initial.literal if carry.initial.literal is not None else known.get(carry.initial)
            return initial is not None and need(carry.following)
        step = makers.get(cell)
        if step is None or any(made.shape for made in step.outputs) or not all(map(need, step.inputs)):
            return False
        needed.append(step)
        return True

    if not need(goes_on):
        return Trips(None, why=DATA)
    now = dict(known)
    for start, carry in starts.items():
        now[start] = carry.initial.literal if carry.initial.literal is not None else known[carry.initial]
    for trip in range(LONGEST):
        for step in needed:
            if (value := value_of(step, now)) is None:
                return Trips(None, why=DATA)
            now[step.outputs[0]] = value
        if not _number(goes_on, now):
            return Trips(trip)
        following = {start: _number(carry.following, now) for start, carry in starts.items()}
        if all(now[start] == value for start, value in following.items()):
            return Trips(None, why=ENDLESS)
        now.update(following)
    count = _counted(goes_on, counting)
    return Trips(count, why="" if count is not None else LONG)


def _counting(makers: Mapping[Cell, Step], carries: Sequence[Carry], known: Mapping[Cell, Any]) -> Counting[Cell]:
    """Describe a loop's whole numbers as counting reads them."""
    by_start = {carry.start: carry for carry in carries}

    def made(cell: Cell) -> tuple[str, Sequence[Cell]]:
        step = makers.get(cell)
        if step is None:
            return NOTHING
        passes = step.name in _PASSES and step.inputs[0].dtype == cell.dtype
        return "same" if passes else step.name, step.inputs

    def carried(cell: Cell) -> tuple[int | None, Cell] | None:
        carry = by_start.get(cell)
        return None if carry is None else (_integer(carry.initial, known), carry.following)

    return Counting(made, lambda cell: _integer(cell, known), carried)


def _counted(goes_on: Cell, counting: Counting[Cell]) -> int | None:
    """Count the steps of a counter that is compared with a constant; None for any other condition."""
    for kind, counter, other in counting.compared(goes_on):
        if (limit := counting.known(other)) is not None:
            count = steps_until(kind, limit, counter.start, counter.step)
            end = counter.start + counter.step * (count or 0)
            return count if _held(end, counter.variable.dtype) == end else None  # else it wraps around and goes on
    return None


def _integer(cell: Cell, known: Mapping[Cell, Any]) -> int | None:
    found: Any = known.get(cell) if cell.literal is None else cell.literal
    return int(found) if kind_of(cell.dtype) is Kind.INTEGER and found is not None else None


def _number(cell: Cell, now: Mapping[Cell, Any]) -> Any:
    return now[cell] if cell.literal is None else cell.literal
