"""Trips of counting loops, against loops that run."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence

import pytest

from tensortide.expr import expr_of, sized, symbol, text
from tensortide.importers.trips import MIRRORED, NOTHING, Counting, smaller, steps_until

COMPARE: dict[str, Callable[[int, int], bool]] = {name: getattr(operator, name) for name in MIRRORED}
MOST = 60
"""Trips after which a loop is taken for one that does not end."""


class Drawn:
    """A loop of numbers and carried values, and of sums, differences and comparisons of them."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.numbers = {f"n{i}": chance.randint(-most, most) for i, most in enumerate((2, 3, 20))}
        self.ops: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.starts = {f"v{i}": chance.randint(-9, 9) for i in range(2)}
        values = [*self.starts]
        for i in range(4):
            name, value, number = chance.choice(("add", "sub", "same")), values[i % 3], f"n{chance.randrange(3)}"
            inputs = (value,) if name == "same" else (value, number) if chance.random() < 0.8 else (number, value)
            self.ops[f"o{i}"] = name, inputs
            values.append(f"o{i}")
        self.carries = {
            "v0": (self.starts["v0"], f"o{chance.choice((0, 2, 3))}"),
            "v1": (self.starts["v1"], f"o{chance.choice((0, 1, 1))}"),
        }
        for name in ("left", "right"):
            sides = chance.choice(values), chance.choice([*self.numbers, *self.numbers, *self.starts])
            self.ops[name] = chance.choice([*MIRRORED]), sides if chance.random() < 0.5 else sides[::-1]
        self.ops["both"] = "and", ("left", "right")
        self.ops |= {"either": ("or", ("left", "right")), "neither": ("not", ("either",)), "other": ("not", ("left",))}
        self.ops |= {"mixed": ("or", ("other", "both")), "first": ("and", ("mixed", "right"))}

    def made(self, value: str) -> tuple[str, Sequence[str]]:
        return self.ops.get(value, NOTHING)

    def value(self, name: str, now: dict[str, int]) -> int:
        if name in now:
            return now[name]
        if name in self.numbers:
            return self.numbers[name]
        op, inputs = self.ops[name]
        given = [self.value(one, now) for one in inputs]
        if op in COMPARE:
            return COMPARE[op](*given)
        if op in ("and", "or", "not"):
            return not given[0] if op == "not" else (all if op == "and" else any)(given)
        return given[0] if op == "same" else getattr(operator, op)(*given)

    def trips(self, condition: str) -> int:
        """How often the loop runs, ``MOST`` at most."""
        now = dict(self.starts)
        for trip in range(MOST):
            if not self.value(condition, now):
                return trip
            now = {name: self.value(following, now) for name, (_, following) in self.carries.items()}
        return MOST


@pytest.mark.parametrize("condition", ["left", "both", "either", "neither", "other", "mixed", "first"])
def test_loops_that_are_counted_run_so_often(condition: str) -> None:
    counted = set()
    for seed in range(1500):
        loop = Drawn(seed)
        found = Counting(loop.made, loop.numbers.get, loop.carries.get).trips(condition)
        if found is not None:
            assert min(found, MOST) == loop.trips(condition), (seed, loop.__dict__)
            counted.add(found)
    assert len(counted) > 5


def test_what_counts_in_symbols_is_a_minimum_in_them() -> None:
    n = sized(symbol("n"), 7)
    assert text(expr_of(smaller(n, 5))) == "min(5, n)"
    assert (smaller(n, 5), smaller(n, 9), smaller(4, 9)) == (5, 7, 4)
    assert text(expr_of(steps_until("lt", n, 2, 1) or 0)) == "max(0, n - 2)"
    assert text(expr_of(steps_until("lt", n, 0, 1) or 0)) == "n"
