"""Sides of the thresholds of a workload: that of its own setting, which comes first, and the others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from tensortide.errors import ExpressionError, WorkloadError
from tensortide.expr import Condition, nonnegative, symbol
from tensortide.formulas.checks import PEAKS
from tensortide.formulas.formulas import Formulas, Threshold
from tensortide.formulas.limits import Limits, change
from tensortide.formulas.measure import sums
from tensortide.formulas.observe import thresholds
from tensortide.formulas.region import folded, of_remainder
from tensortide.formulas.result import Symbolic
from tensortide.formulas.sampler import Sample, Sampler
from tensortide.formulas.space import Setting, Space

_SIDES = 4
"""Times that the first sample may be on another side of a threshold than the workload's own setting."""
_ELSEWHERE = 2
"""Samples at other sizes that show the ops of the workload's own."""
_WANTED = frozenset((*sums({}), PEAKS[0]))
"""Totals without which formulas for the workload's own structure are looked for."""
_NEAR = 64
"""Values of a hyperparameter that are looked at for another remainder."""
_OTHERS = 3
"""Thresholds of which formulas for the other side are looked for."""


def on_the_side_of_the_defaults(sampler: Sampler) -> Sample:
    """A first sample on the same side of all thresholds that it shows as the workload's own setting; the next ones
    stay on this side."""
    one = sampler.first(sampler.space.over, {})
    for _ in range(_SIDES):
        crossed = sampler.crossed(one)
        if not crossed:
            break
        sampler.space.sides += crossed
        one = sampler.first(sampler.space.over, {})
    sampler.space.sides += thresholds(one.path, one.setting)
    return one


def stay_at_home(sampler: Sampler, structure: Setting) -> None:
    """Draw settings below the defaults only, or above them only, if ops elsewhere are not those at the default sizes:
    there is a threshold that the workload's code does not show."""
    space = sampler.space
    home = sampler.at({**space.defaults, **structure})
    if home is None or not space.sizes:
        return
    sampler.home = home.skeleton
    if sum(sample.skeleton == home.skeleton for sample in sampler.legal) > _ELSEWHERE:
        return
    below = [Condition(space.defaults[name] - symbol(name), ">=") for name in space.sizes]
    above = [Condition(symbol(name) - space.defaults[name], ">=") for name in space.sizes]
    for sides in ([], below, above):
        space.sides += sides
        sample = sampler.generic(sorted(space.sizes), structure, [home], large=True, patient=False)
        if sample is not None and sample.skeleton == home.skeleton:
            return
        space.sides = space.sides[: len(space.sides) - len(sides)]


def deciding_remainder(sampler: Sampler, one: Sample) -> tuple[Condition, Sample, Sample] | None:
    """The first remainder asked for by the workload's code that decides on the ops of the step (``if seq % 2``), as the
    condition that the workload's own setting meets; a capture where it is met, and one where it is not. None if there
    is none."""
    for condition in filter(None, map(of_remainder, one.path)):
        other = _beside(sampler, one, condition.opposite)
        alike = None if other is None or other.skeleton == one.skeleton else _beside(sampler, one, condition)
        if other is not None and alike is not None and alike.skeleton == one.skeleton:
            return (condition, one, other) if sampler.space.at(condition, {}) else (condition.opposite, other, one)
    return None


def _beside(sampler: Sampler, one: Sample, condition: Condition) -> Sample | None:
    """A capture that meets ``condition``, other than ``one`` in one hyperparameter only; it counts for nothing else."""
    setting = _nearest(sampler.space, one.setting, condition)
    if setting is None:
        return None
    sample = sampler.at(setting)
    sampler.forget(setting)
    return sample


def _nearest(space: Space, setting: Setting, condition: Condition) -> Setting | None:
    """The legal setting that meets ``condition`` and has one other value than ``setting``, which is not far."""
    for name in sorted(condition.expr.symbols & setting.keys()):
        value = setting[name]
        near = ({**setting, name: n} for n in (*range(value + 1, value + _NEAR), *range(value - 1, 0, -1)))
        found = next((s for s in near if space.at(condition, s) and space.allows(s)), None)
        if found is not None:
            return found
    return None


def with_both(
    sampler: Sampler, own: Condition, inside: Sample, outside: Sample, derived: Callable[..., Symbolic], *, sides: bool
) -> Symbolic:
    """The result where the remainder ``own`` is met, as in ``inside``; with ``sides`` that where it is not as well."""
    found = derived(sampler.beyond(own, {}), sides=sides)
    others, captures = found.formulas.others, found.captures + sampler.captures
    if sides:
        space = sampler.space
        other = sampler.beyond(own.opposite, _nearest(space, space.defaults, own.opposite) or outside.setting)
        with contextlib.suppress(WorkloadError, ExpressionError):
            sampler.clock.check()
            piece = _confined(derived(other, sides=False), (own.opposite,), other.space)
            others = (*others, piece.along(_of_no_symbol(piece, found, space)))
        captures += other.captures
    threshold = Threshold(condition=own, change=change(inside.graph, outside.graph))
    formulas = replace(found.formulas, thresholds=(*found.formulas.thresholds, threshold), others=others)
    return replace(found, formulas=formulas, captures=captures)


def with_others(found: Symbolic, sampler: Sampler, limits: Limits, derived: Callable[[Sampler], Symbolic]) -> Symbolic:
    """The result with formulas for the other sides of its thresholds, where ``derived`` finds them. At a size of 1 they
    are looked for if that is the workload's own."""
    others, captures = [], found.captures
    space = sampler.space
    for threshold, setting in list(zip(found.thresholds, limits.beyond, strict=True))[:_OTHERS]:
        condition = _other_side(threshold.condition)
        at_one = condition != threshold.condition.opposite
        if at_one and not space.at(condition, {}):
            continue
        other = sampler.beyond(condition, setting)
        with contextlib.suppress(WorkloadError, ExpressionError):
            sampler.clock.check()
            piece = _confined(derived(other), (condition,), other.space)
            others.append(piece.along(_of_no_symbol(piece, found, space)))
        captures += other.captures
    formulas = replace(found.formulas, others=tuple(others))
    return replace(found, formulas=formulas, captures=captures)


def with_own_structure(
    found: Symbolic,
    sampler: Sampler,
    derived: Callable[..., Symbolic],
    others: Callable[[Symbolic], Symbolic],
) -> Symbolic:
    """The result with formulas for the ``others`` sides of its thresholds, and with totals that have formulas only
    while the hyperparameters that change the structure are at the workload's own values: claimed there alone, or in
    place of all these where they lack most."""
    missing = _WANTED - found.formulas.totals.keys()
    if not missing or not found.structural or not found.structural.keys() <= set(sampler.space.over):
        return others(found)
    lacks_most = len(missing) > len(_WANTED) // 2
    with contextlib.suppress(WorkloadError, ExpressionError):
        sampler.clock.check()
        own = derived(sampler.holding(found.structural), sides=lacks_most)
        found = replace(found, captures=found.captures + own.captures)
        if lacks_most and missing & own.formulas.totals.keys():
            lost = found.numeric[0] if found.numeric else "other values leave totals without formula"
            held = {name: f"{how}; with other values {lost}" for name, how in found.structural.items()}
            return replace(own, held={**own.held, **held}, captures=found.captures)
        if missing & own.formulas.totals.keys():
            return _with_totals_of(others(found), own, sampler.space)
    return others(found)


def _with_totals_of(found: Symbolic, own: Symbolic, space: Space) -> Symbolic:
    """The result with the totals that only formulas for the workload's own structure have, claimed there alone."""
    formulas, more = found.formulas, own.formulas
    gained = {name: expr for name, expr in more.totals.items() if name not in formulas.totals}
    here = [Condition(symbol(name) - space.all[name], "==") for name in found.structural]
    only = {name: folded((*here, *more.region_of([name])), formulas.region) for name in gained}
    why = [lost for lost in found.numeric if lost.partition(":")[0] in gained]
    return replace(
        found,
        formulas=replace(formulas, totals={**formulas.totals, **gained}, only={**formulas.only, **only}),
        regimes=found.regimes or own.regimes,
        numeric=tuple([lost for lost in found.numeric if lost not in why]),
        notes=(*found.notes, *(f"claimed at {' and '.join(map(str, here))} only: {lost}" for lost in why)),
    )


def _other_side(condition: Condition) -> Condition:
    """The condition that holds beyond a threshold; where that leaves a size one value, it says so: ``batch == 1``."""
    expr, relation = condition
    return Condition(expr, "==") if relation == ">" and nonnegative(expr) else condition.opposite


def _of_no_symbol(piece: Formulas, found: Symbolic, space: Space) -> dict[str, int]:
    """The values of the symbols of other formulas that are held in the result: they have no other value there."""
    return {name: space.all[name] for name in piece.defaults if name not in found.symbols}


def _confined(found: Symbolic, conditions: Sequence[Condition], space: Space) -> Formulas:
    """The formulas with further conditions, and with symbols that have one value where a hyperparameter was held."""
    formulas = found.formulas
    held = {name: value for name, value in space.defaults.items() if name not in formulas.defaults}
    equal = (Condition(symbol(name) - value, "==") for name, value in held.items())
    region = folded((*conditions, *equal, *formulas.region))
    return replace(formulas, defaults={**formulas.defaults, **held}, region=region)
