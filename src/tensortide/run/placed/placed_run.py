"""A placed Plan run for a few steps, in a process for each of its lanes, beside the same steps in one process."""

from __future__ import annotations

import gc
import hashlib
import itertools
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import torch
import torch.distributed as dist

from tensortide.errors import RunError
from tensortide.graph.effects import draws_random
from tensortide.graph.model import Graph, Role
from tensortide.parallelism.shards import Piece
from tensortide.plans.lanes import check_lanes
from tensortide.plans.model import Compute, Lane, Plan
from tensortide.run.generated.step import check_straight
from tensortide.run.placed.lane import LaneProgram, Span, planned_bytes, written
from tensortide.run.placed.live_storages import given_pieces, given_tensors
from tensortide.run.placed.measured import measured_timeline
from tensortide.run.placed.processes import run_ranks, threads_of
from tensortide.run.placed.seeded import SeededWorkload, loss_in
from tensortide.timelines.timeline import Timeline

TOLERANCE, HALF_TOLERANCE = 1e-5, 1e-2
"""Shares by which a loss of a step with shards may differ from that of one process, without and with 2-byte floats."""
HALF = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True)
class PlacedWorkload(SeededWorkload):
    """A workload, the micro-batches of a step as it is placed, and the number of steps to run after the first one."""

    micro_batches: int = 1
    steps: int = 3


@dataclass(frozen=True)
class Parts:
    """What shards make of a step: the ``pieces`` of its tensors (``Sharded.pieces``), and the ``whole`` step of all
    micro-batches, which has none (``Ready.whole``)."""

    whole: Graph
    pieces: Mapping[tuple[str, Role], Piece]

    @property
    def tolerance(self) -> float:
        """The share by which a loss may differ from that of one process: partial results of shards are added in another
        order than the whole is."""
        half = any(tensor.dtype in HALF for tensor in self.whole.tensors)
        return HALF_TOLERANCE if half else TOLERANCE


@dataclass(frozen=True)
class LaneRun:
    """Record of one lane. ``outputs``: for each step the outputs of one element that are made here, by storage.
    ``state``: fingerprints of what the steps have updated here, by storage. ``spans`` and ``began_ns`` are those of the
    last step (``LaneProgram``), ``sent_bytes`` its bytes to each other lane."""

    outputs: Sequence[Mapping[int, float]]
    state: Mapping[int, str]
    step_ns: Sequence[int]
    began_ns: int
    spans: Sequence[Span]
    sent_bytes: Mapping[int, int]


@dataclass(frozen=True)
class AloneRun:
    """The same steps in one process: the losses of each, by micro-batch, and fingerprints of what they have updated.
    ``apart``: of a step with shards, for what has other bits on the lanes, the norm of the difference by its norm."""

    losses: Sequence[Sequence[float]]
    state: Mapping[int, str]
    apart: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class MeasuredPlacement:
    """A run of all lanes of ``plan``, and the same steps ``alone``; ``parts`` are those of a step with shards."""

    workload: PlacedWorkload
    graph: Graph
    plan: Plan
    lanes: Sequence[LaneRun]
    alone: AloneRun
    parts: Parts | None = None

    @property
    def losses(self) -> list[tuple[float, ...]]:
        """The losses of each step, by micro-batch: the first output of one element."""
        found = []
        for step in range(self.workload.steps):
            outputs = {storage: value for lane in self.lanes for storage, value in lane.outputs[step].items()}
            found.append(_losses(self.graph, outputs))
        return found

    @property
    def same_losses(self) -> bool:
        """True if all losses have the bits of those of one process."""
        return all(itertools.starmap(same_bits, zip(self.losses, self.alone.losses, strict=True)))

    @property
    def furthest(self) -> float:
        """The largest difference of a loss from that of one process, as a share of it; infinite where one is no number,
        or is missing."""
        if any(len(ran) != len(alone) for ran, alone in zip(self.losses, self.alone.losses, strict=True)):
            return math.inf
        pairs = zip(itertools.chain(*self.losses), itertools.chain(*self.alone.losses), strict=True)
        return max((_apart(ran, alone) for ran, alone in pairs), default=0.0)

    @property
    def agrees(self) -> bool:
        """True if losses and updated values are those of one process: bit for bit, or of a step with shards the losses,
        if it has any, within the tolerance."""
        if self.parts is not None and any(self.losses):
            return self.furthest <= self.parts.tolerance
        return self.same_losses and not self.changed

    @property
    def state(self) -> dict[int, str]:
        """Fingerprints of what the steps have updated, wherever it is."""
        return {storage: text for lane in self.lanes for storage, text in lane.state.items()}

    @property
    def changed(self) -> list[str]:
        """Names of the parameters, buffers and states that have other bits after the last step than in one process."""
        seen = self.state
        return [
            self.graph.storages[storage].name for storage, text in self.alone.state.items() if seen.get(storage) != text
        ]

    @cached_property
    def planned_bytes(self) -> dict[tuple[int, int], int]:
        """Bytes that each lane sends to each other one in a step of the Plan, by source and target."""
        return planned_bytes(self.graph, self.plan)

    @property
    def sent_bytes(self) -> dict[tuple[int, int], int]:
        """Bytes that each lane sent to each other one, by source and target."""
        return {
            (source, target): nbytes
            for source, lane in enumerate(self.lanes)
            for target, nbytes in lane.sent_bytes.items()
        }

    @property
    def as_planned(self) -> bool:
        """True if every lane sent the bytes that the Plan has."""
        planned, sent = ({k: v for k, v in each.items() if v} for each in (self.planned_bytes, self.sent_bytes))
        return planned == sent

    @property
    def verified(self) -> bool:
        """True if losses and updated values are those of one process (``agrees``), and bytes those of the Plan."""
        return self.agrees and self.as_planned

    @property
    def step_ns(self) -> int:
        """The shortest step, by its slowest lane."""
        return min(max(lane.step_ns[step] for lane in self.lanes) for step in range(self.workload.steps))

    @cached_property
    def timeline(self) -> Timeline:
        """The last step as it was measured, a lane for each device."""
        return measured_timeline(
            self.graph, self.plan, [lane.spans for lane in self.lanes], [lane.began_ns for lane in self.lanes]
        )


def check_placed(graph: Graph, devices: int, *, keep_random: bool) -> None:
    """Raise RunError if the step ``graph`` cannot run on so many devices, whatever its placement."""
    check_straight(graph)
    view = next((view for view in graph if draws_random(view.call)), None)
    if view is not None and devices > 1 and not keep_random:
        raise RunError(
            f"{view.name} draws random numbers, and processes would draw others than one does: place all such ops on "
            "one device (--keep-random)"
        )


def run_placed(workload: PlacedWorkload, graph: Graph, plan: Plan, parts: Parts | None = None) -> MeasuredPlacement:
    """Run ``plan`` of the placed ``graph`` (``Ready.graph``) in a process for each lane; ``parts`` if it has shards.

    Raises RunError for a step that does not run so, and with the message of the rank that failed first; no process is
    left behind. Raises PlanError if the plan does not execute the graph.
    """
    check_lanes(plan, graph)
    with tempfile.TemporaryDirectory(prefix="tensortide-state-") as name:
        folder = None if parts is None else Path(name)
        lanes = run_ranks(partial(_run_lane, workload, graph, plan, parts, folder), len(plan.lanes))
        (alone,) = run_ranks(partial(_run_alone, workload, graph, parts, folder), 1, threads_of(len(plan.lanes)))
    return MeasuredPlacement(workload, graph, plan, lanes, alone, parts)


def _run_lane(
    workload: PlacedWorkload, graph: Graph, plan: Plan, parts: Parts | None, folder: Path | None, rank: int
) -> LaneRun:
    """Run the steps of one lane, in its process, and leave what they have updated in ``folder``."""
    program = LaneProgram(workload.build(), graph, plan, rank, {} if parts is None else parts.pieces)
    outputs, times = [], []
    gc.collect()
    for _ in range(workload.steps):
        dist.barrier()
        began = time.monotonic_ns()
        made = program()
        times.append(time.monotonic_ns() - began)
        outputs.append(_numbers(made))
    if folder is not None:
        torch.save({s: tensor.detach() for s, tensor in program.written.items()}, folder / f"{rank}.pt")
    state = _fingerprints(program.written)
    return LaneRun(outputs, state, times, program.began_ns, program.spans, dict(program.sent_bytes))


def _run_alone(workload: PlacedWorkload, graph: Graph, parts: Parts | None, folder: Path | None, _: int) -> AloneRun:
    """Run the steps in one process: the user's own step; of several micro-batches the ops of the whole step in order.
    What they have updated is compared with what lanes have left in ``folder``."""
    step = workload.build()
    if workload.micro_batches == 1:
        returned = [loss_in(step()) for _ in range(workload.steps)]
        losses = [[] if loss is None else [float(loss.detach())] for loss in returned]
    else:
        whole = graph if parts is None else parts.whole
        lane = Lane("cpu", tuple(Compute(op) for op in range(len(whole))))
        program = LaneProgram(step, whole, Plan(whole.index.digest, (lane,)), 0)
        losses = [list(_losses(whole, _numbers(program()))) for _ in range(workload.steps)]
    pieces = {} if parts is None else given_pieces(graph, step, parts.pieces)
    own = {storage: piece.contiguous().clone() for storage, piece in pieces.items()}
    state = written(graph, given_tensors(graph, step, own) | own)
    return AloneRun(losses, _fingerprints(state), {} if folder is None else _differences(state, folder))


def _differences(state: Mapping[int, torch.Tensor], folder: Path) -> dict[int, float]:
    """The norm of the difference of what lanes have left in ``folder`` from ``state``, by the norm of that; of what has
    the same elements nothing."""
    found = {}
    for path in sorted(folder.glob("*.pt")):
        for storage, ran in torch.load(path, mmap=True).items():
            alone = state[storage].detach().reshape(ran.shape)
            if not torch.equal(ran, alone):
                off, size = (ran.double() - alone.double()).norm(), alone.double().norm()
                found[storage] = float(off / size) if size else math.inf
    return found


def _apart(ran: float, alone: float) -> float:
    """The difference of two losses as a share of the second."""
    if ran == alone or (math.isnan(ran) and math.isnan(alone)):
        return 0.0
    share = abs(ran - alone) / abs(alone) if alone else math.inf
    return math.inf if math.isnan(share) else share


def same_bits(ran: Sequence[float], alone: Sequence[float]) -> bool:
    """Return whether two lists of losses are bit-identical."""
    return [*map(float.hex, ran)] == [*map(float.hex, alone)]


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
