"""Planning instance of a step: ops, storages and links in plain integers, which planners and the event replay read.

Numbers of ops and storages are those of the Graph with its loops written out, so the steps of a Plan apply to both. A
storage that does not take part (on another device, or never resident) has 0 bytes and is pinned.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Sequence

import msgspec

from tensortide.errors import GraphError, PlanError
from tensortide.graph.effects import draws_random, runs_once
from tensortide.graph.model import Graph, Role
from tensortide.graph.unroll import unrolled
from tensortide.memory.lifetimes import Residence, residences
from tensortide.memory.workspace import workspace_bytes
from tensortide.timing.links import Link

BEFORE = -1
"""The state of a storage that exists before the step and was not written yet."""

DEVICE = "device"
"""The place that the budget limits."""
_CONSTANT = "constant"
"""Tag of calls that stand for what the step was given, which nothing can compute."""


class InstanceOp(msgspec.Struct, frozen=True, gc=False):
    """An op as planners see it.

    ``ns``: its duration. ``reads``, ``writes`` (in place) and ``makes`` (allocates): storages, ascending, each once;
    what it writes it need not read. ``workspace``: bytes it takes only while it runs. ``once``: it may not run again.
    ``blind``: storages on which none of its outputs depends; when it runs again it leaves them alone, and those of
    ``writes`` have to be resident, in any state.
    ``after``: ops that its first run must follow besides those that its storages say: they make the views it uses.
    """

    name: str
    ns: int
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    makes: tuple[int, ...] = ()
    workspace: int = 0
    once: bool = False
    blind: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def touches(self) -> tuple[int, ...]:
        """Return what it reads, writes and makes; ascending."""
        return tuple(sorted({*self.reads, *self.writes, *self.makes}))


class InstanceStorage(msgspec.Struct, frozen=True, gc=False):
    """A storage as planners see it.

    ``given``: it exists before the step. ``persistent``: it is given, and after the step it is at its home again, in
    its last state. ``kept``: it is on the device after the step. ``pinned``: it is neither copied nor evicted.
    """

    nbytes: int
    given: bool = False
    persistent: bool = False
    kept: bool = False
    pinned: bool = False

    @property
    def stays(self) -> bool:
        """Tell whether it is on the device after the step, as long as its home is the device."""
        return self.kept or self.persistent


class Instance(msgspec.Struct, frozen=True, dict=True):
    """Ops in recorded order, storages, and the links to the tiers that storages may move to.

    ``home``: the tier on which a persistent storage is before and after the step, unless a plan says otherwise; it is
    the device for those that are absent. ``digest``: that of the Graph it was made from; empty if made by hand.
    """

    ops: tuple[InstanceOp, ...]
    storages: tuple[InstanceStorage, ...]
    links: tuple[Link, ...] = ()
    home: dict[int, str] = {}
    digest: str = ""

    @functools.cached_property
    def states(self) -> tuple[dict[int, int], ...]:
        """For each op the state in which the recorded step has each storage that it reads or writes, by the op that
        last wrote it; and as a last entry the state of every storage after the step.

        Raises PlanError if an op touches a storage that no op has made yet, or makes one a second time.
        """
        state = {index: BEFORE for index, storage in enumerate(self.storages) if storage.given}
        found = []
        for number, op in enumerate(self.ops):
            used = {*op.reads, *op.writes}
            if not used <= state.keys():
                raise PlanError(f"op {number} touches storage {min(used - state.keys())}, which no op has made yet")
            if again := state.keys() & set(op.makes):
                raise PlanError(f"op {number} makes storage {min(again)}, which is there already")
            found.append({storage: state[storage] for storage in sorted(used)})
            state.update(dict.fromkeys((*op.writes, *op.makes), number))
        return (*found, state)

    @functools.cached_property
    def base_ns(self) -> int:
        """Time of the step when every op runs once and nothing waits."""
        return sum(op.ns for op in self.ops)

    def link(self, name: str) -> Link:
        """The link of that name. Raises PlanError if there is none."""
        for link in self.links:
            if link.name == name:
                return link
        raise PlanError(f"there is no link {name!r}: the machine has {', '.join(x.name for x in self.links) or 'none'}")


def instance(
    graph: Graph,
    device: str,
    durations_ns: Sequence[int],
    *,
    links: Iterable[Link] = (),
    workspace: bool | Sequence[int] = True,
    pinned: Container[int] = (),
    keep_random: bool = False,
) -> Instance:
    """The planning instance of ``graph`` on ``device``, its loops written out.

    ``durations_ns``: the time of each op. ``workspace``: bytes each op takes only while it runs, or whether to count
    the known ones. ``pinned``: storages that neither move nor are evicted, besides those that cannot,
    such as the workspace of libraries. ``keep_random``:
    ops that draw random numbers run only once. Raises GraphError if the durations do not fit the graph.
    """
    graph = unrolled(graph)
    if len(durations_ns) != len(graph):
        raise GraphError(f"{len(durations_ns)} durations for {len(graph)} ops")
    extra = workspace_bytes(graph, device) if workspace is True else workspace or [0] * len(graph)
    facts = graph.index
    storages = []
    blind = {storage for group in facts.blind for storage in group}
    for number, (storage, residence) in enumerate(zip(graph.storages, residences(graph), strict=True)):
        here = storage.device == device and residence is not Residence.NEVER
        storages.append(
            InstanceStorage(
                int(storage.nbytes) if here else 0,
                given=storage.birth is None,
                persistent=residence is Residence.ALWAYS,
                kept=residence is Residence.KEPT,
                pinned=not here or number in pinned or number in blind or storage.role is Role.LIBRARY,
            )
        )
    ops = []
    made: dict[int, int] = {}  # views, which no storage's state stands for
    for number, op in enumerate(graph.ops):
        call, makes, writes = graph.calls[op.call], facts.allocated[number], facts.writes[number]
        ops.append(
            InstanceOp(
                call.op,
                int(durations_ns[number]),
                reads=tuple(sorted({*facts.reads[number]} - {*makes})),
                writes=tuple(sorted({*writes} - {*makes})),
                makes=makes,
                workspace=int(extra[number]),
                once=runs_once(call)
                or _CONSTANT in call.tags
                or not facts.unfilled.isdisjoint(makes)
                or (keep_random and draws_random(call)),
                blind=facts.blind[number],
                after=tuple(sorted({made[tensor] for tensor in op.inputs if tensor in made})),
            )
        )
        made.update({tensor: number for tensor in op.outputs if facts.owner[tensor] not in writes})
    return Instance(tuple(ops), tuple(storages), tuple(links), digest=graph.index.digest)
