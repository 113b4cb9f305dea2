"""Placing a captured step on a cluster: everything ready for a search, and the result that one finds."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.graph.unroll import unrolled
from tensortide.parallelism.ranks import replica
from tensortide.parallelism.shards import Sharded, sharded
from tensortide.parallelism.tied import TiedGradient, tied_gradients
from tensortide.placements import parts
from tensortide.placements.bounds import Bounds
from tensortide.placements.graphs.durations import OpDurations, op_times
from tensortide.placements.graphs.exchanges import BucketRun, exchange_runs
from tensortide.placements.graphs.memory_limits import check_limits
from tensortide.placements.graphs.micro_batches import MicroBatches, micro_batched
from tensortide.placements.graphs.options import PlaceOptions
from tensortide.placements.graphs.placeable import placeable
from tensortide.placements.graphs.placed_plan import check_moves, plan_of
from tensortide.placements.graphs.placed_timeline import PlacedTimeline
from tensortide.placements.graphs.problem import GraphProblem
from tensortide.placements.graphs.replicas import Groups, ReplicaGroups, averaged, exchanged, replica_groups
from tensortide.placements.graphs.schedules import MicroBatchSchedule, strict_order
from tensortide.placements.graphs.simulate import Simulated, Simulator
from tensortide.placements.graphs.tables import step_of
from tensortide.placements.graphs.units import ShardPaths, Units, pinned, repeated, units_of
from tensortide.plans.lanes import check_lanes
from tensortide.plans.model import Compute, Plan
from tensortide.shown import Show
from tensortide.timing.clusters import Cluster
from tensortide.timing.durations import Durations

if TYPE_CHECKING:
    from tensortide.placements.search import Budget, Search, SearchResult

EVALUATIONS = 2_000
"""Placements that are tried of a captured step, unless another budget is given."""


@dataclass(frozen=True, eq=False)
class Ready:
    """A step ready to be placed: the ``problem``, the step of all micro-batches, the times of its ops, its shards, the
    step of one micro-batch before it was divided into them (``undivided``), and the groups of devices that do the same,
    if there are several (``replicas``): all else is of one of them, but ``captured``. ``times_given``: not all
    were predicted."""

    problem: GraphProblem
    several: MicroBatches
    times: OpDurations
    sharded: Sharded
    undivided: Graph
    captured: Graph
    options: PlaceOptions
    replicas: ReplicaGroups | None = None
    times_given: bool = False

    @property
    def graph(self) -> Graph:
        """The graph that Plans are of: that of all micro-batches."""
        return self.several.graph

    @functools.cached_property
    def whole(self) -> Graph:
        """The step of all micro-batches without shards."""
        if not self.sharded.shards:
            return self.graph
        one = self.undivided if self.replicas is None else averaged(self.undivided, self.replicas.count)
        return micro_batched(one, self.several.count).graph


def ready(
    graph: Graph,
    cluster: Cluster,
    options: PlaceOptions | None = None,
    durations: Mapping[str, Durations] | None = None,
) -> Ready:
    """Prepare ``graph`` for placements on ``cluster``. ``durations``: known times of the ops of ``Ready.graph`` by name
    or type of device; the rest are predicted.

    Raises TensortideError for pins that contradict each other, DegreesError for shards that cannot be, and NothingFits
    if the memory of all devices cannot hold the step, or that of none a unit.
    """
    captured = graph
    options = options or PlaceOptions()
    if not len(graph):
        raise PlanError("the step has no ops to place")
    cluster.check_for_steps()
    replicas = replica_groups(cluster, options.data) if options.data > 1 else None
    if replicas is not None:
        cluster, graph = replicas.cluster, replica(unrolled(graph), replicas.count)
        cluster.check_for_steps()
    undivided = placeable(graph)
    divided = sharded(undivided, options.shards, keep_random=options.grouping.keep_random)
    if replicas is not None:
        divided = exchanged(divided, replicas.count)
    host = cluster.first_of("cpu")
    paths = ShardPaths(divided.shards, divided.follows)
    units = units_of(divided.graph, options.grouping, paths, host=host is not None)
    fixed = pinned(units, options.pins, host, [device.name for device in cluster.devices])
    several = micro_batched(divided.graph, options.micro_batches, _tied(divided.graph, units, len(cluster)))
    units = repeated(units, several)
    times = op_times(several.graph, cluster, durations, options.launch)
    beside = None
    if replicas is not None:
        times = replicas.timed(times, several.graph, durations or ())
        if options.overlap:
            beside = replicas.beside(several.graph, durations or (), options.bucket_bytes)
    step = step_of(
        units,
        cluster,
        times.ns,
        rule=options.rule,
        workspace=options.workspace,
        staging=options.staging,
        beside=beside,
        hosts=times.hosts,
    )
    schedule = MicroBatchSchedule(
        options.schedule,
        options.micro_batches,
        several.micro if options.micro_batches > 1 else (),
        "recorded" if options.priority == "auto" and options.grouping.keep_random else options.priority,
        options.in_flight,
    )
    problem = GraphProblem(step, schedule, fixed)
    check_limits(problem)
    return Ready(problem, several, times, divided, undivided, captured, options, replicas, bool(durations))


def _tied(graph: Graph, units: Units, devices: int) -> tuple[TiedGradient, ...]:
    """Gradients to which several units contribute, no more than there are devices: what each adds up over the
    micro-batches takes the memory of one more gradient."""
    return tuple(each for each in tied_gradients(graph, units.of_op) if len(each.contributions) <= devices)


@dataclass(frozen=True, eq=False)
class PlacedStep:
    """A placed step: what ``place`` prints. ``reference_ns``: the step on ``reference``, the best single device, and
    whether it ``reference_fits`` there; pins are left out of account. ``search``: what the search says that found it,
    None for a placement that was given. ``given``: the Plan that was played, if one was."""

    ready: Ready
    simulated: Simulated
    reference_ns: Annotated[int, Show("Best single device")]
    reference_fits: bool
    reference: str
    search: SearchResult | None = None
    given: Plan | None = None

    devices = functools.cached_property(parts.devices)
    links = functools.cached_property(parts.links)
    averages = functools.cached_property(parts.averages)
    units = functools.cached_property(parts.units)
    stages = functools.cached_property(parts.stages)
    modules = functools.cached_property(parts.modules)

    @functools.cached_property
    def plan(self) -> Plan:
        """The Plan: a lane per device, with sends and receives."""
        return plan_of(self.simulated) if self.given is None else self.given

    @functools.cached_property
    def all_lanes(self) -> Plan:
        """The Plan with the lanes of all groups, one for each process that runs it."""
        replicas = self.ready.replicas
        return self.plan if replicas is None else replicas.all_lanes(self.plan)

    @property
    def groups(self) -> Groups:
        """The groups of its devices, as processes run them."""
        if self.ready.replicas is None:
            return Groups()
        buckets = tuple(tuple(bucket.ops for bucket in own) for own in self.exchange_runs)
        return Groups(self.ready.replicas.count, buckets, beside=self.simulated.step.beside is not None)

    @functools.cached_property
    def timeline(self) -> PlacedTimeline:
        """The Timeline: a lane per device and per direction of a link."""
        return PlacedTimeline(self.simulated)

    @property
    def step_ns(self) -> Annotated[int, Show("Time per step")]:
        """Time of one step, all micro-batches and the optimizer."""
        return self.simulated.makespan_ns

    @functools.cached_property
    def bounds(self) -> Bounds:
        """Lower bounds of the time of any placement."""
        return self.ready.problem.bounds

    @property
    def bound_ns(self) -> Annotated[int, Show("No placement takes less than", level=1)]:
        """The strongest of them, or the step where the search proved that it takes the least time."""
        return self.step_ns if self.proved else round(self.bounds.best_ms * 1e6)

    @property
    def proved(self) -> bool:
        """True if the search proved that no placement that fits takes less time."""
        return self.search is not None and self.search.proved and self.fits

    @property
    def gap_share(self) -> float:
        """The share by which the step may exceed the optimum; 0 where it is proved."""
        return 0.0 if self.proved else self.bounds.gap(self.step_ns / 1e6)

    @property
    def device_of(self) -> dict[str, str]:
        """The device of each unit, by name."""
        names = [device.name for device in self.simulated.step.cluster.devices]
        pairs = zip(self.ready.problem.names, self.simulated.place, strict=True)
        return {unit: names[device] for unit, device in pairs}

    @property
    def link_bytes(self) -> dict[str, int]:
        """Bytes sent over each direction of each link in a step; of several links of two devices, of all together. With
        replicas those of all groups, and of the exchange between them."""
        pairs = list(zip(self.simulated.step.cluster.wires, self.simulated.moved_bytes, strict=True))
        found: dict[str, int] = {}
        replicas = self.ready.replicas
        own = ((wire.name, nbytes) for wire, nbytes in pairs)
        for name, nbytes in own if replicas is None else replicas.sent(pairs, self.exchange_runs):
            found[name] = found.get(name, 0) + nbytes
        return found

    @property
    def moved_bytes(self) -> Annotated[int, Show("Sent over links per step")]:
        """Bytes sent over all of them."""
        return sum(self.link_bytes.values())

    @functools.cached_property
    def exchange_runs(self) -> tuple[tuple[BucketRun, ...], ...]:
        """For each device the collectives of gradients that it takes part in: buckets beside the computation, or one op
        each on the device."""
        return tuple(exchange_runs(self.simulated, device) for device in range(self.simulated.step.devices))

    @property
    def stand_ins(self) -> dict[str, int]:
        """The number of ops on each device that has any whose time is unknown there: that of their bytes stands in, and
        may be far too short."""
        names = [device.name for device in self.simulated.step.cluster.devices]
        times = self.ready.times.stand_ins
        found = Counter(names[device] for op, device in enumerate(self.simulated.device) if op in times[device])
        return {name: found[name] for name in names if found[name]}

    @property
    def unknown_workspace(self) -> tuple[str, ...]:
        """Devices of another kind than the one that the step was captured on: what kernels take there is not known."""
        devices = self.simulated.step.cluster.devices
        return tuple(d.name for d in devices if (d.row.kind == "cpu") != (self.captured_for == "cpu"))

    @property
    def captured_for(self) -> Annotated[str, Show("Captured for", level=1)]:
        """The kind of device that the step was captured for."""
        return self.ready.graph.index.main_device.partition(":")[0]

    @property
    def fits(self) -> bool:
        """Return whether every device's peak is within its capacity."""
        return not any(self.simulated.over_bytes)


def placed(ready: Ready, place: Sequence[int], search: SearchResult | None = None) -> PlacedStep:
    """The result for one placement: the device of each unit, pins kept."""
    problem = ready.problem
    return _result(ready, problem.simulator.run(problem.pinned(place)), search)


def played(ready: Ready, plan: Plan) -> PlacedStep:
    """The result for a Plan of ``ready.graph``, as it is. Raises as ``follow``."""
    return _result(ready, follow(ready, plan), given=plan)


def _result(
    ready: Ready, simulated: Simulated, search: SearchResult | None = None, given: Plan | None = None
) -> PlacedStep:
    problem, alone = ready.problem, []
    for number, device in enumerate(simulated.step.cluster.devices):
        one = problem.simulator.run((number,) * len(problem.names))
        alone.append((any(one.over_bytes), one.makespan_ns, number, device.name))
    over, ns, _, name = min(alone)
    return PlacedStep(ready, simulated, ns, not over, name, search, given)


def place(
    graph: Graph,
    cluster: Cluster,
    options: PlaceOptions | None = None,
    durations: Mapping[str, Durations] | None = None,
    *,
    by: Search | None = None,
    budget: Budget | int = EVALUATIONS,
    seed: int = 0,
) -> PlacedStep:
    """Find a placement of ``graph`` on ``cluster`` with little time per step, within the memory of every device.

    ``by``: the search (default: ``best``), with ``budget`` and ``seed`` (``placements.search``). Where nothing that was
    tried fits, the result is the placement with the least over-use, and ``fits`` is False. Raises as ``ready``.
    """
    from tensortide.placements.search.best import Best

    prepared = ready(graph, cluster, options, durations)
    found = (by or Best()).search(prepared.problem, budget, seed)
    return placed(prepared, found.placement, found)


def follow(ready: Ready, plan: Plan) -> Simulated:
    """Play a Plan of ``ready.graph``: each device keeps to its lane's order of ops.

    Raises PlanError if the plan does not execute the graph, places the ops of a unit on several devices, or moves
    storages at other steps than ``plan_of`` does.
    """
    step = ready.problem.step
    if [lane.device for lane in plan.lanes] != [device.name for device in step.cluster.devices]:
        lanes, devices = (
            ", ".join(each.device for each in plan.lanes),
            ", ".join(d.name for d in step.cluster.devices),
        )
        raise PlanError(f"the lanes of the plan are {lanes}, and the devices of the cluster {devices}")
    check_lanes(plan, step.graph)
    sequences = [[one.op for one in lane.steps if isinstance(one, Compute)] for lane in plan.lanes]
    place = [-1] * len(step.units)
    for device, ops in enumerate(sequences):
        for op in ops:
            unit = step.units.of_op[op]
            if place[unit] not in (-1, device):
                raise PlanError(
                    f"the plan has ops of unit {step.units.names[unit]!r} on several devices: it was made with other "
                    "units, so give the options that it was made with"
                )
            place[unit] = device
    found = Simulator(step).run(place, strict_order(step, sequences))
    check_moves(plan, found, sequences)
    return found
