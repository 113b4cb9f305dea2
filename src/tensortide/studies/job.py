"""All stages of a job: one rank of each captured, their memory, and the time of their steps joined to one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import msgspec

from tensortide.errors import ExitStatus, RequestError, UnknownCost
from tensortide.graph import Graph, unrolled
from tensortide.graph.ways import peers
from tensortide.importers.door import resolve
from tensortide.parallelism.joined import JoinedStep, joined
from tensortide.parallelism.meetings import listed, meetings
from tensortide.progress import Say, silent
from tensortide.recorder import resolver
from tensortide.recorder.ranks_in_turn import in_turn
from tensortide.recorder.script import script_ranks
from tensortide.recorder.script_command import Script
from tensortide.shown import Show, Shown
from tensortide.studies.fit.verdict import verdict
from tensortide.targets.assumptions import require_certain
from tensortide.targets.durations import predicted_on
from tensortide.targets.machines import nodes_for, one_of
from tensortide.targets.requests import CaptureRequest
from tensortide.timing import DEFAULT_DEVICE
from tensortide.timing.cards import of_bytes
from tensortide.timing.collectives.nodes import OF_CATALOGUE, LinkRates, Nodes

if TYPE_CHECKING:
    from tensortide.timing.cards import Card
    from tensortide.timing.catalogue import Device
    from tensortide.timing.estimates import Estimate


class RankRow(msgspec.Struct, frozen=True):
    """A captured rank, of a stage of so many ``ranks`` (None: stages are of different numbers).

    It needs ``least_bytes`` to ``most_bytes`` (None: nobody knows) of its device, communicators included: by these it
    ``fits``. ``end_ns`` is when its device is done in the joined step, ``busy_ns`` how long that runs ops, and
    ``waiting_ns`` how long it waits for other ranks, or for data on their way; None for a rank that is not joined.
    """

    rank: Annotated[int, Show("Rank")]
    ranks: Annotated[int | None, Show("of its stage")]
    ops: Annotated[int, Show("Ops", at_width=100)]
    peak_bytes: Annotated[int, Show("Peak")]
    reserved_bytes: Annotated[int, Show("Allocator")]
    least_bytes: int
    most_bytes: Annotated[int | None, Show("Needs")]
    fits: Annotated[str | None, Show("Fits")]
    busy_ns: Annotated[int | None, Show("Busy", at_width=100)] = None
    waiting_ns: Annotated[int | None, Show("Waits")] = None
    end_ns: Annotated[int | None, Show("Done at")] = None


class WaitRow(msgspec.Struct, frozen=True):
    """Meetings of one kind with the same other ranks that the device of a captured ``rank`` waits for: how many, and
    how long in total. The parts of a rank add up to what it waits."""

    rank: Annotated[int, Show("Rank")]
    kind: Annotated[str, Show("waits for")]
    others: Annotated[str, Show("with ranks", fold=True)]
    number: Annotated[int, Show("Number")]
    time_ns: Annotated[int, Show("Time")]


@dataclass(frozen=True, repr=False)
class Job(Shown):
    """A job of so many ``ranks``, by the steps ``graphs`` of some of them. ``machine`` names the devices that it is
    predicted for; ``joined`` is None where these have no times."""

    SECTION = "job"

    name: str
    ranks: int
    machine: str
    rows: tuple[RankRow, ...]
    graphs: Mapping[int, Graph]
    joined: JoinedStep | None = None

    @property
    def step_time(self) -> Estimate | None:
        """The time of the joined step."""
        return None if self.joined is None else self.joined.step_time

    @property
    def fullest(self) -> RankRow:
        """The rank that needs most memory."""
        return max(self.rows, key=lambda row: (row.most_bytes or math.inf, row.peak_bytes))

    @property
    def waits(self) -> tuple[WaitRow, ...]:
        """The waits of each joined rank, the longest first."""
        if (step := self.joined) is None:
            return ()
        found: dict[tuple[int, str, str], list[int]] = {}
        for rank in (row.rank for row in self.rows if row.waiting_ns is not None):
            for number, ns in step.waits(rank).items():
                meeting = step.meetings[number]
                others = listed([each for each in meeting.ranks if each != rank])
                found.setdefault((rank, meeting.kind, others), []).append(ns)
        rows = [WaitRow(*key, len(each), sum(each)) for key, each in found.items()]
        return tuple(sorted(rows, key=lambda row: (row.rank, -row.time_ns)))

    @property
    def status(self) -> ExitStatus:
        """FAILS if a rank does not fit, UNDECIDED if that is not certain of one."""
        said = {row.fits for row in self.rows}
        if "too large" in said:
            return ExitStatus.FAILS
        return ExitStatus.UNDECIDED if said - {"fits"} else ExitStatus.HOLDS


def job_of(
    target: str,
    asked: CaptureRequest,
    rates: LinkRates = OF_CATALOGUE,
    memory: int | None = None,
    say: Say = silent,
    *,
    strict: bool = False,
) -> Job:
    """Capture one rank of each stage of a launch command, and join their steps on the machines asked for.

    These are rank 0 and all that it exchanges messages with, or that those do; and the last rank, whose shards may be
    smaller. ``memory`` stands for that of a device.

    Raises RequestError for a target that is no launch of several ranks; CaptureError where these do not match; if
    ``strict``, Doubtful for a step that depends on what was assumed, and UnknownCost for ops without a known time.
    """
    script = resolve(target)
    asked.require(script)
    if strict:
        asked.require_full_names()
    if not isinstance(script, Script) or (place := script.launch.place(asked.ranks, None)) is None:
        raise RequestError("--all-stages goes with the launch of several ranks, as in -- torchrun --nproc_per_node 8")
    if len(asked.machines) > 1:
        raise RequestError("--all-stages takes a single --machine, which may have many devices: 4x8xh100-sxm")
    if not asked.machines and asked.device is None:
        asked = replace(asked, machines=(DEFAULT_DEVICE,))
    one = replace(asked, machines=tuple(map(one_of, asked.machines)))
    nodes = None if one.card is not None or not asked.machines else nodes_for(asked.machines[0], place.ranks, rates)
    last = place.ranks - 1

    def others(rank: int, graph: Graph) -> Iterable[int]:
        # The last rank is captured for its own memory: those that it exchanges messages with are like those of rank 0.
        return () if rank == last else sorted(peers(rank, graph))

    with script_ranks(script, one.of_script(compare=strict), quiet=say is silent, progress=say) as run:
        graphs = {rank: unrolled(graph) for rank, graph in in_turn(run, 0, others, say, [last]).items()}
    for graph in graphs.values() if strict else ():
        require_certain(graph)
    card = one.card if memory is None else of_bytes(memory, one.card)
    job = job_from(script.name, place.ranks, graphs, nodes, card)
    if strict and job.step_time is not None and job.step_time.unknown:
        raise UnknownCost(f"--strict: {job.step_time.unknown} ops of the captured ranks have no known time")
    return job


def job_from(name: str, ranks: int, graphs: Mapping[int, Graph], nodes: Nodes | None, card: Card | None = None) -> Job:
    """The job ``name`` of so many ``ranks`` by the steps of some (without loops), the first of them before all that it
    meets; on ``nodes``, if these have times, and the memory of ``card`` in place of theirs.

    Raises CaptureError where the steps do not match.
    """
    met = _met(graphs)
    chain = {rank: graph for rank, graph in graphs.items() if rank in met}
    known = {_signature(graph) for graph in chain.values()}
    alone = {rank: graph for rank, graph in graphs.items() if rank not in chain and _signature(graph) not in known}
    shown = chain | alone
    step, device = None, None
    if nodes is None:
        meetings(shown)  # the error of what does not match
    else:
        device = nodes.device
        step = joined(shown, {rank: predicted_on(graph, device) for rank, graph in shown.items()}, nodes)
    each = None if ranks % len(chain) else ranks // len(chain)
    # The last rank is not seen to wait for ranks of its own pipeline, which are not captured.
    timed = {rank for rank, graph in shown.items() if peers(rank, graph) <= shown.keys()}
    rows = [_row(rank, graph, each, device, card, step if rank in timed else None) for rank, graph in shown.items()]
    rows.sort(key=lambda row: row.rank)
    machine = str(nodes) if nodes is not None else card.name if card is not None else ""
    return Job(name, ranks, machine, tuple(rows), graphs, step)


def _met(graphs: Mapping[int, Graph]) -> set[int]:
    """The ranks with which the first of ``graphs``, or those that it meets, exchange messages."""
    met: set[int] = set()
    waiting = [next(iter(graphs))]
    while waiting:
        rank = waiting.pop()
        if rank not in met and rank in graphs:
            met.add(rank)
            waiting += peers(rank, graphs[rank])
    return met


def _signature(graph: Graph) -> tuple[object, ...]:
    """Ops and sizes of a step: equal for ranks that do the same in groups of their own."""
    ops = tuple(op.name for op in graph)
    return ops, tuple((storage.nbytes, storage.role) for storage in graph.storages)


def _row(
    rank: int, graph: Graph, ranks: int | None, row: Device | None, card: Card | None, step: JoinedStep | None
) -> RankRow:
    found = verdict(graph, asked=row, card=card, timed=False, resolver=resolver)
    fits = None if found.asked is None else found.asked.fits
    times = () if step is None else step.rank(rank)
    needs = (found.peak_bytes, found.reserved_bytes, found.least_bytes, found.most_bytes)
    return RankRow(rank, ranks, len(graph), *needs, fits, *times)
