"""Plans written as tasks: what is resident where in which state, and what each step waits for and releases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from tensortide.errors import PlanError
from tensortide.plans.events.played import NOTHING, Cause, engine_name
from tensortide.plans.events.primitives import Primitive, Primitives
from tensortide.plans.instance import BEFORE, DEVICE, Instance, InstanceOp
from tensortide.plans.model import Compute, Copy, Evict, Fetch, Receive, Send
from tensortide.play import FREE, MOVE, NOWHERE, RUN, UNLIMITED, Places, TaskList

COMPUTE = 0
"""The lane of ops."""
ON_DEVICE = 0
"""The place that is the device."""


class _Residence:
    """A storage on the device, from an op or a fetch until it is evicted.

    ``state`` is the op that last wrote it. By their tasks: ``filled``, what completes the contents, and ``fetched``,
    that as long as it is a fetch; ``touched``, what makes the residence and all that touches it; ``copied``, the copies
    out of it.
    """

    __slots__ = ("copied", "fetched", "filled", "state", "touched")

    def __init__(self, state: int, filled: tuple[int, ...] = (), fetched: tuple[int, ...] = ()) -> None:
        self.state, self.filled, self.fetched, self.touched = state, filled, fetched, [*filled]
        self.copied: list[int] = []


class _TierCopy:
    """A copy of a storage on a tier: its state, the task that completes it, and the last transfer of it."""

    __slots__ = ("filled", "moved", "state")

    def __init__(self, state: int) -> None:
        self.state = state
        self.filled: tuple[int, ...] = ()
        self.moved: tuple[int, ...] = ()


class Held(NamedTuple):
    """Bytes that a place gains or loses, by the ``task`` at whose issue, or end if it is a FREE, for which step."""

    place: str
    nbytes: int
    storage: int
    step: int
    task: int


class Numbers(NamedTuple):
    """Numbers of the lanes and places of a device: that of its ops, and by name those of engines and places. ``queue``
    has its steps; ``queues``: by engine that of transfers, where they have queues of their own."""

    compute: int
    engines: dict[str, int]
    places: dict[str, int]
    queue: int = 0
    queues: Mapping[int, int] = MappingProxyType({})

    @classmethod
    def of(cls, instance: Instance) -> Numbers:
        """Numbers of a device alone."""
        names = [link.name for link in instance.links]
        engines = [engine_name(name, inwards=way) for name in names for way in (False, True)]
        places = {DEVICE: ON_DEVICE, **{name: number for number, name in enumerate(names, 1)}}
        return cls(COMPUTE, {name: number for number, name in enumerate(engines, 1)}, places)


class Arrival(NamedTuple):
    """The task by which a storage crosses from one device to another, and the state of the storage."""

    task: int
    state: int


class Writer:
    """Writes the steps of a plan as tasks, one after the other, and checks that each is legal.

    ``tasks`` are added to, on the lanes and places that ``numbers`` has. ``crossing``: by the number of a step that
    sends or receives what carries the storage.
    ``main`` has the task of each step, ``step_of`` the step of each task (``NOTHING``: of the beginning of a step).
    ``reasons``: of each op's task, the kind of wait and the storage of each need. ``held``: all bytes in their order.
    ``sent``: by the number of a step that sends, the tasks that its crossing needs.
    """

    def __init__(
        self,
        instance: Instance,
        where: Mapping[int, str],
        tasks: TaskList | None = None,
        numbers: Numbers | None = None,
        crossing: Mapping[int, Arrival] = MappingProxyType({}),
    ) -> None:
        self.instance, self.where, self.crossing = instance, where, crossing
        if tasks is None:
            tasks = TaskList()
            tasks.new_queue()
        self.list = tasks
        self.compute, self.engines, self.places, self.queue, self.queues = numbers or Numbers.of(instance)
        self.size = [storage.nbytes for storage in instance.storages]
        self.states = instance.states
        self.step = self.origin = NOTHING
        self.links = {link.name: link for link in instance.links}
        self.before = dict.fromkeys(self.places, 0)
        for s, name in where.items():
            self.before[name] += self.size[s]
        self.here = {s: _Residence(BEFORE) for s, name in where.items() if name == DEVICE}
        self.copies = {(s, name): _TierCopy(BEFORE) for s, name in where.items() if name != DEVICE}
        self.ran = [0] * len(instance.ops)
        self.main: list[int] = []
        self.step_of: dict[int, int] = {}
        self.reasons: dict[int, list[tuple[Cause, int]]] = {}
        self.held: list[Held] = []
        self.sent: dict[int, tuple[int, ...]] = {}

    def room(self, budget_bytes: int | None) -> Places:
        """The places, of which the device has ``budget_bytes`` (None: no limit)."""
        limits = [budget_bytes, *(link.capacity_bytes for link in self.instance.links)]
        return Places([UNLIMITED if limit is None else limit for limit in limits], [*self.before.values()])

    def write(self, steps: Iterable[Primitive], written: Primitives) -> None:
        """Write ``steps``, the first of ``written``. Raises PlanError at the first that is illegal."""
        for number, step in enumerate(steps):
            self.step, self.origin = number, written.origin[number]
            if isinstance(step, Compute):
                task = self._compute(step.op)
            elif isinstance(step, Evict):
                task = self._evict(step.storage, told=not written.unsaid[number])
            elif isinstance(step, Copy):
                task = self._copy(step.storage, step.link)
            elif isinstance(step, Fetch):
                task = self._fetch(step.storage, step.link)
            elif isinstance(step, Send | Receive):
                task = self._cross(step)
            else:
                task = self._drop(step.storage, step.link)
            self.main.append(task)

    def finish(self, *, ends: bool = True) -> None:
        """Check that every op ran and, with ``ends``, what is left where. Raises PlanError."""
        self.step = self.origin = NOTHING
        for index, count in enumerate(self.ran):
            if not count:
                raise self.error(f"op {index} ({self.instance.ops[index].name}) is never computed")
        final = self.states[-1]
        for s, storage in enumerate(self.instance.storages if ends else ()):
            home = self.where.get(s, DEVICE)
            found = self.here.get(s)
            if storage.kept or (storage.stays and home == DEVICE):
                self.require("after its last step the plan needs on the device", s, final[s])
            if home != DEVICE:
                copy = self.copies.get((s, home))
                if copy is None or copy.state != final[s]:
                    raise self._wrong(f"after its last step the plan needs on {home}", s, final[s], copy)
                if found is not None:
                    message = f"after its last step the plan leaves storage {s} on the device, but its home is {home}"
                    raise self.error(message, s)

    def renew(self) -> None:
        """Begin the step again: what was left behind is released, what exists before the step is there again."""
        for s in [s for s in self.here if not self.instance.storages[s].given]:
            self._evict(s, told=False)
        for s, storage in enumerate(self.instance.storages):
            if storage.given and s not in self.here and self.where[s] == DEVICE:
                self.here[s] = _Residence(BEFORE, (self._add(MOVE, place=DEVICE, nbytes=self.size[s]),))
        for residence in self.here.values():
            residence.state = BEFORE
        for copy in self.copies.values():
            copy.state = BEFORE
        self.ran = [0] * len(self.ran)

    def names(self, place: str) -> set[int]:
        """The storages that ``place`` holds."""
        return {*self.here} if place == DEVICE else {s for s, name in self.copies if name == place}

    def _compute(self, index: int) -> int:
        op, again = self.instance.ops[index], self.ran[index] > 0
        skipped = op.blind if again else ()
        touched = self._touched(index, op, skipped)
        self._may_run(index, op, again)
        # Waits for contents come first, then those for copies out of what is written: of equals the first is told.
        needs: list[tuple[int, Cause, int]] = [
            (task, "fetch", s) for s, there in touched.items() for task in there.filled
        ]
        written = [s for s in op.writes if s not in skipped]
        needs += [(task, "copy", s) for s in written for task in touched[s].copied]
        nbytes = op.workspace + sum([self.size[s] for s in op.makes])
        task = self._add(RUN, self.compute, op.ns, [need for need, *_ in needs], DEVICE, nbytes)
        if needs:
            self.reasons[task] = [(cause, s) for _, cause, s in needs]
        self._outputs(op, index, task)
        for residence in touched.values():
            residence.touched.append(task)
        for s in written:
            touched[s].state, touched[s].filled, touched[s].fetched = index, (task,), ()
        self.ran[index] += 1
        return task

    def _outputs(self, op: InstanceOp, index: int, task: int) -> None:
        """Hold outputs and workspace; an output that is resident already takes a second copy until the op ends."""
        if op.workspace:
            self._hold(DEVICE, op.workspace, NOTHING, task)
            self._free(DEVICE, op.workspace, NOTHING, (task,))
        for s in op.makes:
            self._hold(DEVICE, self.size[s], s, task)
            if s in self.here:
                self._free(DEVICE, self.size[s], s, (task,))
            else:
                self.here[s] = _Residence(index, (task,))

    def _touched(self, index: int, op: InstanceOp, skipped: tuple[int, ...]) -> dict[int, _Residence]:
        """Return what the op reads and writes, as resident in the state that it needs; in any state, of ``skipped``
        writes."""
        found = {}
        for s, state in self.states[index].items():
            residence = self.here.get(s)
            if residence is None or (residence.state != state and s not in skipped):
                what = f"{self.says()} computes op {index} ({op.name}), which needs"
                raise self._wrong(what, s, state, residence)
            found[s] = residence
        return found

    def _may_run(self, index: int, op: InstanceOp, again: bool) -> None:
        if again and op.once:
            raise self.error(f"{self.says()} computes op {index} ({op.name}) again, which may run only once")
        if not again:
            for earlier in op.after:
                if not self.ran[earlier]:
                    view = f"op {earlier} ({self.instance.ops[earlier].name}), which makes a view that it uses"
                    raise self.error(f"{self.says()} computes op {index} ({op.name}) before {view}")

    def _evict(self, s: int, *, told: bool) -> int:
        found = self._movable(s, "evicts") if told else self.here[s]
        del self.here[s]
        return self._free(DEVICE, self.size[s], s, found.touched)

    def _copy(self, s: int, link: str) -> int:
        source, copy = self._movable(s, "copies"), self.copies.get((s, link))
        engine, ns = self.engines[engine_name(link, inwards=False)], self.links[link].transfer_ns(self.size[s])
        if copy is None:
            copy = _TierCopy(source.state)
            task = self._transfer(engine, ns, source.filled, link, s)
        else:
            task = self._transfer(engine, ns, (*source.filled, *copy.moved), None, s)
        self.copies[s, link] = copy
        copy.state, copy.filled, copy.moved = source.state, (task,), (task,)
        source.touched.append(task)
        source.copied.append(task)
        return task

    def _fetch(self, s: int, link: str) -> int:
        copy = self._on_tier(s, link, "fetches")
        if s in self.here:
            raise self.error(f"{self.says()} fetches storage {s} from {link}, which is resident", s)
        ns = self.links[link].transfer_ns(self.size[s], inwards=True)
        engine = self.engines[engine_name(link, inwards=True)]
        task = self._transfer(engine, ns, copy.filled, DEVICE, s)
        copy.moved = (task,)
        self.here[s] = _Residence(copy.state, (task,), (task,))
        return task

    def _transfer(self, engine: int, ns: int, needs: tuple[int, ...], place: str | None, s: int) -> int:
        """Add a transfer, which takes room at ``place``. Returns its task."""
        nbytes = 0 if place is None else self.size[s]
        if engine not in self.queues:
            issued = moved = self._add(MOVE, engine, ns, needs, place, nbytes)
        else:
            # Its queue starts it once it is complete, and the lane goes on, though other lanes use the engine, too.
            issued = self._add(MOVE, place=place, nbytes=nbytes)
            moved = self.list.add(RUN, engine, ns, (issued, *needs), queue=self.queues[engine])
            self.step_of[moved] = self.step
        if place is not None:
            self._hold(place, nbytes, s, issued)
        return moved

    def _cross(self, step: Send | Receive) -> int:
        if self.origin not in self.crossing:
            raise self.error(f"{self.says()} is {step}, which one lane alone cannot play")
        s, (carrier, state) = step.storage, self.crossing[self.origin]
        if isinstance(step, Send):
            source = self._movable(s, "sends")
            source.touched.append(carrier)
            source.copied.append(carrier)
            self.sent[self.origin] = (self._add(MOVE), *source.filled)
            return self.sent[self.origin][0]
        self._hold(DEVICE, self.size[s], s, carrier)
        self.here[s] = _Residence(state, (carrier,), (carrier,))
        return self._add(MOVE)  # it waits for nothing, so that the lane goes on

    def _drop(self, s: int, link: str) -> int:
        copy = self._on_tier(s, link, "drops")
        del self.copies[s, link]
        return self._free(link, self.size[s], s, copy.moved)

    def _add(
        self,
        kind: int,
        lane: int = NOWHERE,
        ns: int = 0,
        needs: Iterable[int] = (),
        place: str | None = None,
        nbytes: int = 0,
    ) -> int:
        where = NOWHERE if place is None else self.places[place]
        task = self.list.add(kind, lane, ns, needs, where, nbytes, queue=self.queue)
        self.step_of[task] = self.step
        return task

    def _hold(self, place: str, nbytes: int, s: int, task: int) -> None:
        if nbytes:
            self.held.append(Held(place, nbytes, s, self.step, task))

    def _free(self, place: str, nbytes: int, s: int, needs: Iterable[int]) -> int:
        if not nbytes:
            return self._add(FREE, needs=needs)
        task = self._add(FREE, NOWHERE, 0, needs, place, nbytes)
        self.held.append(Held(place, -nbytes, s, self.step, task))
        return task

    def _movable(self, s: int, does: str) -> _Residence:
        found = self.here.get(s)
        if found is None:
            raise self.error(f"{self.says()} {does} storage {s}, which is not resident", s)
        if self.instance.storages[s].pinned:
            raise self.error(f"{self.says()} {does} storage {s}, which is pinned", s)
        return found

    def _on_tier(self, s: int, link: str, does: str) -> _TierCopy:
        found = self.copies.get((s, link))
        if found is None:
            raise self.error(f"{self.says()} {does} storage {s}, of which {link} has no copy", s)
        return found

    def require(self, what: str, s: int, state: int) -> None:
        """Raise PlanError, which says ``what`` needs it, unless a storage is on the device in ``state``."""
        found = self.here.get(s)
        if found is None or found.state != state:
            raise self._wrong(what, s, state, found)

    def says(self) -> str:
        """Name the step that is written as the plan numbers it."""
        return f"step {self.origin}"

    def _wrong(self, what: str, s: int, expected: int, found: _Residence | _TierCopy | None) -> PlanError:
        error = self.error(f"{what} storage {s}", s)
        error.expected, error.found = expected, None if found is None else found.state
        if found is None:
            error.args = (f"{what} storage {s}; it is not resident",)
        else:
            wanted, last = (self._writer(state) for state in (expected, found.state))
            error.args = (f"{what} storage {s} as written {wanted}; it was last written {last}",)
        return error

    def _writer(self, state: int) -> str:
        return "before the step" if state == BEFORE else f"by op {state} ({self.instance.ops[state].name})"

    def error(self, message: str, storage: int | None = None) -> PlanError:
        """Return an error of the step that is written."""
        return PlanError(message, step=None if self.origin == NOTHING else self.origin, storage=storage)
