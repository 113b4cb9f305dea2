"""Divided steps run on several processes: losses bit for bit those of the documented order, bytes of the Graphs."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

import tensortide
from tensortide.errors import RunError
from tensortide.parallelism import Degrees, per_rank
from tensortide.parallelism.pipelines import Run, RunKind, Task, computing_ns, lanes_of_ranks, spent_ns
from tensortide.run.placed.divided import DividedWorkload, MeasuredRun, RankRun, planned, run_divided
from tensortide.run.placed.exchange import combined
from tensortide.run.placed.processes import PATIENCE_S, run_ranks
from tensortide.run.placed.rank_program import RankProgram
from tensortide.run.placed.seeded import fused_adam
from tensortide.timelines.timeline import Timeline
from tests.run.placed import divided_workloads as workloads

TARGET = f"{workloads.__file__}:layers"
STEPS = 2


def losses(found: MeasuredRun) -> list[list[str]]:
    """Losses of each step by micro-batch, replica by replica."""
    return [
        [float(one).hex() for rank in found.ranks for output in rank.outputs[step] for one in output]
        for step in range(STEPS)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "degrees",
    [
        Degrees(data=2),
        Degrees(data=4),
        Degrees(data=2, micro_batches=2),
        Degrees(data=2, pipeline=2, micro_batches=2),
    ],
    ids=str,
)
def test_losses_are_those_of_the_documented_order_and_bytes_those_of_the_graphs(degrees: Degrees) -> None:
    found = run_divided(DividedWorkload(TARGET, {}, degrees=degrees, steps=STEPS))
    assert losses(found) == workloads.in_order(STEPS, degrees.data, degrees.micro_batches)
    assert found.losses == pytest.approx(found.alone, rel=1e-4)
    for rank, exchanged in zip(found.ranks, found.predicted, strict=True):
        assert list(rank.exchanged) == list(exchanged)
        reduced = sum(each.nbytes for each in exchanged if each.kind == "all_reduce")
        sent = sum(each.nbytes for each in exchanged if each.kind == "send")
        assert sum(rank.sent_bytes.values()) == sent + 2 * (degrees.data - 1) * reduced // degrees.data
    assert_lanes(found, degrees)


def assert_lanes(found: MeasuredRun, degrees: Degrees) -> None:
    """Assert that the measured Timeline has a lane for each rank, on which everything runs one after the other: the
    passes of each micro-batch, one exchange of gradients among replicas, and the update."""
    line = found.timeline
    assert type(line) is Timeline
    assert line.lanes == tuple(lane.name for lane in lanes_of_ranks(degrees))
    events, ops, spent = line.events, line.recorded.ops, spent_ns(line)
    last_steps = [rank.step_ns[-1] for rank in found.ranks]
    assert max(own.sum() for own in spent) <= max(last_steps)
    assert computing_ns(line) == [rank.computing_ns for rank in found.ranks]
    assert line.makespan_ns == events.end_ns.max()
    for lane in range(len(line.lanes)):
        on = events.lane == lane
        rows = list(
            zip(events.start_ns[on].tolist(), events.end_ns[on].tolist(), events.index[on].tolist(), strict=True)
        )
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(rows))
        labels = [ops[op].label for _, _, op in rows]
        passes = [f"{name} {n}" for name in ("forward", "backward") for n in range(degrees.micro_batches)]
        assert {label for label in labels if not label.startswith("transfer")} == {
            *passes, *["exchange among replicas"] * (degrees.data > 1), "update",
        }  # fmt: skip
        assert labels[-1] == "update"
        assert any(label.startswith("transfer") for label in labels) == (degrees.pipeline > 1)
    assert (spent[:, [RunKind.FORWARD, RunKind.BACKWARD, RunKind.UPDATE]] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_transformer_with_tied_weights_and_clipped_gradients_trains_as_in_one_process(optimizer: str) -> None:
    sizes = {"layers": 2, "hidden": 32, "heads": 2, "seq": 16, "batch": 8, "vocab": 64, "positions": 16}
    divided = DividedWorkload(
        "gpt2", {**sizes, "optimizer": optimizer}, degrees=Degrees(data=2, pipeline=2, micro_batches=2), steps=4
    )
    found = run_divided(divided)
    assert found.losses == pytest.approx(found.alone, rel=1e-6)
    assert found.alone[0] > found.alone[-1]
    for rank, exchanged in zip(found.ranks, found.predicted, strict=True):
        assert list(rank.exchanged) == list(exchanged)


@pytest.mark.slow
@pytest.mark.parametrize(
    "degrees", [Degrees(pipeline=2, micro_batches=4), Degrees(data=2, pipeline=2, micro_batches=2)], ids=str
)
def test_a_tied_gradient_is_exchanged_once_a_step_in_the_documented_order(degrees: Degrees) -> None:
    found = run_divided(DividedWorkload(f"{workloads.__file__}:tied", {}, degrees=degrees, steps=STEPS))
    assert losses(found) == workloads.tied_in_order(STEPS, degrees.data, degrees.micro_batches)
    assert found.losses == pytest.approx(found.alone, rel=1e-13)
    table = workloads.VOCAB * workloads.WIDTH * 8
    message = workloads.BATCH // (degrees.data * degrees.micro_batches) * workloads.WIDTH * 8
    for number, (rank, exchanged) in enumerate(zip(found.ranks, found.predicted, strict=True)):
        assert list(rank.exchanged) == list(exchanged)
        own = {(each.kind, each.group): (each.number, each.nbytes) for each in rank.exchanged}
        assert own["all_reduce", "tied_0_1"] == (1, table)
        passed = degrees.micro_batches, degrees.micro_batches * message
        assert (own["send", "pipeline"], own["receive", "pipeline"]) == (passed, passed)
        assert [run.kind for run in rank.runs].count(RunKind.EXCHANGE_STAGES) == 1
        assert [run.kind for run in rank.runs].count(RunKind.EXCHANGE_REPLICAS) == own.get(
            ("all_reduce", "data"), (0, 0)
        )[0]
        other = number + degrees.data if number < degrees.data else number - degrees.data
        assert rank.sent_bytes[other] == table + degrees.micro_batches * message  # of two ranks each sends all once


def test_of_many_ranks_the_last_of_each_stage_is_shown() -> None:
    """32 ranks in two stages: ranks 3 and 16 end last; starts are those since the first of all."""
    ends = {rank: 1000 + 10 * (rank in (3, 16)) for rank in range(32)}
    ranks = [
        RankRun([], [1000], [Run(RunKind.UPDATE, Task(False, 0, rank // 16), rank, 500 + rank, ends[rank])], [], {})
        for rank in range(32)
    ]
    line = MeasuredRun(DividedWorkload("mlp", {}, degrees=Degrees(data=16, pipeline=2)), ranks, [], [], 0.0).timeline
    assert line.lanes == ("stage 1 of 2, ranks 0 to 15", "stage 2 of 2, ranks 16 to 31")
    rows = [column.tolist() for column in (line.events.lane, line.events.start_ns, line.events.end_ns)]
    assert sorted(zip(*rows, strict=True)) == [(0, 3, 510), (1, 16, 510)]


def test_a_step_that_reads_values_is_refused_before_any_process_starts() -> None:
    with pytest.raises(RunError, match=r"^aten\._local_scalar_dense\.default"):
        run_divided(DividedWorkload("tests/run/placed/divided_workloads.py:reads", {}, degrees=Degrees(data=2)))


def test_adam_keeps_its_numbers_in_tensors_unless_the_program_chooses_how_it_runs() -> None:
    plain = [torch.optim.Adam.__init__, torch.optim.AdamW.__init__]
    weights = [torch.nn.Parameter(torch.ones(3))]
    with fused_adam():
        made = [torch.optim.Adam(weights), torch.optim.AdamW([{"params": weights, "lr": 0.1}], amsgrad=True)]
        chosen = [torch.optim.AdamW(weights, foreach=True), torch.optim.AdamW(weights, fused=False)]
    assert [each.param_groups[0]["fused"] for each in made] == [True, True]
    assert [bool(each.param_groups[0]["fused"]) for each in chosen] == [False, False]
    assert plain == [torch.optim.Adam.__init__, torch.optim.AdamW.__init__]
    assert torch.optim.Adam(weights).param_groups[0]["fused"] is None


@pytest.mark.parametrize("mean", [False, True])
def test_micro_batches_of_one_process_are_averaged_in_order(mean: bool) -> None:
    divided = DividedWorkload(TARGET, {"mean": mean}, degrees=Degrees(micro_batches=4), steps=STEPS)
    step = divided.build()
    whole = tensortide.capture(step)
    ranks = per_rank(whole, divided.degrees)
    program = RankProgram(step, whole, ranks, 0)
    seen = [[float(one).hex() for output in program() for one in output] for _ in range(STEPS)]
    assert seen == workloads.in_order(STEPS, 1, 4, mean=mean)
    assert program.exchanged == planned(ranks, 0) == []
    assert [run.task.micro_batch for run in program.runs] == [0, 0, 1, 1, 2, 2, 3, 3, 3]


DRAWN = f"{workloads.__file__}:drawn"


def test_a_batch_that_the_step_draws_is_drawn_as_in_one_process() -> None:
    divided = DividedWorkload(DRAWN, {}, degrees=Degrees(micro_batches=4), steps=STEPS)
    alone, step = divided.build(), divided.build()
    whole = tensortide.capture(step)
    program = RankProgram(step, whole, per_rank(whole, divided.degrees), 0)
    torch.manual_seed(1)
    expected = [float(alone()) for _ in range(STEPS)]
    torch.manual_seed(1)
    found = [float(torch.stack(program()[0]).mean()) for _ in range(STEPS)]
    assert found == pytest.approx(expected, rel=1e-6)
    assert expected[0] != expected[1]


@pytest.mark.slow
@pytest.mark.parametrize("degrees", [Degrees(data=2), Degrees(data=2, pipeline=2, micro_batches=2)], ids=str)
def test_ranks_take_their_parts_of_a_batch_that_the_step_draws(degrees: Degrees) -> None:
    found = run_divided(DividedWorkload(DRAWN, {}, degrees=degrees, steps=STEPS))
    assert found.verified
    assert found.losses == pytest.approx(found.alone, rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"own_generator": True}, "aten.randint.generator draws from a generator of its own"),
        ({"dropout": 0.5}, r"bernoulli_.* draws random numbers.*leave out what draws \(dropout=0\) but for the batch"),
    ],
)
def test_other_random_numbers_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(RunError, match=message):
        run_divided(DividedWorkload(DRAWN, settings, degrees=Degrees(data=2)))  # type: ignore[arg-type]  # scalars


def dies(rank: int) -> int:
    """Wait for rank 1, which is killed."""
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return int(dist.recv(torch.zeros(1), 1))


def fails(rank: int) -> int:
    """Wait for rank 1, which fails."""
    if rank == 1:
        raise RunError("the disk is full")
    return int(dist.recv(torch.zeros(1), 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "message"),
    [(dies, "rank 1 of 2 was killed by signal 9; the others were ended"), (fails, "rank 1 of 2: the disk is full")],
)
def test_a_rank_that_ends_ends_all_with_one_message(work: object, message: str) -> None:
    began = time.monotonic()
    with pytest.raises(RunError) as raised:
        run_ranks(work, 2)  # type: ignore[arg-type]  # a function of a rank
    assert str(raised.value) == message
    assert time.monotonic() - began < PATIENCE_S
    assert multiprocessing.active_children() == []


def test_ranks_are_combined_in_their_order() -> None:
    parts = [torch.tensor([value]) for value in (1e8, 1.0, -1e8)]
    assert combined(parts, "sum").item() == 0  # in another order it is 1
    assert combined(parts, "max").item() == 1e8
    assert combined([torch.tensor([1.0]), torch.tensor([2.0])], "avg").item() == 1.5
    with pytest.raises(RunError, match="not by 'product'"):
        combined(parts, "product")


def test_what_does_not_run_is_refused() -> None:
    step = DividedWorkload(TARGET, {}, degrees=Degrees()).build()
    whole = tensortide.capture(step)
    with pytest.raises(RunError, match="sharded parameters do not"):
        RankProgram(step, whole, per_rank(whole, Degrees(data=2, zero=1)), 0)
    with pytest.raises(RunError, match="rank 2 of 2"):
        RankProgram(step, whole, per_rank(whole, Degrees(data=2)), 2)

    def forward() -> torch.Tensor:
        return torch.ones(3)

    whole = tensortide.capture(forward)
    with pytest.raises(RunError, match="no backward pass"):
        RankProgram(forward, whole, per_rank(whole, Degrees()), 0)
