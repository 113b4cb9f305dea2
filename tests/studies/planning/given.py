"""Problems of the planner whose instance is given, and answers judged by the checker that comes with the cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from tensortide.graph import Graph, Role
from tensortide.plans.instance import Instance
from tensortide.plans.planned import Planned
from tensortide.plans.remat.schedule import recorded
from tensortide.studies.planning.problem import Problem
from tests.graphs import Builder
from tests.plans.events.judge import instance_of, judge, judged_plan


@dataclass(frozen=True, kw_only=True, eq=False)
class Given(Problem):
    """The problem of an instance that is ``given``; the graph of ``recording`` has no more of it than its ops."""

    given: Instance

    @cached_property
    def instance(self) -> Instance:
        """The given instance over the links of the problem."""
        names = {link.name for link in self.links}
        home = {s: tier for s, tier in self.given.home.items() if tier in names}
        ops = tuple(op if self.recompute else msgspec.structs.replace(op, once=True) for op in self.given.ops)
        digest = self.recording.graph.index.digest
        return msgspec.structs.replace(self.given, ops=ops, links=self.links, home=home, digest=digest)


def problem_of(given: Instance, case: Mapping[str, Any], **limits: Any) -> Problem:
    """The question of a case of the reference data."""
    step = recorded(_graph_of(given), [op.ns for op in given.ops])
    return Given(
        given=given,
        recording=step,
        device=step.graph.index.main_device,
        budget_bytes=case["budget_bytes"],
        links=() if case["allow"] == "recompute" else given.links,
        order=case["order"],
        recompute=case["allow"] != "offload",
        **limits,
    )


def _graph_of(given: Instance) -> Graph:
    builder = Builder()
    made = {s: number for number, op in enumerate(given.ops) for s in op.makes}
    for s, storage in enumerate(given.storages):
        builder.storage(storage.nbytes, Role.PARAMETER if storage.persistent else Role.TEMPORARY, made.get(s))
    for op in given.ops:
        touched = [*op.writes, *op.reads]
        mutated = tuple(range(len(op.writes)))
        builder.op(touched, list(op.makes), mutated=mutated, name=f"test.{op.name or 'op'}.default")
    return builder.graph()


def faults(raw: Mapping[str, Any], case: Mapping[str, Any], found: Planned) -> list[str]:
    """What is wrong with an answer to a case of the instance ``raw``: its bound, its verdict, or its plan as the
    checker plays it."""
    return list(_faults(raw, case, found))


def _faults(raw: Mapping[str, Any], case: Mapping[str, Any], found: Planned) -> Iterator[str]:
    best = case["best_ns"]
    if best is not None and found.status == "infeasible":
        yield "it has a plan"
    if best is not None and found.bound_ns > best:
        yield f"the bound {found.bound_ns} is above {best}"
    if found.plan is None:
        return
    plan = judged_plan(instance_of(raw), found.plan.lanes[0].steps, found.plan.home)
    try:
        played = judge().play(raw, plan, case["budget_bytes"])
    except judge().Illegal as error:
        yield str(error)
    else:
        if played["makespan_ns"] != found.step_ns:
            yield f"it takes {played['makespan_ns']}, not {found.step_ns}"
