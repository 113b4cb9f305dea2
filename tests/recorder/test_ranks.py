"""A workload written for several processes is captured in one, as rank 0: its shards and its collectives."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tensortide import capture, timeline
from tensortide.errors import CaptureError, WorkloadError
from tensortide.graph import Graph, Phase, Role
from tensortide.reports.sections import Step
from tensortide.reports.sections.collectives import of_step
from tests.marks import some_slow

RANKS, WIDTH, BATCH = 4, 64, 4
PARAMETERS = (WIDTH * WIDTH + WIDTH) * 2


def here() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def training(wrap: Callable[[nn.Sequential], nn.Module]) -> Callable[[], Any]:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    model = wrap(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).to(here()))
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    x = torch.randn(BATCH, WIDTH, device=here())

    def step() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step


def sharded() -> Callable[[], Any]:
    from torch.distributed.fsdp import fully_shard

    def wrap(model: nn.Sequential) -> nn.Module:
        for layer in (model[0], model[2]):
            fully_shard(layer)
        return fully_shard(model)  # type: ignore[return-value]

    return training(wrap)


def parallel() -> Callable[[], Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def wrap(model: nn.Sequential) -> nn.Module:
        mesh = init_device_mesh(here(), (dist.get_world_size(),))
        return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

    return training(wrap)


def sequence_parallel() -> Callable[[], Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    def wrap(model: nn.Sequential) -> nn.Module:
        mesh = init_device_mesh(here(), (dist.get_world_size(),))
        normed = nn.Sequential(nn.LayerNorm(WIDTH), *model).to(here())
        plan = {
            "0": SequenceParallel(sequence_dim=0),
            "1": ColwiseParallel(input_layouts=Shard(0)),
            "3": RowwiseParallel(output_layouts=Shard(0)),
        }
        return parallelize_module(normed, mesh, plan)

    return training(wrap)


def replicated() -> Callable[[], Any]:
    return training(nn.parallel.DistributedDataParallel)


def parameter_bytes(graph: Graph) -> int:
    return sum(int(s.nbytes) for s in graph.storages if s.role is Role.PARAMETER)


def payload(graph: Graph) -> dict[tuple[object, object], object]:
    section = of_step(Step(graph))
    assert section is not None
    table = section.table("collectives")
    rows = zip(table["op"], table["phase"], table["payload_bytes"], strict=True)
    return {(name, phase): nbytes for name, phase, nbytes in rows}


def test_sharded_parameters_take_a_share_and_move_whole() -> None:
    fake, real = (capture(sharded, ranks=RANKS, real=real) for real in (False, True))
    assert fake.meta.assumptions[0] == f"rank 0 of {RANKS}: collectives move no data"
    assert parameter_bytes(fake) == PARAMETERS * 4 // RANKS
    assert payload(fake)["allgather_base", "forward"] == PARAMETERS * 4
    assert payload(fake)["reduce_scatter_base", "backward"] == PARAMETERS * 4
    assert [(op.name, len(op.inputs)) for op in fake] == [(op.name, len(op.inputs)) for op in real]
    assert timeline(fake).peak_bytes == timeline(real).peak_bytes
    assert timeline(fake).peak_bytes < timeline(capture(sharded, ranks=1)).peak_bytes


def test_parallel_products_are_summed_once() -> None:
    graph = capture(parallel, ranks=RANKS)
    assert parameter_bytes(graph) == (PARAMETERS - WIDTH) * 4 // RANKS + WIDTH * 4  # all but the bias of the sum
    assert payload(graph) == {("all_reduce", "forward"): BATCH * WIDTH * 4}


@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}])
def test_replicas_sum_their_gradients_on_fake_tensors_as_on_real_ones(options: dict[str, bool]) -> None:
    def workload() -> Callable[[], Any]:
        return training(lambda model: nn.parallel.DistributedDataParallel(model, **options))  # type: ignore[arg-type]

    fake, real = (capture(workload, ranks=RANKS, real=real) for real in (False, True))
    assert parameter_bytes(fake) == PARAMETERS * 4
    assert payload(fake)["allreduce", "backward"] == payload(real)["allreduce", "backward"]
    assert payload(fake)["allreduce", "backward"] in (PARAMETERS * 4, (PARAMETERS + 4) * 4)  # and what was used of them
    assert timeline(fake).peak_bytes == pytest.approx(timeline(real).peak_bytes, rel=0.002)  # a bias dies an op later


@pytest.mark.parametrize("wrap", some_slow([replicated, sharded, parallel, sequence_parallel], [parallel]))
def test_ranks_on_a_pretended_gpu_move_the_same_bytes(wrap: Callable[[], Callable[[], Any]]) -> None:
    there, here = (capture(wrap, ranks=RANKS, device=device) for device in ("cuda", "cpu"))
    assert payload(there) == payload(here)
    assert parameter_bytes(there) == parameter_bytes(here)
    assert there.index.main_device == "cuda:0"


def test_ops_that_only_learn_a_shape_are_none_of_the_step() -> None:
    """SGD with momentum runs ops in its second step, which is recorded, that it does not run in the first."""

    def build() -> Callable[[], Any]:
        from torch.distributed.fsdp import fully_shard

        dist.init_process_group("gloo")
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
        x = torch.randn(BATCH, WIDTH)

        def step() -> None:
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    graph = capture(build, ranks=RANKS)
    updates = Counter(graph.calls[op.call].op for op in graph.ops if op.phase is Phase.OPTIMIZER)
    assert updates == {"aten.mul_.Tensor": 4, "aten.add_.Tensor": 8}


def test_sharding_allocates_on_streams_of_its_own() -> None:
    """As PyTorch's ``fully_shard`` does: what is gathered on one stream, gradients on another, also those before."""
    graph = capture(sharded, ranks=RANKS, device="cuda")
    gathered = {graph.storages[t.storage].stream for op in graph for t in op.outputs if "all_gather_copy_in" in op.name}
    gradients = {storage.stream for storage in graph.storages if storage.role is Role.GRADIENT}
    assert len(gathered) == len(gradients) == 1
    assert not {0} & (gathered | gradients)
    assert gathered != gradients
    assert {storage.stream for storage in graph.storages if storage.role is Role.PARAMETER} == {0}


def test_hooks_reduce_and_what_is_not_synchronized_moves_nothing() -> None:
    def workload() -> Callable[[], Any]:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(nn.Linear(WIDTH, WIDTH))

        def halved(state: Any, bucket: Any) -> Any:
            buffer = bucket.buffer().to(torch.bfloat16)
            future: torch.futures.Future[Any] = torch.futures.Future()
            dist.all_reduce(buffer)
            future.set_result(bucket.buffer().copy_(buffer))
            return future

        halved.__annotations__.clear()
        model.register_comm_hook(None, halved)
        x = torch.randn(BATCH, WIDTH)

        def step() -> None:
            with model.no_sync():
                model(x).sum().backward()
            model(x).sum().backward()

        return step

    graph = capture(workload, ranks=2)
    assert graph.meta.captured_on == "fake"
    assert payload(graph) == {("allreduce", "backward"): (WIDTH * WIDTH + WIDTH) * 2}


def test_a_group_of_others_is_refused_and_of_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(CaptureError, match="waits for 3 other processes: --ranks 4 "):
        capture(replicated, real=False)
    monkeypatch.delenv("WORLD_SIZE")
    with pytest.raises(CaptureError, match="torchrun starts: --ranks N "):
        capture(replicated, real=False)

    def spawns() -> Callable[[], Any]:
        made: list[Any] = []

        def worker(rank: int, width: int) -> None:
            dist.init_process_group("gloo", rank=rank, world_size=RANKS)
            made.append(nn.parallel.DistributedDataParallel(nn.Linear(width, width)))

        multiprocessing: Any = torch.multiprocessing
        multiprocessing.spawn(worker, args=(WIDTH,), nprocs=RANKS)
        return lambda: made[0](torch.randn(BATCH, WIDTH)).sum().backward()

    graph = capture(spawns, ranks=RANKS)
    assert payload(graph) == {("allreduce", "backward"): (WIDTH * WIDTH + WIDTH) * 4}


def coalesced() -> Callable[[], Any]:
    dist.init_process_group("nccl")
    layer = nn.Linear(8, 8, device="cuda")

    def step() -> None:
        layer(torch.randn(4, 8, device="cuda")).sum().backward()
        gradients = [each.grad for each in layer.parameters() if each.grad is not None]
        with dist.distributed_c10d._coalescing_manager(device=torch.device("cuda"), async_ops=True) as sums:
            for each in gradients:
                dist.all_reduce(each)
        sums.wait()
        layer.zero_grad()

    return step


def test_a_collective_of_several_tensors_moves_them_all() -> None:
    moved = payload(capture(coalesced, ranks=RANKS, device="cuda"))
    assert list(moved.values()) == [(8 * 8 + 8) * 4]


def test_no_group_remains() -> None:
    capture(parallel, ranks=2)
    assert not dist.is_initialized()
    assert "WORLD_SIZE" not in os.environ
    with pytest.raises(WorkloadError, match="not 0"):
        capture(parallel, ranks=0)
