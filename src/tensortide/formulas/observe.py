"""Captures whose hyperparameters remember their names, so that what the workload's code compares them with is known.

A workload that is called with a Size for ``hidden`` runs as it always does, and leaves a *path*: the conditions that
its comparisons answered (``hidden <= 1024``, ``8 divides hidden``). Another setting on the same path has the same
course through that code. A size that this reads from a tensor (``x.shape[1]``) is a symbol of its own, the first read
``read 0``: which expression it is, captures at several settings say.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from tensortide.errors import TensortideError
from tensortide.expr import Condition, Expr, computed, conditions, constant, sized, symbol
from tensortide.expr.size import quotient
from tensortide.formulas.remembering import remembering
from tensortide.formulas.space import Scalar, Setting, Space
from tensortide.graph.model import Graph
from tensortide.importers import built
from tensortide.recorder.shape_reads import shape_reads
from tensortide.recorder.trials import trial_runs

Path: TypeAlias = tuple[Condition, ...]


class Observed(NamedTuple):
    """The course of a capture through the workload's code.

    ``path`` are the conditions that it found, ``made`` the sizes that it computed, both also in what it read from
    tensors, of which ``reads`` are the values.
    """

    path: Path = ()
    made: tuple[Expr, ...] = ()
    reads: tuple[int | Fraction, ...] = ()

    def in_terms_of(self, reads: Sequence[Expr | None]) -> Observed:
        """The same with expressions for what was read, without what is in a read that has none."""
        known = {_read(index): expr for index, expr in enumerate(reads) if expr is not None} | {_ONE: constant(1)}
        path = {Condition(_said(c.expr, known), c.relation): None for c in self.path if _is_said(c.expr, known)}
        made = {_said(expr, known): None for expr in self.made if _is_said(expr, known)}
        return Observed(tuple(c for c in path if c.expr.value is None), tuple(made))


NOTHING_SEEN = Observed()


def observed(
    workload: Callable[..., Any],
    setting: Setting,
    settings: Mapping[str, Scalar],
    *,
    name: str,
    assume: Mapping[str, bool | int | float],
) -> tuple[Graph | TensortideError, Observed]:
    """The capture at ``setting``, else why the workload refuses it; and the course to there.

    ``settings`` are the hyperparameters that stay as they are, ``assume`` is what lines are to read.
    """
    reads: list[int | Fraction] = []

    def read(value: int) -> int:
        if trial_runs():
            return value
        reads.append(value)
        return sized(symbol(_read(len(reads) - 1)), value)

    def read_float(value: float) -> float:
        if trial_runs():
            return value
        reads.append(exactly(value))
        return quotient(symbol(_read(len(reads) - 1)) / symbol(_ONE), value)

    graph: Graph | TensortideError
    with conditions() as asked, computed() as made, shape_reads(read), remembering(workload, read_float):
        try:
            given = {**settings, **{n: sized(symbol(n), value) for n, value in setting.items()}}
            graph = built.captured(workload, hyperparameters=given, real=False, name=name, assume=assume)
        except TensortideError as error:
            graph = error
    computations = tuple(expr for expr in made if not _is_read(str(expr)))
    values = {_ONE: 1, **{_read(index): value for index, value in enumerate(reads)}, **setting}
    seen = Observed(tuple(_without_runs(asked, values)), computations, tuple(reads))
    if isinstance(graph, TensortideError):
        return graph, seen
    known = {n: setting.get(n, value) for n, value in graph.meta.hyperparameters.items()}
    return replace(graph, meta=replace(graph.meta, hyperparameters=known)), seen


def _without_runs(path: Iterable[Condition], values: Mapping[str, int | Fraction]) -> Iterator[Condition]:
    """Yield a path with one comparison in place of many equations: ``hidden in range(300, 4000)`` asks whether
    ``hidden == 300``, ``hidden == 301`` and so on. ``values`` are those of the symbols."""
    for varying, group in itertools.groupby(path, _equated):
        several = list(group)
        numbers = [_number(condition, varying) for condition in several] if varying is not None else []
        if varying is None or len(numbers) < _RUN or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            yield from several
        elif several[-1].relation == "==":
            yield Condition(varying - numbers[0], ">=")
        elif (varying.subs(values).value or 0) < numbers[0]:
            yield Condition(numbers[0] - varying, ">")
        else:
            yield Condition(varying - numbers[-1], ">")


def _equated(condition: Condition) -> Expr | None:
    """The expression that an equation, or its opposite, compares with a whole number; None for others."""
    varying = condition.expr - condition.expr.terms.get((), 0)
    if condition.relation not in ("==", "!=") or condition.expr.terms.get((), 0).denominator != 1:
        return None
    return varying if str(varying) >= str(-varying) else -varying


def _number(condition: Condition, varying: Expr) -> int:
    number = int(condition.expr.terms.get((), 0))
    return -number if condition.expr - number == varying else number


def exactly(value: float) -> Fraction:
    """The fraction that a float stands for: the simplest that two roundings may have made it of."""
    simple = Fraction(value).limit_denominator(_FINEST)
    return simple if abs(float(simple) - value) <= 2 * math.ulp(value) else Fraction(value)


def guessed(seen: Observed, setting: Mapping[str, int], others: Iterable[int]) -> Observed:
    """Put what was observed into the hyperparameters alone: a size that was read is taken for the only one that has its
    value, ``others`` being values that it may have as well."""
    times = Counter((*setting.values(), *others))
    names: dict[int | Fraction, Expr] = {v: symbol(n) for n, v in setting.items() if v > 2 and times[v] == 1}
    return seen.in_terms_of([names.get(value) for value in seen.reads])


_READ, _ONE = "read ", "read one"
"""Names of symbols for what was read; floats are divided by one that is 1: symbols alone count as whole."""
_RUN = 3
"""Numbers in a row that are compared with to be taken for a range."""
_FINEST = 1 << 14
"""Largest denominator of a float that is taken for a fraction."""


def _read(index: int) -> str:
    """The name of the symbol that stands for a size read from a tensor."""
    return f"{_READ}{index}"


def _is_read(name: str) -> bool:
    return name == _ONE or (name.startswith(_READ) and name[len(_READ) :].isdigit())


def _is_said(expr: Expr, known: Mapping[str, Expr]) -> bool:
    return all(name in known or not _is_read(name) for name in expr.symbols)


def _said(expr: Expr, known: Mapping[str, Expr]) -> Expr:
    return expr.subs({name: known[name] for name in expr.symbols & known.keys()})


def thresholds(path: Iterable[Condition], setting: Mapping[str, int]) -> list[Condition]:
    """The inequalities of a path, without those of loops: the comparisons of a counter with its end leave
    ``layers > 1`` and ``layers <= 2``, which a single value meets, and ``min(start + chunk, seq)`` for a start every 13
    leaves ``seq >= chunk + 13``, ``seq < chunk + 26`` where ``chunk`` is 13."""
    bounds: dict[Expr, list[tuple[int, Condition]]] = defaultdict(list)
    for condition in path:
        if condition.relation in (">=", ">") and condition.expr.symbols <= setting.keys():
            varying = condition.expr - condition.expr.terms.get((), 0)
            upward = str(varying) >= str(-varying)
            slack = math.floor(condition.expr.subs(setting).value or 0) - (condition.relation == ">")
            bounds[varying if upward else -varying].append((slack if upward else ~slack, condition))
    found: list[Condition] = []
    for varying, sides in bounds.items():
        slacks = sorted({slack for slack, _ in sides})
        steps = {after - before for before, after in itertools.pairwise(slacks)}
        is_loop = {0, -1} <= set(slacks) or (
            len(steps) == 1 and len(varying.symbols) > 1 and steps <= {setting[name] for name in varying.symbols}
        )
        found += [] if is_loop else [condition for _, condition in sides]
    return found


# -- sizes that must not exceed others --------------------------------------------------------------
# Refusals that no comparison in the workload's code explains: a size that must not exceed another one, as a window its
# sequence. All refused settings are beyond it, no legal one is; captures just there bear it out.


Takes = Callable[[Setting], bool]
"""Tells whether the workload takes a setting."""
_ENOUGH = 2
"""Refused settings from which a comparison is guessed."""


def refused_comparison(
    space: Space, legal: Sequence[Setting], refused: Sequence[Setting], takes: Takes, tried: set[tuple[str, str]]
) -> Condition | None:
    """The comparison of two sizes that all ``refused`` settings fail and all ``legal`` ones meet, if the workload
    refuses settings just beyond it too. Pairs of sizes that were ``tried`` are added to these."""
    own = space.defaults
    for one, other in itertools.permutations([name for name in space.over if name not in space.turns], 2):
        beyond = len(refused) >= _ENOUGH and all(setting[one] > setting[other] for setting in refused)
        if not beyond or any(setting[one] > setting[other] for setting in (*legal, own)) or (one, other) in tried:
            continue
        tried.add((one, other))
        if not any(takes({**own, one: value}) for value in (own[other] + 1, 2 * own[other] + 1)):
            may_be_equal = takes({**own, one: own[other]})
            return Condition(symbol(other) - symbol(one), ">=" if may_be_equal else ">")
    return None
