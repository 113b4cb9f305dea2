"""Formulas by sampling: capture, align, solve, check."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tensortide.cost.coverage import shown as shown_op
from tensortide.cost.evaluate import Resolver
from tensortide.errors import WorkloadError
from tensortide.expr import Condition, Expr, constant, maximum, symbol, total
from tensortide.expr.atoms import alternatives
from tensortide.formulas.formulas import Formulas
from tensortide.formulas.measure import MEASURES, Group
from tensortide.formulas.peaks import SEARCHED_OPS
from tensortide.formulas.region import divisible, quotients, simplified, sizes
from tensortide.formulas.result import Regime, Row, Symbolic
from tensortide.formulas.sampler import Sample, Sampler, shown
from tensortide.formulas.space import Scalar, Setting, Space
from tensortide.formulas.structure import Figure, Structures, numeric, structural, told
from tensortide.memory import timeline

__all__ = ["derive"]

_PEAKS = ("peak_bytes", "peak_with_workspace_bytes")
_LEAST = ("minimal_footprint_lower_bytes", "minimal_footprint_upper_bytes")
_CHECKED_OPS = 8000
"""The formulas are compared with a capture at the workload's own setting if it has no more ops than this."""


def derive(
    workload: Callable[..., Any],
    over: Sequence[str],
    settings: Mapping[str, Scalar],
    *,
    where: Sequence[str],
    values: Mapping[str, Sequence[int]],
    name: str,
    resolver: Resolver | None,
    progress: Callable[[str], None],
) -> Symbolic:
    """The formulas of ``workload`` in the hyperparameters ``over``; see ``tensortide.symbolic``."""
    space = Space(workload, over, settings, where, values)
    sampler = Sampler(workload, space, settings, name=name, resolver=resolver, progress=progress)
    one = sampler.first(space.over, {})
    other = sampler.generic(space.over, {}, [one])
    if other is None:
        raise WorkloadError(f"only one legal setting of {', '.join(space.over)} was found: {shown(one.setting)}")
    fixed = {n: v for n, v in one.setting.items() if other.setting[n] == v == space.defaults[n]}
    if fixed:
        space.over = tuple(n for n in space.over if n not in fixed)
        one, other = (dataclasses.replace(s, setting={n: s.setting[n] for n in space.over}) for s in (one, other))
        sampler = Sampler(workload, space, settings, name=name, resolver=resolver, progress=progress)
        sampler.adopt(one)
        sampler.adopt(other)
    changes = structural(sampler, one, other)
    structures = Structures(sampler, list(changes), one)
    found = structures.fitted()
    structures.dropped |= dict.fromkeys(fixed, "no other legal value of it was found")
    return _Derivation(sampler, structures, changes, found, name).result()


class _Derivation:
    """From figures to a checked result."""

    def __init__(
        self,
        sampler: Sampler,
        structures: Structures,
        changes: Mapping[str, str],
        found: dict[Figure, Expr | None],
        name: str,
    ) -> None:
        self._sampler = sampler
        self._structures = structures
        self._changes = changes
        self._found = found
        self._name = name
        self._fold = bool(structures.names)
        self._over = [n for n in sampler.space.over if n not in structures.dropped]
        self._first = sampler.legal[0].setting
        self._fixed = {n: v for n, v in structures.base.items() if n in structures.dropped}
        self._studies = structures.used
        self._peaks = {name: _peak(found, column, structures.typical) for column, name in enumerate((*_PEAKS, *_LEAST))}
        self._numeric: dict[str, None] = {}
        self._lowest = dict.fromkeys(self._over, 1)
        self._right: list[Setting] = []
        self._ones: list[str] = []
        self._only: dict[str, list[Condition]] = {}

    def result(self) -> Symbolic:
        """Everything that survives the checks."""
        checked = self._check_elsewhere()
        self._check_ones()
        rows = tuple(self._rows())
        space, dropped = self._sampler.space, self._structures.dropped
        formulas = Formulas(
            totals=self._totals(rows),
            defaults={name: space.defaults[name] for name in self._over},
            region=self._region(),
            only=self._only_there(),
            workload=self._name,
        )
        unknown = self._studies[0].measured.unknown
        return Symbolic(
            formulas=formulas,
            rows=rows,
            regimes=self._regimes(),
            structural={name: self._changes[name] for name in self._structures.names},
            held={n: f"{self._changes[n]}; {why}" if n in self._changes else why for n, why in dropped.items()},
            settings={**self._sampler.settings, **{n: v for n, v in space.all.items() if n not in self._over}},
            numeric=tuple(self._numeric),
            unknown=dict(unknown),
            captures=self._sampler.captures,
            checked=tuple(checked),
            notes=tuple(self._notes()),
        )

    # -- checks -------------------------------------------------------------------------------------

    def _check_elsewhere(self) -> list[Setting]:
        """Compare with captures that no formula was made from; what is wrong there loses its formula."""
        checked = []
        for sample in self._elsewhere():
            wrong = self._wrong_at(sample)
            for figure in wrong:
                self._numeric[f"{told(figure)}: differs at {shown(sample.setting)}"] = None
                self._found[figure] = None
            for name in self._wrong_peaks(sample):
                self._numeric[f"{name}: differs at {shown(sample.setting)}"] = None
                self._peaks[name] = None
            checked.append(sample.setting)
            self._right.append(sample.setting)
        return checked

    def _elsewhere(self) -> Iterator[Sample]:
        """A larger structure, then the workload's own setting if it is not too large."""
        known = self._sampler.legal
        larger = {name: self._structures.beyond(name) for name in self._structures.names}
        sample = self._sampler.generic(self._structures.sizes, {**self._fixed, **larger}, known)
        if sample is not None:
            yield sample
        own = {**self._sampler.space.defaults, **self._fixed}
        ops = total(e for f, e in self._found.items() if f.kind == "row" and f.column == 0 and e is not None)
        if own not in [s.setting for s in known] and ops.evaluate(own) <= _CHECKED_OPS:
            sample = self._sampler.at(own)
            if sample is not None:
                yield sample

    def _check_ones(self) -> None:
        """At 1 many ops behave differently. Where formulas fail there, say so: all sizes at once, else one by one."""
        small = {**self._first, **self._structures.base, **self._fixed}
        ones = [name for name in self._structures.sizes if self._sampler.space.allows({**small, name: 1})]
        together = self._sampler.at({**small, **dict.fromkeys(ones, 1)}) if len(ones) > 1 else None
        if together is not None and not self._wrong_at(together) and not self._wrong_peaks(together):
            self._right.append(together.setting)
            ones = []
        for name in [*ones, *self._structures.names]:
            sample = self._one(name, small)
            if sample is None:
                continue
            wrong = self._wrong_at(sample)
            if wrong:
                self._lowest[name] = 2
                self._ones.append(f"at {name}=1 the step is another one, first in {told(wrong[0])}")
                continue
            self._right.append(sample.setting)
            for peak in self._wrong_peaks(sample):
                self._only.setdefault(peak, []).append(Condition(symbol(name) - 2, ">="))

    def _one(self, name: str, small: Setting) -> Sample | None:
        """A legal sample with the hyperparameter at 1 and everything else small."""
        setting = {**small, name: 1}
        sample = self._sampler.at(setting)
        if sample is None:
            others = [n for n in self._structures.sizes if n != name]
            sample = self._sampler.generic(others, setting, patient=False) if others else None
        return sample

    def _wrong_peaks(self, sample: Sample) -> list[str]:
        return [name for name, peak in self._peaks.items() if peak is not None and self._peak_wrong(name, sample)]

    def _wrong_at(self, sample: Sample) -> list[Figure]:
        """The figures whose expressions are not what the capture says."""
        numbers = numeric(sample, self._fold)
        wrong = []
        for figure, expr in self._found.items():
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
        peak = self._peaks[name]
        try:
            value = -1 if peak is None else peak.evaluate(sample.setting)
        except ArithmeticError:
            return True
        if name in _PEAKS:
            return value != timeline(sample.graph, workspace=name == _PEAKS[1]).peak_bytes
        if len(sample.graph) > SEARCHED_OPS:
            return False
        least = sample.least
        return value > least.upper_bytes if name == _LEAST[0] else value < least.lower_bytes

    # -- parts of the result ------------------------------------------------------------------------

    def _rows(self) -> Iterator[Row]:
        groups: dict[Group, list[Expr | None]] = {}
        for figure, expr in self._found.items():
            if figure.kind == "row":
                groups.setdefault(figure.group, [constant(0)] * (1 + len(MEASURES)))[figure.column] = expr
        for group, (count, macs, elementwise, read, written) in groups.items():
            yield Row(
                phase=group.phase,
                module=group.module,
                op=group.op,
                count=count,
                product_flops=None if macs is None else 2 * macs,
                elementwise_flops=elementwise,
                bytes=None if read is None or written is None else read + written,
            )

    def _totals(self, rows: Sequence[Row]) -> dict[str, Expr]:
        totals = {
            "parameters": self._held("trainable"),
            "flops": self._sum(rows, "flops"),
            "product_flops": self._sum(rows, "product_flops"),
            "elementwise_flops": self._sum(rows, "elementwise_flops"),
            "bytes": self._sum(rows, "bytes"),
            "footprint_bytes": self._footprint(),
            "io_bytes": self._held("io_bytes"),
            **self._peaks,
        }
        return {name: expr for name, expr in totals.items() if expr is not None}

    def _footprint(self) -> Expr | None:
        for study in self._studies:
            for storage in study.memory.unsolved[:1]:
                self._numeric[f"footprint and peaks: the bytes of {storage} follow no expression"] = None
        return self._found.get(Figure("footprint", ""))

    def _held(self, name: str) -> Expr | None:
        expr = self._found.get(Figure("held", name))
        if expr is None:
            self._numeric[f"{name}: no expression has its values"] = None
        return expr

    def _sum(self, rows: Sequence[Row], measure: str) -> Expr | None:
        parts = [getattr(row, measure) for row in rows]
        for row in rows:
            if getattr(row, measure) is None:
                self._numeric[f"{measure} of {row.op} in {row.module} ({row.phase}): no expression has its values"] = (
                    None
                )
        return None if None in parts else total(parts)

    def _region(self) -> tuple[Condition, ...]:
        # what divides at every structure; at some it may be more, which the declared conditions say or the values show
        terms = set.intersection(*(set(quotients(sizes(study.lifted.graph))) for study in self._studies))
        positive = frozenset(size for study in self._studies for size in sizes(study.lifted.graph))
        bounds = [Condition(symbol(name) - 1, ">") for name, value in self._lowest.items() if value > 1]
        asked = dict.fromkeys(c for study in self._studies for c in study.measured.asked)
        found = (*bounds, *divisible(list(terms)), *simplified(asked, self._lowest, positive, self._right))
        return tuple(dict.fromkeys((*self._declared(), *found)))

    def _only_there(self) -> dict[str, tuple[Condition, ...]]:
        """A moment may not exist with fewer repetitions than were studied: the peaks are not claimed there."""
        studied = [
            Condition(symbol(name) - self._structures.least(name), ">=")
            for name in self._structures.names
            if self._structures.least(name) > 1
        ]
        asked = {name: [*self._only.get(name, ()), *studied] for name, peak in self._peaks.items() if peak is not None}
        return {name: tuple(dict.fromkeys(conditions)) for name, conditions in asked.items() if conditions}

    def _declared(self) -> Iterator[Condition]:
        """The declared conditions of legal settings, at the values of what is no symbol."""
        space = self._sampler.space
        fixed = {name: value for name, value in {**space.all, **self._fixed}.items() if name not in self._over}
        for expr, relation in space.where:
            there = expr.subs(fixed)
            if there.value is None and there.symbols <= set(self._over):
                yield Condition(there, relation)

    def _regimes(self) -> tuple[Regime, ...]:
        """The moments of which the peak is the largest, none twice."""
        peak = self._peaks[_PEAKS[0]]
        if peak is None:
            return ()
        left = dict.fromkeys(alternatives(peak))
        found = []
        for figure, expr in self._found.items():
            if figure.kind == "moment" and figure.column == 0 and expr in left:
                del left[expr]
                moment = figure.moment
                found.append(Regime(phase=moment.phase, module=moment.module, op=shown_op(moment.op), bytes=expr))
        return tuple(found)

    def _notes(self) -> Iterator[str]:
        illegal = self._sampler.illegal
        if illegal:
            setting, reason = next(iter(illegal.items()))
            yield f"skipped {len(illegal)} illegal settings, the first at {setting}: {reason}"
        yield from self._ones


def _peak(found: Mapping[Figure, Expr | None], column: int, typical: Mapping[str, int]) -> Expr | None:
    """The largest of the moments that have an expression: the checks tell whether one is missing."""
    moments = [e for f, e in found.items() if f.kind == "moment" and f.column == column and e is not None]
    if not moments:
        return None
    return maximum(*sorted(moments, key=lambda expr: -_near(expr, typical)))


def _near(expr: Expr, setting: Mapping[str, int]) -> float:
    value = expr.subs(setting).value
    return 0.0 if value is None else float(value)
