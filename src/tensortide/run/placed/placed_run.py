"""A placed Plan run for a few steps, in a process for each of its lanes, beside the same steps in one process."""

from __future__ import annotations

import hashlib
import itertools
import math
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated

import torch

from tensortide.errors import RunError
from tensortide.graph.communication import moves_data, payload_bytes
from tensortide.graph.effects import draws_random
from tensortide.graph.model import Graph, Role
from tensortide.parallelism.shards import Piece
from tensortide.placements.graphs.placed_step import PlacedStep
from tensortide.plans.model import Compute, Lane, Plan
from tensortide.run.generated.step import check_straight
from tensortide.run.placed.groups import ExchangeSpan
from tensortide.run.placed.held_numbers import HeldNumbers
from tensortide.run.placed.in_order import ReplicasInOrder
from tensortide.run.placed.lane import LaneProgram, Span, planned_bytes, written
from tensortide.run.placed.live_storages import given_pieces, given_tensors
from tensortide.run.placed.losses import furthest, same_bits, tolerance_of
from tensortide.run.placed.measured import measured_timeline
from tensortide.run.placed.processes import run_ranks, threads_of, timed_steps
from tensortide.run.placed.seeded import SeededWorkload, loss_in
from tensortide.shown import Show
from tensortide.timelines.data_parallel import exposed_after_ns
from tensortide.timelines.timeline import Timeline


@dataclass(frozen=True)
class LaneRun:
    """Record of one lane. ``outputs``: for each step the outputs of one element that are made here, by storage.
    ``state``: fingerprints of what the steps have updated here, by storage. ``spans`` and ``began_ns`` are those of the
    last step (``LaneProgram``), ``sent_bytes`` its bytes to each other lane of its group; ``exchanges`` its all-reduces
    with other groups, ``exchanged_bytes`` what they sent to each other rank, ``buffer_bytes`` those that their buckets
    keep."""

    outputs: Sequence[Mapping[int, float]]
    state: Mapping[int, str]
    step_ns: Sequence[int]
    began_ns: int
    spans: Sequence[Span]
    sent_bytes: Mapping[int, int]
    exchanges: Sequence[ExchangeSpan] = ()
    exchanged_bytes: Mapping[int, int] = field(default_factory=dict)
    buffer_bytes: int = 0


@dataclass(frozen=True)
class AloneRun:
    """The same steps in one process: the losses of each, by group and micro-batch, and fingerprints of what they have
    updated, by group and storage. ``apart``: of a step with shards, for what has other bits on the lanes, the norm of
    the difference by its norm, the largest of all groups. ``held``: the numbers that were held (``HeldNumbers``)."""

    losses: Sequence[Sequence[float]]
    state: Mapping[tuple[int, int], str]
    apart: Mapping[int, float] = field(default_factory=dict)
    held: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class MeasuredPlacement:
    """A run of all lanes of a ``placed`` step in each of its groups, and the same steps ``alone``."""

    workload: SeededWorkload
    placed: PlacedStep
    lanes: Sequence[LaneRun]
    alone: AloneRun

    @property
    def tolerance(self) -> float:
        """The share by which a loss of shards may differ from that of one process: partial results are added in another
        order than the whole is. 0 without shards."""
        return tolerance_of(self.placed.ready.whole) if self.placed.ready.sharded.shards else 0.0

    def _of_groups(self) -> list[Sequence[LaneRun]]:
        """The lanes of each group."""
        size = len(self.placed.plan.lanes)
        return [self.lanes[first : first + size] for first in range(0, len(self.lanes), size)]

    @property
    def losses(self) -> list[tuple[float, ...]]:
        """The losses of each step, by group and micro-batch: the first output of one element."""
        found = []
        for number in range(self.workload.steps):
            losses: tuple[float, ...] = ()
            for lanes in self._of_groups():
                outputs = {storage: value for lane in lanes for storage, value in lane.outputs[number].items()}
                losses += _losses(self.placed.ready.graph, outputs)
            found.append(losses)
        return found

    @property
    def same_losses(self) -> bool:
        """True if all losses have the bits of those of one process."""
        return all(itertools.starmap(same_bits, zip(self.losses, self.alone.losses, strict=True)))

    @property
    def furthest(self) -> float:
        """The largest difference of a loss from that of one process, as a share of it; infinite where one is no number,
        or is missing."""
        return max(itertools.starmap(furthest, zip(self.losses, self.alone.losses, strict=True)), default=0.0)

    @property
    def loss_difference_share(self) -> Annotated[float | None, Show("Largest relative difference of a loss", "number")]:
        """The same; None where the step returns no loss."""
        return self.furthest if any(self.losses) else None

    @property
    def agrees(self) -> bool:
        """True if losses and updated values are those of one process: bit for bit, or of a step with shards the losses,
        if it has any, within the tolerance."""
        if self.placed.ready.sharded.shards and any(self.losses):
            return self.furthest <= self.tolerance
        return self.same_losses and not self.changed

    @property
    def state(self) -> dict[tuple[int, int], str]:
        """Fingerprints of what the steps have updated, wherever it is, by group and storage."""
        return {
            (group, storage): text
            for group, lanes in enumerate(self._of_groups())
            for lane in lanes
            for storage, text in lane.state.items()
        }

    @property
    def changed(self) -> list[str]:
        """Names of the parameters, buffers and states that have other bits after the last step than in one process."""
        seen, storages = self.state, self.placed.ready.graph.storages
        return [storages[key[1]].name for key, text in self.alone.state.items() if seen.get(key) != text]

    @property
    def same_state(self) -> bool:
        """True if none of them has."""
        return not self.changed

    @property
    def same_states(self) -> Annotated[int, Show("Bit-identical parameters, buffers and states")]:
        """The number of those that have the same."""
        return len(self.alone.state) - len(self.changed)

    @cached_property
    def planned_bytes(self) -> dict[tuple[int, int], int]:
        """Bytes that each rank sends to each other one of its group in a step of the Plan, by source and target."""
        return planned_bytes(self.placed.ready.graph, self.placed.all_lanes)

    @property
    def sent_bytes(self) -> dict[tuple[int, int], int]:
        """Bytes that each rank sent to each other one of its group, by source and target."""
        size = len(self.placed.plan.lanes)
        return {
            (source, source // size * size + target): nbytes
            for source, lane in enumerate(self.lanes)
            for target, nbytes in lane.sent_bytes.items()
        }

    @property
    def exchanged(self) -> list[int]:
        """Bytes of gradients that each rank averaged with other groups."""
        return [sum(each.nbytes for each in lane.exchanges) for lane in self.lanes]

    @cached_property
    def planned_exchanges(self) -> list[int]:
        """Bytes of gradients that each rank averages with other groups in a step of the Plan."""
        return [
            sum(
                payload_bytes(self.placed.ready.graph[step.op])
                for step in lane.steps
                if isinstance(step, Compute) and moves_data(self.placed.ready.graph[step.op].name)
            )
            for lane in self.placed.all_lanes.lanes
        ]

    @property
    def exposed_ns(self) -> list[int]:
        """Time of each rank in the last step from when its last gradients left until they had arrived; where they leave
        one by one, of all exchanges."""
        found = []
        for lane, planned in zip(self.lanes, self.placed.all_lanes.lanes, strict=True):
            runs = [(each.start_ns, each.end_ns) for each in lane.exchanges]
            if not self.placed.groups.beside:
                found.append(sum(end - start for start, end in runs))
                continue
            own = {op for each in lane.exchanges for op in each.ops}
            left = [
                lane.began_ns + span.start_ns
                for span in lane.spans
                if isinstance(step := planned.steps[span.step], Compute) and step.op in own
            ]
            found.append(exposed_after_ns(runs, max(left, default=0)))
        return found

    @property
    def as_planned(self) -> bool:
        """True if every rank sent the bytes that the Plan has, and averaged its gradients: of n groups each sends
        2 (n - 1) / n of them."""
        planned, sent = ({k: v for k, v in each.items() if v} for each in (self.planned_bytes, self.sent_bytes))
        size, others = len(self.placed.plan.lanes), self.placed.groups.count - 1
        for device in range(size):
            passed = sum(sum(lane.exchanged_bytes.values()) for lane in self.lanes[device::size])
            if passed != 2 * others * self.planned_exchanges[device]:
                return False
        return planned == sent and self.exchanged == self.planned_exchanges

    @property
    def verified(self) -> bool:
        """True if losses and updated values are those of one process (``agrees``), and bytes those of the Plan."""
        return self.agrees and self.as_planned

    @property
    def step_ns(self) -> Annotated[int, Show("Shortest step, measured")]:
        """The shortest step, by its slowest lane."""
        return min(max(lane.step_ns[step] for lane in self.lanes) for step in range(self.workload.steps))

    @property
    def exchange_lanes(self) -> dict[str, Sequence[ExchangeSpan]]:
        """The all-reduces of the last step by the lane of ``timeline`` that has them: the link on which they leave."""
        names, size = [lane.device for lane in self.placed.all_lanes.lanes], len(self.placed.plan.lanes)
        return {
            f"{name} > {names[(rank + size) % len(names)]}": lane.exchanges
            for rank, (name, lane) in enumerate(zip(names, self.lanes, strict=True))
            if lane.exchanges
        }

    @cached_property
    def timeline(self) -> Timeline:
        """The last step as it was measured, a lane for each rank."""
        spans, began = [lane.spans for lane in self.lanes], [lane.began_ns for lane in self.lanes]
        return measured_timeline(self.placed.ready.graph, self.placed.all_lanes, spans, began, self.exchange_lanes)


def check_placed(graph: Graph, devices: int, *, keep_random: bool, groups: int = 1) -> None:
    """Raise RunError if the step ``graph`` cannot run on so many devices, in each of so many ``groups``, whatever its
    placement."""
    check_straight(graph)
    view = next((view for view in graph if draws_random(view.call)), None)
    if view is not None and groups > 1:
        raise RunError(
            f"{view.name} draws random numbers, and {groups} groups would draw others than one process does: leave out "
            "what draws (dropout=0), or --run without --data"
        )
    if view is not None and devices > 1 and not keep_random:
        raise RunError(
            f"{view.name} draws random numbers, and processes would draw others than one does: place all such ops on "
            "one device (--keep-random)"
        )


def run_placed(workload: SeededWorkload, placed: PlacedStep) -> MeasuredPlacement:
    """Run a ``placed`` step of ``workload`` in a process for each lane, of each group.

    Raises RunError for a step that does not run so, and with the message of the rank that failed first, as that its
    Plan does not execute its Graph; no process is left behind.
    """
    ready, ranks = placed.ready, len(placed.all_lanes.lanes)
    pieces, groups = dict(ready.sharded.pieces), placed.groups  # pickled, as a proxy of a mapping cannot be
    lane = partial(LaneProgram, graph=ready.graph, plan=placed.plan, pieces=pieces, groups=groups)
    with tempfile.TemporaryDirectory(prefix="tensortide-state-") as name:
        folder = Path(name) if ready.sharded.shards else None
        lanes = run_ranks(partial(_run_lane, workload, lane, folder), ranks)
        of_all = ready.whole, ready.problem.batches, ready.graph, pieces, groups.count
        (alone,) = run_ranks(partial(_run_alone, workload, *of_all, folder), 1, threads_of(ranks))
    return MeasuredPlacement(workload, placed, lanes, alone)


def _run_lane(workload: SeededWorkload, lane: Callable[..., LaneProgram], folder: Path | None, rank: int) -> LaneRun:
    """Run the steps of one lane, in its process, and leave what they have updated in ``folder``."""
    program = lane(workload.build(), rank=rank)
    outputs, times = timed_steps(program, workload.steps, _numbers)
    if folder is not None:
        torch.save({s: tensor.detach() for s, tensor in program.written.items()}, folder / f"{program.group}.{rank}.pt")
    state, sent, averages = _fingerprints(program.written), dict(program.sent_bytes), program.averages
    exchanged = tuple(averages.spans), averages.sent_bytes, averages.buffer_bytes
    return LaneRun(outputs, state, times, program.began_ns, program.spans, sent, *exchanged)


def _run_alone(
    workload: SeededWorkload,
    whole: Graph,
    micro_batches: int,
    graph: Graph,
    pieces: Mapping[tuple[str, Role], Piece],
    groups: int,
    folder: Path | None,
    _: int,
) -> AloneRun:
    """Run the steps in one process: the user's own step, with the numbers of the first; of several micro-batches the
    ops of the ``whole`` step in order; of several groups those of all. What they have updated of ``graph``, with its
    ``pieces``, is compared with what lanes have left in ``folder``."""
    steps = [workload.build() for _ in range(groups)]
    own_step = HeldNumbers(steps[0])
    if groups > 1:
        replicas = ReplicasInOrder(steps, whole)
        made = [replicas() for _ in range(workload.steps)]
        losses = [[loss for each in ran for loss in _losses(whole, _numbers(each))] for ran in made]
    elif micro_batches == 1:
        returned = [loss_in(own_step()) for _ in range(workload.steps)]
        losses = [[] if loss is None else [float(loss.detach())] for loss in returned]
    else:
        lane = Lane("cpu", tuple(Compute(op) for op in range(len(whole))))
        program = LaneProgram(steps[0], whole, Plan(whole.index.digest, (lane,)), 0)
        losses = [list(_losses(whole, _numbers(program()))) for _ in range(workload.steps)]
    state, apart = dict[tuple[int, int], str](), dict[int, float]()
    for group, built in enumerate(steps):
        own = {s: piece.contiguous().clone() for s, piece in given_pieces(graph, built, pieces).items()}
        updated = written(graph, given_tensors(graph, built, own) | own)
        state |= {(group, storage): text for storage, text in _fingerprints(updated).items()}
        if folder is not None:
            for storage, off in _differences(updated, folder, group).items():
                apart[storage] = max(off, apart.get(storage, 0.0))
    return AloneRun(losses, state, apart, own_step.changed)


def _differences(state: Mapping[int, torch.Tensor], folder: Path, group: int) -> dict[int, float]:
    """The norm of the difference of what the lanes of ``group`` have left in ``folder`` from ``state``, by the norm of
    that; of what has the same elements nothing."""
    found = {}
    for path in sorted(folder.glob(f"{group}.*.pt")):
        for storage, ran in torch.load(path, mmap=True).items():
            alone = state[storage].detach().reshape(ran.shape)
            if not torch.equal(ran, alone):
                off, size = (ran.double() - alone.double()).norm(), alone.double().norm()
                found[storage] = float(off / size) if size else math.inf
    return found


def _numbers(made: Mapping[int, torch.Tensor]) -> dict[int, float]:
    """The outputs of one element."""
    return {storage: float(one) for storage, one in made.items() if one.numel() == 1 and not one.is_complex()}


def _losses(graph: Graph, outputs: Mapping[int, float]) -> tuple[float, ...]:
    """The first of ``outputs``, as the step returns them, for each micro-batch."""
    by_name: defaultdict[str, list[int]] = defaultdict(list)
    for storage in sorted(outputs):
        by_name[graph.storages[storage].name].append(storage)
    if not by_name:
        return ()
    return tuple(outputs[storage] for storage in by_name[min(by_name, key=_position)])


def _position(name: str) -> int:
    """The place of the output called ``output[3]`` among those that the step returns."""
    number = name.rpartition("[")[2].rstrip("]")
    return int(number) if number.isdecimal() else 0


def _fingerprints(tensors: Mapping[int, torch.Tensor]) -> dict[int, str]:
    found = {}
    for storage, tensor in tensors.items():
        memory = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
        found[storage] = hashlib.sha256(memory.numpy().data).hexdigest()
    return found
