"""Checks of formulas against captures they were not fitted to: a wrong figure loses its formula, or its claim."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from tensortide.expr import Condition, Expr, symbol, total
from tensortide.expr.atoms import alternatives
from tensortide.formulas.far_settings import lowest_setting
from tensortide.formulas.measure import EXPLAINED, FOOTPRINT, Figure, Figures, Level, Moment, numeric, sums
from tensortide.formulas.meeting_sizes import computed_sizes, ones_at, settings_of_one
from tensortide.formulas.peaks import LITTLE_WORK, MORE_WORK, SEARCHED_OPS, falls_short, largest
from tensortide.formulas.region import quotients, sizes
from tensortide.formulas.sampler import Sample, Sampler, shown
from tensortide.formulas.space import Setting
from tensortide.formulas.structures import Structures
from tensortide.timelines import timeline

PEAKS = ("peak_bytes", "peak_with_workspace_bytes")
LEAST = ("minimal_footprint_lower_bytes", "minimal_footprint_upper_bytes")
_COMPUTED = 4
"""Sizes that the step computes, which are tried at 1."""
_STUDIED = 4
"""Studies that bear out a peak of several repetitions."""
_CHECKED_OPS = 8000
"""The formulas are compared with a capture at the workload's own setting if it has no more ops than this."""


class Checks:
    """The figures ``found``, with the peaks made of their moments, and what comparisons with captures say of them.

    ``peaks`` by the names of totals. ``wrong`` says what lost its formula, and where. ``lowest``: the smallest value of
    each hyperparameter at which every figure holds, ``apart`` says which must be larger than what divides them;
    ``alike`` are totals that hold below these too, ``only``: further conditions of single peaks. ``right`` are settings
    at which everything was right, ``elsewhere`` those of captures that were made for comparison alone,
    ``contradicting`` those of them that differ; ``notes`` say what is different where a hyperparameter is 1.
    ``ones`` are captures at which a size of 1, by its name, makes another step. ``counterexamples`` are captures to
    compare with as well.
    """

    def __init__(
        self,
        sampler: Sampler,
        structures: Structures,
        found: Figures,
        counterexamples: Sequence[Sample] = (),
    ) -> None:
        self._sampler = sampler
        self._structures = structures
        self._fold = bool(structures.names)
        self.found = found
        self.fixed = {n: v for n, v in structures.base.items() if n in structures.dropped}
        names = (*PEAKS, *LEAST)
        self.peaks = {name: _peak(found, level, structures.typical) for level, name in zip(Level, names, strict=False)}
        self.explained_peak = _peak(found, Level.EXPLAINED, structures.typical)
        """The peak of the storages whose bytes have an expression, where not all have one."""
        self.wrong: list[str] = []
        self._searched = self.peaks[LEAST[1]] is not None
        self.lowest = {n: structures.lowest.get(n, 1) for n in sampler.space.over if n not in structures.dropped}
        self.alike = frozenset(sums({}))
        self.only: dict[str, list[Condition]] = {}
        self.apart: list[Condition] = []
        self.right: list[Setting] = []
        self.elsewhere: list[Setting] = []
        self.contradicting: list[Sample] = []
        self.miscounted = False
        """True if a capture has other ops than the formulas say."""
        self.notes: list[str] = []
        self.ones: dict[str, Sample] = {}
        self._used = [sample.setting for study in structures.used for sample in study.samples]
        self._counterexamples = counterexamples
        self._first = sampler.legal[0].setting

    def compared(self) -> Checks:
        """Make all comparisons, with further captures."""
        self._check_studies()
        self._check_elsewhere()
        self._check_ones()
        self._check_quotients()
        self._check_computed()
        self._check_alike()
        self._check_bounds()
        return self

    def _check_bounds(self) -> None:
        """Let the captured order be the upper bound of the minimal footprint where the one that was found is below the
        lower bound somewhere, as it may be with other numbers of repetitions."""
        if self.peaks[PEAKS[0]] is None and self.found.get(Figure(FOOTPRINT)) is None:
            # what is wrong in both may be wrong in the bounds too, which a search seldom tells
            self.wrong += [f"{name}: footprint and peak have no formula" for name in LEAST if self.peaks[name]]
            self.peaks |= dict.fromkeys(LEAST)
        lower, upper = (self.peaks[name] for name in LEAST)
        usual = {**self._sampler.space.defaults, **self.fixed}
        if upper is None or (
            lower is not None
            and self._structures.since
            and falls_short(alternatives(upper), alternatives(lower), usual)
        ):
            self.peaks[LEAST[1]] = self.peaks[PEAKS[0]] if self._searched else None

    def withdraw(self, peak: str, setting: Setting) -> None:
        """Withdraw the formula of a peak that is wrong at ``setting``."""
        self.wrong.append(f"{peak}: differs at {shown(setting)}")
        self.peaks[peak] = None

    def _check_studies(self) -> None:
        """Withdraw peaks that a moment of a studied structure exceeds: one without an expression in all structures."""
        since = self._structures.since
        bad: dict[str, list[Mapping[str, int]]] = {}
        for study in self._structures.used if since else ():
            usual = {n: self._sampler.space.defaults[n] for n in self._structures.sizes}
            for level, name in zip(Level, self.peaks, strict=False):
                peak = self.peaks[name]
                if peak is not None and all(study.structure[n] >= value for n, value in since.items()):
                    known, said = _moments(study.figures, level), [e.subs(study.structure) for e in alternatives(peak)]
                    smaller, larger = (known, said) if name == LEAST[0] else (said, known)
                    if known and falls_short(smaller, larger, usual):
                        bad.setdefault(name, []).append(study.structure)
        for name, several in bad.items():
            self._claim_above(name, several)

    def _claim_above(self, name: str, bad: Sequence[Mapping[str, int]]) -> None:
        """Claim a peak only of structures larger than those at which a moment exceeds it, if enough were studied."""
        since, studied = self._structures.since, [study.structure for study in self._structures.used]
        choices = itertools.product(*({max(v, s[n]) for s in studied} for n, v in since.items()))
        best: list[Condition] = []
        most = _STUDIED - 1
        for chosen in choices if len(since) > 1 else ():
            conditions = [Condition(symbol(n) - v, ">=") for n, v in zip(since, chosen, strict=True)]
            left = sum(_holds(conditions, structure) for structure in studied)
            own = _holds(conditions, self._sampler.space.defaults)
            if own and left > most and not any(_holds(conditions, structure) for structure in bad):
                best, most = conditions, left
        if best:
            self.only.setdefault(name, []).extend(best)
            return
        what = "exceeds the bound" if name == LEAST[0] else "falls short of a moment"
        self.wrong.append(f"{name}: {what} at {shown(bad[0])}")
        self.peaks[name] = None

    def _check_elsewhere(self) -> None:
        """Compare with captures that no formula was made from; what is wrong there loses its formula."""
        for sample in self._elsewhere():
            wrong = self.wrong_at(sample)
            own = {**self._sampler.space.defaults, **self.fixed}
            if wrong and sample.setting != own and (beyond := ones_at(self._computed, sample.setting, self._used)):
                self.apart += beyond
                self._compare_sums(sample)
                continue
            for figure in wrong:
                self.wrong.append(f"{figure}: differs at {shown(sample.setting)}")
                self.found[figure] = None
            if wrong:
                self.contradicting.append(sample)
            if any(figure.is_count for figure in wrong):
                self.miscounted = True
                # of ops in other numbers than the formulas say, the bounds may be right by chance
                for name in LEAST:
                    if self.peaks[name] is not None:
                        self.withdraw(name, sample.setting)
            for name in self.wrong_peaks(sample):
                self.withdraw(name, sample.setting)
            self.elsewhere.append(sample.setting)
            self.right.append(sample.setting)

    def _elsewhere(self) -> Iterator[Sample]:
        """The workload's own setting if it is not too large, and a larger structure. Sizes of 1 are compared for
        themselves: here they are 2."""
        known = self._sampler.legal
        yield from (sample for sample in self._counterexamples if sample.setting not in self._used)
        larger = {name: self._structures.beyond(name) for name in self._structures.names}
        own = {**self._sampler.space.defaults, **self.fixed}
        own |= {name: 2 for name in self._structures.sizes if own[name] == 1}
        sample = None
        if (
            own not in self._used
            and own not in [s.setting for s in self._counterexamples]
            and total(e for e in self._counts if e is not None).evaluate(own) <= _CHECKED_OPS
        ):
            sample = self._sampler.at(own)
            if sample is not None:
                yield sample
        # the own setting may be a larger structure itself
        if sample is None or sample in self.contradicting or any(own[n] <= v for n, v in larger.items()):
            sample = self._sampler.generic(self._structures.sizes, {**self.fixed, **larger}, known)
            if sample is not None:
                yield sample

    @property
    def _counts(self) -> list[Expr | None]:
        """The numbers of ops of all rows."""
        return [expr for figure, expr in self.found.items() if figure.is_count]

    @property
    def ops(self) -> Expr | None:
        """The number of ops of a step, if it has a formula."""
        return None if None in self._counts else total(expr for expr in self._counts if expr is not None)

    @property
    def _small(self) -> Setting:
        return {**self._first, **self._structures.base, **self._structures.since, **self.fixed}

    def _right_at_ones(self, small: Setting, ones: Sequence[str]) -> list[str]:
        """Return which sizes of ``ones``, those that may be 1, are 1 where all figures are right: with all sizes as
        small as is legal at once, else with these at 1; none of less than two."""
        if len(ones) < 2:
            return []
        lowest = lowest_setting(self._sampler.space, self._structures.sizes, small, dict.fromkeys(self.lowest, 1), [])
        together = {**small, **dict.fromkeys(ones, 1)}
        for sample in map(self._sampler.at, [lowest, together] if lowest != together else [together]):
            if sample is not None and not self.wrong_at(sample) and not self.wrong_peaks(sample):
                self.right.append(sample.setting)
                if small_ones := [name for name in ones if sample.setting[name] == 1]:
                    return small_ones
        return []

    def _check_ones(self) -> None:
        """Check the formulas at size 1, where many ops behave differently: all sizes at once, else one by one."""
        small = self._small
        ones = [name for name in self._structures.sizes if self._sampler.space.allows({**small, name: 1})]
        right = self._right_at_ones(small, ones)
        ones = [name for name in ones if name not in right]
        for name in [*ones, *(name for name in self._structures.names if self.lowest[name] == 1)]:
            sample = self._one(name, small)
            if sample is None:
                continue
            # of a structure smaller than all that moments were fitted from nothing is claimed
            claimed = self._structures.since.get(name, 1) == 1
            if not self._right_at(sample, f"{name}=1", Condition(symbol(name) - 2, ">="), peaks=claimed):
                self.lowest[name] = 2
                if name in ones:
                    self.ones[name] = sample

    def _check_quotients(self) -> None:
        """The same where a hyperparameter is just what divides it: with as many groups as heads nothing is grouped."""
        small = self._small
        for name, divisor in self._divided():
            value = divisor.subs(small).value
            if value is None or value.denominator != 1:
                continue  # half of an odd number of heads is no size
            sample = self._sampler.at({**small, name: int(value)})
            if sample is None or sample.setting in self._used:
                continue
            larger = Condition(symbol(name) - divisor, ">")
            if not self._right_at(sample, f"{name}={divisor}", larger):
                self.apart.append(larger)

    def _check_alike(self) -> None:
        """Compare the totals that hold at every single 1 where all of them meet, as far as that is legal."""
        ones = [name for name in self.ones if self.lowest[name] > 1]
        if not ones or not self.alike:
            return
        small = self._small
        together = self._sampler.at({**small, **dict.fromkeys(ones, 1)})
        if together is None:
            self.alike = frozenset()
            return
        self._compare_sums(together)
        lowest = lowest_setting(self._sampler.space, self._structures.sizes, small, dict.fromkeys(self.lowest, 1), [])
        sample = self._sampler.at(lowest)
        if sample is not None:
            self._compare_sums(sample)

    def _compare_sums(self, sample: Sample) -> None:
        """Keep those of the totals ``alike`` that are right at a capture where single figures are not."""
        numbers = numeric(sample.count, timeline(sample.graph).footprint_bytes, fold=self._fold)
        said = sums({f: None if expr is None else _at(expr, sample.setting) for f, expr in self.found.items()})
        self.alike &= frozenset(
            name for name, value in sums(numbers).items() if value is not None and said[name] == value
        )

    @property
    def _computed(self) -> list[Expr]:
        return computed_sizes(self._structures.base_study.graph, self._structures.sizes)

    def _check_computed(self) -> None:
        """The same where a size that the step computes is 1, as a count of windows may be."""
        ones = [name for name in self._structures.sizes if self.lowest[name] == 1]
        for size in self._computed[:_COMPUTED]:
            larger = Condition(size - 1, ">")
            settings = settings_of_one(self._sampler.space, size, self._small, ones)
            for sample in map(self._sampler.at, settings):
                if larger not in self.apart and sample is not None and not self._right_at(sample, f"{size}=1", larger):
                    self.apart.append(larger)

    def _right_at(self, sample: Sample, place: str, beyond: Condition, *, peaks: bool = True) -> bool:
        """Return whether all figures are right where a hyperparameter is smallest. Peaks that are wrong there are
        claimed ``beyond`` it only."""
        wrong = self.wrong_at(sample)
        if wrong:
            self.notes.append(f"at {place} the step is another one, first in {wrong[0]}")
            self._compare_sums(sample)
            return False
        self.right.append(sample.setting)
        for peak in self.wrong_peaks(sample) if peaks else ():
            self.only.setdefault(peak, []).append(beyond)
        return True

    def _divided(self) -> Iterator[tuple[str, Expr]]:
        """Sizes that others divide, declared or seen, with these."""
        known = self._sampler.space.divisors
        declared = {(name, divisor) for divisor, number in known for name in number.symbols if number == symbol(name)}
        seen = {
            (name, symbol(name) / term)
            for study in self._structures.used[:1]
            for term in quotients(sizes(study.graph))
            for ((name, exponent), *_) in [sorted(next(iter(term.terms)), key=lambda power: -power[1])]
            if exponent == 1 and isinstance(name, str)
        }
        for name, divisor in sorted(declared | seen, key=str):
            whole = all(exponent > 0 for monomial in divisor.terms for _, exponent in monomial)
            if whole and name in self._structures.sizes and set() < divisor.symbols <= set(self._structures.sizes):
                yield name, divisor

    def _one(self, name: str, small: Setting) -> Sample | None:
        """A legal sample with the hyperparameter at 1 and everything else small."""
        setting = {**small, name: 1}
        sample = self._sampler.at(setting)
        if sample is None:
            others = [n for n in self._structures.sizes if n != name]
            sample = self._sampler.generic(others, setting, patient=False) if others else None
        return sample

    def wrong_peaks(self, sample: Sample) -> list[str]:
        """The peaks whose expressions are not what the capture says, and the bounds that no search confirms there; none
        of a structure in which none is claimed."""
        claimed = {n: e for n, e in self.peaks.items() if e is not None and self.claims(n, sample.setting)}
        return [name for name, peak in claimed.items() if self._peak_wrong(name, peak, sample)]

    def claims(self, peak: str, setting: Setting) -> bool:
        """Return whether a peak is claimed at a setting as far as is known."""
        conditions, at = self.only.get(peak, ()), self._sampler.space.at
        return self._structures.claims_moments(setting) and all(at(one, setting) is not False for one in conditions)

    def wrong_at(self, sample: Sample) -> list[Figure]:
        """The figures whose expressions are not what the capture says."""
        numbers = numeric(sample.count, timeline(sample.graph).footprint_bytes, fold=self._fold)
        wrong = []
        for figure, expr in self.found.items():
            number = numbers.pop(figure, 0)
            if (
                not isinstance(figure.of, Moment)
                and figure.of != EXPLAINED
                and expr is not None
                and _at(expr, sample.setting) != number
            ):
                wrong.append(figure)
        return wrong + [figure for figure, number in numbers.items() if number]

    def _peak_wrong(self, name: str, peak: Expr, sample: Sample) -> bool:
        value = _at(peak, sample.setting)
        if name in PEAKS or value is None:
            return value != timeline(sample.graph, workspace=name == PEAKS[1]).peak_bytes
        if len(sample.graph) > SEARCHED_OPS:
            return False
        searched = ((least.lower_bytes, least.upper_bytes) for least in map(sample.least, (LITTLE_WORK, MORE_WORK)))
        for lower, upper in itertools.chain([sample.sure_least], searched):
            if value <= lower if name == LEAST[0] else value >= upper:
                return False
            if not lower <= value <= upper:
                break
        return True


def _holds(conditions: Sequence[Condition], structure: Mapping[str, int]) -> bool:
    return all(condition.holds(condition.expr.evaluate(structure)) for condition in conditions)


def _at(expr: Expr, setting: Setting) -> int | None:
    """The value of an expression, None if it has none."""
    try:
        return expr.evaluate(setting)
    except ArithmeticError:
        return None


def _moments(figures: Figures, level: Level) -> list[Expr]:
    return [e for f, e in figures.items() if isinstance(f.of, Moment) and f.column == level and e is not None]


def _peak(found: Figures, level: Level, typical: Mapping[str, int]) -> Expr | None:
    """The largest of the moments that have an expression: the checks tell whether one is missing."""
    moments = _moments(found, level)
    return largest(moments, typical) if moments else None
