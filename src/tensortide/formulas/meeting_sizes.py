"""Settings at which sizes meet: where one divides another, or fills what it is cut from, PyTorch may take other ops (a
view for a copy) though the workload's code compares nothing.

A reshape is a view where each stride is that of the next dimension times its size. Generic sizes seldom meet so: such
settings are looked for.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tensortide.expr import Compiled, Condition, Expr, compiled, expr_of, nonnegative
from tensortide.expr.expr import Opaque, denominator
from tensortide.expr.floors import quotients
from tensortide.formulas.one_structure import Study
from tensortide.formulas.region import of_remainder, primitive
from tensortide.formulas.sampler import Sample, Sampler
from tensortide.formulas.space import Setting, Space
from tensortide.graph.model import Graph

_RESHAPING = ("view", "reshape", "clone", "flatten")
"""Parts of the names of ops that are copies or views, as strides say."""
_MOST, _TRIES = 12, 2
"""Meetings that are tried, and settings of each."""
_ALONE, _TOGETHER = 512, (48, 128)
"""Values of one size, and of each of two, to look at for a meeting."""


def meetings(graph: Graph) -> list[Condition]:
    """Equations between sizes of a lifted graph that its ops may take another way: short ones first."""
    found = {primitive(gap): None for gap in (*_of_strides(graph), *_of_views(graph), *_of_quotients(graph))}
    # what is never negative is 0 at sizes of 1 at most, which are looked at for themselves
    open_ones = [max(e, -e, key=str) for e in found if e.value is None and not nonnegative(e) and not nonnegative(-e)]
    equations = dict.fromkeys(of_remainder(c) or c for c in (Condition(e, "==") for e in open_ones))
    return sorted(equations, key=lambda c: (len(str(c)), str(c)))


def _of_strides(graph: Graph) -> Iterator[Expr]:
    """Differences of each stride from that of a dimension that could be one with the next, of what is reshaped."""
    reshaped = (op for op in graph.ops if any(kind in graph.calls[op.call].op for kind in _RESHAPING))
    merged = dict.fromkeys(expr_of(size) for tensor in graph.tensors for size in tensor.shape)
    for tensor in dict.fromkeys(graph.tensors[one] for op in reshaped for one in op.inputs):
        shape, strides = [[expr_of(n) for n in row] for row in (tensor.shape, tensor.strides)]
        for outer, stride, size, inner in zip(shape, strides, shape[1:], strides[1:], strict=False):
            if any(_is_multiple(known, outer * size) for known in merged):
                yield stride - size * inner


def _is_multiple(size: Expr, factor: Expr) -> bool:
    """Return whether a size is one factor times others, whatever its symbols are."""
    if factor.value == 0:  # an empty tensor
        return False
    times = size.divided(factor)
    return times is not None and denominator(times) == 1


def _of_views(graph: Graph) -> Iterator[Expr]:
    """Differences of the sizes of a tensor from those of a view of it that has less of it."""
    for op in graph.ops:
        for one, other in itertools.product(op.inputs, op.outputs):
            before, after = graph.tensors[one], graph.tensors[other]
            if before.storage == after.storage and len(before.shape) == len(after.shape):
                pairs = [(expr_of(a), expr_of(b)) for a, b in zip(before.shape, after.shape, strict=True)]
                if Counter(a for a, _ in pairs) != Counter(b for _, b in pairs):  # nothing is moved alone
                    yield from (a - b for a, b in pairs)


def _of_quotients(graph: Graph) -> Iterator[Expr]:
    """Remainders of the divisions of one size by another that are rounded."""
    known = dict.fromkeys(expr_of(size) for tensor in graph.tensors for size in tensor.shape)
    for expr in dict.fromkeys(part for size in known for part in _parts(size)):
        yield from (top % by for top, by in quotients(expr) if by.symbols and top.symbols)


def _parts(expr: Expr) -> Iterator[Expr]:
    """An expression, and those in its opaque atoms."""
    yield expr
    for atom in expr.atoms:
        for argument in atom.arguments if isinstance(atom, Opaque) else ():
            yield from _parts(argument)


class Meetings:
    """Captures where sizes of a study meet.

    ``deciding``: the first meeting at which the step has other ops, as the condition that the workload's own setting
    meets, a capture where it is met and one where it is not. ``alike``: captures with the same ops, from which formulas
    may still differ.
    """

    def __init__(self, sampler: Sampler, study: Study) -> None:
        self._sampler, self._study = sampler, study
        self.deciding: tuple[Condition, Sample, Sample] | None = None
        self.alike: list[Sample] = []

    def tried(self) -> Meetings:
        """Capture where sizes meet, until one meeting decides."""
        study, space = self._study, self._sampler.space
        inside = study.samples[0]
        for condition in itertools.islice(filter(self._is_open, (*_unvaried(study), *meetings(study.graph))), _MOST):
            outside = self._other_step(condition)
            if outside is not None:
                own = bool(space.at(condition, {}))
                self.deciding = (condition, outside, inside) if own else (condition.opposite, inside, outside)
                break
        return self

    def _is_open(self, condition: Condition) -> bool:
        """Return whether it is not known what a meeting does."""
        space = self._sampler.space
        known = condition in space.where or condition.opposite in space.where
        met = any(space.at(condition, sample.setting) is not False for sample in self._study.samples)
        return not known and not met and condition.expr.symbols <= set(space.over)

    def _other_step(self, condition: Condition) -> Sample | None:
        """A capture where sizes meet, if all of a few have another step than where they do not."""
        found: list[Sample] = []
        for setting in itertools.islice(_met(self._sampler, self._study, condition), _TRIES):
            sample = self._sampler.at(setting)
            self._sampler.forget(setting)
            if sample is not None and sample.skeleton == self._study.samples[0].skeleton:
                self.alike.append(sample)
                return None
            found += [sample] if sample is not None else []
        return found[0] if found else None


def _unvaried(study: Study) -> Iterator[Condition]:
    """Conditions that a quotient that the workload's code computed has another value than the one that it had in all
    samples."""
    if len(study.samples) > 1:
        for expr in study.samples[0].made:
            is_quotient = any(expr == top // by and top.symbols for top, by in quotients(expr))
            if is_quotient and all(expr in sample.made for sample in study.samples):
                values = {expr.subs(sample.setting).value for sample in study.samples}
                if len(values) == 1 and (value := values.pop()) is not None:
                    yield Condition(expr - value, "!=")


def _met(sampler: Sampler, study: Study, condition: Condition) -> Iterator[Setting]:
    """Legal settings that meet an equation in which no further size is 1: one value differs from that of a sample,
    else two."""
    space, low = sampler.space, study.samples[0].setting
    names = [name for name in sorted(condition.expr.symbols) if name not in study.structure]
    dimensions = _larger_ones(study)
    for name in names:
        unit = space.unit(name, low)
        settings = ({**low, name: unit * n} for n in range(2, _ALONE))
        yield from _fitting(sampler, condition, dimensions, settings, 1)
    for one, other in itertools.combinations(names, 2):
        few, many = (range(2, most) for most in _TOGETHER)
        settings = ({**low, one: a, other: b} for a, b in itertools.product(few, many))
        yield from _fitting(sampler, condition, dimensions, settings, 1)


def _larger_ones(study: Study) -> list[Expr]:
    """The sizes of a study that are more than 1 in its samples."""
    known = dict.fromkeys(expr_of(size) for tensor in study.graph.tensors for size in tensor.shape)
    return [size - 1 for size in known if size.value is None]


def _fitting(
    sampler: Sampler, condition: Condition, dimensions: Sequence[Expr], settings: Iterator[Setting], most: int
) -> Iterator[Setting]:
    space, values = sampler.space, compiled(dimensions)
    met = (s for s in settings if space.at(condition, s) and space.allows(s) and space.beside(s))
    yield from itertools.islice((s for s in met if _all_positive(values, {**space.all, **s})), most)


def _all_positive(values: Compiled, setting: Mapping[str, int]) -> bool:
    try:
        return all(value > 0 for value in values(setting))
    except ArithmeticError:
        return False


# -- computed sizes of 1 ----------------------------------------------------------------------------
# Sizes that the step computes and that may be 1, where many ops behave differently: windows of a short sequence.


_VALUES = (2, 3, 5, 7, 11, 17, 29, 53, 101, 211, 401, 809)
"""Values of one hyperparameter at which a size is evaluated."""


def computed_sizes(graph: Graph, names: Iterable[str]) -> list[Expr]:
    """The dimensions of the graph's tensors that are rounded, a minimum or the like, short ones first; all in
    ``names``."""
    known = frozenset(names)
    dimensions = dict.fromkeys(expr_of(size) for tensor in graph.tensors for size in tensor.shape)
    found = [e for e in dimensions if e.symbols <= known and not all(isinstance(atom, str) for atom in e.atoms)]
    return sorted(found, key=lambda e: (len(str(e)), str(e)))


def is_one(expr: Expr, setting: Mapping[str, int]) -> bool:
    """Return whether a size is 1 at a setting."""
    try:
        return expr.evaluate(setting) == 1
    except ArithmeticError:
        return False


def ones_at(sizes: Iterable[Expr], setting: Mapping[str, int], used: Sequence[Mapping[str, int]]) -> list[Condition]:
    """Conditions that those of the ``sizes`` are larger that are 1 at a setting and at none of those ``used``."""
    at = [size for size in sizes if is_one(size, setting) and not any(is_one(size, other) for other in used)]
    return [Condition(size - 1, ">") for size in at[:1]]


def settings_of_one(space: Space, size: Expr, low: Setting, ones: Sequence[str]) -> Iterator[Setting]:
    """Legal settings in which one hyperparameter, not 1, makes ``size`` 1: the others as in ``low``, and, as two sizes
    of 1 may matter only together, those in ``ones`` 1."""
    for start in (low, {**low, **{name: 1 for name in ones if name not in size.symbols}}):
        choices = (
            {**start, name: space.unit(name, start) * value} for name in sorted(size.symbols) for value in _VALUES
        )
        found = next((setting for setting in choices if is_one(size, setting) and space.allows(setting)), None)
        if found is not None:
            yield found
