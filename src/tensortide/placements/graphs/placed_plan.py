"""The Plan of a placed step: for each device its ops in the order they ran, with sends and receives between them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tensortide.errors import PlanError
from tensortide.placements.graphs.simulate import Simulated
from tensortide.plans.model import Compute, Lane, Plan, Receive, Send
from tensortide.plans.model import Step as PlanStep


def plan_of(simulated: Simulated, order: Iterable[int] | None = None) -> Plan:
    """The Plan of a step as it was simulated: a lane per device, in the order of the cluster's.

    A value is sent right after the op that makes it, or at the beginning if it exists before the step, and received
    right before the first op of the other device that reads it. An all-reduce beside the computation stands where its
    bucket is ready to be launched. ``order``: the ops of each device in order (default: as they ran).
    """
    step = simulated.step
    values, graph = step.values, step.graph
    device, place, home = simulated.device.tolist(), simulated.place, step.units.home
    sends: defaultdict[int, list[int]] = defaultdict(list)
    for number, value in enumerate(values.values):
        if value.readers:
            sends[number] = sorted({device[op] for op in value.readers} - {place[home[value.storage]]})
    lanes: list[list[PlanStep]] = [[] for _ in range(step.devices)]
    for given in step.tables.given.tolist():
        storage = values.values[given].storage
        lanes[place[home[storage]]] += [Send(storage, target) for target in sends[given]]
    received: set[tuple[int, int]] = set()
    exchanged: defaultdict[int, list[PlanStep]] = defaultdict(list)  # means to send, once all have arrived
    for op in _order(simulated) if order is None else order:
        lane = lanes[device[op]]
        if op >= step.tables.exchanges.update:
            lane += exchanged.pop(device[op], ())
        for read in values.reads[op]:
            storage = values.values[read].storage
            source = place[home[storage]]
            if source != device[op] and (read, device[op]) not in received:
                received.add((read, device[op]))
                lane.append(Receive(storage, source))
        lane.append(Compute(op))
        after = lane if step.computes[op] else exchanged[device[op]]
        for made in values.writes[op]:
            after += [Send(values.values[made].storage, target) for target in sends[made]]
    for number, rest in exchanged.items():
        lanes[number] += rest
    names = [one.name for one in step.cluster.devices]
    return Plan(graph.index.digest, tuple(Lane(name, tuple(steps)) for name, steps in zip(names, lanes, strict=True)))


def check_moves(plan: Plan, simulated: Simulated, sequences: Sequence[Sequence[int]]) -> None:
    """Raise PlanError for a Plan that does not send and receive where that of ``simulated`` does, or that evicts.
    ``sequences``: the ops of each lane in order."""
    graph, made = simulated.step.graph, plan_of(simulated, itertools.chain(*sequences))
    for number, (lane, own) in enumerate(zip(plan.lanes, made.lanes, strict=True)):
        after = "before its first op"
        for given, played in itertools.zip_longest(lane.steps, own.steps):
            if given != played:
                raise PlanError(
                    f"lane {number} ({lane.device}), {after}: the plan has {given or 'no step'}, and place would play "
                    f"{played or 'none'}: it sends a value right after the op that makes it, receives it right before "
                    "its first reader there, and evicts nothing. replays.replay_lanes plays other plans"
                )
            if isinstance(given, Compute):
                after = f"after op {given.op} ({graph[given.op].name})"


def _order(run: Simulated) -> list[int]:
    """The ops in the order of their starts; exchanges beside them as soon as all that their bucket has is ready, and
    those of earlier buckets are launched."""
    step = run.step
    found = sorted(
        (op for op, alone in enumerate(step.computes.tolist()) if alone),
        key=lambda op: (run.start_ns[op], run.end_ns[op], op),
    )
    at = {op: number for number, op in enumerate(found)}
    launched: defaultdict[int, list[int]] = defaultdict(list)
    for own in run.buckets:
        after = -1
        for bucket in own:
            before = {earlier for op in bucket for earlier in step.graph.index.dependencies[op]}
            after = max((after, *(at[earlier] for earlier in before if earlier in at)))
            launched[after] += bucket
    rest = (one for number, op in enumerate(found) for one in (op, *launched[number]))
    return [*launched[-1], *rest]
