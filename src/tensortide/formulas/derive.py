"""Formulas of a workload by sampling: capture, align, solve, check."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tensortide.collector import frozen_heap
from tensortide.cost.evaluate import Resolver
from tensortide.errors import WorkloadError
from tensortide.expr import Condition
from tensortide.expr.show import text
from tensortide.formulas.assemble import Assembly
from tensortide.formulas.checks import PEAKS, Checks
from tensortide.formulas.limits import Limits, change
from tensortide.formulas.loop_turns import counted, turns
from tensortide.formulas.measure import Figures, Moment
from tensortide.formulas.meeting_sizes import Meetings
from tensortide.formulas.one_structure import StepsDiffer
from tensortide.formulas.remembering import searched_once
from tensortide.formulas.result import Symbolic
from tensortide.formulas.sampler import Clock, OutOfTime, Sample, Sampler, shown
from tensortide.formulas.separation import separation
from tensortide.formulas.space import SMALL, Assumed, Scalar, Space, parsed
from tensortide.formulas.structure_symbols import missed, structural
from tensortide.formulas.structures import Structures, not_empty, tightened
from tensortide.formulas.threshold_sides import (
    deciding_remainder,
    on_the_side_of_the_defaults,
    stay_at_home,
    with_both,
    with_others,
    with_own_structure,
)
from tensortide.recorder.trials import tried_once

_COUNTEREXAMPLES = 3
"""Counterexamples to refit with before a contradicted formula is dropped."""
LIMIT_S = 300.0
"""Seconds after which what was found by then is finished."""
_OTHER_VALUES = 12
"""Other values of a hyperparameter to try before it is held."""
_SKIPPED = 2
"""Smallest values of structural hyperparameters to exclude where the formula of the peak fails at them."""


def symbolic(
    workload: Callable[..., Any] | str,
    *,
    over: Sequence[str],
    hyperparameters: Mapping[str, Scalar] | None = None,
    where: Sequence[str] = (),
    values: Mapping[str, Sequence[int]] | None = None,
    assume: Mapping[str, Assumed | str] | None = None,
    name: str = "",
    resolver: Resolver | None = None,
    progress: Callable[[str], None] = lambda message: None,
    limit: float | None = None,
    work_limit: float | None = None,
) -> Symbolic:
    """Derive the cost of one step of ``workload`` as exact expressions in its hyperparameters ``over``.

    The workload is captured at a few settings of small, generic values, every size of the step is solved as an
    expression, and the cost rules run on these. Hyperparameters that change the number of ops (layers) are found and
    fitted over several structures. Each formula reproduces every capture it was fitted to, and further ones.

    ``hyperparameters`` overrides defaults of the workload. ``where`` are conditions of legal settings
    (``"hidden % heads == 0"``), ``values`` the candidates of single hyperparameters; a workload may declare both in
    attributes ``where`` and ``values``. Without them illegal settings are found by trial. ``resolver`` is asked
    for ops without a cost rule. ``assume`` gives values, or numbers of selected elements, by line, where the step needs
    values of tensors: numbers, or expressions in hyperparameters (``{"train.py:41": "batch*seq"}``).

    After ``limit`` seconds (by default ``LIMIT_S``) or ``work_limit`` captures what was found by then is finished:
    hyperparameters that change the ops and are not done are held at their values, further thresholds are not looked
    for, and the result says so. With a limit of captures alone the result is the same on any machine, however loaded.

    Raises WorkloadError if a name is no integer hyperparameter or no legal settings are found, CaptureError if the
    workload cannot be captured.
    """
    if isinstance(workload, str):
        from tensortide.recorder.target import workload as named

        name, workload = name or workload, named(workload).function
    from tensortide.recorder.composites import composites_left_out

    limit = LIMIT_S if limit is work_limit is None else limit
    if limit is not None and not limit > 0:
        raise WorkloadError(f"the time limit must be a positive number of seconds, not {limit}")
    settings = dict(hyperparameters or {})
    name = name or getattr(workload, "__name__", "")
    space = Space(workload, over, settings, where, values, parsed(assume))
    with frozen_heap(), tried_once(), composites_left_out(), searched_once():
        clock = Clock(limit, work_limit)
        sampler = Sampler(workload, space, settings, clock, name=name, resolver=resolver, progress=progress)
        return _with_remarks(_with_one_at_least(sampler), clock)


def _with_one_at_least(sampler: Sampler) -> Symbolic:
    """The formulas; in one hyperparameter, the batch if it is one, if the time does not suffice for those in more."""
    over = sampler.space.over
    try:
        return _derived(sampler)
    except OutOfTime as late:
        others = sorted(over, key=lambda name: name != "batch")[1:]
        if not others:
            raise
        sampler.clock.restart()
        found = _derived(sampler.holding(others), sides=False)
        held = {name: found.held.get(name, str(late)) for name in over if name in others}
        return replace(found, held={**found.held, **held}, captures=found.captures + sampler.captures)


def _with_remarks(found: Symbolic, clock: Clock) -> Symbolic:
    """The result with what its formulas leave unsaid in them too: a file of them may be all that is read."""
    notes = found.notes
    if clock.reached and not any(clock.reached in said for said in (*notes, *found.held.values())):
        notes += (f"{clock.reached}: more is found with more (--limit, --work-limit), or with fewer symbols",)
    formulas = replace(found.formulas, settings=found.settings, held=found.held, notes=notes)
    return replace(found, formulas=formulas, notes=notes)


def _derived(sampler: Sampler, *, sides: bool = True) -> Symbolic:
    """The formulas in the hyperparameters of the sampler's space; with ``sides`` those beyond its thresholds too."""
    space = sampler.space
    if switched := _switched_off(sampler):
        found = _derived(sampler.holding(switched), sides=sides)
        return replace(found, held={**found.held, **switched}, captures=found.captures + sampler.captures)
    one = on_the_side_of_the_defaults(sampler)
    if (decided := deciding_remainder(sampler, one)) is not None:
        return with_both(sampler, *decided, _derived, sides=sides)
    other = sampler.generic(space.over, {}, [one])
    if other is None:
        raise WorkloadError(f"only one legal setting of {', '.join(space.over)} was found: {shown(one.setting)}")
    alike = [n for n, v in one.setting.items() if other.setting[n] == v == space.defaults[n] and n not in space.turns]
    fixed = [name for name in alike if not _can_vary(sampler, name, one)]
    if fixed:
        one, other = sampler.without(fixed, (one, other))
    changes = structural(sampler, one, other)
    if changes and (decided := separation(sampler)) is not None:
        return with_both(sampler, *decided, _derived, sides=sides)
    try:
        return _over(sampler, changes, fixed, one, sides=sides)
    except StepsDiffer:
        if (decided := separation(sampler)) is None:
            raise
        return with_both(sampler, *decided, _derived, sides=sides)
    except OutOfTime as late:
        if not changes or space.turns:
            raise
        sampler.clock.restart()
        held = {name: f"{how}; {late}" for name, how in changes.items()}
        found = _derived(sampler.holding(changes), sides=False)
        captures = found.captures + sampler.captures
        return replace(found, held={**found.held, **held}, captures=captures)


def _switched_off(sampler: Sampler) -> dict[str, str]:
    """The hyperparameters whose default of 0 leaves out what the workload does for all others (``if rank:``), with the
    reason to hold them: no other value of them has the workload's own step."""
    zeros, off = [name for name, value in sampler.space.defaults.items() if value == 0], dict[str, str]()
    if not zeros or len(sampler.space.over) == 1:
        return off
    one = sampler.first(sampler.space.over, {})
    for name in zeros:
        without, more = (sampler.at({**one.setting, name: n}) for n in (0, one.setting[name] + 1))
        if without is not None and more is not None and more.skeleton == one.skeleton != without.skeleton:
            reason = f"where {name} != 0 {change(without.graph, one.graph)}; --set another value for its formulas"
            off[name] = reason
    return off


def _over(
    sampler: Sampler, changes: Mapping[str, str], fixed: Collection[str], one: Sample, *, sides: bool
) -> Symbolic:
    """The formulas, where the hyperparameters ``changes`` change the structure, and ``fixed`` ones cannot vary."""
    space = sampler.space
    if len(changes) > 1 and (expr := turns(sampler, changes.keys() - space.turns.keys(), one)) is not None:
        return counted(_derived(sampler.counting(expr), sides=sides), {text(expr): expr})
    sampler.spread(frozenset(space.over) - changes.keys())
    stay_at_home(sampler, {name: one.setting[name] for name in changes})
    structures = Structures(sampler, list(changes), one)
    first = structures.at(structures.base)
    if not changes and (decided := separation(sampler)) is not None:
        return with_both(sampler, *decided, _derived, sides=sides)
    met = None if first is None else Meetings(sampler, first).tried()
    if met and met.deciding:
        return with_both(sampler, *met.deciding, _derived, sides=sides)
    figures, where = structures.fitted(), space.where
    alike = [s for s in met.alike if all(s.setting[n] == structures.base[n] for n in structures.dropped)] if met else []
    checks, least = _checked(sampler, structures, figures, alike)
    if checks.miscounted and (more := missed(sampler, structures.sizes, checks.contradicting)):
        space.where = where
        return _over(sampler, {**changes, **more}, fixed, one, sides=sides)
    checks, limits = _confined(sampler, structures, checks, least, alike)
    structures.dropped |= dict.fromkeys(fixed, "no other legal value of it was found")
    found = Assembly(sampler, structures, changes, checks, limits).result()
    if not sides:
        return found
    derived = functools.partial(_derived, sides=False)
    others = functools.partial(with_others, sampler=sampler, limits=limits, derived=derived)
    return with_own_structure(found, sampler, _derived, others)


def _checked(
    sampler: Sampler, structures: Structures, figures: Figures, alike: Sequence[Sample]
) -> tuple[Checks, list[Condition]]:
    """The figures compared with captures, where no size vanishes; the conditions for that."""
    space, least = sampler.space, not_empty(structures, sampler.space)
    space.where = [*space.where, *least, *structures.among]
    return Checks(sampler, structures, dict(figures), alike).compared(), least


def _confined(
    sampler: Sampler, structures: Structures, checks: Checks, least: Sequence[Condition], alike: Sequence[Sample]
) -> tuple[Checks, Limits]:
    """The figures that survive once formulas were learned from all captures that contradict them, and their limits."""
    space = sampler.space
    if checks.miscounted and structures.join():
        figures = structures.fitted()
        space.where += structures.among
        checks = Checks(sampler, structures, figures, alike).compared()
    where = tightened(space.where, least, checks.contradicting)
    if where != space.where:
        space.where = where
        checks = Checks(sampler, structures, structures.fitted(), alike).compared()
    counterexamples: list[Sample] = []
    while len(counterexamples) < _COUNTEREXAMPLES:
        counterexamples += checks.contradicting
        learned = _learned(sampler, structures, checks.contradicting, [*alike, *counterexamples])
        if learned is None:
            break
        checks = learned
    with contextlib.suppress(OutOfTime):
        checks = _peak_of_later(sampler, structures, checks)
    limits = Limits(sampler, structures, checks).found(final=False)
    if limits.contradicting:
        counterexamples += limits.contradicting
        checks = _learned(sampler, structures, limits.contradicting, [*alike, *counterexamples]) or checks
        limits = Limits(sampler, structures, checks).found(final=True)
    return checks, limits


def _learned(
    sampler: Sampler, structures: Structures, wrong: Sequence[Sample], counterexamples: Sequence[Sample]
) -> Checks | None:
    """The checks of formulas made from captures like those that were ``wrong`` too; None if there are none."""
    before = structures.studies
    with contextlib.suppress(OutOfTime):
        if structures.learn(wrong):
            return Checks(sampler, structures, structures.fitted(), counterexamples).compared()
    structures.studies = before
    return None


def _can_vary(sampler: Sampler, name: str, one: Sample) -> bool:
    """Return whether the workload takes another value of a hyperparameter, the others as they are or near that."""
    space = sampler.space
    values = space.values.get(name) or range(1, 2 * max(SMALL // 4, space.all[name]) + 1)
    settings = [{**one.setting, name: value} for value in values if value != one.setting[name]]
    near = [{**space.defaults, name: value} for value in values if value != one.setting[name]]
    tries = itertools.islice((s for s in (*settings, *near) if space.allows(s)), _OTHER_VALUES)
    return any(sampler.at(setting) is not None for setting in tries)


def _peak_of_later(sampler: Sampler, structures: Structures, checks: Checks) -> Checks:
    """The checks, of peaks that hold from more repetitions on if those from few were wrong."""
    since = structures.since
    if not since or checks.peaks[PEAKS[0]] is not None or checks.contradicting:
        return checks
    moments = structures.later(_SKIPPED)
    if moments is not None:
        found = {figure: expr for figure, expr in checks.found.items() if not isinstance(figure.of, Moment)}
        later = Checks(sampler, structures, found | moments).compared()
        if later.peaks[PEAKS[0]] is not None and not later.contradicting:
            return later
    structures.since = since
    return checks
