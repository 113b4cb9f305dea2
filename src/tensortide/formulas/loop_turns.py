"""Repetitions counted by an expression in sizes: the turns of ``range(0, seq, chunk)`` are ``ceil(seq/chunk)``.

Sizes that change the structure together, and no longer where the number of turns stays, get that number as a
hyperparameter beside them: it changes the structure, they do not. In the result its expression takes its place.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping

from msgspec.structs import replace

from tensortide.expr import Condition, Expr, ceil_ratio, floor_ratio, minimum, symbol
from tensortide.formulas.region import value_of
from tensortide.formulas.result import Symbolic
from tensortide.formulas.sampler import Sample, Sampler
from tensortide.formulas.shortening import within_region

_TURNS = 3
"""Number of turns at which settings are compared."""


def turns(sampler: Sampler, changes: Collection[str], first: Sample) -> Expr | None:
    """The expression that counts the repetitions which the hyperparameters ``changes`` change; None if none does."""
    candidates = dict.fromkeys(_candidates(sorted(changes), first))
    return next((e for e in candidates if _may_count(sampler, e, first) and _counts(sampler, e)), None)


def _may_count(sampler: Sampler, expr: Expr, first: Sample) -> bool:
    """Return whether the structure stays where one hyperparameter, or two, are twice as large and ``expr`` does: of
    most expressions this tells, by captures that others share, that they count nothing."""
    names = sorted(expr.symbols)
    for several in (*([name] for name in names), *itertools.combinations(names, 2)):
        setting = {**first.setting, **{name: 2 * first.setting[name] for name in several}}
        if value_of(expr, setting) == value_of(expr, first.setting) and sampler.space.allows(setting):
            doubled = sampler.at(setting)
            sampler.forget(setting)
            if doubled is not None and doubled.skeleton != first.skeleton:
                return False
    return True


def _candidates(names: Collection[str], first: Sample) -> Iterator[Expr]:
    """Counts that loops over these hyperparameters may have, those that the workload's code computed first."""
    known = frozenset(names)
    for expr in first.made:
        if len(expr.symbols) > 1 and expr.symbols <= known and any(not isinstance(atom, str) for atom in expr.atoms):
            yield expr
    for one, other in itertools.permutations(map(symbol, names), 2):
        yield ceil_ratio(one, other)
    for below in names:
        for several in itertools.combinations([name for name in names if name != below], 2):
            yield ceil_ratio(symbol(several[0]) * symbol(several[1]), symbol(below))
    for one, other in itertools.permutations(map(symbol, names), 2):
        yield floor_ratio(one, other)
    for one, other in itertools.combinations(map(symbol, names), 2):
        yield minimum(one, other)


def _counts(sampler: Sampler, expr: Expr) -> bool:
    """Return whether settings with one value of ``expr`` have one structure, whatever else they differ in, and those
    with the next value another one."""
    sampler.clock.check()
    counted = sampler.counting(expr)
    (name,) = counted.space.turns.keys() - sampler.space.turns.keys()
    vary = [other for other in counted.space.over if other not in counted.space.turns]
    samples: list[Sample] = []
    for turns in (_TURNS, _TURNS, _TURNS, _TURNS + 1):
        sample = counted.generic(vary, {name: turns}, samples, patient=False)
        if sample is None or (samples and (sample.skeleton == samples[0].skeleton) != (turns == _TURNS)):
            return False
        samples.append(sample)
    alike = samples[:-1]
    varied = all(len({sample.setting[n] for sample in alike}) > 1 for n in expr.symbols)
    return varied and all(_ends_alike(counted, alike[0], name, other) for other in sorted(expr.symbols))


def _ends_alike(sampler: Sampler, sample: Sample, name: str, changed: str) -> bool:
    """Return whether the structure is that of ``sample`` where one hyperparameter has the smallest, and the largest
    value that leaves the number of turns: the quotient is whole there, or nearly so."""
    expr, turns = sampler.space.turns[name], sample.setting[name]
    inside = [v for v in range(1, 1 << 12) if value_of(expr, {**sample.setting, changed: v}) == turns]
    found = [sampler.at({**sample.setting, changed: value}) for value in (inside[0], inside[-1])]
    return all(other is None or other.skeleton == sample.skeleton for other in found)


def counted(found: Symbolic, names: Mapping[str, Expr]) -> Symbolic:
    """The result with the expressions of ``names`` in their places, in what is not held; where their values are held,
    with conditions that say so."""
    fixed = {name: value for name, value in found.settings.items() if name in found.held and isinstance(value, int)}
    equal = [Condition(expr.subs(fixed) - fixed[name], "==") for name, expr in names.items() if name in fixed]
    region = (*(condition for condition in equal if condition.expr.value is None), *found.formulas.region)
    names = {name: expr.subs(fixed) for name, expr in names.items() if name not in fixed}
    tested = {name: ends for name, ends in found.formulas.tested.items() if name not in names}

    def said(expr: Expr | None) -> Expr | None:
        return None if expr is None else expr.subs(names)

    measures = ("count", "product_flops", "elementwise_flops", "bytes")
    rows = tuple([replace(row, **{name: said(getattr(row, name)) for name in measures}) for row in found.rows])
    regimes = tuple([replace(regime, bytes=regime.bytes.subs(names)) for regime in found.regimes])
    held = {name: why for name, why in found.held.items() if name not in names}
    formulas = replace(found.formulas, region=region, tested=tested).along(names)
    return within_region(replace(found, formulas=formulas, rows=rows, regimes=regimes, held=held))
