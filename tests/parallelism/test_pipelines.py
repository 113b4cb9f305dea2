"""Schedules of pipelines: what each rank runs, dependencies, bubbles in closed form, activations in flight."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import DegreesError
from tensortide.parallelism import Degrees
from tensortide.parallelism.closed import Configuration, Transformer, shipped
from tensortide.parallelism.closed.columns import Step, columns
from tensortide.parallelism.closed.formula import parts, stage_ns, transfer_ns
from tensortide.parallelism.closed.memory import in_flight
from tensortide.parallelism.pipelines import (
    SCHEDULES,
    PipelineName,
    RunKind,
    StageTime,
    Task,
    bubble,
    computing_ns,
    lanes_of_ranks,
    order,
    play,
    timeline_of,
)
from tensortide.timelines.timeline import Timeline
from tensortide.timing.collectives import nodes_of


def played(
    schedule: PipelineName, stages: Sequence[StageTime], ranks: int, micro_batches: int, *, overlap: bool = False
) -> Timeline:
    return timeline_of(play(schedule, stages, ranks, micro_batches, overlap=overlap))


def closed_ns(stages: int, chunks: int, micro_batches: int, stage_ns: int, transfer_ns: int) -> float:
    """m (stage + 2 v transfer) + (p - 1) (stage / v + 2 transfer), as ``closed/formula.py`` has it; without pipeline no
    transfers."""
    if stages == 1:
        return micro_batches * stage_ns
    steady = micro_batches * (stage_ns + 2 * chunks * transfer_ns)
    return steady + (stages - 1) * (stage_ns / chunks + 2 * transfer_ns)


@given(
    st.sampled_from(sorted(SCHEDULES)), st.integers(1, 8), st.integers(1, 6), st.integers(2, 4), st.integers(10, 400),
    st.integers(1, 3), st.integers(0, 10),
)  # fmt: skip
def test_closed_form_and_replay_agree_within_two_percent(
    schedule: PipelineName, ranks: int, rounds: int, chunks: int, forward: int, ratio: int, transfer: int
) -> None:
    """Transfers are at most 1 % of a stage: first and last rank receive once for each micro-batch, not twice."""
    own = SCHEDULES[schedule]
    kind = own.alone or schedule if ranks < own.least_ranks else schedule
    v = chunks if SCHEDULES[kind].has_chunks else 1
    m = rounds * ranks
    unit = 100 * forward
    stage = StageTime(unit, ratio * unit, *[transfer * unit // 1000] * 2)
    line = played(kind, [stage] * (ranks * v), ranks, m)
    expected = closed_ns(ranks, v, m, v * (1 + ratio) * unit, stage.receive_ns)
    assert line.makespan_ns == pytest.approx(expected, rel=0.02)
    if not transfer:
        assert line.makespan_ns == expected


@given(
    st.sampled_from([1, 2, 4, 8]), st.integers(1, 8), st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4]),
)  # fmt: skip
def test_the_predicted_step_and_its_replay_agree_within_two_percent(
    ranks: int, rounds: int, chunks: int, context: int, expert: int
) -> None:
    """The closed form of a transformer, head and exchange of gradients aside, and its stages played."""
    v = chunks if ranks > 1 else 1
    one = Configuration(
        batch=rounds * ranks * expert,
        data=expert,
        tensor=8,
        pipeline=ranks,
        context=context,
        expert=expert,
        chunks=v,
        schedule="interleaved" if v > 1 else "1f1b",
        launch_graph=True,
    )
    shape = Transformer(layers=96, hidden=12288, heads=96, experts=8, active=2)
    step = Step(shape, one, nodes_of("A100-SXM-80GB", nodes=ranks * context * expert))
    made, constants = columns([step]), shipped().constants
    found = parts(constants, made)
    inside = ("compute", "tensor", "context", "expert", "host", "bubble", "transfer")
    closed = sum(float(getattr(found, name)[0]) for name in inside)
    forward, backward = (float(each[0]) / v for each in stage_ns(constants, made))
    received = transfer_ns(constants, made)[0] if ranks > 1 else 0.0
    stage = StageTime(round(forward), round(backward), *[round(received)] * 2)
    line = played(one.schedule, [stage] * (ranks * v), ranks, one.micro_batches)
    assert line.makespan_ns == pytest.approx(closed, rel=0.02)


@given(st.integers(3, 8), st.integers(1, 12), st.integers(1, 50))
def test_gpipe_agrees_for_transfers_of_any_length(ranks: int, micro_batches: int, transfer: int) -> None:
    line = played("gpipe", [StageTime(30, 60, transfer, transfer)] * ranks, ranks, micro_batches)
    assert line.makespan_ns == closed_ns(ranks, 1, micro_batches, 90, transfer) - 2 * transfer


@given(
    st.sampled_from(sorted(SCHEDULES)),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(2, 3),
    st.booleans(),
    st.data(),
)
def test_everything_runs_once_after_what_it_needs_and_one_thing_at_a_time(
    schedule: PipelineName, ranks: int, rounds: int, chunks: int, overlap: bool, data: st.DataObject
) -> None:
    v = chunks if SCHEDULES[schedule].has_chunks else 1
    m = rounds * ranks
    times = st.integers(1, 9)
    stages = [
        StageTime(data.draw(times), data.draw(times), *[data.draw(st.integers(0, 4)) for _ in range(2)])
        for _ in range(ranks * v)
    ]
    runs = play(schedule, stages, ranks, m, overlap=overlap)
    ends = {run.task: run.end_ns for run in runs if run.kind < RunKind.TRANSFER}
    starts = {run.task: run.start_ns for run in runs if run.kind < RunKind.TRANSFER}
    assert set(ends) == {Task(way, i, s) for way in (True, False) for i in range(m) for s in range(ranks * v)}
    for task, start in starts.items():
        own = stages[task.stage]
        if task.forward and task.stage:
            moved = own.receive_ns if ranks > 1 else 0
            assert start >= ends[task._replace(stage=task.stage - 1)] + moved
        if not task.forward:
            last = task.stage == ranks * v - 1
            before = task._replace(forward=True) if last else task._replace(stage=task.stage + 1)
            assert start >= ends[before] + (0 if last or ranks == 1 else own.return_ns)
    for rank in range(ranks):
        lane = sorted(run[3:] for run in runs if run.lane == rank)
        assert all(a_end <= b_start for (_, a_end), (b_start, _) in itertools.pairwise(lane))


@given(st.sampled_from(sorted(SCHEDULES)), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_the_timeline_of_a_pipeline_has_its_runs_and_their_times(
    schedule: PipelineName, ranks: int, rounds: int, overlap: bool
) -> None:
    chunks = 2 if SCHEDULES[schedule].has_chunks and ranks > 1 else 1
    schedule = schedule if chunks > 1 or not SCHEDULES[schedule].has_chunks else "1f1b"
    stages = [StageTime(7 + 2 * stage, 11 + stage, 3, 2) for stage in range(ranks * chunks)]
    runs = play(schedule, stages, ranks, rounds * ranks, overlap=overlap)
    line = timeline_of(runs)
    assert type(line) is Timeline
    assert line.lanes == tuple(f"stage {r + 1} of {ranks}, rank {r}" if ranks > 1 else "rank 0" for r in range(ranks))
    events = zip(line.events.index, line.events.lane, line.events.start_ns, line.events.end_ns, strict=True)
    made = Counter((line.recorded.ops[op].label, lane, start, end) for op, lane, start, end in events)
    expected: Counter[tuple[object, ...]] = Counter()
    for kind, task, *where in runs:
        of_chunk = f", chunk {task.stage // ranks + 1}" if chunks > 1 else ""
        expected[f"{kind.name.lower()} {task.micro_batch}{of_chunk}", *where] += 1
    assert made == expected
    phases = {op.phase.value for op in line.recorded.ops if op.label.startswith(("forward", "backward"))}
    assert phases == {"forward", "backward"}
    work = rounds * ranks * sum(stage.forward_ns + stage.backward_ns for stage in stages)
    assert sum(computing_ns(line)) == work
    assert bubble(line) == pytest.approx(1 - work / (ranks * line.makespan_ns))


def test_lanes_are_of_ranks_while_they_are_few_and_of_stages_then() -> None:
    for degrees in (Degrees(data=2, pipeline=2), Degrees(data=4, tensor=2, pipeline=2), Degrees(data=5)):
        lanes = lanes_of_ranks(degrees)
        assert [rank for lane in lanes for rank in lane.ranks] == [*range(degrees.devices)]
        assert [len(lane.ranks) for lane in lanes] == [1] * degrees.devices
    many = Degrees(data=8, tensor=2, pipeline=4, context=2)
    lanes = lanes_of_ranks(many)
    assert [lane.name for lane in lanes][1:3] == ["stage 2 of 4, ranks 32 to 63", "stage 3 of 4, ranks 64 to 95"]
    for lane in lanes:  # the ranks of a stage are those that have its place in their pipelines
        assert {many.groups(rank)["pipeline"].index(rank) for rank in lane.ranks} == {lane.stage}
    assert [lane.name for lane in lanes_of_ranks(Degrees(data=300))] == ["ranks 0 to 299"]
    assert [lane.name for lane in lanes_of_ranks(Degrees(pipeline=20))][19:] == ["stage 20 of 20, rank 19"]


def test_one_rank_and_one_micro_batch_is_its_own_time() -> None:
    for schedule in ("gpipe", "1f1b"):
        line = played(schedule, [StageTime(30, 60, 7, 7)], 1, 1)
        assert line.makespan_ns == 90
        assert bubble(line) == 0


def test_the_bubble_of_equal_stages_is_that_of_the_literature() -> None:
    assert bubble(played("1f1b", [StageTime(10, 20)] * 4, 4, 8)) == pytest.approx(3 / 11)
    assert bubble(played("interleaved", [StageTime(5, 10)] * 8, 4, 8)) == pytest.approx(1.5 / 9.5)


def test_overlapped_transfers_hide() -> None:
    stages = [StageTime(10, 20, 5, 5)] * 4
    beside, apart = (played("1f1b", stages, 4, 16, overlap=overlap).makespan_ns for overlap in (True, False))
    assert (16 + 3) * 30 < beside < apart


@pytest.mark.parametrize(("schedule", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 3)])
def test_activations_in_flight_are_those_of_the_memory_formula(schedule: PipelineName, chunks: int) -> None:
    ranks, m = 4, 16
    runs = play(schedule, [StageTime(10, 20)] * (ranks * chunks), ranks, m)
    line = timeline_of(runs, kept_bytes=[12 // chunks] * (ranks * chunks))
    one = Configuration(batch=m, pipeline=ranks, chunks=chunks, schedule=schedule)
    assert line.peak_bytes == pytest.approx(12 * in_flight(one))


def test_the_slowest_stage_sets_the_pace() -> None:
    stages = [StageTime(10, 20)] * 3 + [StageTime(20, 40)]
    assert played("1f1b", stages, 4, 100).makespan_ns == pytest.approx(103 * 60, rel=0.02)


def test_what_cannot_be_scheduled_is_named() -> None:
    with pytest.raises(DegreesError, match="= 6/4"):
        order("interleaved", 0, 4, 6, 2)
    with pytest.raises(DegreesError, match="2 chunks"):
        order("1f1b", 0, 4, 8, 2)
    with pytest.raises(DegreesError, match="= 5/4"):
        play("1f1b", [StageTime(1, 2)] * 5, 4, 8)
