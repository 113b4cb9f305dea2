"""One structure, studied: enough captures of it to say every size, and with them what the step costs."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from tensortide.errors import WorkloadError
from tensortide.expr import Condition, Expr, constant, floor_ratio, symbol
from tensortide.expr.atoms import replaced
from tensortide.expr.expr import Opaque
from tensortide.expr.floors import given_whole
from tensortide.expr.size import stands_for
from tensortide.formulas.lift import difference, lift
from tensortide.formulas.measure import Figures, Listed, measure
from tensortide.formulas.observe import Path
from tensortide.formulas.peaks import memory
from tensortide.formulas.region import quotients, sizes
from tensortide.formulas.sampler import TELLING, Sample, Sampler, shown
from tensortide.formulas.space import Setting, Space
from tensortide.formulas.vectors import Recognizer, Solver
from tensortide.graph.model import Graph

_FIRST = 3
"""Captures to start with: a monomial needs one, and two may contradict it."""
_SEVERAL = 8
"""Captures of which more than half must be alike."""
_TAUGHT = 2
"""The same where the sizes are known from another structure: nothing is left to determine."""
_NOVEL = 3
"""The same where some are new, or where two captures do not separate the known ones."""
_ASKED = 3
"""Values of one hyperparameter to ask for at once, of those that would separate expressions."""
_ENOUGH = 6
"""Captures of one structure before what is unclear is given up for want of the values that would settle it."""
_MOST = 24
"""Captures of one structure before what is still unclear is given up."""


class StepsDiffer(WorkloadError):
    """Sizes that change the structure too."""


@dataclass(frozen=True)
class Study:
    """Findings about the step at ``structure`` (the values of the hyperparameters that change it).

    ``graph`` has expressions for sizes; ``sizes`` are those that occur in it. ``asked`` is what the rules relied on,
    ``asked_of_workspace`` what those of workspace did. ``unknown`` are the ops without a cost rule, ``unsolved`` the
    storages without an expression. ``reads`` are expressions of the sizes that the workload's code read from tensors.
    ``listed`` are the costs op by op.
    """

    structure: dict[str, int]
    samples: tuple[Sample, ...]
    graph: Graph
    figures: Figures
    asked: dict[Condition, None]
    asked_of_workspace: dict[Condition, None]
    unknown: Counter[str]
    unsolved: list[str]
    sizes: tuple[Expr, ...]
    reads: tuple[Expr | None, ...]
    listed: Listed

    @cached_property
    def path(self) -> Path:
        """Conditions on hyperparameters that the workload's code met in all samples."""
        paths = [sample.seen.in_terms_of(self.reads).path for sample in self.samples]
        return tuple(c for c in paths[0] if all(c in path for path in paths[1:]) and self._true(c))

    def _true(self, condition: Condition) -> bool:
        """Return whether a condition on what was read holds in all samples, as it does if that has its expression."""
        with contextlib.suppress(ArithmeticError, KeyError):
            return all(condition.holds(condition.expr.evaluate(sample.setting)) for sample in self.samples)
        return True


def study(
    sampler: Sampler,
    names: Sequence[str],
    structure: Mapping[str, int],
    taught: Iterable[Expr] = (),
    *,
    fold: bool,
    hasty: bool = False,
) -> Study | None:
    """The step with the hyperparameters ``structure`` fixed, as expressions in the sizes ``names``.

    ``taught`` are expressions of another structure's sizes, which these are likely to have too: if ``hasty``, one
    capture of which they explain all sizes is enough. ``fold``: there are other structures to compare with. None if
    there is no legal setting with this structure. Raises StepsDiffer if the sizes change the structure too.
    """
    taught = tuple(taught)
    found, plain = _Samples(sampler, names, structure), _plain(sampler.space, structure)
    is_hasty = hasty and taught and names and found.extend(1)
    if is_hasty and len(found.alike) == 1 and not _tied(sampler.space, found.alike):
        recognizer = Recognizer(names, found.alike[0].setting, taught)
        graph, _ = lift([found.alike[0].graph], recognizer)
        if not recognizer.novel:
            known = _studied(sampler, structure, found.alike, graph, recognizer, fold=fold)
            if not recognizer.novel:
                return known
    if not found.extend((_TAUGHT if taught else _FIRST) if names else 1):
        return None
    while True:
        sampler.clock.check()
        samples = found.alike
        tied = _tied(sampler.space, samples)
        free = [name for name in names if name not in tied]
        solver = Solver(free, [sample.setting for sample in samples], sampler.space.where, structure.values())
        for expr in (*taught, *_computed(samples, (), structure), *sampler.space.assumed_sizes(structure)):
            solver.teach(replaced(expr, plain).subs(tied))
        if len(samples) < _MOST and found.separate(solver.confused):
            continue
        for expr in _computed(samples, _reads(samples, solver), structure):
            solver.learn(replaced(expr, plain).subs(tied))
        graph, unexplained = lift([sample.graph for sample in samples], solver)
        unclear = solver.wanted or (solver.blurred and not taught) or (unexplained and solver.short)
        if len(samples) < _NOVEL and solver.novel and found.more(_NOVEL):
            continue
        if unclear and len(samples) < _MOST and found.ask(solver.wanted):
            continue
        studied = _studied(sampler, structure, samples, graph, solver, fold=fold)
        if not (len(samples) < _NOVEL and solver.novel and found.more(_NOVEL)):
            return studied


def _studied(
    sampler: Sampler,
    structure: Mapping[str, int],
    samples: Sequence[Sample],
    graph: Graph,
    solver: Solver,
    *,
    fold: bool,
) -> Study:
    """The study of a lifted graph."""
    usual = {name: sampler.space.defaults[name] for name in solver.names}
    with given_whole(quotients(sizes(graph))):
        counts, resolver = [sample.count for sample in samples], samples[0].resolver
        figures, asked, unknown, listed = measure(graph, counts, solver, resolver, fold=fold)
        graphs = [sample.graph for sample in samples]
        moments, of_workspace, unsolved = memory(graph, graphs, solver, usual, fold=fold)
    reads = _reads(samples, solver)
    return Study(
        dict(structure),
        tuple(samples),
        graph,
        figures | moments,
        asked,
        of_workspace,
        unknown,
        unsolved,
        solver.found,
        reads,
        listed,
    )


def _plain(space: Space, structure: Mapping[str, int]) -> dict[Opaque, Expr]:
    """Roundings that the conditions of legal settings or the structure settle, with what they are: a size has one
    expression in all structures, ``hidden/heads`` for ``floor(hidden/heads)``, a number for that of the turns."""
    exact = [(floor_ratio(of, by), of / by) for by, of in (c.divisor for c in space.where if c.divisor)]
    turns = [(expr, constant(structure[name])) for name, expr in space.turns.items() if name in structure]
    plain: dict[Opaque, Expr] = {}
    for rounded, value in (*exact, *turns):
        for powers, factor in rounded.terms.items() if len(rounded.terms) == 1 else ():
            if len(powers) == 1 and isinstance(powers[0][0], Opaque) and powers[0][1] == 1:
                plain[powers[0][0]] = value / factor
    return plain


def _tied(space: Space, samples: Sequence[Sample]) -> dict[str, Expr]:
    """The hyperparameters that are a number of times another one in all samples, as they must be with so many turns:
    ``batch`` is ``3*micro`` with three micro-batches. In ``micro`` the sizes follow from the number of turns."""
    tied: dict[str, Expr] = {}
    for by, of in space.divisors:
        counted = any(by.symbols | of.symbols <= expr.symbols for expr in space.turns.values())
        ratios = {Fraction(of.evaluate(s.setting), by.evaluate(s.setting)) for s in samples} if counted else set()
        if len(ratios) == 1 and {of, by} <= set(map(symbol, space.over)):
            (name,) = of.symbols
            tied[name] = by * ratios.pop()
    return tied


def _reads(samples: Sequence[Sample], solver: Solver) -> tuple[Expr | None, ...]:
    """Expressions of the sizes that the workload's code read from tensors; none if it read others in some samples."""
    if len({len(sample.seen.reads) for sample in samples}) > 1:
        return ()
    found = (solver.solve(vector) for vector in zip(*(sample.seen.reads for sample in samples), strict=True))
    return tuple(e if e is None or all(stands_for(float(c), c) for c in e.terms.values()) else None for e in found)


def _computed(samples: Sequence[Sample], reads: Sequence[Expr | None], structure: Mapping[str, int]) -> Iterator[Expr]:
    """The sizes that the workload's code computed in all samples, without those that are one number in all of them, as
    is the remainder of a division that must be exact."""
    made = [sample.seen.in_terms_of(reads).made for sample in samples]
    for computed in made[0]:
        if all(computed in others for others in made[1:]):
            expr = computed.subs(structure)
            with contextlib.suppress(ArithmeticError, KeyError):  # it may be in a hyperparameter that is held by now
                if len({expr.evaluate(sample.setting) for sample in samples}) > 1 or len(samples) == 1:
                    yield expr


def _differ(one: Expr, other: Expr, setting: Setting) -> bool:
    """Return whether two expressions have values at a setting, and different ones."""
    try:
        return one.subs(setting).value != other.subs(setting).value
    except ArithmeticError:
        return False


class _Samples:
    """Samples of one structure. Those that differ from the rest in more than sizes are set apart."""

    def __init__(self, sampler: Sampler, sizes: Sequence[str], structure: Mapping[str, int]) -> None:
        self._sampler = sampler
        self._sizes = sizes
        self._structure = dict(structure)
        here = (s for s in sampler.legal if all(s.setting[name] == value for name, value in structure.items()))
        self._all = [sample for sample in here if sampler.space.beside(sample.setting)]
        self._asked: set[tuple[str, int]] = set()
        self._tried: list[Setting] = []

    @property
    def alike(self) -> list[Sample]:
        """The samples with the ops that there are at the default sizes, else the largest group with one skeleton."""
        groups: dict[object, list[Sample]] = {}
        for sample in self._all:
            groups.setdefault(sample.skeleton, []).append(sample)
        home = groups.get(self._sampler.home, [])
        return home if len(home) > 1 else max(groups.values(), key=len, default=[])

    def extend(self, count: int) -> bool:
        """Have at least ``count`` alike. False if there is no legal setting at all."""
        while len(self.alike) < count:
            sample = self._twin() or self._sampler.generic(self._sizes, self._structure, self._all, large=True)
            if sample is None:
                return bool(self._all) and len(self.alike) >= min(count, _FIRST)
            self._all.append(sample)
            if len(self._all) >= _SEVERAL and len(self.alike) <= len(self._all) // 2 and not self._stay_above():
                raise StepsDiffer(self._disagree())
        return True

    def _stay_above(self) -> bool:
        """Keep to sizes from their defaults on, if only smaller ones make another step than these: pieces of a sequence
        are fewer where it is short. False if that is not so."""
        sampler, space = self._sampler, self._sampler.space
        home = sampler.at({**space.defaults, **self._structure})
        unlike = [s for s in self._all if home is None or s.skeleton != home.skeleton]
        below = [name for name in self._sizes if all(s.setting[name] < space.defaults[name] for s in unlike)]
        sides = [Condition(symbol(name) - space.defaults[name], ">=") for name in below]
        if home is None or not below or all(side in space.sides for side in sides):
            return False
        space.sides += sides
        self._all = [sample for sample in self._all if space.beside(sample.setting)]
        return True

    def more(self, count: int) -> bool:
        """Have ``count`` alike. False if there are no more than before."""
        before = len(self.alike)
        self.extend(count)
        return len(self.alike) > before

    def _twin(self, apart: tuple[Expr, Expr] | None = None) -> Sample | None:
        """The sizes of a sample of another structure: a capture of shapes that were captured before is fast. With
        ``apart``, sizes at which these two expressions differ."""
        seen = [sample.setting for sample in self._all]
        for sample in self._sampler.legal:
            setting = {**sample.setting, **self._structure}
            if setting in seen or setting in self._tried or not self._sampler.space.beside(setting):
                continue
            defaults = self._sampler.space.defaults
            if apart is None and any(setting[name] < min(TELLING, defaults[name]) for name in self._sizes):
                continue  # computed sizes may be 1 there, which has other strides, and ops
            if apart is None or _differ(*apart, setting):
                self._tried.append(setting)
                found = self._sampler.at(setting)
                if found is not None:
                    return found
        return None

    def separate(self, confused: Iterable[tuple[Expr, Expr]]) -> bool:
        """One more sample, with the sizes of another structure at which one of the pairs ``confused`` differs."""
        found = next((s for pair in confused if (s := self._twin(pair)) is not None), None)
        self._all += [found] if found is not None else []
        return found is not None

    def ask(self, wanted: Mapping[str, set[int]]) -> bool:
        """More samples: at values that are wanted; anywhere if none are, or if they cannot be had and samples are few.
        False if there are none."""
        before = len(self.alike)
        for name, values in wanted.items():
            new = [value for value in sorted(values) if (name, value) not in self._asked]
            for value in new[:_ASKED]:
                self._asked.add((name, value))
                others = [other for other in self._sizes if other != name]
                sample = self._sampler.generic(others, {**self._structure, name: value}, self._all, large=True)
                if sample is not None:
                    self._all.append(sample)
        if len(self.alike) > before:
            return True
        return (not wanted or before < _ENOUGH) and self.more(before + 1 + before // 4)

    def _disagree(self) -> str:
        one = self._all[0]
        other = next(s for s in self._all if s.skeleton != one.skeleton)
        return (
            f"the ops of the step change with the sizes: at {shown(one.setting)} and at {shown(other.setting)} "
            f"they are not the same ({difference(one.graph, other.graph)})"
        )
