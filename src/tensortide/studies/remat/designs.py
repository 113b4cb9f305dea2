"""Designs of experiments and their execution: policies over budgets, on one step or several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tensortide.compiled import IS_COMPILED
from tensortide.errors import MissingExtra, PlanError
from tensortide.plans.remat.choice import policy
from tensortide.plans.remat.policies import POLICIES, Work
from tensortide.replays.remat.budgets import Budget, resolved
from tensortide.replays.remat.simulation import Deallocation
from tensortide.studies.remat.grid import Play, play_all, study
from tensortide.studies.remat.results import Cell, Kind, Study
from tensortide.studies.remat.subject import Subject

TRIALS = 10
"""Seeds of a policy that draws lots."""


_AROUND = frozenset({Work.CLASSES, Work.ANCESTORS, Work.NEIGHBOURHOOD, Work.UNION})


class Line(msgspec.Struct, frozen=True):
    """Design of a curve: the same run by each of ``policies``, which are one policy or its seeds."""

    name: str
    policies: tuple[str, ...]
    deallocation: Deallocation = "eager"
    exhaustive: bool = False


def contest(names: Iterable[str], *, deallocation: Deallocation = "eager", trials: int = TRIALS) -> tuple[Line, ...]:
    """A line for each policy; ``random`` is played with ``trials`` seeds, ``random:3`` with that one.

    Raises PlanError for a name that is none, and for one given twice.
    """
    lines: dict[str, Line] = {}
    for name in names:
        policy(name)
        if name in lines:
            raise PlanError(f"{name!r} is among the policies twice")
        seeds = tuple(f"{name}:{seed}" for seed in range(trials))
        lines[name] = Line(name, seeds if name in POLICIES and POLICIES[name].seeded else (name,), deallocation)
    if not lines:
        raise PlanError("there is no policy to play")
    return tuple(lines.values())


def ablation(*, deallocation: Deallocation = "eager") -> tuple[Line, ...]:
    """All cells of the ablation, row by row; the one with nothing in it is drawing lots."""
    return contest([*(name for name, row in POLICIES.items() if row.cell), "random"], deallocation=deallocation)


def banishing() -> tuple[Line, ...]:
    """Return lines that compare what becomes of released storages: banished, evicted, or not reported."""
    return (
        Line("banish, dtr-unopt", ("dtr-unopt",), "banish"),
        Line("eager, dtr", ("dtr",)),
        Line("ignore, dtr", ("dtr",), "ignore"),
    )


def accesses(
    names: Iterable[str] = ("dtr", "dtr-eq", "dtr-local"), *, deallocation: Deallocation = "eager"
) -> tuple[Line, ...]:
    """Return lines that compare the work of choosing: with the neighbourhood of every candidate; and, for policies
    that read neighbourhoods, with bounds that rule most candidates out."""
    lines = contest(names, deallocation=deallocation, trials=1)
    everything = (Line(f"{line.name}, all", line.policies, deallocation, True) for line in lines)
    bounded = (line for line in lines if getattr(policy(line.policies[0]), "work", Work.ONE) in _AROUND)
    return (*everything, *(Line(f"{line.name}, bounds", line.policies, deallocation) for line in bounded))


def conduct(
    kind: Kind,
    subjects: Sequence[Subject],
    lines: Sequence[Line],
    budgets: Sequence[Budget],
    *,
    overhead_limit: float = 2.0,
    play: Play = play_all,
) -> Study:
    """Play every step of ``subjects`` along every line under every budget.

    Raises:
        PlanError: as ``play``; or accesses of a policy are asked for that the compiled engine does not play.
        MissingExtra: accesses are asked for, and there is no compiled engine.
    """
    places = [
        (panel, line.name, ratio, subject, Cell(name, nbytes, overhead_limit, line.deallocation, line.exhaustive))
        for panel, subject in enumerate(subjects)
        for line in lines
        for nbytes, ratio in resolved(budgets, subject.baseline_bytes)
        for name in line.policies
    ]
    plain = [cell for *_, subject, cell in places if kind == "accesses" and not subject.is_compiled(cell)]
    if plain and not IS_COMPILED:
        raise MissingExtra("accesses are counted by the compiled engine only: pip install 'tensortide[remat]'")
    if plain:
        raise PlanError(
            f"accesses are counted by the compiled engine only, which does not play {plain[0].policy} with the "
            f"deallocation {plain[0].deallocation!r}"
        )
    return study(kind, [subject.name for subject in subjects], places, play)
