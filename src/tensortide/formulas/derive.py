"""Formulas by sampling: capture, align, solve, check."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tensortide.cost.coverage import shown as shown_op
from tensortide.cost.evaluate import Resolver
from tensortide.errors import WorkloadError
from tensortide.expr import Condition, Expr, constant, symbol, total
from tensortide.expr.atoms import alternatives
from tensortide.formulas.checks import PEAKS, Checks
from tensortide.formulas.formulas import Formulas
from tensortide.formulas.measure import MEASURES, Group
from tensortide.formulas.region import divisible, quotients, simplified, sizes
from tensortide.formulas.result import Regime, Row, Symbolic
from tensortide.formulas.sampler import Sample, Sampler, shown
from tensortide.formulas.space import Scalar, Space
from tensortide.formulas.structure import Figure, Structures, structural

__all__ = ["derive"]

_COUNTEREXAMPLES = 3
"""Captures that formulas may turn out to be wrong at, and be made anew with, before what is wrong is left out."""
_SKIPPED = 2
"""Values of hyperparameters that change the structure to go without where the peak is wrong with them."""


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
    checks = Checks(sampler, structures, found)
    counterexamples: list[Sample] = []
    while len(counterexamples) < _COUNTEREXAMPLES and structures.learn(checks.contradicting):
        counterexamples += checks.contradicting
        found = structures.fitted()
        checks = Checks(sampler, structures, found, counterexamples)
    checks = _peak_of_later(sampler, structures, checks)
    structures.dropped |= dict.fromkeys(fixed, "no other legal value of it was found")
    return _Derivation(sampler, structures, changes, checks, name).result()


def _peak_of_later(sampler: Sampler, structures: Structures, checks: Checks) -> Checks:
    """The checks, of peaks that hold from more repetitions on if those from few were wrong."""
    since = structures.since
    if len(since) != 1 or checks.peaks[PEAKS[0]] is not None or checks.contradicting:
        return checks
    moments = structures.later(dict.fromkeys(since, _SKIPPED))
    if moments is not None:
        found = {figure: expr for figure, expr in checks.found.items() if figure.kind != "moment"}
        later = Checks(sampler, structures, found | moments)
        if later.peaks[PEAKS[0]] is not None and not later.contradicting:
            return later
    structures.since = since
    return checks


class _Derivation:
    """Derivation of a checked result from figures."""

    def __init__(
        self,
        sampler: Sampler,
        structures: Structures,
        changes: Mapping[str, str],
        checks: Checks,
        name: str,
    ) -> None:
        self._sampler = sampler
        self._structures = structures
        self._changes = changes
        self._found = checks.found
        self._name = name
        self._over = [n for n in sampler.space.over if n not in structures.dropped]
        self._studies = structures.used
        self._checks = checks
        self._numeric: dict[str, None] = dict.fromkeys(self._checks.wrong)

    def result(self) -> Symbolic:
        """Everything that survives the checks."""
        self._drop_workspace()
        rows = tuple(self._rows())
        space, dropped = self._sampler.space, self._structures.dropped
        formulas = Formulas(
            totals=self._totals(rows),
            defaults={name: space.defaults[name] for name in self._over},
            region=self._region(),
            only=self._peak_conditions(),
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
            checked=tuple(self._checks.elsewhere),
            notes=tuple(self._notes()),
        )

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
            **self._checks.peaks,
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

    def _drop_workspace(self) -> None:
        """Drop the peak with workspace where kernels choose their workspace by size: no one formula holds for it."""
        asked = dict.fromkeys(c for study in self._studies for c in study.memory.asked)
        if self._checks.peaks[PEAKS[1]] is not None and self._relied_on(asked):
            self._checks.peaks[PEAKS[1]] = None
            self._numeric[f"{PEAKS[1]}: kernels choose their workspace by size"] = None

    def _relied_on(self, asked: Iterable[Condition]) -> tuple[Condition, ...]:
        """Return the conditions that do not hold by themselves."""
        positive = frozenset(size for study in self._studies for size in sizes(study.lifted.graph))
        return simplified(asked, self._checks.lowest, positive, self._checks.right)

    def _region(self) -> tuple[Condition, ...]:
        # what divides at every structure; at some it may be more, which the declared conditions say or the values show
        terms = set.intersection(*(set(quotients(sizes(study.lifted.graph))) for study in self._studies))
        bounds = [Condition(symbol(name) - 1, ">") for name, value in self._checks.lowest.items() if value > 1]
        asked = dict.fromkeys(c for study in self._studies for c in study.measured.asked)
        found = (
            *bounds,
            *self._checks.apart,
            *divisible(list(terms)),
            *self._relied_on(asked),
        )
        return tuple(dict.fromkeys((*self._declared(), *found)))

    def _peak_conditions(self) -> dict[str, tuple[Condition, ...]]:
        """A moment may not exist with fewer repetitions than were studied: the peaks are not claimed there."""
        studied = [Condition(symbol(name) - value, ">=") for name, value in self._structures.since.items() if value > 1]
        asked = {
            name: [*self._checks.only.get(name, ()), *studied]
            for name, peak in self._checks.peaks.items()
            if peak is not None
        }
        return {name: tuple(dict.fromkeys(conditions)) for name, conditions in asked.items() if conditions}

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
        yield from self._checks.notes
