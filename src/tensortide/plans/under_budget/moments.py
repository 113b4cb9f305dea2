"""Lower bounds that know what a recomputation reads: a linear program over a few moments of the step.

*Moments* are first runs at which memory is short; they divide the step into periods. For every plan that recomputes,
with first runs in recorded order, let S(c, m) = 1 if contents c are resident during moment m, and R(o, p) = 1 if op o
runs again in period p. Then

- what is resident at moment m was resident at the moment before, or was written in the period between them;
- what an op reads in a period was resident at the moment before it, or was written in the period;
- both hold of several periods in turn, too, in which an op runs again if it does in any of them;
- what is resident at a moment fits within the budget, beside what the op of the moment allocates;

and the plan takes at least ``base + sum of time(o) R(o, p)``. Bytes between the moments are left out, and so is the
order of runs within a period. Weights of these inequalities prove a bound, as any weights do:

    time - base >= sum of weight(i) right(i) - sum over variables of max(0, weighted coefficients - time)

The longer stretches matter: without them, fractions of a resident value serve in one period after the other. So does
the choice of moments: to those of a first program are added ops of the periods in which its optimum recomputes most.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from tensortide.errors import PlanError
from tensortide.plans.instance import BEFORE, Instance
from tensortide.plans.linear_program import solved
from tensortide.plans.under_budget.bound import SCALE, IdleCover, Moments
from tensortide.plans.under_budget.idle import IdleIntervals
from tensortide.plans.under_budget.tables import Floats, Ints, Tables, Value
from tensortide.search_limit import Look, SearchLimit, no_look

_PARTS, _ADDED, _PROGRAMS = 3, 4, 3
"""Parts of the ops over the budget, from each of which the tightest is a moment of the first program; moments added to
those of one program for the next; programs."""
_MOST_TOUCHES = 15_000
"""Touches of storages, times moments, of the largest program that is solved."""


class Row(NamedTuple):
    """An inequality: the sum of coefficients times variables is at least ``right``."""

    terms: list[tuple[int, int]]
    right: int


class Program:
    """The linear program of an instance over ``moments``, ascending ops: ``rows``, and ``cost`` of each variable, which
    is between 0 and 1. ``again``: the variable of runs of an op in a stretch of periods."""

    def __init__(self, instance: Instance, budget_bytes: int, moments: tuple[int, ...]) -> None:
        self.instance, self.moments = instance, moments
        self.rows: list[Row] = []
        self.cost: list[int] = []
        self._period = np.searchsorted(moments, np.arange(len(instance.ops)), side="right").tolist()
        self._resident: dict[tuple[Value, int], int] = {}
        self.again: dict[tuple[int, range], int] = {}
        self._waiting: list[tuple[int, Iterable[range], list[Value]]] = []  # a variable that needs values in stretches
        self._first_runs()
        while self._waiting:
            variable, stretches, values = self._waiting.pop()
            for value in values:
                self._needed(value, stretches, [(variable, -1)], 0)
        for number in range(len(moments)):
            self._memory(number, budget_bytes)

    def _first_runs(self) -> None:
        """State that first runs find what they touch, and that the step leaves behind what stays."""
        *states, final = self.instance.states
        at = {op: number for number, op in enumerate(self.moments)}
        for op, found in enumerate(states):
            for value in map(Value, found.keys(), found.values()):
                if op in at:
                    self.rows.append(Row([(self._is_resident(value, at[op]), 1)], 1))
                else:
                    self._needed(value, _stretches(self._period[op]), [], 1)
        for storage, record in enumerate(self.instance.storages):
            if record.stays and storage in final:
                self._needed(Value(storage, final[storage]), _stretches(len(self.moments)), [], 1)

    def _needed(self, value: Value, stretches: Iterable[range], less: list[tuple[int, int]], right: int) -> None:
        """State that ``value`` is present at some time of each stretch, as often as ``less`` and ``right`` say."""
        op = value.state
        begins = 0 if op == BEFORE else self._period[op]
        for stretch in stretches:
            if begins in stretch:
                continue
            terms = [(self._is_resident(value, stretch[0] - 1), 1)]
            if op != BEFORE and self._restores(op, value.storage):
                terms.append((self._runs_again(op, stretch), 1))
            self.rows.append(Row(terms + less, right))

    def _restores(self, op: int, storage: int) -> bool:
        record = self.instance.ops[op]
        return not (record.once or storage in record.blind or self.instance.storages[storage].pinned)

    def _is_resident(self, value: Value, moment: int) -> int:
        if (value, moment) not in self._resident:
            self._resident[value, moment] = self._variable(0, _stretches(moment), [value])
        return self._resident[value, moment]

    def _runs_again(self, op: int, stretch: range) -> int:
        """The variable of runs of ``op`` in a stretch, whose time counts by period."""
        if (op, stretch) not in self.again:
            record = self.instance.ops[op]
            reads = [Value(s, state) for s, state in self.instance.states[op].items() if s not in record.blind]
            is_period = len(stretch) == 1
            self.again[op, stretch] = found = self._variable(record.ns if is_period else 0, (stretch,), reads)
            if not is_period:
                periods = [(self._runs_again(op, range(p, p + 1)), 1) for p in stretch]
                self.rows.append(Row([*periods, (found, -1)], 0))
        return self.again[op, stretch]

    def _variable(self, cost: int, stretches: Iterable[range], needs: list[Value]) -> int:
        self.cost.append(cost)
        self._waiting.append((len(self.cost) - 1, stretches, needs))
        return len(self.cost) - 1

    def _memory(self, number: int, budget_bytes: int) -> None:
        """State that what is resident at a moment fits, and that a storage has one content at a time."""
        record, storages = self.instance.ops[self.moments[number]], self.instance.storages
        contents: dict[int, list[int]] = {}
        for (value, moment), variable in self._resident.items():
            if moment == number:
                contents.setdefault(value.storage, []).append(variable)
        self.rows += [Row([(x, -1) for x in some], -1) for some in contents.values() if len(some) > 1]
        allocated = record.workspace + sum(storages[s].nbytes for s in record.makes)
        terms = [(x, -storages[s].nbytes) for s, some in contents.items() for x in some if storages[s].nbytes]
        self.rows.append(Row(terms, allocated - budget_bytes))


def _stretches(period: int) -> list[range]:
    """All runs of periods that end with ``period``."""
    return [range(begin, period + 1) for begin in range(period, -1, -1)]


def verify_moments(instance: Instance, proof: Moments) -> int:
    """The time that no plan undercuts that recomputes, without transfers, and has first runs in recorded order."""
    if any(a >= b for a, b in zip((-1, *proof.moments), (*proof.moments, len(instance.ops)), strict=True)):
        raise PlanError("the moments of a proof are ops of the step, ascending")
    return _proved(instance, Program(instance, proof.budget_bytes, proof.moments), proof)


def moments_bound(
    instance: Instance,
    t: Tables,
    found: IdleIntervals,
    cover: IdleCover,
    limit: SearchLimit | None = None,
    look: Look = no_look,
) -> tuple[int, Moments]:
    """The best bound that a few programs prove within the budget of ``cover``, which is proved already.

    An iteration of the solver spends the number of ops of ``limit``; without SciPy nothing is proved.
    """
    best = instance.base_ns, Moments(cover.budget_bytes, (), ())
    tightness = _tightness(t, found)
    moments = _first(found, cover, tightness)
    for _ in range(_PROGRAMS):
        if not moments or len(t.touched) * len(moments) > _MOST_TOUCHES:
            break
        look()
        program = Program(instance, cover.budget_bytes, moments)
        optimum = _optimum(instance, program, limit or SearchLimit(), look)
        if optimum is None:
            break
        proof = Moments(cover.budget_bytes, moments, optimum.weights)
        best = max(best, (_proved(instance, program, proof), proof), key=lambda each: each[0])
        moments = _refined(instance, program, tightness, optimum)
    return best


def _tightness(t: Tables, found: IdleIntervals) -> Ints:
    """Bytes resident at each first run if all that can be away is."""
    away = np.zeros(len(t.ns) + 1, np.int64)
    np.add.at(away, found.begin, t.nbytes[found.storage])
    np.add.at(away, found.until, -t.nbytes[found.storage])
    level: Ints = found.need - np.cumsum(away)[:-1]
    return level


def _first(found: IdleIntervals, cover: IdleCover, tightness: Ints) -> tuple[int, ...]:
    """Moments to begin with: ops that ``cover`` weighs, and those at which the least can be away."""
    over = np.flatnonzero(found.need > cover.budget_bytes)
    heavy = sorted(cover.weights, key=lambda each: -each[1] * (int(found.need[each[0]]) - cover.budget_bytes))
    tightest = [int(part[tightness[part].argmax()]) for part in np.array_split(over, _PARTS) if len(part)]
    return tuple(sorted({*tightest, *(op for op, _ in heavy[:_PARTS])}))


class _Optimum(NamedTuple):
    """The optimum of a program: ``values`` of its variables, and ``weights`` of its rows."""

    values: Floats
    weights: tuple[tuple[int, int], ...]


def _refined(instance: Instance, program: Program, tightness: Ints, optimum: _Optimum) -> tuple[int, ...]:
    """The moments of ``program``, and the tightest op of each period in which ``optimum`` recomputes most."""
    spent = [0.0] * (len(program.moments) + 1)
    for (op, stretch), variable in program.again.items():
        if len(stretch) == 1:
            spent[stretch[0]] += instance.ops[op].ns * float(optimum.values[variable])
    more = []
    for time_ns, period in sorted(zip(spent, range(len(spent)), strict=True), reverse=True)[:_ADDED]:
        begin, end = (-1, *program.moments)[period] + 1, (*program.moments, len(instance.ops))[period]
        if time_ns and end > begin:
            more.append(begin + int(tightness[begin:end].argmax()))
    return tuple(sorted({*program.moments, *more})) if more else ()


def _optimum(instance: Instance, program: Program, limit: SearchLimit, look: Look) -> _Optimum | None:
    """The optimum of a program with the weights of its dual; None if it is not found."""
    try:
        from scipy.sparse import coo_array
    except ImportError:
        return None
    # rows of memory are in parts of their largest coefficient, so that the numbers of the program are alike
    unit = np.array([max((abs(a) for _, a in row.terms), default=1) for row in program.rows], float)
    lengths = [len(row.terms) for row in program.rows]
    terms = np.array([term for row in program.rows for term in row.terms], np.int64).reshape(-1, 2)
    rows = np.repeat(np.arange(len(unit)), lengths)
    shape = (len(unit), len(program.cost))
    matrix: Any = coo_array((-terms[:, 1] / unit[rows], (rows, terms[:, 0])), shape=shape).tocsc()
    cost = np.array(program.cost, float)
    scale = float(cost.max(initial=1.0)) or 1.0
    right = -np.array([row.right for row in program.rows], float) / unit
    ops = len(instance.ops)
    found = solved(cost / scale, limit=limit, iteration=ops, look=look, A_ub=matrix, b_ub=right, bounds=(0, 1))
    if found is None:
        return None
    dual = np.maximum(-found.ineqlin.marginals, 0) * scale / unit
    weights = ((number, int(weight * SCALE)) for number, weight in enumerate(dual.tolist()))
    return _Optimum(found.x, tuple(each for each in weights if each[1] > 0))


def _proved(instance: Instance, program: Program, proof: Moments) -> int:
    left = [-cost * SCALE for cost in program.cost]
    total = 0
    for number, weight in proof.weights:
        if not 0 <= number < len(program.rows) or weight < 0:
            raise PlanError(f"a proof weighs inequality {number} of {len(program.rows)} with {weight}")
        total += weight * program.rows[number].right
        for variable, coefficient in program.rows[number].terms:
            left[variable] += weight * coefficient
    total -= sum(max(0, each) for each in left)
    return instance.base_ns + max(0, -(-total // SCALE))
