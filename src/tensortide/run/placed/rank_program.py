"""One rank of a divided step, run in its own process: replicas with parts of the batch, and stages of a pipeline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from tensortide.errors import RunError
from tensortide.graph.communication import group_of, kind_of, moves_data, payload_bytes
from tensortide.graph.effects import draws_random
from tensortide.graph.model import Const, Graph, OpView, Phase, Role
from tensortide.parallelism import Ranks
from tensortide.parallelism.gradients import gradients
from tensortide.parallelism.pipelines import DEFAULT_SCHEDULE, PipelineName, Run, RunKind, Task, order
from tensortide.parallelism.ranks import joins_stages
from tensortide.parallelism.reshaped_in_place import with_views
from tensortide.parallelism.tied import tied_stages
from tensortide.recorder.execute import function
from tensortide.run.generated.step import check_straight
from tensortide.run.placed.exchange import Exchange, reduction
from tensortide.run.placed.live_storages import LiveStorages, given_tensors, part_of
from tensortide.run.placed.made_batch import MadeBatch
from tensortide.run.placed.means import local_means


class RankCollectives(NamedTuple):
    """Collectives of one kind and group in a step: how many, and their payload as ``Ranks.collectives`` counts it."""

    kind: str
    group: str
    number: int
    nbytes: int


class RankProgram:
    """Call it to run one step of rank ``rank`` of ``ranks``, in the process of that rank.

    ``whole`` is the capture of ``step``, which ``ranks`` divides by data and pipeline. Replicas are neighbours: rank r
    is replica r % data of stage r // data. Replica i of d computes part i of the batch, in micro-batches; gradients are
    averaged over micro-batches in their order, then over replicas in the order of ``Exchange``; those of tied
    parameters are then added up over stages in the same order. Parameters, buffers and optimizer state of the stage are
    updated in place. A batch that the step makes itself is made whole by each rank that reads it, with the random
    numbers of one process, and the rank takes its part. A call returns the outputs of the step that are made here, one
    list for each output with an entry per micro-batch.

    After a call ``runs`` has what ran when, in ns of this machine's clock, and ``exchanged`` the collectives.

    Raises RunError for a step that reads values or draws random numbers beside those of its batch, for tensors that are
    not found, for other degrees, and for gradients that exist before a step of several micro-batches.
    """

    def __init__(
        self, step: Callable[[], Any], whole: Graph, ranks: Ranks, rank: int, schedule: PipelineName = DEFAULT_SCHEDULE
    ) -> None:
        degrees = ranks.degrees
        check_runs(whole, ranks)
        if not 0 <= rank < degrees.devices:
            raise RunError(f"rank {rank} of {degrees.devices}")
        self.degrees = degrees
        self.rank, self.data, self.micro_batches = rank, degrees.data, degrees.micro_batches
        self.stage, self.replica = divmod(rank, degrees.data)
        self.graph = local_means(ranks.graphs[self.stage], degrees.data * degrees.micro_batches)
        self.tasks = order(schedule, self.stage, degrees.pipeline, degrees.micro_batches)
        self.exchange = Exchange(rank)
        self._batch = MadeBatch(ranks.making, self.graph, step)
        self._given = given_tensors(self.graph, step, self._batch.storages)
        self._gradients = {each.storage: each.tensor for each in gradients(self.graph)}
        if self.micro_batches > 1 and not self._gradients.keys().isdisjoint(self._given):
            raise RunError("gradients exist before the step and would be added to: use zero_grad(set_to_none=True)")
        self._functions: list[Any] = [None if moves_data(call.op) else function(call) for call in self.graph.calls]
        self._views = {self.graph.tensors[t].storage: t for op in self.graph.ops for t in op.outputs}
        self._outputs = [s for s, held in enumerate(self.graph.storages) if held.role is Role.OUTPUT]
        self._sums: dict[int, torch.Tensor] = {}
        self._counted: list[tuple[str, str, int]] = []
        self.runs: list[Run] = []

    @property
    def exchanged(self) -> list[RankCollectives]:
        """The collectives of the last step."""
        sizes: dict[tuple[str, str], list[int]] = {}
        for kind, group, nbytes in self._counted:
            sizes.setdefault((kind, group), []).append(nbytes)
        return [RankCollectives(*key, len(each), sum(each)) for key, each in sorted(sizes.items())]

    @torch.no_grad()
    def __call__(self) -> list[list[torch.Tensor]]:
        self.runs, self._counted, self._sums = [], [], {}
        self.exchange.sent_bytes.clear()
        self._given |= self._batch()
        forward, backward, update = self._parts()
        last = self.micro_batches - 1
        in_flight: dict[int, LiveStorages] = {}
        outputs: dict[int, list[torch.Tensor]] = {storage: [] for storage in self._outputs}
        for task in self.tasks:
            if task.forward:
                in_flight[task.micro_batch] = self._storages(task.micro_batch)
                self._run(forward, RunKind.FORWARD, task, in_flight[task.micro_batch])
                continue
            storages = in_flight[task.micro_batch]
            self._run(backward, RunKind.BACKWARD, task, storages)
            if task.micro_batch != last:
                for storage, tensor in self._gradients.items():
                    self._accumulate(storage, storages.view(tensor))
                self._extend()
                self._collect(storages, outputs)
                del in_flight[task.micro_batch]
        for storage, tensor in self._gradients.items():
            self._average(storage, in_flight[last].view(tensor))
        self._extend()
        self._run(update, RunKind.UPDATE, Task(False, last, self.stage), in_flight[last])
        self._collect(in_flight[last], outputs)
        self.exchange.finish()
        return [values for values in outputs.values() if values]

    def _parts(self) -> tuple[range, range, range]:
        """The ops of the forward pass, the backward pass and the update."""
        backward = [i for i, op in enumerate(self.graph.ops) if op.phase is Phase.BACKWARD]
        first, end = (backward[0], backward[-1] + 1) if backward else (len(self.graph), len(self.graph))
        return range(first), range(first, end), range(end, len(self.graph))

    def _storages(self, micro_batch: int) -> LiveStorages:
        """Memory for a micro-batch: what exists before the step, with its part of the inputs."""
        found = LiveStorages(self.graph)
        for storage, tensor in self._given.items():
            own = tensor
            if self.graph.storages[storage].role is Role.INPUT:
                own = part_of(self.graph, storage, tensor, self.replica * self.micro_batches + micro_batch)
            found.put(storage, own.untyped_storage())
        return found

    def _run(self, ops: Iterable[int], kind: RunKind, task: Task, storages: LiveStorages) -> None:
        """Run ``ops`` one by one; what they compute between exchanges is one run of the timeline."""
        began = time.monotonic_ns()
        for index in ops:
            for storage in self.graph.index.released[index]:
                if storage not in self._given and storage not in self._gradients:
                    storages.drop(storage)
            view = self.graph[index]
            if self._functions[view.op.call] is not None:
                storages.run(view, self._functions[view.op.call])
            elif not self._waits(view, task):
                now = time.monotonic_ns()
                self.runs.append(Run(kind, task, self.rank, began, now))
                spent = self._communicate(view, storages)
                began = time.monotonic_ns()
                self.runs.append(Run(spent, task, self.rank, now, began))
        self.runs.append(Run(kind, task, self.rank, began, time.monotonic_ns()))

    def _extend(self) -> None:
        """Extend the last run to now."""
        self.runs[-1] = self.runs[-1]._replace(end_ns=time.monotonic_ns())

    def _waits(self, view: OpView, task: Task) -> bool:
        """True for an exchange of gradients that travel with those of the last micro-batch."""
        is_gradient = view.phase is Phase.BACKWARD and kind_of(view.name) != "send_recv"
        return is_gradient and task.micro_batch != self.micro_batches - 1

    def _communicate(self, view: OpView, storages: LiveStorages) -> RunKind:
        """Do a collective or a transfer; return what kind of run it is."""
        settings, kind = dict(view.call.arguments), kind_of(view.name) or view.name
        tensors = [storages.view(number) for number in view.op.inputs]
        if kind == "send_recv":
            self._transfer(view, tensors, settings)
            return RunKind.TRANSFER
        if view.phase is Phase.BACKWARD:
            for number, tensor in zip(view.op.inputs, tensors, strict=True):
                self._average(self.graph.tensors[number].storage, tensor)
        self._counted.append((kind, group_of(view), payload_bytes(view)))
        self.exchange.reduce(tensors, self._peers(group_of(view)), reduction(view.call))
        return RunKind.EXCHANGE_STAGES if joins_stages(group_of(view)) else RunKind.EXCHANGE_REPLICAS

    def _transfer(self, view: OpView, tensors: Sequence[torch.Tensor], settings: dict[str, Any]) -> None:
        sends = "dst" in settings
        peer = settings["dst" if sends else "src"] * self.data + self.replica
        for tensor in tensors:
            if sends:
                self.exchange.send(tensor, peer, settings["tag"])
            else:
                self.exchange.receive(tensor, peer, settings["tag"])
        self._counted.append(("send" if sends else "receive", group_of(view), payload_bytes(view)))

    def _peers(self, group: str) -> Sequence[int]:
        stages = tied_stages(group)
        return self.degrees.across(self.rank, stages) if stages else self.degrees.groups(self.rank)[group]

    def _accumulate(self, storage: int, gradient: torch.Tensor) -> None:
        if storage in self._sums:
            self._sums[storage].add_(gradient)
        else:
            self._sums[storage] = gradient.clone()

    def _average(self, storage: int, gradient: torch.Tensor) -> None:
        """Make ``gradient``, of the last micro-batch, the mean over all of this rank, once."""
        earlier = self._sums.pop(storage, None)
        if earlier is not None:
            gradient.copy_(earlier.add_(gradient).div_(self.micro_batches))

    def _collect(self, storages: LiveStorages, outputs: dict[int, list[torch.Tensor]]) -> None:
        for storage, values in outputs.items():
            if storage in storages:
                values.append(storages.view(self._views[storage]).clone())


def check_runs(whole: Graph, ranks: Ranks) -> None:
    """Raise RunError if the step ``whole`` does not run as ``ranks`` divides it."""
    degrees = ranks.degrees
    if degrees.tensor > 1 or degrees.zero:
        raise RunError(f"{degrees}: replicas and stages of a pipeline run here, sharded parameters do not")
    check_straight(with_views(whole))
    if all(op.phase is not Phase.BACKWARD for op in whole.ops):
        raise RunError("the step has no backward pass")
    if degrees.devices == 1:
        return
    drawn = [view for view in whole if draws_random(view.call)]
    for view in drawn:
        if any(isinstance(value, Const) and value.kind == "generator" for _, value in view.call.arguments):
            raise RunError(f"{view.name} draws from a generator of its own: draw from that of torch.manual_seed")
    left = [view for graph in ranks.graphs for view in graph if draws_random(view.call)]
    of_batch = 0 if ranks.making is None else sum(draws_random(view.call) for view in ranks.making)
    if left or len(drawn) > of_batch:
        raise RunError(
            f"{(left or drawn)[0].name} draws random numbers, and ranks would draw others than one process does: leave "
            "out what draws (dropout=0) but for the batch, which is drawn for --data or several micro-batches"
        )
