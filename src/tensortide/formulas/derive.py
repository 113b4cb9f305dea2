"""Formulas of a workload by sampling (capture, align, solve, check), and of a graph whose sizes are expressions."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tensortide.cost import count
from tensortide.cost.coverage import shown as shown_op
from tensortide.cost.evaluate import Resolver
from tensortide.errors import ExpressionError, WorkloadError
from tensortide.expr import Condition, Expr, conditions, constant, expr_of, symbol, total
from tensortide.expr.atoms import alternatives
from tensortide.expr.floors import given_whole
from tensortide.formulas.checks import PEAKS, Checks
from tensortide.formulas.formulas import Formulas, Partial
from tensortide.formulas.limits import Limits
from tensortide.formulas.measure import FOOTPRINT, MEASURES, Figure, Group, Moment, numeric
from tensortide.formulas.observe import opposite, thresholds
from tensortide.formulas.region import divisible, folded, quotients, simplified, sizes
from tensortide.formulas.result import Regime, Row, Symbolic
from tensortide.formulas.sampler import Sample, Sampler, shown
from tensortide.formulas.space import SMALL, Scalar, Setting, Space
from tensortide.formulas.structure import Structures, structural
from tensortide.graph.model import Graph
from tensortide.memory import footprint_bytes

_COUNTEREXAMPLES = 3
"""Counterexamples to refit with before a contradicted formula is dropped."""
_OTHER_VALUES = 12
"""Other values of a hyperparameter to try before it is held."""
_SIDES = 4
"""Times that the first sample may be on another side of a threshold than the workload's own setting."""
_OTHERS = 3
"""Thresholds of which formulas for the other side are looked for."""
_SKIPPED = 2
"""Smallest values of structural hyperparameters to exclude where the formula of the peak fails at them."""


def symbolic(
    workload: Callable[..., Any] | str,
    *,
    over: Sequence[str],
    hyperparameters: Mapping[str, Scalar] | None = None,
    where: Sequence[str] = (),
    values: Mapping[str, Sequence[int]] | None = None,
    name: str = "",
    resolver: Resolver | None = None,
    progress: Callable[[str], None] = lambda message: None,
) -> Symbolic:
    """Derive the cost of one step of ``workload`` as exact expressions in its hyperparameters ``over``.

    The workload is captured at a few settings of small, generic values, every size of the step is solved as an
    expression, and the cost rules run on these. Hyperparameters that change the number of ops (layers) are found and
    fitted over several structures. Each formula reproduces every capture it was fitted to, and further ones.

    ``hyperparameters`` overrides defaults of the workload. ``where`` are conditions of legal settings
    (``"hidden % heads == 0"``), ``values`` the candidates of single hyperparameters; a workload may declare both in
    attributes ``where`` and ``values``. Without them illegal settings are found by trial. ``resolver`` is asked
    for ops without a cost rule.

    Raises WorkloadError if a name is no integer hyperparameter or no legal settings are found, CaptureError if the
    workload cannot be captured.
    """
    if isinstance(workload, str):
        from tensortide.recorder.target import workload as named

        name, workload = name or workload, named(workload).function
    settings = dict(hyperparameters or {})
    name = name or getattr(workload, "__name__", "")
    space = Space(workload, over, settings, where, values)
    with _heap_set_aside():
        return _derived(Sampler(workload, space, settings, name=name, resolver=resolver, progress=progress))


def formulas_of_graph(graph: Graph, defaults: Mapping[str, int], workload: str = "") -> Formulas:
    """Return the totals of ``graph``, by the default rules; ``defaults`` are values of the symbols in its sizes.

    Raises ExpressionError if it has none, and for ops without a cost rule: a total that lacks them is no total.
    """
    known = sizes(graph)
    whole = quotients(known)
    with conditions() as asked, given_whole(whole):
        counted = count(graph)
        costs, model = counted.total, counted.sizes
        footprint = footprint_bytes(graph)
    if not counted.coverage.complete:
        missing = ", ".join(str(group) for group in counted.coverage.missing)
        raise ExpressionError(f"{workload or 'the graph'} has ops without a cost rule: {missing}")
    totals: dict[str, Expr] = {
        "parameters": expr_of(model.trainable),
        "flops": expr_of(costs.flops),
        "product_flops": 2 * expr_of(costs.macs),
        "elementwise_flops": expr_of(costs.cost.elementwise_flops),
        "bytes": expr_of(costs.bytes),
        "footprint_bytes": expr_of(footprint),
        "io_bytes": expr_of(model.io_bytes),
    }
    used = sorted({name for expr in totals.values() for name in expr.symbols})
    if not used:
        raise ExpressionError(f"the sizes of {workload or 'the graph'} are numbers: there is nothing to vary")
    lowest = dict.fromkeys(used, 1)
    region = (*divisible(whole), *simplified(asked, lowest, known, [dict(defaults)]))
    kept = tuple(c for c in region if c.expr.symbols <= set(used))
    return Formulas(
        totals=totals,
        defaults={name: defaults[name] for name in used},
        region=kept,
        workload=workload,
        assumptions=graph.meta.assumptions,
    )


@contextlib.contextmanager
def _heap_set_aside() -> Iterator[None]:
    """Freeze existing objects, the framework among them, so that garbage collections during captures skip them."""
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _derived(sampler: Sampler, *, sides: bool = True) -> Symbolic:
    """The formulas in the hyperparameters of the sampler's space; with ``sides`` those beyond its thresholds too."""
    space = sampler.space
    one = _on_the_side_of_the_defaults(sampler)
    other = sampler.generic(space.over, {}, [one])
    if other is None:
        raise WorkloadError(f"only one legal setting of {', '.join(space.over)} was found: {shown(one.setting)}")
    alike = [n for n, v in one.setting.items() if other.setting[n] == v == space.defaults[n]]
    fixed = [name for name in alike if not _can_vary(sampler, name, one)]
    if fixed:
        one, other = sampler.without(fixed, (one, other))
    changes = structural(sampler, one, other)
    sampler.spread(frozenset(space.over) - changes.keys())
    _stay_at_home(sampler, {name: one.setting[name] for name in changes})
    structures = Structures(sampler, list(changes), one)
    checks = Checks(sampler, structures, structures.fitted())
    counterexamples: list[Sample] = []
    while len(counterexamples) < _COUNTEREXAMPLES and structures.learn(checks.contradicting):
        counterexamples += checks.contradicting
        checks = Checks(sampler, structures, structures.fitted(), counterexamples)
    checks = _peak_of_later(sampler, structures, checks)
    limits = Limits(sampler, structures, checks, final=False)
    if limits.contradicting:
        if structures.learn(limits.contradicting):
            counterexamples += limits.contradicting
            checks = Checks(sampler, structures, structures.fitted(), counterexamples)
        limits = Limits(sampler, structures, checks, final=True)
    structures.dropped |= dict.fromkeys(fixed, "no other legal value of it was found")
    found = _Derivation(sampler, structures, changes, checks, limits).result()
    return _with_others(found, sampler, limits) if sides else found


def _can_vary(sampler: Sampler, name: str, one: Sample) -> bool:
    """Return whether the workload takes another value of a hyperparameter, the others as they are or near that."""
    space = sampler.space
    values = space.values.get(name) or range(1, 2 * max(SMALL // 4, space.all[name]) + 1)
    settings = [{**one.setting, name: value} for value in values if value != one.setting[name]]
    near = [{**space.defaults, name: value} for value in values if value != one.setting[name]]
    tries = itertools.islice((s for s in (*settings, *near) if space.allows(s)), _OTHER_VALUES)
    return any(sampler.at(setting) is not None for setting in tries)


def _with_others(found: Symbolic, sampler: Sampler, limits: Limits) -> Symbolic:
    """The result with formulas for the other sides of its thresholds, where they can be found."""
    others, captures = [], found.captures
    space, symbols = sampler.space, found.formulas.defaults
    for threshold, setting in list(zip(found.thresholds, limits.beyond, strict=True))[:_OTHERS]:
        condition = opposite(threshold.condition)
        other = sampler.beyond(condition, setting)
        with contextlib.suppress(WorkloadError, ExpressionError):
            piece = _confined(_derived(other, sides=False), condition, other.space)
            # what is held here has no other value there
            others.append(piece.along({name: space.all[name] for name in piece.defaults if name not in symbols}))
        captures += other.captures
    formulas = replace(found.formulas, others=tuple(others))
    return replace(found, formulas=formulas, captures=captures)


def _confined(found: Symbolic, condition: Condition, space: Space) -> Formulas:
    """The formulas with a condition, and with symbols that have one value where a hyperparameter was held."""
    formulas = found.formulas
    held = {name: value for name, value in space.defaults.items() if name not in formulas.defaults}
    equal = (Condition(symbol(name) - value, "==") for name, value in held.items())
    region = folded((condition, *equal, *formulas.region))
    return replace(formulas, defaults={**formulas.defaults, **held}, region=region)


def _on_the_side_of_the_defaults(sampler: Sampler) -> Sample:
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


def _stay_at_home(sampler: Sampler, structure: Setting) -> None:
    """Draw settings below the defaults only, or above them only, if ops elsewhere are not those at the default sizes:
    there is a threshold that the workload's code does not show."""
    space = sampler.space
    home = sampler.at({**space.defaults, **structure})
    if home is None or not space.sizes:
        return
    sampler.home = home.skeleton
    below = [Condition(space.defaults[name] - symbol(name), ">=") for name in space.sizes]
    above = [Condition(symbol(name) - space.defaults[name], ">=") for name in space.sizes]
    for sides in ([], below, above):
        space.sides += sides
        sample = sampler.generic(sorted(space.sizes), structure, [home], large=True, patient=False)
        if sample is not None and sample.skeleton == home.skeleton:
            return
        space.sides = space.sides[: len(space.sides) - len(sides)]


def _peak_of_later(sampler: Sampler, structures: Structures, checks: Checks) -> Checks:
    """The checks, of peaks that hold from more repetitions on if those from few were wrong."""
    since = structures.since
    if len(since) != 1 or checks.peaks[PEAKS[0]] is not None or checks.contradicting:
        return checks
    moments = structures.later(_SKIPPED)
    if moments is not None:
        found = {figure: expr for figure, expr in checks.found.items() if not isinstance(figure.of, Moment)}
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
        self._drop_workspace()
        rows = tuple(self._rows())
        space, dropped = self._sampler.space, self._structures.dropped
        formulas = Formulas(
            totals=self._totals(rows),
            defaults={name: space.defaults[name] for name in self._over},
            region=self._region(),
            only=self._peak_conditions(),
            tested=self._tested(),
            thresholds=tuple(self._limits.thresholds),
            partial=self._partial,
            workload=self._sampler.name,
            assumptions=self._studies[0].graph.meta.assumptions,
        )
        return Symbolic(
            formulas=formulas,
            rows=rows,
            regimes=self._regimes(),
            structural={name: self._changes[name] for name in self._structures.names},
            held={n: f"{self._changes[n]}; {why}" if n in self._changes else why for n, why in dropped.items()},
            settings={**self._sampler.settings, **{n: v for n, v in space.all.items() if n not in self._over}},
            numeric=tuple(self._numeric),
            unknown=dict(self._studies[0].unknown),
            captures=self._sampler.captures,
            checked=tuple(self._checks.elsewhere),
            notes=tuple(self._notes()),
        )

    # -- parts of the result ------------------------------------------------------------------------

    def _rows(self) -> Iterator[Row]:
        groups: dict[Group, list[Expr | None]] = {}
        for figure, expr in self._checks.found.items():
            if isinstance(figure.of, Group):
                groups.setdefault(figure.of, [constant(0)] * (1 + len(MEASURES)))[figure.column] = expr
        for group, (ops, macs, elementwise, read, written) in groups.items():
            yield Row(
                **group._asdict(),
                count=ops,
                product_flops=None if macs is None else 2 * macs,
                elementwise_flops=elementwise,
                bytes=None if read is None or written is None else read + written,
            )

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
            figures.get(Figure(Group(row.phase, row.module, row.op), column), 0) for column in range(1, 5)
        )
        values = {"product_flops": 2 * macs, "elementwise_flops": elementwise, "bytes": read + written}
        values["flops"] = 2 * macs + elementwise
        return values[measure] if figures else None

    @functools.cached_property
    def _own_figures(self) -> Mapping[Figure, int]:
        """The figures of a capture at the workload's own setting; empty if that is illegal."""
        sample = self._sampler.at({**self._sampler.space.defaults, **self._checks.fixed})
        return {} if sample is None else numeric(sample.count, 0, fold=bool(self._structures.names))

    def _drop_workspace(self) -> None:
        """Drop the peak with workspace where kernels choose their workspace by size: no one formula holds for it."""
        asked = dict.fromkeys(c for study in self._studies for c in study.asked_of_workspace)
        if self._checks.peaks[PEAKS[1]] is not None and self._relied_on(asked):
            self._checks.peaks[PEAKS[1]] = None
            self._numeric[f"{PEAKS[1]}: kernels choose their workspace by size"] = None

    def _relied_on(self, asked: Iterable[Condition]) -> tuple[Condition, ...]:
        """Return the conditions that do not hold by themselves."""
        positive = frozenset(size for study in self._studies for size in sizes(study.graph))
        return simplified(asked, self._checks.lowest, positive, self._checks.right)

    def _region(self) -> tuple[Condition, ...]:
        # what divides at every structure; at some it may be more, which the declared conditions say or the values show
        terms = set.intersection(*(set(quotients(sizes(study.graph))) for study in self._studies))
        bounds = [Condition(symbol(name) - 1, ">") for name, value in self._checks.lowest.items() if value > 1]
        asked = dict.fromkeys(c for study in self._studies for c in study.asked)
        found = (
            *bounds,
            *self._checks.apart,
            *divisible(list(terms)),
            *self._relied_on(asked),
        )
        return folded((*self._declared(), *self._limits.guards, *found))

    def _tested(self) -> dict[str, tuple[int, int]]:
        """The smallest and the largest value of each symbol among the captures that agree."""
        settings = [*self._checks.right, *(sample.setting for study in self._studies for sample in study.samples)]
        values = {name: [setting[name] for setting in settings] for name in self._over}
        return {name: (min(found), max(found)) for name, found in values.items()}

    def _peak_conditions(self) -> dict[str, tuple[Condition, ...]]:
        """A moment may not exist with fewer repetitions than were studied: the peaks are not claimed there."""
        studied = [Condition(symbol(name) - value, ">=") for name, value in self._structures.since.items() if value > 1]
        asked = {
            name: [*self._checks.only.get(name, ()), *studied]
            for name, peak in self._checks.peaks.items()
            if peak is not None
        }
        region = self._region()
        kept = {name: folded(conditions, region) for name, conditions in asked.items()}
        return {name: conditions for name, conditions in kept.items() if conditions}

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
            if isinstance(moment, Moment) and column == 0 and expr in left:
                del left[expr]
                found.append(Regime(phase=moment.phase, module=moment.module, op=shown_op(moment.op), bytes=expr))
        return tuple(found)

    def _notes(self) -> Iterator[str]:
        illegal = self._sampler.illegal
        if illegal:
            setting, reason = next(iter(illegal.items()))
            yield f"skipped {len(illegal)} illegal settings, the first at {setting}: {reason}"
        yield from self._checks.notes
