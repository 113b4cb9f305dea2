"""Two steps told apart by one condition on two sizes, which no code of the workload asks: ``x[:, :limit]`` is another
op where ``limit >= seq``, frames of ``size`` samples fill ``seq`` or leave a rest.

Of the captures that there are, one group with the same ops is told from all others by a comparison or a division of two
sizes; fresh captures on both sides bear it out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tensortide.expr import Condition, Expr, symbol
from tensortide.formulas.lift import Skeleton
from tensortide.formulas.region import of_remainder, value_of
from tensortide.formulas.sampler import Sample, Sampler
from tensortide.formulas.space import Setting

_FEW = 4
"""Captures without which no condition is looked for."""
_TRIED = 3
"""Conditions that fresh captures are made for."""
_FRESH = 4
"""Fresh captures on each side."""
_NEAR = range(5, 24)
"""Values of one size, near which the other is."""
_DRAWN = 60
"""Settings to draw for one on a side."""


def separation(sampler: Sampler) -> tuple[Condition, Sample, Sample] | None:
    """The condition that tells the captures with one structure from all others, as the workload's own setting meets it;
    a capture where it is met, and one where it is not. None if there is none."""
    space, tried = sampler.space, set[Condition]()
    for _ in range(_TRIED):
        found = next((f for f in _telling(sampler) if f[0].condition not in tried), None)
        if found is None:
            return None
        told, group, others = found
        if _borne_out(sampler, told, group):
            condition = told.condition
            own = bool(space.at(condition, {}))
            return (condition, group, others) if own else (condition.opposite, others, group)
        tried.add(told.condition)
    return None


class _Told(NamedTuple):
    """A condition, and the one on settings that tell of it: what its divisor exceeds is no test of a division."""

    condition: Condition
    among: Condition


def _telling(sampler: Sampler) -> Iterator[tuple[_Told, Sample, Sample]]:
    """Conditions on two sizes that hold in all captures with one structure and in none of the others; one of these, and
    one of those."""
    space = sampler.space
    samples = [s for s in sampler.all_captures if all(v > 1 or space.all[n] == 1 for n, v in s.setting.items())]
    groups: dict[Skeleton, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.skeleton, []).append(sample)
    names = [name for name in space.over if name not in space.turns]
    for group in sorted(groups.values(), key=len, reverse=True)[:2] if len(samples) >= _FEW and len(groups) > 1 else ():
        others = [sample for sample in samples if sample.skeleton != group[0].skeleton]
        for one, other in itertools.permutations(map(symbol, names), 2):
            for told in _between(one, other):
                known = {told.condition, told.condition.opposite} & set(space.where)
                telling = [[s.setting for s in several if _holds(told.among, s.setting)] for several in (group, others)]
                inside, outside = ([_holds(told.condition, setting) for setting in settings] for settings in telling)
                if not known and inside and outside and all(inside) and not any(outside):
                    yield told, group[0], others[0]


def _between(one: Expr, other: Expr) -> Iterator[_Told]:
    """Conditions between two sizes: a division with and without rest, and comparisons."""
    whole = of_remainder(Condition(one % other, "==")) or Condition(one % other, "==")
    divided, any_setting = Condition(one - other, ">"), Condition(one, ">=")
    yield from (_Told(condition, divided) for condition in (whole, whole.opposite))
    yield from (_Told(condition, any_setting) for condition in (divided, Condition(one - other, ">=")))


def _holds(condition: Condition, setting: Mapping[str, int]) -> bool:
    value = value_of(condition.expr, setting)
    return value is not None and condition.holds(value)


def _borne_out(sampler: Sampler, told: _Told, like: Sample) -> bool:
    """Return whether fresh captures have the structure of ``like`` where a condition holds, and another elsewhere; just
    at a threshold too."""
    sides = (told.condition, told.condition.opposite)
    drawn = [itertools.islice(_on(sampler, [side, told.among], like), _FRESH) for side in sides]
    legal = [0, 0]
    for pair in itertools.zip_longest(*drawn):
        for side, setting in enumerate(pair):
            sample = None if setting is None else sampler.at(setting)
            if sample is not None:
                sampler.forget(sample.setting)
                legal[side] += 1
                if (sample.skeleton == like.skeleton) != (side == 0):
                    return False
    return all(legal)


def _on(sampler: Sampler, sides: Sequence[Condition], like: Sample) -> Iterator[Setting]:
    """Legal settings that meet conditions on two sizes, which no capture has: the others as in ``like``, then drawn.

    Both sizes differ from ``like``: one that changes the step by itself, as a number of layers does, tells nothing.
    """
    space = sampler.space
    seen = [sample.setting for sample in sampler.all_captures]
    one, other = sorted(sides[0].expr.symbols)

    def fits(setting: Setting) -> bool:
        differs = all(setting[name] != like.setting[name] for name in (one, other))
        return differs and setting not in seen and all(_holds(side, setting) for side in sides)

    near = ({**like.setting, one: a, other: b} for b in _NEAR for a in (b + 1, b - 1, b, 2 * b, 2 * b + 1, 3 * b - 1))
    yield from itertools.islice((s for s in near if fits(s) and space.allows(s) and space.beside(s)), 1)
    yield from filter(fits, itertools.islice(space.draws(space.over, {}, large=True), _DRAWN))
