"""The optimum of small instances, by constraint programming over a relaxation of the simulator.

The relaxation has loads, and paths where genes of the problem chain up: no schedule is shorter than the work of a
device, nor than a chain of genes with the transfers between their devices. Each of its optima is simulated and
excluded, until the relaxation proves that nothing better than the best simulated placement is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tensortide.errors import MissingExtra
from tensortide.placements.arrays import Placements
from tensortide.placements.search.algorithm import Search
from tensortide.placements.search.groups import base_of
from tensortide.placements.search.seeds import seeds
from tensortide.placements.search.session import Ended, Session
from tensortide.search_limit import attended

NS = 1e6


@dataclass(frozen=True)
class Exact(Search):
    """CP-SAT, until the best placement is proved optimal. ``time_limit_s``: for each of its calls, in its own clock."""

    name: ClassVar[str] = "cp"
    about: ClassVar[str] = "the optimum of small nets, by constraint programming"
    is_for_small: ClassVar[bool] = True
    time_limit_s: float = 60.0

    def run(self, session: Session) -> None:
        """Simulate optima of the relaxation until nothing better is left."""
        found = seeds(session.problem, session.allowed, session.check, session.limit())
        session.score(found)
        model = _Relaxation(session)
        while True:
            row = model.better_than(session.best_ms, self.time_limit_s)
            if row is None:
                break
            session.score(row[None])
            model.exclude(row)
        session.notes.proved = True


class _Relaxation:
    """A CP-SAT model of the loads and paths of every placement; times in whole ns, rounded down."""

    def __init__(self, session: Session) -> None:
        try:
            from ortools.sat.python import cp_model
        except ImportError:
            raise MissingExtra("the search cp needs OR-Tools: pip install 'tensortide[solve]'.") from None

        self.cp: Any = cp_model
        self.session = session
        problem, allowed = session.problem, session.allowed
        base, group_of = base_of(problem)
        self.model: Any = cp_model.CpModel()
        horizon = int(np.ceil(session.best_ms * NS))
        self.makespan: Any = self.model.new_int_var(0, horizon, "makespan")
        self.on: list[list[Any]] = [
            [self.model.new_bool_var(f"{gene} on {device}") for device in allowed] for gene in range(session.genes)
        ]
        for row in self.on:
            self.model.add_exactly_one(row)
        for gene, device in problem.pins.items():
            self.model.add(self.on[gene][allowed.tolist().index(device)] == 1)
        work = np.floor(base.work[:, allowed] * NS).astype(np.int64)
        sums = np.zeros((session.genes, len(allowed)), np.int64)
        np.add.at(sums, group_of, work)
        for place in range(len(allowed)):
            load = sum(int(sums[gene, place]) * self.on[gene][place] for gene in range(session.genes))
            self.model.add(self.makespan >= base.batches * load)
        if base.chained is not None:
            chained = np.floor(base.chained[:, allowed] * NS).astype(np.int64)
            self._add_paths(chained, group_of, base.transfers[:, allowed[:, None], allowed], base.edges, horizon)
        self.model.minimize(self.makespan)

    def _add_paths(self, work: Any, group_of: Any, transfers: Any, edges: Any, horizon: int) -> None:
        """Each gene of the ungrouped problem ends after those that it reads from, and before the makespan."""
        count = transfers.shape[1] if len(transfers) else 0
        ends = [self.model.new_int_var(0, horizon, f"end {gene}") for gene in range(len(work))]
        spent = [
            sum(int(ms) * on for ms, on in zip(row, self.on[group], strict=True))
            for row, group in zip(work.tolist(), group_of.tolist(), strict=True)
        ]
        for gene, end in enumerate(ends):
            self.model.add(end >= spent[gene])
            self.model.add(self.makespan >= end)
        for (producer, consumer), between in zip(edges.tolist(), transfers, strict=True):
            self.model.add(ends[consumer] >= ends[producer] + spent[consumer])
            one, two = group_of[producer], group_of[consumer]
            if one == two:
                continue
            for source in range(count):
                for target in range(count):
                    both = [self.on[one][source], self.on[two][target]]
                    if not np.isfinite(between[source, target]):
                        self.model.add_bool_or([each.negated() for each in both])
                    elif (ms := int(between[source, target] * NS)) > 0:
                        later = ends[consumer] >= ends[producer] + spent[consumer] + ms
                        self.model.add(later).only_enforce_if(both)

    def better_than(self, score_ms: float, time_limit_s: float) -> Placements | None:
        """A placement whose relaxed makespan is below ``score_ms``, the least of all; None if there is none.

        Raises Ended if the time limit comes before an answer.
        """
        self.model.add(self.makespan <= int(np.ceil(score_ms * NS)) - 1)
        solver = self.cp.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = self.session.seed % (1 << 31)
        solver.parameters.max_deterministic_time = time_limit_s
        status = attended(lambda: solver.solve(self.model), self.session.check, solver.stop_search)
        if status == self.cp.INFEASIBLE:
            return None
        if status not in (self.cp.OPTIMAL, self.cp.FEASIBLE):
            raise Ended("time")
        places = [[bool(solver.value(each)) for each in row].index(True) for row in self.on]
        row: Placements = self.session.allowed[np.array(places)]
        return row

    def exclude(self, row: Placements) -> None:
        """Exclude the placement ``row`` [genes]."""
        places = np.searchsorted(self.session.allowed, row)
        self.model.add_bool_or([self.on[gene][place].negated() for gene, place in enumerate(places.tolist())])
