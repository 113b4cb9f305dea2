"""A pretended group answers for its other ranks, or asks them: objects that they would send, shapes of stages."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tensortide import capture
from tensortide.errors import CaptureError
from tensortide.graph import Graph
from tensortide.graph.communication import group_of, moves_data, payload_bytes, peer_of
from tensortide.parallelism.meetings import meetings
from tests.marks import since
from tests.recorder import collective_program

RANKS, WIDTH, BATCH = 4, 8, 4


def step_after(asks: Callable[[], None]) -> Graph:
    """A captured step whose workload exchanges objects first."""

    def workload() -> Callable[[], Any]:
        dist.init_process_group("gloo")
        asks()
        layer = nn.Linear(WIDTH, WIDTH)
        return lambda: layer(torch.ones(BATCH, WIDTH)).sum().backward()

    return capture(workload, ranks=RANKS)


def exchanges() -> None:
    gathered: list[Any] = [None] * RANKS
    dist.all_gather_object(gathered, {"loss": 1})
    gathered[0]["loss"] = 2
    assert gathered == [{"loss": 2}] + [{"loss": 1}] * 3
    told: list[Any] = ["seed", 3]
    dist.broadcast_object_list(told)
    assert told == ["seed", 3]
    here: list[Any] = [None] * RANKS
    dist.gather_object("mine", here, dst=0)
    assert here == ["mine"] * RANKS
    part: list[Any] = [None]
    dist.scatter_object_list(part, [*"abcd"])
    assert part == ["a"]
    dist.send_object_list(["shape", 1], dst=1)
    back: list[Any] = [None, None]
    dist.recv_object_list(back, src=1)
    assert back == ["shape", 1]
    dist.monitored_barrier()


def test_objects_of_other_ranks_are_those_of_this_one() -> None:
    assert step_after(exchanges).meta.assumptions[:2] == (
        "rank 0 of 4: collectives move no data",
        "objects that other ranks send are taken to be those of this one",
    )


def test_what_only_another_rank_knows_is_asked_of_that_one() -> None:
    def asks() -> None:
        name = [{"run": dist.get_rank()} if dist.get_rank() == 2 else None]
        dist.broadcast_object_list(name, src=2)
        assert name == [{"run": 2}]

    assert len(step_after(asks).meta.assumptions) == 1


def test_an_object_that_nobody_sends_is_an_error_that_names_the_rank() -> None:
    with pytest.raises(CaptureError, match=r"rank 0 of 4 waits for objects of rank 2 \(recv_object_list\)"):
        step_after(lambda: dist.recv_object_list([None], src=2))


def test_a_step_that_exchanges_nothing_assumes_nothing_of_other_ranks() -> None:
    assert len(step_after(lambda: None).meta.assumptions) == 1


def piped() -> Callable[[], Any]:
    """Two stages, with four micro-batches."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    dist.init_process_group("nccl")
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    stage = dist.get_rank()
    layer = nn.Linear((1 + stage) * WIDTH, 2 * WIDTH).to(place)
    optimizer = torch.optim.SGD(layer.parameters())
    part = PipelineStage(layer, stage, 2, place)
    schedule = Schedule1F1B(part, BATCH, loss_fn=lambda out, target: (out - target).sum())
    x, target = (torch.randn(BATCH, width, device=place) for width in (WIDTH, 2 * WIDTH))

    def step() -> None:
        schedule.step(target=target) if stage else schedule.step(x)
        optimizer.step()
        optimizer.zero_grad()

    return step


@since(2, 13, "stages of pipelines agree on their shapes in another way")
def test_a_stage_of_a_pipeline_sends_activations_and_receives_their_gradients() -> None:
    for rank in (0, 1):  # the second one after the first, whose shapes it asks for
        graph = capture(piped, ranks=2, rank=rank, device="cuda")
        moved = [(op.name.split(".")[1].strip("_"), payload_bytes(op)) for op in graph if op.name.startswith("c10d.")]
        assert moved.count(("send", 2 * WIDTH * 4)) == moved.count(("recv", 2 * WIDTH * 4)) == BATCH
        assert any("pipeline stages" in each for each in graph.meta.assumptions) == (rank == 0)


def moved_by(graph: Graph) -> list[list[Any]]:
    groups = graph.meta.groups
    moving = [op for op in graph if moves_data(op.name)]
    return [[op.name, list(groups[group_of(op)]), payload_bytes(op), peer_of(op)] for op in moving]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of PyTorch's own optimizers
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        *(("sharded", 2), ("two_dimensions", 4), ("replicas_of_shards", 4), ("in_parts", 2)),
        *(("piped", 8), ("interleaved", 4), ("zero_bubble", 4), ("all_forward_first", 4)),
        *(("replicated", 2), ("replicated_as_views", 2), ("replicated_static", 2)),
        *(("divided_states", 2), ("divided_states_together", 2)),
    ],
)
def test_collectives_are_those_of_a_run_over_gloo(name: str, ranks: int, tmp_path: Path) -> None:
    """Also on a pretended GPU, whose ranks send the same in the same order."""
    arguments = [name, *(str(each) for each in (ranks, tmp_path / "store"))]
    command = [sys.executable, collective_program.__file__, arguments[0]]
    running = [
        subprocess.Popen([*command, str(rank), *arguments[1:]], stdout=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    printed = [json.loads(each.communicate()[0]) for each in running]
    program = collective_program.PROGRAMS[name]
    for device in ("cpu", "cuda"):
        graphs = [capture(program, ranks=ranks, rank=rank, device=device) for rank in range(ranks)]
        assert [moved_by(graph) for graph in graphs] == printed
        assert sum(len(each.ops) for each in meetings(dict(enumerate(graphs)))) == sum(map(len, printed))


def test_gradients_that_are_accumulated_are_averaged_once_and_in_buckets() -> None:
    """Twin: buckets of 2,000 bytes, filled from the last layer on, after the statistics of both passes are sent."""
    of_statistics, width = 2 * 4 * (4 * collective_program.WIDTH), collective_program.WIDTH
    last, first = 4 * (4 * width + 1) * width, 4 * (width + 1) * 4 * width + of_statistics
    moved = moved_by(capture(collective_program.replicated, ranks=2))
    assert [(name, nbytes) for name, _, nbytes, _ in moved] == [
        *(("c10d.broadcast_.default", nbytes) for nbytes in (of_statistics, 8)),
        *(("c10d.allreduce_.default", nbytes) for nbytes in (last, first)),
    ]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of PyTorch's own optimizers
def test_updated_parameters_are_sent_by_the_rank_that_has_their_states() -> None:
    """Twin: rank 0 updates the larger half of four matrices and vectors, and each rank sends its own in turn."""
    sent = [moved_by(capture(collective_program.divided_states, ranks=2, rank=rank)) for rank in range(2)]
    assert sent[0] == sent[1]
    width, hidden = collective_program.WIDTH, 2 * collective_program.WIDTH
    whole = 4 * (2 * width + 2 * width * hidden + width + hidden)
    broadcast = [nbytes for name, _, nbytes, _ in sent[0] if name == "c10d.broadcast_.default"]
    assert sum(broadcast) == whole == sum(nbytes for name, _, nbytes, _ in sent[0] if "allreduce" in name)
