"""Plans known before any search: the step as recorded, online policies, static strategies; a row of ``KNOWN`` each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from tensortide.errors import PlanError
from tensortide.graph.effects import runs_once
from tensortide.graph.model import Graph, Phase
from tensortide.plans.checkpointing.stages import to_plan
from tensortide.plans.checkpointing.static import static_graph
from tensortide.plans.remat.schedule import Recording
from tensortide.plans.under_budget.sequence import sequence_of
from tensortide.replays.remat.simulator import Simulator, candidates
from tensortide.studies.remat.contenders import contenders

AS_RECORDED = "as recorded"
"""The name of the plan that changes nothing."""
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
    yield AS_RECORDED, list(range(len(asked.recording.graph)))


def per_block(asked: Asked) -> Iterator[Found]:
    """Yield checkpoints of repeated modules, one plan for each kind: the forward ops of each run again before its first
    backward op, as under ``torch.utils.checkpoint`` without early stop."""
    graph = asked.recording.graph
    for name, members in _repeated(graph).items():
        again: dict[int, list[int]] = {}
        for member in members:
            inside = [op for op in range(len(graph)) if _is_in(graph.module_path(graph.ops[op].module), member)]
            forward = [op for op in inside if graph.ops[op].phase is Phase.FORWARD]
            later = [op for op in inside if graph.ops[op].phase is Phase.BACKWARD]
            if forward and later:
                again[later[0]] = [op for op in forward if _repeats(graph, op)]
        if again:
            yield f"checkpoint {name}", [op for at in range(len(graph)) for op in (*again.get(at, ()), at)]


def _repeated(graph: Graph) -> dict[str, list[str]]:
    """Modules of one class whose paths differ only in their last number, by path with ``*``, outermost first."""
    found: dict[tuple[str, str], list[str]] = {}
    for module in graph.modules:
        parent, _, number = module.path.rpartition(".")
        if number.isdigit():
            found.setdefault((f"{parent}.*".lstrip("."), module.type), []).append(module.path)
    kept = {key: paths for key, paths in found.items() if len(paths) > 1}
    ordered = sorted(kept.items(), key=lambda item: item[0][0].count("."))
    return {name: paths for (name, _), paths in ordered}


def _repeats(graph: Graph, op: int) -> bool:
    """Whether ``op`` may run again: it does not count its runs in a buffer, for example."""
    facts = graph.index
    updated = [s for s in facts.writes[op] if graph.storages[s].birth is None and s not in facts.blind[op]]
    return not updated and not runs_once(graph.calls[graph.ops[op].call])


def _is_in(path: str, module: str) -> bool:
    return path == module or path.startswith(f"{module}.")


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
    "per-block checkpointing": per_block,
    "online policies": online,
    "static plans": static,
}
"""Makers of plans for a step that does not fit as recorded, in the order in which they are asked."""
