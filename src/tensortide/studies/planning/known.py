"""Plans known before any search: the step as recorded, online policies, static strategies; a row of ``KNOWN`` each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from tensortide.errors import PlanError
from tensortide.plans.checkpointing.stages import to_plan
from tensortide.plans.checkpointing.static import static_graph
from tensortide.plans.remat.schedule import Recording
from tensortide.plans.under_budget.sequence import sequence_of
from tensortide.replays.remat.simulator import Simulator, candidates
from tensortide.studies.remat.contenders import contenders

OVERHEAD_LIMIT = 4.0
"""A policy is given up when the step takes this many times its time without recomputation."""
MOST_PLANS = 24
"""Plans of a static strategy that are played; its settings beyond them are not tried."""
MOST_NODES = 10_000
"""Longest step, in nodes, that static strategies plan."""


@dataclass(frozen=True)
class Asked:
    """A step to be planned: ``recording`` on ``device`` within ``budget_bytes``."""

    recording: Recording
    device: str
    budget_bytes: int
    workspace: bool = True
    _simulators: list[Simulator] = field(default_factory=list)

    @property
    def simulator(self) -> Simulator:
        if not self._simulators:
            self._simulators.append(Simulator(self.recording, workspace=self.workspace, device=self.device))
        return self._simulators[0]


Found: TypeAlias = "tuple[str, list[int] | str]"
"""The name of a plan, with its ops in order, or with the reason why there is none."""


def as_recorded(asked: Asked) -> Iterator[Found]:
    """Yield the step as it was recorded."""
    yield "as recorded", list(range(len(asked.recording.graph)))


def online(asked: Asked) -> Iterator[Found]:
    """Yield the run of each policy."""
    for name in candidates():
        run = asked.simulator.run(name, asked.budget_bytes, overhead_limit=OVERHEAD_LIMIT)
        yield name, sequence_of(run.plan().lanes[0].steps) if run.status == "ok" else run.status


def static(asked: Asked) -> Iterator[Found]:
    """Yield the schedules of strategies that plan ahead and take no budget."""
    graph = asked.recording.graph
    nodes = static_graph(graph, asked.recording.durations_ns, asked.device)
    for name, plans, skipped in contenders(nodes):
        if skipped or len(nodes) > MOST_NODES:
            yield name, skipped or f"{len(nodes):,} nodes, more than {MOST_NODES:,}"
            continue
        for made in itertools.islice(plans, MOST_PLANS):
            try:
                yield name, sequence_of(to_plan(made, nodes, graph, asked.device).lanes[0].steps)
            except PlanError as error:
                yield name, str(error)


KNOWN: dict[str, Callable[[Asked], Iterator[Found]]] = {
    "online policies": online,
    "static plans": static,
}
"""Makers of plans for a step that does not fit as recorded, in the order in which they are asked."""
