"""Limits of formulas: thresholds of the workload, found and named, and the ranges in which formulas were tested.

Comparisons in the workload's code are known (``observe``): a setting just beyond one tells whether the step is another
one there. Comparisons inside PyTorch, and with the length of a tensor, are not: settings far above the defaults tell
whether there is a threshold, and bisection at which value.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence

from tensortide.cost.coverage import shown as shown_op
from tensortide.expr import Condition, Expr, constant, symbol
from tensortide.expr.expr import Opaque
from tensortide.formulas.checks import Checks
from tensortide.formulas.far_settings import (
    deeper_settings,
    evened,
    far_settings,
    joint_settings,
    lowest_setting,
    violations,
)
from tensortide.formulas.formulas import Threshold
from tensortide.formulas.measure import pattern
from tensortide.formulas.region import simplified, sizes, value_of
from tensortide.formulas.sampler import OutOfTime, Sample, Sampler
from tensortide.formulas.space import Setting
from tensortide.formulas.structures import Structures
from tensortide.graph.model import Graph

_PROBES = 16
"""Conditions of the workload's code that are tried beyond; further ones stay conditions of the formulas."""
_TURNS = 4
"""Times that far settings are tried below a further threshold."""
_BISECTIONS = 40
"""Captures to find one threshold with."""


class Limits:
    """The conditions under which the figures of ``checks`` are claimed, besides those that legal settings meet.

    ``guards``: what the workload's code found in every capture, and matters. ``thresholds`` are those of all conditions
    beyond which the step is another one, ``beyond`` a setting there for each. ``contradicting``: captures far above the
    defaults with the same ops and other figures, from which formulas may be learned; none if these are ``final``.
    """

    def __init__(self, sampler: Sampler, structures: Structures, checks: Checks) -> None:
        self._sampler, self._structures, self._checks = sampler, structures, checks
        self._base = structures.base_study
        self._low: Setting = {**self._base.samples[0].setting, **checks.fixed}
        self.thresholds: list[Threshold] = []
        self.beyond: list[Setting] = []
        self.located: list[Condition] = []
        self.contradicting: list[Sample] = []
        self.finished = False
        """False if the time did not suffice to look for all thresholds."""

    def found(self, *, final: bool) -> Limits:
        """Look for all thresholds, with further captures."""
        space = self._sampler.space
        with contextlib.suppress(OutOfTime):
            guards = self._guards()
            for guard in guards[:_PROBES]:
                self._probe(guard, guards)
            for condition in self._constant()[:_PROBES]:
                for settings in violations(self._sampler, condition, self._low):
                    if space.meets(settings[0], self._claimed()):
                        self._try(settings[0], final=True)
            self._look_far(final)
            self.finished = True
        for name, sample in self._checks.ones.items():
            if space.meets(sample.setting, self.guards):
                self._note(Condition(symbol(name) - 1, ">"), self._base.samples[0], sample)
        return self

    @property
    def guards(self) -> tuple[Condition, ...]:
        """The conditions that the workload's code found to hold in every capture, without those that do not matter."""
        return (*self._guards(), *self.located)

    def _guards(self) -> tuple[Condition, ...]:
        studies = self._structures.used
        paths = [study.path for study in studies]
        fixed = {n: v for n, v in self._sampler.space.all.items() if n not in self._checks.lowest}
        common = [c for c in paths[0] if all(c in path for path in paths[1:])]
        moved = [Condition(c.expr.subs(fixed), c.relation) for c in common]
        # a size that the condition alone keeps from vanishing does not make it certain: ``vocab - cutoff``
        asked = {expr + (relation == ">=") for expr, relation in moved}
        positive = frozenset(size for study in studies for size in sizes(study.graph)) - asked
        varying = [c for c in moved if c.expr.value is None]
        open_ones = [c for c in varying if not self._passed(c, varying)]
        # where totals are claimed at sizes of 1, what the larger sizes imply together is not certain
        lowest = self._structures.lowest if self._checks.alike else self._checks.lowest
        kept = dict.fromkeys(simplified(open_ones, self._checks.lowest, positive, []))
        kept |= dict.fromkeys(c for c in simplified(open_ones, lowest, positive, []) if len(c.expr.symbols) > 1)
        return tuple(c for c in kept if c.divisor is None or c not in self._sampler.space.where)

    def _passed(self, guard: Condition, beside: Sequence[Condition] = ()) -> bool:
        """Return whether all was right where a condition does not hold. Just at a threshold, or at that of one of the
        conditions ``beside`` it, two sides may agree: ``max(4, min(rank, 1))`` is ``rank`` where that is 4."""
        near = [guard, *(one for one in beside if one.expr.symbols & guard.expr.symbols)]
        ties = [one.expr for one in near if one.relation in (">", ">=")]
        for setting in ({**self._sampler.space.all, **right} for right in self._checks.right):
            value = value_of(guard.expr, setting)
            is_beyond = value is not None and not guard.holds(value)
            if is_beyond and not any(value_of(expr, setting) in (0, -1) for expr in ties):
                return True
        return False

    def _probe(self, guard: Condition, guards: Sequence[Condition]) -> None:
        """Capture just beyond a condition, unless another probe did: right there, it does not matter."""
        self._sampler.clock.check()
        if self._passed(guard, guards):
            return
        for settings in violations(self._sampler, guard, self._low):
            samples = [sample for setting in settings if (sample := self._sampler.at(setting)) is not None]
            wrong = next((sample for sample in samples if self._wrong(sample)), None)
            if wrong is not None:
                self._note(guard, self._base.samples[0], wrong)
                return
            if samples:
                self._checks.right += [sample.setting for sample in samples]
                return

    def _constant(self) -> list[Condition]:
        """Conditions that roundings and the like that the workload's code computes have the one value that they have in
        all samples, which tell nothing of them: ``floor(2/cycle)`` is 0 for all but small cycles."""
        samples = [sample for study in self._structures.used for sample in study.samples]
        made = samples[0].seen.in_terms_of(self._base.reads).made
        found = []
        for atom in dict.fromkeys(atom for expr in made for atom in expr.atoms if isinstance(atom, Opaque)):
            expr = Expr({((atom, 1),): 1})
            value = self._sampler.space.value(expr, samples[0].setting)
            if value is not None and all(self._sampler.space.value(expr, s.setting) == value for s in samples):
                found.append(Condition(expr - value, "=="))
        return found

    def _wrong(self, sample: Sample) -> bool:
        return bool(self._checks.wrong_at(sample))

    def _note(self, condition: Condition, inside: Sample, outside: Sample, together: Sequence[Condition] = ()) -> None:
        where = f" where {' and '.join(map(str, together))}" if together else ""
        what = change(inside.graph, outside.graph) + where
        self.thresholds.append(Threshold(condition=condition, change=what))
        self.beyond.append(outside.setting)

    # -- far above the defaults -----------------------------------------------------------------------

    def _look_far(self, final: bool) -> None:
        """Try far settings; again below a threshold that was found so. Then few sizes and many repetitions."""
        space, names = self._sampler.space, self._structures.sizes
        for _ in range(_TURNS):
            known = len(self.located)
            for setting in far_settings(space, names, self._low, self._claimed(), self._sampler.far):
                self._try(setting, final=final)
                if len(self.located) > known:
                    break
            else:
                break
        self._try_lowest()
        low = evened(space, names, self._low, self._claimed())
        for setting in deeper_settings(space, self._structures.names, low, self._claimed(), self._checks.ops):
            self._try(setting, final=final)
        if len(self._structures.names) > 1:
            self._check_peaks_of_several()

    def _check_peaks_of_several(self) -> None:
        """Claim the peaks of several repetitions only where few are checked to meet: the moment that decides may have
        been in none of the studies."""
        space, names, checks = self._sampler.space, self._structures.names, self._checks
        own = {**space.defaults, **checks.fixed}
        settings = list(joint_settings(space, names, self._low, self._claimed(), self._checks.ops))
        for sample in filter(None, map(self._sampler.at, settings)):
            for peak in checks.wrong_peaks(sample):
                checks.withdraw(peak, sample.setting)
        for peak in [peak for peak, expr in checks.peaks.items() if expr is not None]:
            largest = own if own in checks.right else [*settings, self._low][0]
            if checks.claims(peak, own):
                checks.only.setdefault(peak, []).extend(_at_most(name, largest[name]) for name in names)
            else:  # claimed for the own structure alone, it says more
                repeated = " and ".join(f"{name}={own[name]}" for name in names)
                checks.wrong.append(f"{peak}: the moments that decide in larger structures are not those at {repeated}")
                checks.peaks[peak] = None

    def _claimed(self) -> list[Condition]:
        """The conditions under which the figures are claimed as far as is known."""
        lowest = (Condition(symbol(name) - value, ">=") for name, value in self._checks.lowest.items())
        return [*self.guards, *self._checks.apart, *lowest]

    def _try_lowest(self) -> None:
        """Try the smallest sizes that the conditions allow, unless as small ones were: from where on what is wrong
        there is right, bisection finds."""
        names = self._structures.sizes
        for _ in range(_TURNS):
            tried = {name: min(setting[name] for setting in [self._low, *self._checks.right]) for name in names}
            lowest = self._checks.lowest
            setting = lowest_setting(self._sampler.space, names, self._low, lowest, self._claimed())
            sample = self._sampler.at(setting) if any(setting[n] < value for n, value in tried.items()) else None
            if sample is None:
                return
            if not self._wrong(sample):
                for peak in self._checks.wrong_peaks(sample):
                    blamed = self._blamed(sample, functools.partial(self._peak_wrong, peak))
                    self._checks.only.setdefault(peak, []).extend(self._bounds(*blamed))
                self._checks.right.append(sample.setting)
                return
            self._locate(sample)

    def _peak_wrong(self, peak: str, sample: Sample) -> bool:
        return peak in self._checks.wrong_peaks(sample)

    def _try(self, setting: Setting, *, final: bool) -> None:
        self._sampler.clock.check()
        sample = self._sampler.at(setting)
        if sample is None or sample.setting in self._checks.right or sample in self.contradicting:
            return
        if not self._wrong(sample):
            self._checks.right.append(sample.setting)
            self._checks.elsewhere.append(sample.setting)
            for peak in self._checks.wrong_peaks(sample):
                self._checks.only.setdefault(peak, []).extend(self._near())
        elif not final and any(sample.skeleton == study.samples[0].skeleton for study in self._structures.used):
            self.contradicting.append(sample)
        else:
            self._locate(sample)

    def _locate(self, outside: Sample) -> None:
        """Find the condition beyond which a setting, far or small, is another step."""
        if (tight := self._tight(outside)) is not None:
            self.located.append(tight)
            self._note(tight, self._base.samples[0], outside)
            return
        sizes, inside, outside = self._blamed(outside, self._wrong)
        crossed, together = self._crossed(inside, outside)
        found = [crossed] if crossed is not None else self._bounds(sizes, inside, outside)
        self.located += found
        self._note(found[-1], inside, outside, together if crossed is not None else [])

    def _blamed(self, outside: Sample, wrong: Callable[[Sample], bool]) -> tuple[list[str], Sample, Sample]:
        """The sizes that make a step ``wrong``, if only together, and the nearest two captures between which the last
        of them does. All other sizes are as in the samples, where that is legal."""
        needed: list[str] = []
        moved = [name for name, value in self._low.items() if outside.setting[name] != value]
        for name in moved:
            sample = self._sampler.at({**outside.setting, name: self._low[name]})
            if sample is not None and wrong(sample):
                outside = sample
            elif sample is not None:
                needed.append(name)
        last = (needed or [name for name in moved if outside.setting[name] != self._low[name]])[-1]
        inside = self._sampler.at({**outside.setting, last: self._low[last]}) or self._base.samples[0]
        return needed, *self._bisected(last, inside, outside, wrong)

    def _bounds(self, sizes: Sequence[str], inside: Sample, outside: Sample) -> list[Condition]:
        """Conditions that leave out ``outside``: a bound of the one size that matters; else no size is larger than in
        the workload's own setting, where the formulas were checked, or a product of small ones is larger."""
        above = [name for name, value in self._low.items() if outside.setting[name] > value]
        if len(sizes) == 1:
            return [(_at_most if above else _at_least)(sizes[0], inside.setting[sizes[0]])]
        if above:
            return self._near()
        product = math.prod(map(symbol, sizes or self._structures.sizes), start=constant(1))
        return [Condition(product - product.evaluate(outside.setting), ">")]

    def _tight(self, outside: Sample) -> Condition | None:
        """A condition of legal settings of which only one side's being larger leaves the step as it is: a slice up to
        ``min(positions, seq)`` is another op where the two are equal."""
        space = self._sampler.space
        for expr, relation in space.where:
            if relation != ">=" or len(expr.symbols) < 2 or value_of(expr, outside.setting) != 0:
                continue
            for name in sorted(expr.symbols & set(self._low)):
                setting = {**outside.setting, name: outside.setting[name] + space.unit(name, outside.setting)}
                sample = self._sampler.at(setting) if space.at(Condition(expr, ">"), setting) else None
                if sample is not None and not self._wrong(sample):
                    return Condition(expr, ">")
        return None

    def _crossed(self, inside: Sample, outside: Sample) -> tuple[Condition | None, list[Condition]]:
        """The first condition that the workload's code finds in one of two captures and not in the other; None if it
        is not the threshold, as everything was right somewhere beyond it. With it those that it must meet with others,
        which do not hold in the sampled settings."""
        paths = [sample.seen.in_terms_of(self._base.reads).path for sample in (inside, outside)]
        beyond = next((condition for condition in paths[1] if condition.opposite in paths[0]), None)
        if beyond is None:
            return None, []
        space = self._sampler.space
        fixed = {n: v for n, v in space.all.items() if n not in self._checks.lowest}
        found = Condition(beyond.opposite.expr.subs(fixed), beyond.opposite.relation)
        held = [space.at(found, setting) for setting in (*self._checks.right, self._low, {})]
        if not all(held) or space.at(found, outside.setting):
            return None, []
        before = itertools.takewhile(lambda condition: condition != beyond, paths[1])
        return found, [condition for condition in before if space.at(condition, self._low) is False]

    def _bisected(
        self, name: str, inside: Sample, outside: Sample, wrong: Callable[[Sample], bool]
    ) -> tuple[Sample, Sample]:
        """The captures nearest to each other in a size between which the step becomes another one."""
        unit = self._sampler.space.unit(name, inside.setting)
        for _ in range(_BISECTIONS):
            if abs(outside.setting[name] - inside.setting[name]) <= unit:
                break
            middle = (inside.setting[name] + outside.setting[name]) // (2 * unit) * unit
            sample = self._sampler.at({**inside.setting, name: middle})
            if sample is None:
                break
            inside, outside = (inside, sample) if wrong(sample) else (sample, outside)
        return inside, outside

    def _near(self) -> list[Condition]:
        """Conditions that no size is larger than in the workload's own setting, where the formulas were checked."""
        defaults = self._sampler.space.defaults
        claimed = ((name, value) for name, value in self._low.items() if name in self._checks.lowest)
        return [_at_most(name, max(defaults[name], value)) for name, value in claimed]


def _at_most(name: str, value: int) -> Condition:
    return Condition(value - symbol(name), ">=")


def _at_least(name: str, value: int) -> Condition:
    return Condition(symbol(name) - value, ">=")


def change(inside: Graph, outside: Graph) -> str:
    """The difference of one step from another: in its modules, else in its ops, else in sizes only."""
    for found in (_modules, _ops):
        before, after = found(inside), found(outside)
        differences = {"appears": after - before, "disappears": before - after}
        if parts := [_listed(verb, kinds) for verb, kinds in differences.items() if kinds]:
            return "; ".join(parts)
    return "sizes follow other formulas"


def _modules(graph: Graph) -> Counter[tuple[str, str]]:
    """Kind and place of each module."""
    return Counter(
        (f"{'an' if module.type[0] in 'AEIOU' else 'a'} {module.type}", pattern(module.path) or "the model")
        for module in graph.modules
    )


def _ops(graph: Graph) -> Counter[tuple[str, str]]:
    """Name and place of each op."""
    return Counter((shown_op(graph.calls[op.call].op), pattern(graph.module_path(op.module))) for op in graph.ops)


def _listed(verb: str, found: Counter[tuple[str, str]]) -> str:
    named = [f"{kind} {verb} in {place}" for kind, place in found]
    return ", ".join(named[:2]) + (f" and {len(named) - 2} more" if len(named) > 2 else "")
