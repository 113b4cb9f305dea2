"""Plans played by the event rules, to the nanosecond and byte.

One thread issues the steps in list order and waits where it must; issue times never fall. An op starts when it is
issued: the op before it has ended, so have the fetches that made resident what it touches and the copies out of what it
writes, and there is room for its outputs and workspace. A transfer is issued when there is room where it goes, and
starts when its engine is free and what it moves is complete. Bytes are held from the issue of the step that allocates
until the last step that touches them has ended, once they are evicted or dropped. Every play takes time linear in the
number of steps, but for the order of pending releases.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

from tensortide.errors import PlanError
from tensortide.plans.events.played import NOTHING, Played
from tensortide.plans.events.primitives import Primitive, Primitives, homes, primitives
from tensortide.plans.events.reader import Reader
from tensortide.plans.events.writer import Writer
from tensortide.plans.instance import DEVICE, Instance
from tensortide.plans.model import Compute, Copy, Step
from tensortide.play import Places, Record, Rules, played
from tensortide.play.tasks import FAILED, HELD, MAKESPAN


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
    writer, written, rules = Writer(instance, where), primitives(instance, steps, where), Rules(serial=int(serial))
    record = _recorded(writer, written, budget_bytes, rules)
    return Reader(writer, written, record, rules).read()


def check(
    instance: Instance, steps: Sequence[Step], *, home: Mapping[int, str] | None = None, ends: bool = True
) -> None:
    """Check that a plan of ``instance`` is legal, whatever room it needs on the device; with ``ends``, also what it
    leaves where.

    Raises PlanError as ``play``.
    """
    where = homes(instance, home)
    writer, written = Writer(instance, where), primitives(instance, steps, where)
    _recorded(writer, written, None, Rules(serial=1), ends=ends)


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
    writer, written = Writer(instance, where), primitives(instance, steps, where)
    record = _recorded(writer, written, budget_bytes, Rules(), turns=3)
    third = writer.main[2 * len(written.steps)] if written.steps else 0
    return record.totals[MAKESPAN] - max(record.end[:third], default=0)


def _recorded(
    writer: Writer,
    written: Primitives,
    budget_bytes: int | None,
    rules: Rules,
    *,
    turns: int = 1,
    ends: bool = True,
) -> Record:
    """Write the steps so many times in a row, and play them. Raises PlanError for the first that is illegal or finds no
    room."""
    places, illegal = writer.room(budget_bytes), None
    check_before(writer, places)
    try:
        for turn in range(turns):
            if turn:
                writer.renew()
            writer.write(written.steps, written)
            writer.finish(ends=ends)
    except PlanError as error:
        illegal = error
    record = played(writer.list.tasks, 1 + len(writer.engines), places, rules)
    if record.totals[FAILED] >= 0:
        raise _full(writer, written, record, places) from None
    if illegal is not None:
        raise illegal
    return record


def check_before(writer: Writer, places: Places) -> None:
    """Raise PlanError if a place holds more than it can before the first step."""
    for (name, held), capacity in zip(writer.before.items(), places.capacity, strict=True):
        if held > capacity:
            error = writer.error(f"{_the(name)} holds {held:,} bytes before the first step, and has {capacity:,}")
            error.short_bytes = held - capacity
            raise error


def _full(writer: Writer, written: Primitives, record: Record, places: Places) -> PlanError:
    """The error of the first task that found no room, with what its place holds: the steps before it written again."""
    tasks, task = writer.list.tasks, record.totals[FAILED]
    turn, number = divmod(bisect.bisect_left(writer.main, task), len(written.steps))
    before = Writer(writer.instance, writer.where)
    for _ in range(turn):
        before.write(written.steps, written)
        before.renew()
    before.write(written.steps[:number], written)
    before.origin = written.origin[number] if writer.step_of[task] != NOTHING else NOTHING
    nbytes, place = tasks.nbytes[task], tasks.place[task]
    name, held, capacity = [*writer.places][place], record.totals[HELD], places.capacity[place]
    names = before.names(name)
    largest = sorted(names, key=lambda s: (-writer.size[s], s))[:3]
    says = ", ".join(f"storage {s} ({writer.size[s]:,})" for s in largest)
    who = "the next step" if before.origin == NOTHING else _who(writer.instance, written.steps[number])
    error = before.error(
        f"{before.says()} does not fit: {who} needs {nbytes:,} bytes of {_the(name)}, of whose "
        f"{capacity:,} {held:,} are held, and nothing that was issued before releases more"
        + (f"; it holds {says}" + (", ..." if len(names) > len(largest) else "") if says else "")
    )
    error.short_bytes = nbytes + held - capacity
    return error


def _who(instance: Instance, step: Primitive) -> str:
    if isinstance(step, Compute):
        return f"op {step.op} ({instance.ops[step.op].name})"
    return f"the {'copy' if isinstance(step, Copy) else 'fetch'} of storage {step.storage}"


def _the(place: str) -> str:
    return "the device" if place == DEVICE else place
