"""Plans played by the event rules, to the nanosecond and byte.

One thread issues the steps in list order and waits where it must; issue times never fall. An op starts when it is
issued: the op before it has ended, so have the fetches that made resident what it touches and the copies out of what it
writes, and there is room for its outputs and workspace. A transfer is issued when there is room where it goes, and
starts when its engine is free and what it moves is complete. Bytes are held from the issue of the step that allocates
until the last step that touches them has ended, once they are evicted or dropped. Every player takes time linear in the
number of steps, but for the order of pending releases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensortide.plans.events.played import Change, Played
from tensortide.plans.events.player import Player
from tensortide.plans.events.primitives import Primitives, homes, primitives
from tensortide.plans.instance import DEVICE, Instance
from tensortide.plans.model import Step


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
