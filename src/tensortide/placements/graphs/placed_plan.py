"""The Plan of a placed step: for each device its ops in the order they ran, with sends and receives between them."""

from __future__ import annotations

from collections import defaultdict

from tensortide.placements.graphs.simulate import Simulated
from tensortide.plans.model import Compute, Lane, Plan, Receive, Send
from tensortide.plans.model import Step as PlanStep


def plan_of(simulated: Simulated) -> Plan:
    """The Plan of a step as it was simulated: a lane per device, in the order of the cluster's.

    A value is sent right after the op that makes it, or at the beginning if it exists before the step, and received
    right before the first op of the other device that reads it.
    """
    step = simulated.step
    values, graph = step.values, step.graph
    device, place, home = simulated.device.tolist(), simulated.place, step.units.home
    order = sorted(range(len(graph)), key=lambda op: (simulated.start_ns[op], simulated.end_ns[op], op))
    sends: defaultdict[int, list[int]] = defaultdict(list)
    for number, value in enumerate(values.values):
        if value.readers:
            sends[number] = sorted({device[op] for op in value.readers} - {place[home[value.storage]]})
    lanes: list[list[PlanStep]] = [[] for _ in range(step.devices)]
    for given in step.tables.given.tolist():
        storage = values.values[given].storage
        lanes[place[home[storage]]] += [Send(storage, target) for target in sends[given]]
    received: set[tuple[int, int]] = set()
    for op in order:
        lane = lanes[device[op]]
        for read in values.reads[op]:
            storage = values.values[read].storage
            source = place[home[storage]]
            if source != device[op] and (read, device[op]) not in received:
                received.add((read, device[op]))
                lane.append(Receive(storage, source))
        lane.append(Compute(op))
        for made in values.writes[op]:
            lane += [Send(values.values[made].storage, target) for target in sends[made]]
    names = [one.name for one in step.cluster.devices]
    return Plan(graph.index.digest, tuple(Lane(name, tuple(steps)) for name, steps in zip(names, lanes, strict=True)))
