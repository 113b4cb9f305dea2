"""The event rules of plans once more, one step after the other: the oracle of plans written as tasks.

It keeps states, times and bytes of every storage itself, and a heap of releases for each place. Nothing of it is
shared with the player of ``tensortide.play``, nor with what writes plans as its tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensortide.errors import PlanError
from tensortide.plans.events.played import NOTHING, Change, Played, Stall, engine_name
from tensortide.plans.events.primitives import Primitives, homes, primitives
from tensortide.plans.instance import BEFORE, DEVICE, Instance, InstanceOp
from tensortide.plans.model import Compute, Copy, Drop, Evict, Fetch, Step
from tests.oracles.memory_space import MemorySpace, Residence, TierCopy, Wait


class Player:
    """Plays steps one after the other, and notes when each is issued, starts and ends."""

    def __init__(self, instance: Instance, where: Mapping[int, str], budget: int | None, *, serial: bool) -> None:
        self.instance, self.where, self.serial = instance, where, serial
        self.size = [storage.nbytes for storage in instance.storages]
        self.states = instance.states
        self.step = self.origin = self.last_by = NOTHING
        capacities = {DEVICE: budget, **{link.name: link.capacity_bytes for link in instance.links}}
        self.before = dict.fromkeys(capacities, 0)
        for s, name in where.items():
            self.before[name] += self.size[s]
        self.places = {name: MemorySpace(name, capacities[name], held) for name, held in self.before.items()}
        for place in self.places.values():
            if place.capacity is not None and place.level > place.capacity:
                message = (
                    f"{_the(place.name)} holds {place.level:,} bytes before the first step, and has {place.capacity:,}"
                )
                error = self._error(message)
                error.short_bytes = place.level - place.capacity
                raise error
        self.device = self.places[DEVICE]
        self.links = {link.name: link for link in instance.links}
        self.free_ns = {engine_name(name, inwards=way): 0 for name in self.links for way in (False, True)}
        self.busy_ns, self.moved_bytes = dict(self.free_ns), dict(self.free_ns)
        self.here = {s: Residence(0, BEFORE, NOTHING) for s, name in where.items() if name == DEVICE}
        self.copies = {(s, name): TierCopy(BEFORE) for s, name in where.items() if name != DEVICE}
        self.ran = [0] * len(instance.ops)
        self.issue_ns = self.compute_end_ns = self.makespan_ns = self.runs_ns = 0
        self.issues: list[int] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.engines: list[str] = []
        self.resident: list[int] = []
        self.stalls: list[Stall] = []
        self.waits: list[Stall] = []
        """Times since the last op during which the issue of a step waited."""

    def run(self, written: Primitives) -> None:
        """Play the steps. Raises PlanError at the first that is illegal or finds no room."""
        for number, (step, origin) in enumerate(zip(written.steps, written.origin, strict=True)):
            self.step, self.origin = number, origin
            if self.serial and self.makespan_ns > self.issue_ns:
                self._waited(Wait("serial", self.last_by, NOTHING), self.issue_ns, self.makespan_ns)
                self.issue_ns = self.makespan_ns
            start = end = self.issue_ns
            engine = ""
            if isinstance(step, Compute):
                engine = DEVICE
                start, end = self._compute(step.op)
            elif isinstance(step, Evict):
                self._evict(step.storage, told=not written.unsaid[number])
            elif isinstance(step, Copy):
                engine = engine_name(step.link, inwards=False)
                start, end = self._copy(step.storage, step.link, engine)
            elif isinstance(step, Fetch):
                engine = engine_name(step.link, inwards=True)
                start, end = self._fetch(step.storage, step.link, engine)
            elif isinstance(step, Drop):
                self._drop(step.storage, step.link)
            if end > self.makespan_ns:
                self.makespan_ns, self.last_by = end, number
            if engine != DEVICE:
                self.device.settle(self.issue_ns)
            self.resident.append(self.device.level)
            self.issues.append(self.issue_ns)
            self.starts.append(start)
            self.ends.append(end)
            self.engines.append(engine)

    def finish(self, *, ends: bool = True) -> None:
        """Check that every op ran and, with ``ends``, what is left where. Raises PlanError."""
        self.step = self.origin = NOTHING
        for index, count in enumerate(self.ran):
            if not count:
                raise self._error(f"op {index} ({self.instance.ops[index].name}) is never computed")
        final = self.states[-1]
        for s, storage in enumerate(self.instance.storages if ends else ()):
            home = self.where.get(s, DEVICE)
            found = self.here.get(s)
            stays = storage.kept or (storage.stays and home == DEVICE)
            if stays and (found is None or found.state != final[s]):
                raise self._wrong("after its last step the plan needs on the device", s, final[s], found)
            if home != DEVICE:
                copy = self.copies.get((s, home))
                if copy is None or copy.state != final[s]:
                    raise self._wrong(f"after its last step the plan needs on {home}", s, final[s], copy)
                if found is not None:
                    message = f"after its last step the plan leaves storage {s} on the device, but its home is {home}"
                    raise self._error(message, s)

    def renew(self) -> None:
        """Begin the step again: what was left behind is released, what exists before the step is there again."""
        for s in [s for s in self.here if not self.instance.storages[s].given]:
            self._evict(s, told=False)
        for s, storage in enumerate(self.instance.storages):
            if storage.given and s not in self.here and self.where[s] == DEVICE:
                at = self._room(self.device, self.size[s], self.issue_ns, "the next step")
                self.device.hold(self.size[s], at, s, NOTHING)
                self.here[s] = Residence(at, BEFORE, NOTHING)
                self.issue_ns = at
        for residence in self.here.values():
            residence.state = BEFORE
        for copy in self.copies.values():
            copy.state = BEFORE
        self.ran = [0] * len(self.ran)

    def _compute(self, index: int) -> tuple[int, int]:
        op, again = self.instance.ops[index], self.ran[index] > 0
        skipped = op.blind if again else ()
        touched = self._touched(index, op, skipped)
        self._may_run(index, op, again)
        written = [s for s in op.writes if s not in skipped]
        ready = self._ready(max(self.issue_ns, self.compute_end_ns), touched, written)
        need = op.workspace + sum([self.size[s] for s in op.makes])
        start = self._room(self.device, need, ready, f"op {index} ({op.name})")
        end = start + op.ns
        self._outputs(op, index, start, end)
        for residence in touched.values():
            residence.touch(end, self.step)
        for s in written:
            residence = touched[s]
            residence.state, residence.ready_ns, residence.ready_by = index, end, self.step
        self._stalled(start)
        self.issue_ns, self.compute_end_ns = start, end
        self.ran[index] += 1
        self.runs_ns += op.ns
        return start, end

    def _touched(self, index: int, op: InstanceOp, skipped: tuple[int, ...]) -> dict[int, Residence]:
        """Return what the op reads and writes, as resident in the state that it needs; in any state, of ``skipped``
        writes."""
        found = {}
        for s, state in self.states[index].items():
            residence = self.here.get(s)
            if residence is None or (residence.state != state and s not in skipped):
                what = f"{self._says()} computes op {index} ({op.name}), which needs"
                raise self._wrong(what, s, state, residence)
            found[s] = residence
        return found

    def _ready(self, asked: int, touched: dict[int, Residence], written: list[int]) -> int:
        """Return when all contents are there, and nothing is copied any more from what is to be written."""
        ready, wait = asked, None
        for s, residence in touched.items():
            if residence.ready_ns > ready:
                ready, wait = residence.ready_ns, Wait("fetch", residence.ready_by, s)
        for s in written:
            if touched[s].copied_ns > ready:
                ready, wait = touched[s].copied_ns, Wait("copy", touched[s].copied_by, s)
        if wait is not None:
            self._waited(wait, asked, ready)
        return ready

    def _may_run(self, index: int, op: InstanceOp, again: bool) -> None:
        if again and op.once:
            raise self._error(f"{self._says()} computes op {index} ({op.name}) again, which may run only once")
        if not again:
            for earlier in op.after:
                if not self.ran[earlier]:
                    view = f"op {earlier} ({self.instance.ops[earlier].name}), which makes a view that it uses"
                    raise self._error(f"{self._says()} computes op {index} ({op.name}) before {view}")

    def _outputs(self, op: InstanceOp, index: int, start: int, end: int) -> None:
        """Hold outputs and workspace; what is resident already gets a second copy that goes when the op ends."""
        self.device.hold(op.workspace, start, NOTHING, self.step)
        self.device.free(op.workspace, end, NOTHING, self.step, self.step)
        for s in op.makes:
            self.device.hold(self.size[s], start, s, self.step)
            if s in self.here:
                self.device.free(self.size[s], end, s, self.step, self.step)
            else:
                self.here[s] = Residence(end, index, self.step)

    def _evict(self, s: int, *, told: bool) -> None:
        found = self._movable(s, "evicts") if told else self.here[s]
        del self.here[s]
        self.device.free(self.size[s], max(self.issue_ns, found.until_ns), s, self.step, found.until_by)

    def _copy(self, s: int, link: str, engine: str) -> tuple[int, int]:
        source, copy = self._movable(s, "copies"), self.copies.get((s, link))
        if copy is None:
            at = self._room(self.places[link], self.size[s], self.issue_ns, f"the copy of storage {s}")
            copy = self.copies[s, link] = TierCopy(source.state)
            self.places[link].hold(self.size[s], at, s, self.step)
            self.issue_ns = at
        start = max(self.issue_ns, self.free_ns[engine], source.ready_ns, copy.until_ns)
        end = self._transfer(s, engine, start, self.links[link].transfer_ns(self.size[s]))
        copy.state, copy.ready_ns, copy.until_ns, copy.by = source.state, end, end, self.step
        source.touch(end, self.step)
        if end > source.copied_ns:
            source.copied_ns, source.copied_by = end, self.step
        return start, end

    def _fetch(self, s: int, link: str, engine: str) -> tuple[int, int]:
        copy = self._on_tier(s, link, "fetches")
        if s in self.here:
            raise self._error(f"{self._says()} fetches storage {s} from {link}, which is resident", s)
        at = self._room(self.device, self.size[s], self.issue_ns, f"the fetch of storage {s}")
        self.device.hold(self.size[s], at, s, self.step)
        self.issue_ns = at
        start = max(at, self.free_ns[engine], copy.ready_ns)
        end = self._transfer(s, engine, start, self.links[link].transfer_ns(self.size[s], inwards=True))
        copy.until_ns, copy.by = end, self.step
        self.here[s] = Residence(end, copy.state, self.step)
        return start, end

    def _drop(self, s: int, link: str) -> None:
        copy = self._on_tier(s, link, "drops")
        del self.copies[s, link]
        self.places[link].free(self.size[s], max(self.issue_ns, copy.until_ns), s, self.step, copy.by)

    def _transfer(self, s: int, engine: str, start: int, time_ns: int) -> int:
        self.free_ns[engine] = start + time_ns
        self.busy_ns[engine] += time_ns
        self.moved_bytes[engine] += self.size[s]
        return start + time_ns

    def _room(self, place: MemorySpace, nbytes: int, earliest_ns: int, who: str) -> int:
        at = place.room(nbytes, earliest_ns)
        if at is None:
            raise self._full(place, nbytes, who)
        if at > earliest_ns:
            storage, by = place.released_by
            self._waited(Wait("room", by, storage, place.name), earliest_ns, at)
        return at

    def _waited(self, wait: Wait, start: int, end: int) -> None:
        self.waits.append(Stall(NOTHING, start, end, wait.cause, wait.by, wait.storage, self.step, wait.place))

    def _stalled(self, start: int) -> None:
        """An op starts at ``start``: of what was waited for since the op before it, the part after its end is stall."""
        for wait in self.waits:
            if wait.end_ns > self.compute_end_ns:
                begin = max(wait.start_ns, self.compute_end_ns)
                self.stalls.append(wait._replace(step=self.step, start_ns=begin))
        self.waits.clear()

    def _movable(self, s: int, does: str) -> Residence:
        found = self.here.get(s)
        if found is None:
            raise self._error(f"{self._says()} {does} storage {s}, which is not resident", s)
        if self.instance.storages[s].pinned:
            raise self._error(f"{self._says()} {does} storage {s}, which is pinned", s)
        return found

    def _on_tier(self, s: int, link: str, does: str) -> TierCopy:
        found = self.copies.get((s, link))
        if found is None:
            raise self._error(f"{self._says()} {does} storage {s}, of which {link} has no copy", s)
        return found

    def _says(self) -> str:
        return f"step {self.origin}"

    def _wrong(self, what: str, s: int, expected: int, found: Residence | TierCopy | None) -> PlanError:
        error = self._error(f"{what} storage {s}", s)
        error.expected, error.found = expected, None if found is None else found.state
        if found is None:
            error.args = (f"{what} storage {s}; it is not resident",)
        else:
            wanted, last = (self._writer(state) for state in (expected, found.state))
            error.args = (f"{what} storage {s} as written {wanted}; it was last written {last}",)
        return error

    def _writer(self, state: int) -> str:
        return "before the step" if state == BEFORE else f"by op {state} ({self.instance.ops[state].name})"

    def _full(self, place: MemorySpace, nbytes: int, who: str) -> PlanError:
        names = {s for s, name in self.copies if name == place.name} if place is not self.device else self.here
        largest = sorted(names, key=lambda s: (-self.size[s], s))[:3]
        held = ", ".join(f"storage {s} ({self.size[s]:,})" for s in largest)
        error = self._error(
            f"{self._says()} does not fit: {who} needs {nbytes:,} bytes of {_the(place.name)}, of whose "
            f"{place.capacity:,} {place.level:,} are held, and nothing that was issued before releases more"
            + (f"; it holds {held}" + (", ..." if len(names) > len(largest) else "") if held else "")
        )
        error.short_bytes = nbytes + place.level - (place.capacity or 0)
        return error

    def _error(self, message: str, storage: int | None = None) -> PlanError:
        return PlanError(message, step=None if self.origin == NOTHING else self.origin, storage=storage)


def _the(place: str) -> str:
    return "the device" if place == DEVICE else place


def play(
    instance: Instance,
    steps: Sequence[Step],
    *,
    home: Mapping[int, str] | None = None,
    budget_bytes: int | None = None,
    serial: bool = False,
) -> Played:
    """Play a plan of ``instance``: ``steps``, and the ``home`` of persistent storages where it is not the instance's.

    ``budget_bytes``: capacity of the device (None: unlimited). ``serial``: every step is issued when the step before
    it has ended, as if transfers were synchronous: the peak of such a replay is the least budget in which the plan
    fits, synchronous or not. Raises PlanError if the plan is illegal or does not fit; its
    attributes are the step, the storage, and the states expected and found.
    """
    where = homes(instance, home)
    player = Player(instance, where, budget_bytes, serial=serial)
    written = primitives(instance, steps, where)
    player.run(written)
    player.finish()
    return _played(player, written)


def check(
    instance: Instance, steps: Sequence[Step], *, home: Mapping[int, str] | None = None, ends: bool = True
) -> None:
    """Check that a plan of ``instance`` is legal, whatever room it needs; with ``ends``, also what it leaves where.

    Raises PlanError as ``play``.
    """
    where = homes(instance, home)
    player = Player(instance, where, None, serial=True)
    player.run(primitives(instance, steps, where))
    player.finish(ends=ends)


def steady_ns(
    instance: Instance,
    steps: Sequence[Step],
    *,
    home: Mapping[int, str] | None = None,
    budget_bytes: int | None = None,
) -> int:
    """Time of one step of many: the plan played three times in a row, the end of the third minus that of the second.

    Engines and releases carry over and issue times go on. What a step leaves behind besides persistent storages is
    released as the next step begins; what exists before a step without being persistent is allocated then.
    """
    where = homes(instance, home)
    player = Player(instance, where, budget_bytes, serial=False)
    written = primitives(instance, steps, where)
    ends = []
    for turn in range(3):
        if turn:
            player.renew()
        player.run(written)
        player.finish()
        ends.append(player.makespan_ns)
    return ends[2] - ends[1]


def _played(player: Player, written: Primitives) -> Played:
    base = player.instance.base_ns
    return Played(
        steps=tuple(written.steps),
        origin=tuple(written.origin),
        unsaid=tuple(written.unsaid),
        issue_ns=tuple(player.issues),
        start_ns=tuple(player.starts),
        end_ns=tuple(player.ends),
        engine=tuple(player.engines),
        resident_bytes=tuple(player.resident),
        makespan_ns=player.makespan_ns,
        base_ns=base,
        recompute_ns=player.runs_ns - base,
        stall_ns=sum(stall.end_ns - stall.start_ns for stall in player.stalls),
        tail_ns=player.makespan_ns - player.compute_end_ns,
        stalls=tuple(player.stalls),
        peak_bytes=player.device.peak,
        tier_peak_bytes={name: place.peak for name, place in player.places.items() if name != DEVICE},
        busy_ns=player.busy_ns,
        moved_bytes=player.moved_bytes,
        before_bytes=player.before,
        changes={name: tuple(map(Change._make, place.changes)) for name, place in player.places.items()},
    )
