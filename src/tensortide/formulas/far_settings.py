"""Settings far above a workload's defaults: few, where formulas that were found at small sizes are put to the test."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence

from tensortide.expr import Condition, Expr
from tensortide.formulas.sampler import Sampler
from tensortide.formulas.space import SMALL, Setting, Space

FAR, NEARER = 32, 4
"""How many times the default of a size is tried."""
_DENSE, _SPARSE = 4096, 40
"""Steps that are all looked at for a violation, and how many sparse ones after them."""
_MOST_OPS = 2500
"""A step with more ops is not captured to try many repetitions."""
_BETWEEN = 2
"""Settings between few and many repetitions at which peaks are checked."""
_LEVELS = (32, 16, 8, 4, 2, 1)


def far_settings(
    space: Space,
    names: Sequence[str],
    low: Mapping[str, int],
    conditions: Sequence[Condition],
    known: Mapping[tuple[str, ...], Setting],
) -> Iterator[Setting]:
    """Settings that meet the ``conditions``, in which the sizes ``names`` have their values in ``low`` or far ones.

    First all are far, then all not so far, then some: of any two, each is far while the other is low. A threshold in
    one size, in a product or in a quotient of two is crossed by one of them. In the first all are even, in the second
    odd, in the others those that are low are even: of any two, every pair of remainders is tried, as what is rounded
    may cancel for odd ones only (``2*floor(kernel/2) - kernel + 1``). ``known`` are settings in which some are far that
    were captured with other low sizes and repetitions: they do as well if they are as far.
    """
    yield _reached(space, dict.fromkeys(names, FAR), low, conditions, even=True)
    yield _reached(space, dict.fromkeys(names, NEARER), low, conditions)
    for chosen, setting in some_far(space, names, low, conditions):
        other = known.get(chosen, setting)
        is_far = all(2 * other[name] >= setting[name] for name in chosen)
        yield other if is_far and space.meets(other, conditions) else setting


def some_far(
    space: Space, names: Sequence[str], low: Mapping[str, int], conditions: Sequence[Condition]
) -> Iterator[tuple[tuple[str, ...], Setting]]:
    """Some of the sizes ``names``, and a setting in which these are far, the others low; again and again: of any two,
    each is far while the other is low."""
    even = evened(space, names, low, conditions)
    for chosen in filter(None, families(names)):
        far = dict.fromkeys(chosen, FAR)
        yield chosen, _reached(space, far, {**even, **{name: low[name] for name in chosen}}, conditions)


def evened(space: Space, names: Sequence[str], low: Mapping[str, int], conditions: Sequence[Condition]) -> Setting:
    """``low`` with those of the sizes ``names`` that are odd one unit larger, where the conditions allow."""
    setting = dict(low)
    for name in space.ordered(names):
        at = {**setting, name: setting[name] + space.unit(name, setting)}
        if setting[name] % 2 and space.meets(at, conditions):
            setting = at
    return setting


def lowest_setting(
    space: Space,
    names: Sequence[str],
    low: Mapping[str, int],
    lowest: Mapping[str, int],
    conditions: Sequence[Condition],
) -> Setting:
    """``low`` with the sizes ``names`` one after the other as small as the conditions allow."""
    setting = dict(low)
    for name in space.ordered(names):
        values = space.values.get(name) or range(lowest[name], setting[name])
        for value in sorted(values):
            at = {**setting, name: value}
            if space.meets(at, conditions):
                setting = at
                break
    return setting


def deeper_settings(
    space: Space, names: Sequence[str], low: Mapping[str, int], conditions: Sequence[Condition], ops: Expr | None
) -> Iterator[Setting]:
    """Settings with many more of what is repeated: of each of ``names``, as many as a quick capture can have.

    ``ops`` is the number of ops of a step; without it nothing is tried.
    """
    for name in names:
        for level in _LEVELS:
            value = highest(space, name, low, level, conditions)
            if value is not None and _affordable(ops, {**low, name: value}):
                yield {**low, name: value}
                break


def joint_settings(
    space: Space, names: Sequence[str], low: Mapping[str, int], conditions: Sequence[Condition], ops: Expr | None
) -> Iterator[Setting]:
    """Settings with many more of all that is repeated, as many as a quick capture can have, and some in between."""
    for level in _LEVELS:
        corner = dict(low)
        for name in names:
            corner[name] = highest(space, name, corner, level, conditions) or corner[name]
        if _affordable(ops, corner):
            yield corner
            dice = random.Random(0)
            for _ in range(_BETWEEN):
                between = {**low, **{name: dice.randint(low[name], corner[name]) for name in names}}
                if space.allows(between):
                    yield between
            return


def _affordable(ops: Expr | None, setting: Setting) -> bool:
    """Return whether a step is known to have few enough ops for a quick capture."""
    return ops is not None and ops.evaluate(setting) <= _MOST_OPS


def families(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Subsets such that none of two names is in all subsets that the other is in (Sperner, 1928)."""
    count = next(n for n in itertools.count(min(2, len(names))) if math.comb(n, n // 2) >= len(names))
    places = itertools.combinations(range(count), count // 2)
    placed = dict(zip(names, places, strict=False))
    for row in range(count):
        yield tuple(name for name in names if row in placed[name])


def _reached(
    space: Space,
    factors: Mapping[str, int],
    low: Mapping[str, int],
    conditions: Sequence[Condition],
    *,
    even: bool = False,
) -> Setting:
    """``low`` with ``factors`` times the defaults, as far as the conditions allow: at once, else one by one. The far
    values are ``even``, else odd where that is legal."""
    setting: Setting = {name: value for name, value in low.items() if name not in space.over}
    for name in space.ordered(space.over):
        unit, least = space.unit(name, setting), low[name]
        if name in factors and name not in space.values:
            least = _base(space, name) * factors[name]
        if least == low[name] and not least % unit:
            setting[name] = least
        else:
            twice = 2 if even else 1
            setting[name] = unit * twice * generic_from(-(-least // (unit * twice)))
    space.bind(setting, tuple(factors))
    if space.meets(setting, conditions):
        return {name: setting[name] for name in space.over}
    setting = dict(low)
    for name in space.ordered(tuple(factors)):
        for level in _LEVELS:
            value = highest(space, name, setting, min(level, factors[name]), conditions)
            if value is not None:
                setting[name] = value
                break
    return {name: setting[name] for name in space.over}


def _base(space: Space, name: str) -> int:
    return max(space.all[name], SMALL // 4)


def highest(
    space: Space, name: str, setting: Mapping[str, int], factor: int, conditions: Sequence[Condition]
) -> int | None:
    """The value of a size next to ``factor`` times its default that is legal and meets the conditions, the other sizes
    being as in ``setting``; None if it is no larger than there."""

    def meets(value: int) -> bool:
        return space.meets({**setting, name: value}, conditions)

    if name in space.values:
        found = [value for value in space.values[name] if value > setting[name] and meets(value)]
        return max(found, default=None)
    unit = space.unit(name, setting)
    least = _base(space, name) * factor
    value = unit * generic_from(-(-least // unit))
    if meets(value):
        return value
    good, bad = setting[name] // unit, value // unit
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if meets(unit * middle) else (good, middle)
    return unit * good if unit * good > setting[name] else None


def generic_from(least: int) -> int:
    """The first prime from ``least`` on."""
    return next(n for n in itertools.count(max(2, least)) if all(n % d for d in range(2, math.isqrt(n) + 1)))


def violations(sampler: Sampler, condition: Condition, setting: Mapping[str, int]) -> Iterator[list[Setting]]:
    """For each size in a condition, settings known as legal that violate it where ``setting`` does not: the nearest,
    and one well beyond, as at a threshold the two sides may agree."""
    space = sampler.space
    for name in sorted(condition.expr.symbols & set(space.over)):
        unit, value = space.unit(name, setting), setting[name]
        upward = itertools.chain(range(1, _DENSE + 1), (int(_DENSE * 1.25**n) for n in range(1, _SPARSE)))
        found: list[Setting] = []
        for at in (
            {**setting, name: n}
            for n in (*(value // unit * unit + unit * step for step in upward), *range(value - 1, 0, -1))
        ):
            beyond = not found or at[name] >= 2 * found[0][name] or at[name] < found[0][name] <= value
            if beyond and space.at(condition, at) is False and space.allows(at):
                found.append(at)
            if len(found) == 2:
                break
        if found:
            yield found
