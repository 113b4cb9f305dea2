"""Memory of ranks, against storages followed one by one through the passes of a schedule."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn

import tensortide
from tensortide.graph import Graph
from tensortide.graph.communication import moves_data
from tensortide.graph.model import Phase, Role
from tensortide.parallelism import Degrees, per_rank
from tensortide.parallelism.closed import Configuration
from tensortide.parallelism.pipelines import order
from tensortide.studies.scale import Captured
from tensortide.studies.scale.memory import memory_of_rank
from tensortide.studies.scale.stage import stage
from tensortide.timing import device
from tests.marks import some_slow
from tests.studies.scale.test_captured import A100, SIZES, graph, node

BUCKETS = "buckets of DistributedDataParallel"


@functools.cache
def captured_on_gpu() -> Graph:
    return tensortide.capture("gpt2", hyperparameters=SIZES, machine=A100, device="cuda")


@functools.cache
def wide() -> Graph:
    return tensortide.capture("gpt2", hyperparameters={**SIZES, "seq": 64, "positions": 64, "hidden": 32}, real=True)


@functools.cache
def few_tokens() -> Graph:
    return tensortide.capture("gpt2", hyperparameters={**SIZES, "seq": 4, "positions": 4}, real=True)


def parameter_bytes(step: Graph) -> int:
    storages = {step.tensors[each.tensor].storage for each in step.named if each.role is Role.PARAMETER}
    return sum(int(step.storages[storage].nbytes) for storage in storages)


def given(step: Graph) -> int:
    return sum(int(storage.nbytes) for storage in step.storages if storage.birth is None)


def complete(step: Graph) -> Mapping[int, int]:
    """The last op of the backward pass that writes each gradient."""
    named = {step.tensors[each.tensor].storage for each in step.named if each.role is Role.GRADIENT}
    return {
        storage: index
        for index, op in enumerate(step.ops)
        if op.phase is Phase.BACKWARD
        for storage in (*step.index.allocated[index], *step.index.writes[index])
        if storage in named and step.storages[storage].birth is not None
    }


def followed(chunks: list[Graph], one: Configuration, rank: int) -> int:
    """Most bytes during the passes of ``rank``, with gradients added up over its micro-batches."""
    gradients = [complete(step) for step in chunks]
    always = sum(map(given, chunks))
    always += sum(int(step.storages[s].nbytes) for step, own in zip(chunks, gradients, strict=True) for s in own)
    alive: dict[tuple[int, int], dict[int, int]] = {}
    most = 0
    for task in order(one.schedule, rank, one.pipeline, one.micro_batches, one.chunks):
        number = task.stage // one.pipeline
        step, own = chunks[number], alive.setdefault((number, task.micro_batch), {})
        workspace = tensortide.timeline(step).workspace
        backward = [index for index, op in enumerate(step.ops) if op.phase is Phase.BACKWARD]
        ops = range(backward[0]) if task.forward else range(backward[0], backward[-1] + 1)
        for index in ops:
            own.update({s: int(step.storages[s].nbytes) for s in step.index.allocated[index]})
            most = max(most, always + sum(sum(each.values()) for each in alive.values()) + int(workspace[index]))
            for storage in list(own):
                if step.storages[storage].death == index + 1 or gradients[number].get(storage) == index:
                    del own[storage]
        if not task.forward:
            del alive[number, task.micro_batch]
    return most


@pytest.mark.parametrize(
    "degrees",
    [
        {"micro_batch": 2},
        pytest.param({"pipeline": 2, "micro_batch": 1}, marks=pytest.mark.slow),
        {"pipeline": 2, "micro_batch": 1, "schedule": "gpipe"},
        pytest.param({"pipeline": 2, "micro_batch": 1, "chunks": 2, "schedule": "interleaved"}, marks=pytest.mark.slow),
        {"pipeline": 2, "micro_batch": 2, "chunks": 2, "schedule": "interleaved"},
    ],
)
def test_the_peak_is_that_of_storages_followed_through_the_schedule(degrees: dict[str, Any]) -> None:
    one = replace(Configuration(batch=8, recompute="none"), **degrees)
    found = Captured(wide(), device(A100), batch=8).predict(one, node(one.devices))
    stages = per_rank(wide(), Degrees(pipeline=one.pipeline * one.chunks, micro_batches=8 // one.micro_batch)).graphs
    expected = max(followed(list(stages[rank :: one.pipeline]), one, rank) for rank in range(one.pipeline))
    assert found.peak_bytes == expected


def test_every_rank_has_the_workspaces_of_its_libraries() -> None:
    """Only the first products of a step allocate them."""
    on_gpu = captured_on_gpu()
    library = sum(int(storage.nbytes) for storage in on_gpu.storages if storage.role is Role.LIBRARY)
    assert library > 8e6
    one = replace(Configuration(batch=8, recompute="none"), pipeline=4, micro_batch=2)
    with_all = Captured(on_gpu, device(A100), batch=8).predict(one, node(4)).peak_bytes
    stages = per_rank(on_gpu, Degrees(pipeline=4, micro_batches=4)).graphs
    own = [sum(int(s.nbytes) for s in stage.storages if s.role is Role.LIBRARY) for stage in stages]
    assert min(own) < library
    assert with_all > library + max(map(given, stages)) - max(own)


@pytest.mark.parametrize(
    "degrees",
    [
        {},
        pytest.param({"pipeline": 2}, marks=pytest.mark.slow),
        pytest.param({"pipeline": 4}, marks=pytest.mark.slow),
        {"pipeline": 2, "chunks": 2, "schedule": "interleaved"},
    ],
)
def test_workspaces_of_libraries_are_workspace_in_every_configuration(degrees: dict[str, Any]) -> None:
    """All other bytes are those of the step without libraries."""
    on_gpu = captured_on_gpu()
    bare = replace(on_gpu, storages=tuple(s for s in on_gpu.storages if s.role is not Role.LIBRARY))
    one = replace(Configuration(batch=8, recompute="none"), micro_batch=2, **degrees)
    whole, without = (Captured(each, device(A100), batch=8).predict(one, node(4)).memory for each in (on_gpu, bare))
    differences = {name: whole[name] - nbytes for name, nbytes in without.items()}
    assert differences.pop("gradients, activations, workspace") == 2 * 8_519_680
    assert set(differences.values()) == {0}


def test_one_micro_batch_of_one_rank_is_the_captured_peak() -> None:
    one = replace(Configuration(batch=8, recompute="none"), micro_batch=8)
    found = Captured(graph(), device(A100), batch=8).predict(one, node(1))
    assert found.peak_bytes == tensortide.timeline(graph()).peak_bytes


@pytest.mark.parametrize("micro_batch", some_slow([1, 4], [1]))
def test_replicas_that_average_whole_gradients_have_them_twice(micro_batch: int) -> None:
    """``DistributedDataParallel`` keeps buckets as large as all gradients, whatever the number of micro-batches."""
    whole = Captured(graph(), device(A100), batch=8)
    one = Configuration(batch=8, micro_batch=micro_batch, recompute="none")
    found = [
        whole.predict(replace(one, data=data, zero=zero), node(data)).memory[BUCKETS]
        for data, zero in ((1, 0), (2, 0), (2, 1), (2, 2), (2, 3))
    ]
    assert found == [0, parameter_bytes(graph()), 0, 0, 0]


@pytest.mark.parametrize(
    "degrees",
    [
        pytest.param({"tensor": 2}, marks=pytest.mark.slow),
        {"context": 2},
        {"pipeline": 2, "tensor": 2},
        pytest.param({"pipeline": 2, "chunks": 2, "schedule": "interleaved"}, marks=pytest.mark.slow),
    ],
)
def test_each_rank_has_buckets_for_its_own_parameters(degrees: dict[str, Any]) -> None:
    one = replace(Configuration(batch=8, data=2, micro_batch=1, recompute="none"), **degrees)
    where = node(one.devices)
    graphs = per_rank(graph(), replace(one.degrees, pipeline=one.pipeline * one.chunks)).graphs
    stages = [stage(each, one, where, where.device) for each in graphs]
    for rank in range(one.pipeline):
        own = sum(map(parameter_bytes, graphs[rank :: one.pipeline]))
        assert memory_of_rank(stages, one, rank, 0)[BUCKETS] == own > 0


def test_gradients_that_become_views_of_buckets_are_apart_until_they_are_complete() -> None:
    """Then only their bucket has them, which stays throughout. What a first micro-batch leaves is apart to the end."""
    where = node(2)
    one = Configuration(batch=8, data=2, micro_batch=4, recompute="none", gradient_as_bucket_view=True)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))  # most of its memory is gradients at the end
    perceptron = tensortide.capture(model, torch.randn(8, 64), loss="sum", optimizer="sgd")
    (step,) = per_rank(perceptron, one.degrees).graphs
    workspace = tensortide.timeline(step).workspace
    makes = [not moves_data(op.name) and op.phase is Phase.BACKWARD for op in step]
    ends = {storage: max(op for op in step.index.users[storage] if makes[op]) for storage in complete(step)}
    every = sum(int(step.storages[storage].nbytes) for storage in ends)
    most = 0
    for op in range(len(step)):
        alive = every + int(workspace[op])
        for storage, held in enumerate(step.storages):
            resident = (held.birth is None or held.birth <= op) and (held.death is None or op < held.death)
            alive += int(held.nbytes) * (resident and op <= ends.get(storage, op))
        most = max(most, alive)
    whole = Captured(perceptron, device(A100), batch=8)
    found, apart = whole.predict(one, where), whole.predict(replace(one, gradient_as_bucket_view=False), where)
    assert found.peak_bytes == most < apart.peak_bytes
    assert found.memory[BUCKETS] == apart.memory[BUCKETS] == every
    several = replace(one, micro_batch=1)
    without = replace(several, gradient_as_bucket_view=False)
    assert whole.predict(several, where).memory == whole.predict(without, where).memory


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("when", ["first", "between", "last"])
def test_views_of_buckets_are_one_copy_of_the_gradients_whenever_they_are_set_to_zero(when: str, kept: bool) -> None:
    """DistributedDataParallel on PyTorch 2.13 has these bytes resident in each case (a profile of its memory)."""
    model = nn.Sequential(*(part for _ in range(3) for part in (nn.Linear(1024, 1024, bias=False), nn.Tanh())))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    sample = torch.randn(64, 1024)

    def step() -> torch.Tensor:
        loss = torch.zeros(())
        for part in ("first", "between", "last"):
            if when == part:
                optimizer.zero_grad(set_to_none=not kept)
            if part == "first":
                loss = model(sample).square().mean()
            elif part == "between":
                loss.backward()
                optimizer.step()
        return loss

    captured = tensortide.capture(step)
    one = Configuration(batch=64, data=2, micro_batch=32, recompute="none", gradient_as_bucket_view=True)
    found = Captured(captured, device(A100), batch=64).predict(one, node(2))
    assert found.peak_bytes == 42_598_408


@pytest.mark.parametrize("degrees", [{"pipeline": 2}, {"chunks": 2, "schedule": "interleaved"}, {"tensor": 2}])
def test_views_of_buckets_lower_every_rank_by_most_of_its_gradients(degrees: dict[str, Any]) -> None:
    """At the peak, late in the backward pass, most gradients are complete."""
    one = replace(Configuration(batch=8, data=2, micro_batch=4, recompute="none"), **degrees)
    where = node(one.devices)
    graphs = per_rank(few_tokens(), replace(one.degrees, pipeline=one.pipeline * one.chunks)).graphs
    whole: list[list[float]] = [[], []]
    for i, views in enumerate((False, True)):
        each = replace(one, gradient_as_bucket_view=views)
        stages = [stage(rank, each, where, where.device) for rank in graphs]
        whole[i] = [sum(memory_of_rank(stages, each, rank, 0).values()) for rank in range(one.pipeline)]
    for rank, (apart, in_views) in enumerate(zip(*whole, strict=True)):
        own = sum(map(parameter_bytes, graphs[rank :: one.pipeline]))
        assert apart - own <= in_views <= apart - own / 2
