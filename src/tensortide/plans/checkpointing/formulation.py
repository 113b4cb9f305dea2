"""The schedules of least cost within a budget as integer programs (Jain et al. 2020, section 4), solver aside.

For stage t and node i <= t, ``made[t, i]`` says that t computes i and ``kept[t, i]`` that it finds i resident; never
both. A third kind of variable, ``need``, stands for the ``FREE`` of the paper: whether i is still to be read in stage
t, by a node from some position on, or to be kept. All three are monotone, so the bytes resident while k is computed
are a plain sum, and the linear relaxation is tight: stages, more than anything else, make it so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeAlias

from tensortide.plans.checkpointing.static import StaticGraph

Term: TypeAlias = tuple[int, int]
"""A coefficient and a variable."""


@dataclass(slots=True)
class Program:
    """Minimise ``sum(cost)`` over variables 0 or 1 such that each of ``rows`` sums to at most its bound.

    ``made`` and ``kept`` number the variables by (stage, node). Node t is computed in stage t: ``made[t, t]`` is
    ``ONE``. What the step leaves behind is needed after the last stage: ``kept[n, i]`` is ``ONE``.
    """

    count: int = 1
    made: dict[tuple[int, int], int] = field(default_factory=dict)
    kept: dict[tuple[int, int], int] = field(default_factory=dict)
    rows: list[tuple[list[Term], int]] = field(default_factory=list)
    cost: list[Term] = field(default_factory=list)
    ns: int = 1

    def variable(self) -> int:
        """A new one."""
        self.count += 1
        return self.count - 1

    def at_most(self, bound: int, *terms: Term) -> None:
        """Require the sum of ``terms`` to be at most ``bound``."""
        self.rows.append((list(terms), bound))


ONE = 0
"""The variable that is 1."""


def formulate(static: StaticGraph, activation_bytes: int) -> Program:
    """The program for at most ``activation_bytes`` resident while any node is computed; costs in units of ``ns``."""
    program = Program(ns=math.gcd(*static.cost_ns) or 1)
    _variables(static, program)
    _precedence(static, program)
    _memory(static, program, activation_bytes)
    program.cost = [(static.cost_ns[node] // program.ns, made) for (_, node), made in program.made.items()]
    return program


def _variables(static: StaticGraph, program: Program) -> None:
    for stage in range(len(static)):
        for node in range(stage):
            program.kept[stage, node] = program.variable()
            if stage <= static.until[node]:
                program.made[stage, node] = program.variable()
        program.made[stage, stage] = ONE
    program.kept.update(((len(static), node), ONE) for node in static.kept)


def _precedence(static: StaticGraph, program: Program) -> None:
    """Require that a value kept was resident before, a value read is resident, and none is computed while resident."""
    made, kept = program.made, program.kept
    for (stage, node), var in kept.items():
        program.at_most(0, (1, var), *_of(-1, (made, kept), stage - 1, node))
        program.at_most(1, (1, var), *_of(1, (made,), stage, node))
    for (stage, node), var in made.items():
        for parent in static.parents[node]:
            program.at_most(0, (1, var), *_of(-1, (made, kept), stage, parent))


def _of(sign: int, tables: tuple[dict[tuple[int, int], int], ...], stage: int, node: int) -> list[Term]:
    return [(sign, table[stage, node]) for table in tables if (stage, node) in table]


def _memory(static: StaticGraph, program: Program, activation_bytes: int) -> None:
    unit = math.gcd(*static.nbytes) or 1
    size = [nbytes // unit for nbytes in static.nbytes]
    for stage in range(len(static)):
        needs = [_needs(static, program, stage, node) for node in range(stage + 1)]
        for at in range(stage + 1):
            terms = [(size[at], var) for _, var in _of(1, (program.made, program.kept), stage, at)]
            needed = ((size[node], needs[node][at]) for node in range(at))
            terms += ((weight, var) for weight, var in needed if var is not None)
            terms += ((size[node], program.kept[stage, node]) for node in range(at + 1, stage))
            program.at_most(activation_bytes // unit, *((weight, var) for weight, var in terms if weight))


def _needs(static: StaticGraph, program: Program, stage: int, node: int) -> dict[int, int | None]:
    """For each later position of the stage the variable that says whether ``node`` is needed there or after it; None
    where it is not."""
    need = program.kept.get((stage + 1, node))
    found: dict[int, int | None] = {}
    end = stage
    for child in reversed([c for c in static.children[node] if c <= stage]):
        found.update(dict.fromkeys(range(child + 1, end + 1), need))
        end = child
        read = program.made.get((stage, child))
        if read is None or need == ONE:
            continue
        if need is None or read == ONE:
            need = read
            continue
        either = program.variable()
        program.at_most(0, (1, need), (-1, either))
        program.at_most(0, (1, read), (-1, either))
        need = either
    found.update(dict.fromkeys(range(node + 1, end + 1), need))
    return found
