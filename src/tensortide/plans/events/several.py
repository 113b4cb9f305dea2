"""Plans of several devices played side by side: each issues its own steps, and what they share serves one at a time.

Every lane follows the rules of ``plans.events.play`` on a device of its own. A storage that is sent crosses as soon as
it is complete, its wire is free and there is room for it where it goes, even before that lane comes to its receive,
which waits for nothing; an op that reads what has not arrived waits. Transfers of one engine of one lane, and crossings
of one wire, keep their order. Engines that are one in the machine, such as the copy engine of a host link over which
stages send to each other, too, serve first what can start first: they have one channel of the cluster, or one tier is
over the other.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.plans.events.play import check_before
from tensortide.plans.events.played import NOTHING, engine_name
from tensortide.plans.events.primitives import Primitives, primitives
from tensortide.plans.events.writer import Arrival, Numbers, Writer
from tensortide.plans.instance import DEVICE, Instance
from tensortide.plans.lanes import Crossing, check_lanes
from tensortide.plans.model import Compute, Lane, Plan
from tensortide.play import RUN, Places, Record, Rules, TaskList, Tasks, played
from tensortide.play.tasks import FAILED, HELD
from tensortide.timing.clusters import Cluster
from tensortide.timing.links import Link

Queue: TypeAlias = tuple[int, str, bool]
"""Transfers that wait for each other: of a channel, in one direction if it is duplex, or of a device and its tier."""


class LaneDevices(NamedTuple):
    """A cluster as the lanes of a plan use it; ``devices`` has the number of each lane's."""

    cluster: Cluster
    devices: tuple[int, ...]

    @classmethod
    def of(cls, cluster: Cluster, plan: Plan) -> LaneDevices:
        """Find the devices of lanes by their names, or if none of these is there and the numbers agree, in order."""
        names = [device.name for device in cluster.devices]
        asked = [lane.device for lane in plan.lanes]
        if len(asked) == len(cluster.placeable) and not {*asked} & {*names}:
            return cls(cluster, cluster.placeable)
        for number, name in enumerate(asked):
            if name not in names or cluster.devices[names.index(name)].is_switch:
                known = ", ".join(names[device] for device in cluster.placeable)
                raise PlanError(f"lane {number} runs on {name!r}; the devices of {cluster.name!r} are {known}")
        return cls(cluster, tuple(map(names.index, asked)))

    def links(self, lane: int) -> tuple[Link, ...]:
        """The links to the tiers of a lane's device."""
        return tuple(self.cluster.devices[self.devices[lane]].links.values())

    def copy_queue(self, lane: int, link: str, *, inwards: bool) -> Queue:
        """The queue of the transfers of a lane to a tier, or back: that of the tier it is over, or of its channel."""
        device = self.devices[lane]
        queue = self.cluster.devices[device].queue(link)
        return (device, queue, inwards) if isinstance(queue, str) else self._of_channel(queue, inwards=inwards)

    def wire(self, each: Crossing, plan: Plan) -> tuple[Queue, int]:
        """The queue that a crossing waits in, and the number of its link. Raises PlanError if it takes not just one."""
        way = self.cluster.routes[self.devices[each.source]][self.devices[each.target]]
        if len(way) != 1:
            source, target = (plan.lanes[number].device for number in (each.source, each.target))
            over = " and ".join(self.cluster.devices[self.cluster.wires[number].target].name for number in way[:-1])
            why = f"the fastest way there is over {over}, and lanes send over one link" if way else "no link joins them"
            what = f"lane {each.source} ({source}), step {each.sent} sends storage {each.storage} to {target}"
            raise PlanError(f"{what}: {why}", step=each.sent, storage=each.storage)
        return self._of_channel(self.cluster.links[way[0]].channel, inwards=self.cluster.wires[way[0]].inwards), way[0]

    def _of_channel(self, channel: int, *, inwards: bool) -> Queue:
        return channel, "", self.cluster.channels[channel].duplex and inwards


class PlayedLanes(NamedTuple):
    """Lanes as they were played: what each wrote (``writers``, ``written``), what crossed between them, whose tasks are
    the first, and all ``tasks`` with their ``record``."""

    writers: tuple[Writer, ...]
    written: tuple[Primitives, ...]
    crossings: tuple[Crossing, ...]
    tasks: Tasks
    record: Record


def play_lanes(
    plan: Plan,
    graph: Graph,
    instances: Sequence[Instance],
    where: LaneDevices,
    budgets_bytes: Sequence[int | None] = (),
) -> PlayedLanes:
    """Play ``plan`` of ``graph``: the instance of each lane has the times of its ops there, and its links to tiers.

    ``budgets_bytes``: capacity of each device (None: unlimited; default: all). What exists before the step and no lane
    uses is on the first. Raises PlanError if the plan is illegal, crosses where there is no wire, or does not fit; it
    names the lane and the step.
    """
    budgets = budgets_bytes or [None] * len(plan.lanes)
    if plan.home or {len(budgets), len(instances)} != {len(plan.lanes)}:
        needs = f"has {len(plan.lanes)} lanes, each of which needs times and a budget"
        raise PlanError(f"the plan of several devices {'has homes on tiers' if plan.home else needs}")
    home, crossings = check_lanes(plan, graph, moves=True)
    # Crossings of a wire in the order in which they are sent: queues of their own.
    ordered = tuple(sorted(crossings, key=lambda each: (each.source, each.target, each.sent)))
    arrivals: list[dict[int, Arrival]] = [{} for _ in plan.lanes]
    for carrier, each in enumerate(ordered):
        for lane, step in ((each.source, each.sent), (each.target, each.received)):
            arrivals[lane][step] = Arrival(carrier, each.state)
    tasks, engines, places = TaskList(len(ordered)), _Engines(plan, where), Places([], [])
    writers, written = [], []
    for lane, stated in enumerate(instances):
        instance = _alone(stated, plan.lanes[lane])
        own = {s for s, storage in enumerate(instance.storages) if home.get(s, 0 if storage.given else None) == lane}
        resident = {s: DEVICE for s in own if instance.storages[s].given}
        numbers = engines.numbers(lane, instance, tasks, len(places.capacity))
        try:
            steps = primitives(instance, plan.lanes[lane].steps, resident)
            writer = Writer(instance, resident, tasks, numbers, arrivals[lane])
            room = writer.room(budgets[lane])
            check_before(writer, room)
            writer.write(steps.steps, steps)
            _check_end(writer, own)
        except PlanError as error:
            error.args = (f"lane {lane} ({plan.lanes[lane].device}): {error}",)
            raise
        places = Places([*places.capacity, *room.capacity], [*places.held, *room.held])
        writers.append(writer)
        written.append(steps)
    every = _wires(ordered, writers, engines).followed_by(tasks)
    record = played(every, len(plan.lanes) + len(engines.known), places, Rules(shared=1))
    found = PlayedLanes(tuple(writers), tuple(written), ordered, every, record)
    _check_played(plan, found, places)
    return found


def _check_end(writer: Writer, own: Container[int]) -> None:
    """Raise PlanError if a lane does not leave what is at home there as the step does."""
    writer.origin = NOTHING
    final = writer.instance.states[-1]
    for s, storage in enumerate(writer.instance.storages):
        if s in own and storage.stays:
            writer.require("after its last step the plan needs on the device", s, final[s])


def _check_played(plan: Plan, found: PlayedLanes, places: Places) -> None:
    """Raise PlanError for the first task that found no room, or that waits for ever."""
    record = found.record
    if (task := record.totals[FAILED]) >= 0:
        place, nbytes, held = found.tasks.place[task], found.tasks.nbytes[task], record.totals[HELD]
        lane = next(i for i, own in enumerate(found.writers) if place in own.places.values())
        own = found.writers[lane]
        name = next(name for name, number in own.places.items() if number == place)
        crosses = task < len(found.crossings)
        step = found.crossings[task].received if crosses else found.written[lane].origin[own.step_of[task]]
        error = PlanError(
            f"lane {lane} ({plan.lanes[lane].device}), step {step} ({plan.lanes[lane].steps[step]}) does not fit: it "
            f"needs {nbytes:,} bytes of {'the device' if name == DEVICE else name}, of whose "
            f"{places.capacity[place]:,} {held:,} are held, and nothing that was issued before releases more",
            step=step,
        )
        error.short_bytes = nbytes + held - places.capacity[place]
        raise error
    for lane, (own, steps) in enumerate(zip(found.writers, found.written, strict=True)):
        for task, origin in zip(own.main, steps.origin, strict=True):
            if record.end[task] < 0:
                who = f"lane {lane} ({plan.lanes[lane].device}), step {origin} ({plan.lanes[lane].steps[origin]})"
                raise PlanError(f"{who} waits for ever: transfers of one engine keep their order", step=origin)


def _alone(instance: Instance, lane: Lane) -> Instance:
    """The lane's part of an instance: ops follow only such ops as run here, and nothing is pinned."""
    here = {step.op for step in lane.steps if isinstance(step, Compute)}
    ops = [replace(op, after=tuple(filter(here.__contains__, op.after))) if op.after else op for op in instance.ops]
    storages = tuple([replace(storage, pinned=False) for storage in instance.storages])
    return replace(instance, ops=tuple(ops), storages=storages)


class _Engines:
    """Numbers of the engines of all lanes and wires, after those of the devices; those that share a queue have one."""

    def __init__(self, plan: Plan, where: LaneDevices) -> None:
        self.plan, self.where = plan, where
        self.known: dict[Queue, int] = {}
        devices = [lane.device for lane in plan.lanes]
        if twice := next((name for name in devices if devices.count(name) > 1), None):
            raise PlanError(f"two lanes are called {twice}: engines are told apart by the names of devices")

    def number(self, queue: Queue) -> int:
        return self.known.setdefault(queue, len(self.plan.lanes) + len(self.known))

    def numbers(self, lane: int, instance: Instance, tasks: TaskList, first_place: int) -> Numbers:
        """Numbers of a lane, whose places are numbered from ``first_place`` on, with queues for its engines."""
        names = [link.name for link in instance.links]
        engines = {
            engine_name(name, inwards=way): self.number(self.where.copy_queue(lane, name, inwards=way))
            for name in names
            for way in (False, True)
        }
        places = {name: first_place + number for number, name in enumerate((DEVICE, *names))}
        queue = tasks.new_queue()
        return Numbers(lane, engines, places, queue, {number: tasks.new_queue() for number in {*engines.values()}})


def _wires(crossings: Sequence[Crossing], writers: Sequence[Writer], engines: _Engines) -> TaskList:
    """Crossings as tasks: each needs the step that sends it, and room where it goes."""
    tasks, last = TaskList(), None
    for each in crossings:
        if (each.source, each.target) != last:
            tasks.new_queue()
        last = each.source, each.target
        queue, number = engines.where.wire(each, engines.plan)
        target, wire = writers[each.target], engines.where.cluster.wires[number]
        nbytes, place = target.size[each.storage], target.places[DEVICE]
        tasks.add(
            RUN, engines.number(queue), wire.transfer_ns(nbytes), writers[each.source].sent[each.sent], place, nbytes
        )
    return tasks
