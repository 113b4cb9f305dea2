"""Formulas against captures that they were not made from: what is wrong there loses its formula, or its claim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensortide.expr import Condition, Expr, maximum, symbol, total
from tensortide.formulas.peaks import SEARCHED_OPS
from tensortide.formulas.sampler import Sample, Sampler, shown
from tensortide.formulas.space import Setting
from tensortide.formulas.structure import Figure, Structures, numeric, told
from tensortide.memory import timeline

__all__ = ["PEAKS", "Checks"]

PEAKS = ("peak_bytes", "peak_with_workspace_bytes")
_LEAST = ("minimal_footprint_lower_bytes", "minimal_footprint_upper_bytes")
_CHECKED_OPS = 8000
"""The formulas are compared with a capture at the workload's own setting if it has no more ops than this."""


class Checks:
    """The figures ``found``, with the peaks made of their moments, after all comparisons.

    ``peaks`` by the names of totals. ``wrong`` says what lost its formula, and where. ``lowest``: the smallest value of
    each hyperparameter at which the formulas hold; ``only``: further conditions of single peaks. ``right`` are settings
    at which everything was right, ``elsewhere`` those of captures that were made for comparison alone; ``notes`` say
    what is different where a hyperparameter is 1.
    """

    def __init__(self, sampler: Sampler, structures: Structures, found: dict[Figure, Expr | None]) -> None:
        self._sampler = sampler
        self._structures = structures
        self._fold = bool(structures.names)
        self.found = found
        self.fixed = {n: v for n, v in structures.base.items() if n in structures.dropped}
        names = (*PEAKS, *_LEAST)
        self.peaks = {name: _peak(found, column, structures.typical) for column, name in enumerate(names)}
        self.wrong: list[str] = []
        self.lowest = {n: 1 for n in sampler.space.over if n not in structures.dropped}
        self.only: dict[str, list[Condition]] = {}
        self.right: list[Setting] = []
        self.elsewhere: list[Setting] = []
        self.notes: list[str] = []
        self._first = sampler.legal[0].setting
        self._check_elsewhere()
        self._check_ones()

    def _check_elsewhere(self) -> None:
        """Compare with captures that no formula was made from; what is wrong there loses its formula."""
        for sample in self._elsewhere():
            wrong = self._wrong_at(sample)
            for figure in wrong:
                self.wrong.append(f"{told(figure)}: differs at {shown(sample.setting)}")
                self.found[figure] = None
            for name in self._wrong_peaks(sample):
                self.wrong.append(f"{name}: differs at {shown(sample.setting)}")
                self.peaks[name] = None
            self.elsewhere.append(sample.setting)
            self.right.append(sample.setting)

    def _elsewhere(self) -> Iterator[Sample]:
        """A larger structure, then the workload's own setting if it is not too large."""
        known = self._sampler.legal
        larger = {name: self._structures.beyond(name) for name in self._structures.names}
        sample = self._sampler.generic(self._structures.sizes, {**self.fixed, **larger}, known)
        if sample is not None:
            yield sample
        own = {**self._sampler.space.defaults, **self.fixed}
        ops = total(e for f, e in self.found.items() if f.kind == "row" and f.column == 0 and e is not None)
        if own not in [s.setting for s in known] and ops.evaluate(own) <= _CHECKED_OPS:
            sample = self._sampler.at(own)
            if sample is not None:
                yield sample

    def _check_ones(self) -> None:
        """At 1 many ops behave differently. Where formulas fail there, say so: all sizes at once, else one by one."""
        small = {**self._first, **self._structures.base, **self.fixed}
        ones = [name for name in self._structures.sizes if self._sampler.space.allows({**small, name: 1})]
        together = self._sampler.at({**small, **dict.fromkeys(ones, 1)}) if len(ones) > 1 else None
        if together is not None and not self._wrong_at(together) and not self._wrong_peaks(together):
            self.right.append(together.setting)
            ones = []
        for name in [*ones, *self._structures.names]:
            sample = self._one(name, small)
            if sample is None:
                continue
            wrong = self._wrong_at(sample)
            if wrong:
                self.lowest[name] = 2
                self.notes.append(f"at {name}=1 the step is another one, first in {told(wrong[0])}")
                continue
            self.right.append(sample.setting)
            for peak in self._wrong_peaks(sample):
                self.only.setdefault(peak, []).append(Condition(symbol(name) - 2, ">="))

    def _one(self, name: str, small: Setting) -> Sample | None:
        """A legal sample with the hyperparameter at 1 and everything else small."""
        setting = {**small, name: 1}
        sample = self._sampler.at(setting)
        if sample is None:
            others = [n for n in self._structures.sizes if n != name]
            sample = self._sampler.generic(others, setting, patient=False) if others else None
        return sample

    def _wrong_peaks(self, sample: Sample) -> list[str]:
        return [name for name, peak in self.peaks.items() if peak is not None and self._peak_wrong(name, sample)]

    def _wrong_at(self, sample: Sample) -> list[Figure]:
        """The figures whose expressions are not what the capture says."""
        numbers = numeric(sample, self._fold)
        wrong = []
        for figure, expr in self.found.items():
            if figure.kind != "moment" and expr is not None:
                try:
                    value: int | None = expr.evaluate(sample.setting)
                except ArithmeticError:
                    value = None
                if value != numbers.pop(figure, 0):
                    wrong.append(figure)
            else:
                numbers.pop(figure, 0)
        return wrong + [figure for figure, value in numbers.items() if value]

    def _peak_wrong(self, name: str, sample: Sample) -> bool:
        peak = self.peaks[name]
        try:
            value = -1 if peak is None else peak.evaluate(sample.setting)
        except ArithmeticError:
            return True
        if name in PEAKS:
            return value != timeline(sample.graph, workspace=name == PEAKS[1]).peak_bytes
        if len(sample.graph) > SEARCHED_OPS:
            return False
        least = sample.least
        return value > least.upper_bytes if name == _LEAST[0] else value < least.lower_bytes


def _peak(found: Mapping[Figure, Expr | None], column: int, typical: Mapping[str, int]) -> Expr | None:
    """The largest of the moments that have an expression: the checks tell whether one is missing."""
    moments = [e for f, e in found.items() if f.kind == "moment" and f.column == column and e is not None]
    if not moments:
        return None
    return maximum(*sorted(moments, key=lambda expr: -_near(expr, typical)))


def _near(expr: Expr, setting: Mapping[str, int]) -> float:
    value = expr.subs(setting).value
    return 0.0 if value is None else float(value)
