"""Studies of several structures, and every figure as an expression in the hyperparameters that change them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tensortide.errors import WorkloadError
from tensortide.expr import Condition, Expr, constant, expr_of, nonnegative, symbol
from tensortide.expr.expr import common, content
from tensortide.formulas.measure import EXPLAINED, Figure, Figures, Moment
from tensortide.formulas.one_structure import Study, study
from tensortide.formulas.region import folded, simplified, value_of
from tensortide.formulas.repetitions import BASES, Basis, basis_terms, determined, fitted, joint_terms
from tensortide.formulas.sampler import Sample, Sampler
from tensortide.formulas.space import Space

_SPECIAL = 2
"""Smallest values of a structural hyperparameter that may follow other formulas."""
_STEPS = 24
"""Values of one hyperparameter to try before it is given up."""
_MORE_STRUCTURES = 8
"""Structures that several hyperparameters are fitted over together, besides one for each product of them."""
_FEW = 10
"""Values of each of them."""


class Structures:
    """Studies at several structures, and what they have in common.

    ``names`` are the hyperparameters that change the structure. ``dropped`` are those without a formula, with the
    reason: they stay at the value in ``base``. ``since``: the smallest value of each that moments were fitted from.
    """

    def __init__(self, sampler: Sampler, names: Sequence[str], first: Sample) -> None:
        self.sampler = sampler
        self.names = list(names)
        self.sizes = [name for name in sampler.space.over if name not in names]
        self.dropped: dict[str, str] = {}
        self.studies: dict[tuple[int, ...], Study | None] = {}
        self.since: dict[str, int] = {}
        self.lowest: dict[str, int] = {}
        """The smallest values that are not special, where some are."""
        self._hasty = True
        """False if structures are to be studied with several captures each."""
        self._bases: dict[str, Basis] = {}
        self._joint: list[Expr] = []
        """Terms in several hyperparameters, where they repeat something together."""
        self.among: list[Condition] = []
        """Conditions on them without which no formula was found."""
        self._values: dict[str, list[int]] = {name: [] for name in names}
        self._steps = {name: itertools.islice(sampler.space.steps(name), _STEPS) for name in names}
        self.base: dict[str, int] = {name: first.setting[name] for name in names}
        for name in names:
            self.base[name] = self._value(name, 0) or self.base[name]

    def at(self, structure: Mapping[str, int]) -> Study | None:
        """The study of a structure."""
        key = tuple(structure.values())
        if key not in self.studies:
            self.sampler.clock.check()
            taught = next((s.sizes for s in self.studies.values() if s is not None), ())
            fold = bool(self.names)
            self.studies[key] = study(self.sampler, self.sizes, structure, taught, fold=fold, hasty=self._hasty)
        return self.studies[key]

    def _value(self, name: str, index: int) -> int | None:
        """The ``index``-th smallest legal value of a hyperparameter, None if there are not so many."""
        values = self._values[name]
        while len(values) <= index:
            value = next(self._steps[name], None)
            if value is None:
                return None
            if self._legal({**self.base, name: value}):
                values.append(value)
        return values[index]

    def _legal(self, structure: Mapping[str, int]) -> bool:
        """Return whether a legal setting with these values exists."""
        if any(all(s.setting[n] == v for n, v in structure.items()) for s in self.sampler.legal):
            return True
        # sizes of another structure: a capture of shapes that were captured before is fast
        alike = ({**s.setting, **structure} for s in self.sampler.legal[:1])
        known = (self.sampler.at(setting) for setting in alike if self.sampler.space.beside(setting))
        return any(known) or self.sampler.generic(self.sizes, structure, large=True, patient=False) is not None

    def fitted(self) -> Figures:
        """Every figure as one expression. Hyperparameters without a formula are dropped on the way."""
        found = self._fitted_jointly() if self._joint else None
        if found is not None:
            return found
        bases = self._bases = {}
        for name in list(self.names):
            basis = self._basis(name)
            if isinstance(basis, str):
                if self.join() or self._study_again():
                    return self.fitted()
                self._drop(name, basis)
            else:
                bases[name] = basis
        while True:
            if self.dropped and not bases:  # one structure is left: it is studied for itself
                self.studies = {}
            for values in itertools.product(*(self._values[name][: len(basis) + 1] for name, basis in bases.items())):
                self.at({**self.base, **dict(zip(bases, values, strict=True))})
            if not self.used:
                raise WorkloadError(
                    f"too few settings of {', '.join(self.sizes)} were found at which the step is alike"
                )
            if determined([study.structure for study in self.used], basis_terms(bases)):
                break
            name, _ = bases.popitem()
            beside = f" together with those of {', '.join(bases)}" if bases else ""
            self._drop(name, f"too few of its values are legal{beside}{self._refused()}")
        self.since = {name: min(self._values[name]) for name in bases}
        common = self._common(self.used)
        return self.fitted() if _lost(common, self.used) and (self.join() or self._study_again()) else common

    def _study_again(self) -> bool:
        """Study structures of which there is one capture with several. False if there are none."""
        one = [key for key, found in self.studies.items() if found is not None and len(found.samples) == 1]
        self._hasty = False
        for key in one if self.sizes else ():
            del self.studies[key]
        return bool(one and self.sizes)

    def _drop(self, name: str, why: str) -> None:
        """Hold a hyperparameter at its default."""
        self.names.remove(name)
        self.dropped[name] = why
        self.base[name] = self.sampler.space.defaults[name]

    def join(self) -> bool:
        """Look for what several hyperparameters repeat together from now on. False if that was done or is no use."""
        if self._joint or len(self.names) < 2:
            return False
        self._joint = joint_terms(self.names)
        return True

    def _fitted_jointly(self) -> Figures | None:
        """Every figure from structures in which all hyperparameters differ; None if some follow no formula."""
        usual, lowest = self.base, self.lowest
        self._bases, self.base, self.lowest = dict.fromkeys(self.names, BASES[0]), {}, {}
        terms = basis_terms(self._bases)
        for among in [[], *self._corners()]:
            self.among = among
            few = self._few()
            while len(self.used) < len(terms) + _MORE_STRUCTURES and (structure := next(few, None)) is not None:
                self.at(structure)
            used = self.used
            points = [found.structure for found in used]
            # of all figures the numbers of ops are the first to tell that there is none
            if determined(points, terms) and not _lost(self._common(used, counts=True), used):
                self.since = {name: min(point[name] for point in points) for name in self.names}
                self._values = {name: sorted({point[name] for point in points}) for name in self.names}
                common = self._common(used)
                if not _lost(common, used):
                    self.base = min(points, key=lambda point: tuple(point.values()))
                    return common
        self.base, self.lowest, self.among = usual, lowest, []
        return None

    def _corners(self) -> Iterator[list[Condition]]:
        """Conditions that the workload's own setting meets: one hyperparameter is as large as another one, or twice."""
        for one, other in itertools.permutations(self.names, 2):
            for times in (1, 2):
                condition = Condition(symbol(one) - times * symbol(other), ">=")
                if self.sampler.space.at(condition, {}):
                    yield [condition]

    def _few(self) -> Iterator[dict[str, int]]:
        """Small structures that the conditions allow, those with few repetitions first."""
        space = self.sampler.space
        known = [c for c in (*space.where, *self.among) if c.expr.symbols <= set(self.names)]
        values = [list(itertools.islice((v for v in space.steps(name) if v > 1), _FEW)) for name in self.names]
        for several in sorted(itertools.product(*values), key=lambda several: (math.prod(several), several)):
            structure = dict(zip(self.names, several, strict=True))
            if all(space.at(condition, structure) for condition in known):
                yield structure

    def later(self, skip: int) -> Figures | None:
        """The moments, fitted without the ``skip`` smallest values of the hyperparameters that change the structure:
        the first repetitions and the last overlap there. None if too few values are legal."""
        values: dict[str, list[int]] = {}
        for name, basis in self._bases.items():
            found = [self._value(name, skip + index) for index in range(len(basis) + 2)]
            values[name] = [value for value in found if value is not None]
            if len(values[name]) < len(found):
                return None
        if self._joint:
            return None
        self.since = {name: several[0] for name, several in values.items()}
        grid = itertools.product(*(several[:-1] for several in values.values()))
        structures = [dict(zip(values, chosen, strict=True)) for chosen in grid]
        structures += [{**self.since, name: several[-1]} for name, several in values.items()]
        studies = [s for s in (self.at({**self.base, **structure}) for structure in structures) if s is not None]
        return _common(studies, basis_terms(self._bases), (), moments=True) if len(studies) == len(structures) else None

    def learn(self, samples: Sequence[Sample]) -> bool:
        """Forget the studies, and have captures of their structures with the sizes of ``samples``, where formulas
        were wrong, for the next ones. False if these would not be like the others."""
        useful = False
        for sample, found in itertools.product(samples, self.used):
            sample_at = self.sampler.at({**sample.setting, **found.structure})
            useful = useful or (sample_at is not None and sample_at.skeleton == found.samples[0].skeleton)
        if useful:
            self.studies = {}
        return useful

    @property
    def typical(self) -> dict[str, int]:
        """A setting like the workload's own."""
        return {**self.sampler.space.defaults, **{n: v for n, v in self.base.items() if n in self.dropped}}

    def beyond(self, name: str) -> int:
        """A value of a hyperparameter larger than those that formulas were made from; it need not be legal."""
        values = (value for value in self.sampler.space.steps(name) if value > max(self._values[name]))
        return next(values, self.base[name]) if self._values[name] else self.base[name]

    @property
    def used(self) -> list[Study]:
        """The studies that formulas are made from."""
        return [s for s in self.studies.values() if s is not None and self._counts(s)]

    @property
    def base_study(self) -> Study:
        """The study of the smallest structure of which the moments are claimed."""
        claimed = [s for s in self.used if all(s.structure[n] >= value for n, value in self.since.items())]
        return min(claimed or self.used, key=lambda found: tuple(found.structure.values()))

    def claims_moments(self, setting: Mapping[str, int]) -> bool:
        """Return whether moments were fitted from structures as small as that of a setting."""
        return all(setting[name] >= value for name, value in self.since.items())

    @property
    def asked(self) -> list[Condition]:
        """Conditions that the rules relied on in every structure. Those whose numbers follow the repetitions become one
        condition in them."""
        lists = [list(study.asked) for study in self.used]
        rest = [[c for c in asked if any(c not in other for other in lists)] for asked in lists]
        points = [{name: study.structure[name] for name in self.names} for study in self.used]
        terms = basis_terms(self._bases)
        columns = list(zip(*rest, strict=False))
        alike = all(len(row) == len(columns) for row in rest) and all(
            len({c.relation for c in row}) == 1 for row in columns
        )
        fits = (
            [fitted([c.expr for c in row], points, terms, self._joint) for row in columns]
            if alike and determined(points, terms)
            else [None]
        )
        if None in fits:
            return list(dict.fromkeys(itertools.chain.from_iterable(lists)))
        shared = [c for c in lists[0] if c not in rest[0]]
        return shared + [
            Condition(fit, row[0].relation) for fit, row in zip(fits, columns, strict=True) if fit is not None
        ]

    def _counts(self, found: Study) -> bool:
        """Return whether a study is at the base values of all that was dropped, and at no special one."""
        special = any(found.structure[n] < v for n, v in self.lowest.items())
        special = special or not all(self.sampler.space.at(condition, found.structure) for condition in self.among)
        return not special and all(found.structure[n] == v for n, v in self.base.items() if n in self.dropped)

    def _basis(self, name: str) -> Basis | str:
        """The simplest basis in which ``name`` explains every figure, without its smallest values if these are special;
        if there is none, the reason."""
        failed, fewest = "", 0
        for skip, basis in itertools.product(range(_SPECIAL + 1), BASES):
            need = max(len(basis) + 2, (len(self._values[name]) - skip) * bool(skip))
            values = [self._value(name, skip + index) for index in range(need)]
            studies = [self.at({**self.base, name: value}) for value in values if value is not None]
            known = [s for s in studies if s is not None]
            if len(known) < need:
                failed = failed or f"only {len(known)} of its values were found to be legal{self._refused()}"
                continue
            terms = basis_terms({name: basis})
            if not determined([s.structure for s in known[:-1]], terms):
                continue
            common = _common(known, terms, (), moments=False)
            lost = _lost(common, known)
            if not lost:
                self._values[name] = self._values[name][skip:]
                self.base[name] = self._values[name][0]
                self.lowest |= {name: self.base[name]} if skip else {}
                return basis
            if not failed or len(lost) < fewest:
                fewest = len(lost)
                failed = f"{len(lost)} of {len(common)} figures follow no formula in it, first {lost[0]}"
        return failed

    def _refused(self) -> str:
        """A refusal of the workload, if there was one, to be named as a reason."""
        refused = next(iter(self.sampler.illegal.items()), None)
        return "" if refused is None else f" (refused: {refused[0]}: {refused[1]})"

    def _common(self, studies: Sequence[Study], *, counts: bool = False) -> Figures:
        """All figures of the studies, or only the ``counts`` of ops. Moments have the joint terms of others."""
        terms = basis_terms(self._bases)
        if counts:
            figures = [{f: e for f, e in s.figures.items() if f.is_count} for s in studies]
            studies = [replace(study, figures=several) for study, several in zip(studies, figures, strict=True)]
        others = _common(studies, terms, self._joint, moments=False)
        repeated = {atom for e in others.values() if e is not None for atom in e.atoms if not isinstance(atom, str)}
        joint = [term for term in self._joint if repeated.issuperset(a for a in term.atoms if not isinstance(a, str))]
        return others | _common(studies, terms, joint, moments=True)


def _lost(common: Figures, studies: Sequence[Study]) -> list[Figure]:
    """The figures without a common expression that have one in each of the studies."""
    lost = [figure for figure, expr in common.items() if expr is None and figure.of != EXPLAINED]
    return [f for f in lost if not isinstance(f.of, Moment) and all(s.figures.get(f, 0) is not None for s in studies)]


def _common(studies: Sequence[Study], terms: Sequence[Expr], more: Sequence[Expr], *, moments: bool) -> Figures:
    """The moments, or the other figures, of all studies as one expression each. A row that a structure lacks is 0
    there; a moment that one lacks is left out."""
    points = [s.structure for s in studies]
    result: Figures = {}
    for figure in dict.fromkeys(itertools.chain.from_iterable(s.figures for s in studies)):
        if isinstance(figure.of, Moment) != moments or (moments and any(figure not in s.figures for s in studies)):
            continue
        values = [s.figures.get(figure, constant(0)) for s in studies]
        known = [value for value in values if value is not None]
        result[figure] = fitted(known, points, terms, more) if len(known) == len(values) else None
    return result


def not_empty(structures: Structures, space: Space) -> list[Condition]:
    """Conditions that sizes which may be 0 or less are not: the last piece of a sequence, a shrinking image.

    Sizes that the structures do not have in common ask for nothing, nor do those that the workload's code asks about.
    """
    terms = basis_terms(dict.fromkeys(structures.names, BASES[0]))
    points = [{name: study.structure[name] for name in structures.names} for study in structures.used]
    sizes = [
        dict.fromkeys(expr_of(size) for tensor in study.graph.tensors for size in tensor.shape)
        for study in structures.used
    ]
    rows = [list(dict.fromkeys(factor for size in row for factor in _may_vanish(size))) for row in sizes]
    if len({len(row) for row in rows}) != 1 or not determined(points, terms):
        return []
    fits = [fitted(several, points, terms) for several in zip(*rows, strict=True)]
    found = simplified([Condition(fit - 1, ">=") for fit in fits if fit is not None], {}, frozenset(), [])
    path = [c for c in structures.used[0].path if all(c in study.path for study in structures.used)]
    return [c for c in folded(found, path) if space.at(c, {}) and c not in space.where]


def tightened(where: Sequence[Condition], sizes: Sequence[Condition], samples: Sequence[Sample]) -> list[Condition]:
    """The conditions ``where``, those ``sizes`` that are 1 in one of the ``samples`` larger than that."""
    ones = [c for c in sizes if any(value_of(c.expr, sample.setting) == 0 for sample in samples)]
    return [Condition(condition.expr, ">") if condition in ones else condition for condition in where]


def _may_vanish(size: Expr) -> Iterator[Expr]:
    """The factor of a size that is not certain to be at least 1, unless it is a product of several that occur alone."""
    if size.value is None:
        factor = size / Expr({tuple(power for power in common(size) if isinstance(power[0], str)): content(size)})
        alone = all(sum(power for atom, power in m if not isinstance(atom, str)) <= 1 for m in factor.terms)
        if alone and factor.value is None and not nonnegative(factor - 1):
            yield factor
