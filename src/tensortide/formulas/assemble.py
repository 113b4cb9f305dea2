"""Assembly of a checked result: totals, region, regimes and notes, from the figures that survive the checks."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tensortide.cost.coverage import shown as shown_op
from tensortide.expr import Condition, Expr, constant, nonnegative, symbol, total
from tensortide.expr.atoms import alternatives
from tensortide.formulas.checks import PEAKS, Checks
from tensortide.formulas.formulas import Formulas, Partial
from tensortide.formulas.limits import Limits
from tensortide.formulas.measure import (
    EXPLAINED,
    FOOTPRINT,
    Column,
    Figure,
    Group,
    Level,
    Listed,
    Moment,
    group_of,
    numeric,
)
from tensortide.formulas.region import divisible, folded, quotients, simplified, sizes
from tensortide.formulas.result import Regime, Row, Symbolic
from tensortide.formulas.sampler import Sampler
from tensortide.formulas.shortening import simple, within_region
from tensortide.formulas.structures import Structures


class Assembly:
    """A result from the figures of ``checks``, claimed within ``limits``."""

    def __init__(
        self,
        sampler: Sampler,
        structures: Structures,
        changes: Mapping[str, str],
        checks: Checks,
        limits: Limits,
    ) -> None:
        self._sampler, self._structures, self._changes, self._checks = sampler, structures, changes, checks
        self._limits = limits
        self._over = [n for n in sampler.space.over if n not in structures.dropped]
        self._studies = structures.used
        self._numeric = dict.fromkeys(checks.wrong)
        self._partial: dict[str, Partial] = {}

    def result(self) -> Symbolic:
        """Everything that survives the checks."""
        self._confine_workspace()
        rows = tuple(self._rows())
        space, dropped = self._sampler.space, self._structures.dropped
        totals = self._totals(rows)
        formulas = Formulas(
            totals=totals,
            defaults={name: space.defaults[name] for name in self._over},
            region=self._region(),
            only=self._further_conditions(totals),
            tested=self._tested(),
            thresholds=tuple(self._limits.thresholds),
            partial=self._partial,
            workload=self._sampler.name,
            assumptions=self._studies[0].graph.meta.assumptions,
        )
        found = Symbolic(
            formulas=formulas,
            rows=rows,
            regimes=self._regimes(),
            structural={name: self._changes[name] for name in self._structures.names},
            held={n: f"{self._changes[n]}; {why}" if n in self._changes else why for n, why in dropped.items()},
            settings={**self._sampler.settings, **{n: v for n, v in space.all.items() if n not in self._over}},
            numeric=tuple([lost for lost in self._numeric if lost.partition(":")[0] not in totals]),
            unknown=dict(self._studies[0].unknown),
            captures=self._sampler.captures,
            checked=tuple(self._checks.elsewhere),
            notes=tuple(self._notes()),
            listed=self._listed(),
        )
        return within_region(found)

    # -- parts of the result ------------------------------------------------------------------------

    def _rows(self) -> Iterator[Row]:
        groups: dict[Group, list[Expr | None]] = {}
        for figure, expr in self._checks.found.items():
            if isinstance(figure.of, Group):
                groups.setdefault(figure.of, [constant(0)] * len(Column))[figure.column] = expr
        for group, (ops, macs, elementwise, read, written) in groups.items():
            yield Row(
                **group._asdict(),
                count=ops,
                product_flops=None if macs is None else 2 * macs,
                elementwise_flops=elementwise,
                bytes=None if read is None or written is None else read + written,
            )

    def _listed(self) -> Listed | None:
        """The costs op by op, without those that a check contradicts; None where the ops are those of no one
        structure."""
        if self._structures.names or len(self._studies) > 1:
            return None
        (study,), found = self._studies, self._checks.found
        graph = study.graph
        costs = {
            index: [
                None if found[Figure(group_of(graph, index, fold=False), column)] is None else cost
                for column, cost in enumerate(each, Column.MACS)
            ]
            for index, each in study.listed.costs.items()
        }
        return Listed(study.listed.counted, costs)

    def _totals(self, rows: Sequence[Row]) -> dict[str, Expr]:
        totals = {
            "parameters": self._held("trainable"),
            **{name: self._sum(rows, name) for name in ("flops", "product_flops", "elementwise_flops", "bytes")},
            "footprint_bytes": self._footprint(),
            "io_bytes": self._held("io_bytes"),
            **self._checks.peaks,
        }
        return {name: expr for name, expr in totals.items() if expr is not None}

    def _footprint(self) -> Expr | None:
        for study in self._studies:
            for storage in study.unsolved[:1]:
                self._numeric[f"footprint and peaks: the bytes of {storage} follow no expression"] = None
        missing = dict.fromkeys(f"the bytes of {s}" for study in self._studies for s in study.unsolved)
        known = {"footprint_bytes": self._checks.found.get(Figure(EXPLAINED)), PEAKS[0]: self._checks.explained_peak}
        for name, expr in known.items():
            if missing and expr is not None:
                self._partial[name] = Partial(known=expr, missing=missing)
        return self._checks.found.get(Figure(FOOTPRINT))

    def _held(self, name: str) -> Expr | None:
        expr = self._checks.found.get(Figure(name))
        if expr is None:
            self._numeric[f"{name}: no expression has its values"] = None
        return expr

    def _sum(self, rows: Sequence[Row], measure: str) -> Expr | None:
        parts = [getattr(row, measure) for row in rows]
        lost = [row for row, part in zip(rows, parts, strict=True) if part is None]
        if not lost:
            return total(part for part in parts if part is not None)
        missing = {f"{row.op} in {row.module}, {row.phase}": self._captured(row, measure) for row in lost}
        self._partial[measure] = Partial(known=total(p for p in parts if p is not None), missing=missing)
        return None

    def _captured(self, row: Row, measure: str) -> int | None:
        """A measure of a row at the workload's own setting."""
        figures = self._own_figures
        macs, elementwise, read, written = (
            figures.get(Figure(Group(row.phase, row.module, row.op), column), 0) for column in list(Column)[1:]
        )
        values = {"product_flops": 2 * macs, "elementwise_flops": elementwise, "bytes": read + written}
        values["flops"] = 2 * macs + elementwise
        return values[measure] if figures else None

    @functools.cached_property
    def _own_figures(self) -> Mapping[Figure, int]:
        """The figures of a capture at the workload's own setting; empty if that is illegal."""
        sample = self._sampler.at({**self._sampler.space.defaults, **self._checks.fixed})
        return {} if sample is None else numeric(sample.count, 0, fold=bool(self._structures.names))

    def _confine_workspace(self) -> None:
        """Drop the peak with workspace where kernels choose their workspace by size: no one formula holds for it. Claim
        it only where sizes at which a kernel takes less are not met: that a capture there agrees may be as another
        moment is the peak in it."""
        peak, asked = PEAKS[1], dict.fromkeys(c for study in self._studies for c in study.asked_of_workspace)
        if self._checks.peaks[peak] is None:
            return
        if self._relied_on(asked):
            self._checks.peaks[peak] = None
            self._numeric[f"{peak}: kernels choose their workspace by size"] = None
        unequal = [c for c in asked if c.relation == "!="]
        for expr, relation in simplified(unequal, self._checks.lowest, self._positive, []):
            above = Condition(expr, ">" if nonnegative(expr) else relation)
            self._checks.only.setdefault(peak, []).append(above)

    @functools.cached_property
    def _positive(self) -> frozenset[Expr]:
        """The sizes of all structures, which are at least 1."""
        return frozenset(size for study in self._studies for size in sizes(study.graph))

    def _relied_on(self, asked: Iterable[Condition]) -> tuple[Condition, ...]:
        """Return the conditions that do not hold by themselves."""
        return simplified(asked, self._checks.lowest, self._positive, self._checks.right)

    def _region(self) -> tuple[Condition, ...]:
        # what divides at every structure; at some it may be more, which the declared conditions say or the values show
        terms = set.intersection(*(set(quotients(sizes(study.graph))) for study in self._studies))
        only = (Condition(symbol(name) - low, "==") for name, (low, high) in self._tested().items() if low == high)
        ends = () if self._limits.finished else self._within_tested()
        known = (*self._declared(), *_above(self._structures.lowest), *divisible(list(terms)), *only, *ends)
        asked = [simple(guard, known) for guard in self._limits.guards]
        asked += self._relied_on(simple(condition, known) for condition in self._structures.asked)
        if self._checks.alike:
            return folded((*known, *(c for c in asked if not any(_says_so(one, c) for one in self._ones))))
        return folded((*known, *asked, *self._ones))

    def _within_tested(self) -> Iterator[Condition]:
        """The conditions that no symbol is beyond the values at which captures agree, the workload's own aside."""
        for name, (low, high) in self._tested().items():
            own = self._sampler.space.defaults[name]
            yield Condition(symbol(name) - min(low, own), ">=")
            yield Condition(max(high, own) - symbol(name), ">=")

    @functools.cached_property
    def _ones(self) -> tuple[Condition, ...]:
        """The conditions that leave out sizes of 1 at which the step is another one."""
        return (*_above(self._checks.lowest), *self._checks.apart)

    def _tested(self) -> dict[str, tuple[int, int]]:
        """The smallest and the largest value of each symbol among the captures that agree."""
        settings = [*self._checks.right, *(sample.setting for study in self._studies for sample in study.samples)]
        values = {name: [setting[name] for setting in settings] for name in self._over}
        return {name: (min(found), max(found)) for name, found in values.items()}

    def _further_conditions(self, totals: Mapping[str, Expr]) -> dict[str, tuple[Condition, ...]]:
        """Conditions of single totals. A moment may not exist with fewer repetitions than were studied: the peaks are
        not claimed there. Where sizes of 1 make another step only the totals that are alike in it are."""
        studied = [Condition(symbol(name) - value, ">=") for name, value in self._structures.since.items() if value > 1]
        fixed = {**self._sampler.space.all, **self._checks.fixed}
        fixed = {name: value for name, value in fixed.items() if name not in self._over}
        region, found = self._region(), {}
        for name in totals:
            asked = [] if name in self._checks.alike else list(self._ones)
            if name in self._checks.peaks:
                asked += [*self._checks.only.get(name, ()), *studied]
            moved = (simple(Condition(c.expr.subs(fixed), c.relation), region) for c in asked)
            found[name] = folded([c for c in moved if c.expr.value is None], region)
        return {name: conditions for name, conditions in found.items() if conditions}

    def _declared(self) -> Iterator[Condition]:
        """The declared conditions of legal settings, at the values of what is no symbol."""
        space = self._sampler.space
        fixed = {name: value for name, value in {**space.all, **self._checks.fixed}.items() if name not in self._over}
        for expr, relation in space.where:
            reduced = expr.subs(fixed)
            if reduced.value is None and reduced.symbols <= set(self._over):
                yield Condition(reduced, relation)

    def _regimes(self) -> tuple[Regime, ...]:
        """The moments of which the peak is the largest, none twice."""
        peak = self._checks.peaks[PEAKS[0]]
        if peak is None:
            return ()
        left = dict.fromkeys(alternatives(peak))
        found = []
        for (moment, column), expr in self._checks.found.items():
            if isinstance(moment, Moment) and column == Level.RESIDENT and expr in left:
                del left[expr]
                found.append(Regime(phase=moment.phase, module=moment.module, op=shown_op(moment.op), bytes=expr))
        return tuple(found)

    def _notes(self) -> Iterator[str]:
        illegal = self._sampler.illegal
        if illegal:
            setting, reason = next(iter(illegal.items()))
            several = f"{len(illegal)} settings" if len(illegal) > 1 else "a setting"
            yield f"skipped {several} that could not be captured, the first at {setting}: {reason}"
        yield from self._checks.notes
        if not self._limits.finished:
            yield (
                f"{self._sampler.clock.reached} before all thresholds were looked for: "
                "nothing is claimed beyond the tested ranges"
            )


def _above(lowest: Mapping[str, int]) -> list[Condition]:
    """Conditions that symbols are at least their lowest values."""
    return [Condition(symbol(name) - (value - 1), ">") for name, value in lowest.items() if value > 1]


def _says_so(one: Condition, condition: Condition) -> bool:
    """Return whether a condition follows from another one alone."""
    unequal = condition.relation == "!=" and one.relation == ">" and condition.expr in (one.expr, -one.expr)
    return unequal or condition == one or not folded([condition], [one])
