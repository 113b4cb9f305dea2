"""A workload divided among processes of this machine, run for a few steps: losses, bytes, what each rank did when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

import torch

from tensortide.graph import Graph
from tensortide.parallelism import Degrees, Ranks, per_rank
from tensortide.parallelism.pipelines import DEFAULT_SCHEDULE, PipelineName, Run, RunKind, lanes_of_ranks, timeline_of
from tensortide.recorder import capture
from tensortide.run.placed.held_numbers import HeldNumbers
from tensortide.run.placed.losses import furthest, same_bits, tolerance_of
from tensortide.run.placed.processes import run_ranks, threads_of, timed_steps
from tensortide.run.placed.rank_program import RankCollectives, RankProgram, check_runs
from tensortide.run.placed.seeded import SeededWorkload, loss_in
from tensortide.shown import Show
from tensortide.timelines.timeline import Timeline


@dataclass(frozen=True)
class DividedWorkload(SeededWorkload):
    """A workload, and how it is divided."""

    degrees: Degrees = field(kw_only=True)
    schedule: PipelineName = field(default=DEFAULT_SCHEDULE, kw_only=True)


@dataclass(frozen=True)
class RankRun:
    """Record of one rank: for each step its outputs (by output and micro-batch) and its time; of the last step what ran
    when, the collectives, and the bytes sent to each rank."""

    outputs: Sequence[Sequence[Sequence[torch.Tensor]]]
    step_ns: Sequence[int]
    runs: Sequence[Run]
    exchanged: Sequence[RankCollectives]
    sent_bytes: Mapping[int, int]

    @property
    def computing_ns(self) -> int:
        """Time of the last step in which it computes a forward or a backward pass."""
        return sum(run.end_ns - run.start_ns for run in self.runs if run.kind < RunKind.TRANSFER)


@dataclass(frozen=True)
class MeasuredRun:
    """A run of all ranks. ``predicted``: for each rank the collectives that its Graph has. ``alone``: the loss of each
    step in one process, on the whole batch; empty where the step returns none. ``tolerance``: the share by which losses
    may differ from rounding. ``held``: numbers that were held there, as they are in the Graph (``HeldNumbers``)."""

    divided: DividedWorkload
    ranks: Sequence[RankRun]
    predicted: Sequence[Sequence[RankCollectives]]
    alone: Sequence[float]
    tolerance: float
    held: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def losses(self) -> list[float]:
        """The loss of each step: the mean over micro-batches and replicas of the last stage."""
        return [
            sum(parts) / len(parts)
            for step in range(self.divided.steps)
            if (parts := [float(one) for rank in self.ranks for one in _loss(rank.outputs[step])])
        ]

    @property
    def furthest(self) -> float:
        """The largest difference of a loss from that of one process, as a share of it (``losses.furthest``)."""
        return furthest(self.losses, self.alone)

    @property
    def loss_difference_share(self) -> Annotated[float | None, Show("Largest relative difference of a loss", "number")]:
        """The same; None where no process returned a loss."""
        return self.furthest if self.losses or self.alone else None

    @property
    def same_losses(self) -> bool:
        """True if all losses have the bits of those of one process."""
        return same_bits(self.losses, self.alone)

    @property
    def agrees(self) -> bool:
        """True if losses, if there are any, are those of one process but for rounding."""
        return self.furthest <= self.tolerance

    @property
    def as_planned(self) -> bool:
        """True if each rank exchanged what its Graph has."""
        pairs = zip(self.ranks, self.predicted, strict=True)
        return all(list(rank.exchanged) == list(planned) for rank, planned in pairs)

    @property
    def verified(self) -> bool:
        """True if losses agree with one process and bytes with the Graphs."""
        return self.agrees and self.as_planned

    @property
    def step_ns(self) -> Annotated[int, Show("Shortest step, measured")]:
        """The shortest step, by its slowest rank."""
        return min(max(rank.step_ns[step] for rank in self.ranks) for step in range(self.divided.steps))

    @property
    def timeline(self) -> Timeline:
        """The last step as it was measured. A lane that stands for several ranks shows the one that ended last."""
        lanes = lanes_of_ranks(self.divided.degrees)
        began = min(run.start_ns for rank in self.ranks for run in rank.runs)
        runs = []
        for number, lane in enumerate(lanes):
            last = max((self.ranks[rank] for rank in lane.ranks), key=lambda rank: rank.runs[-1].end_ns)
            runs += [Run(kind, task, number, start - began, end - began) for kind, task, _, start, end in last.runs]
        return timeline_of(runs, lanes)


def run_divided(divided: DividedWorkload) -> MeasuredRun:
    """Run ``divided`` in a process for each rank.

    Raises RunError for a step that does not run so, and with the message of the rank that failed first; no process is
    left behind.
    """
    whole = capture(divided.build(), first_step=True)  # of a built step: its second one, as a rank runs
    ranks = per_rank(whole, divided.degrees)
    check_runs(whole, ranks)
    found = run_ranks(partial(run_rank, divided, whole, ranks), divided.degrees.devices)
    predicted = [planned(ranks, rank) for rank in range(divided.degrees.devices)]
    ((alone, held),) = run_ranks(partial(_alone, divided), 1, threads_of(divided.degrees.devices))
    return MeasuredRun(divided, found, predicted, alone, tolerance_of(whole), held)


def run_rank(divided: DividedWorkload, whole: Graph, ranks: Ranks, rank: int) -> RankRun:
    """Run the steps of one rank, in its process."""
    step = divided.build()
    program = RankProgram(step, whole, ranks, rank, divided.schedule)
    outputs, times = timed_steps(program, divided.steps, lambda made: made)
    return RankRun(outputs, times, program.runs, program.exchanged, dict(program.exchange.sent_bytes))


def planned(ranks: Ranks, rank: int) -> list[RankCollectives]:
    """The collectives of a step of ``rank`` by its Graph: of gradients once, transfers for each micro-batch."""
    times = ranks.degrees.micro_batches
    found: dict[tuple[str, str], tuple[int, int]] = {}
    stage = rank // ranks.degrees.data
    for each in ranks.collectives:
        if each.stage == stage and each.kind != "send_recv":
            number, nbytes = found.get((each.kind, each.group), (0, 0))
            found[each.kind, each.group] = number + each.number, nbytes + each.nbytes
    for move in ranks.transfers:
        again = 1 if move.phase == "optimizer" else times
        for kind, end in (("send", move.source), ("receive", move.target)):
            if end == stage:
                number, nbytes = found.get((kind, "pipeline"), (0, 0))
                found[kind, "pipeline"] = number + again, nbytes + again * move.nbytes
    return [RankCollectives(*key, *value) for key, value in sorted(found.items())]


def _alone(divided: DividedWorkload, _: int) -> tuple[list[float], Mapping[str, tuple[float, float]]]:
    """The losses of the steps in one process, and the numbers that were held there."""
    step = HeldNumbers(divided.build())
    found = []
    for _ in range(divided.steps):
        value = loss_in(step())
        if value is not None:
            found.append(float(value.detach()))
    return found, step.changed


def _loss(outputs: Sequence[Sequence[torch.Tensor]]) -> Sequence[torch.Tensor]:
    """The micro-batches of the first output of one element."""
    return next((each for each in outputs if each[0].numel() == 1), ())
