"""The predicted step as a Timeline: it ends when the prediction says, and its lanes have all that it counts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tensortide.parallelism.closed import Configuration, Transformer
from tensortide.parallelism.pipelines import RunKind, StageTime, computing_ns, lanes_of_ranks, play, spent_ns
from tensortide.studies.scale import ClosedForm, DegreeRequest, Predictor, Problem, Scale, scale
from tensortide.studies.scale.timeline import MOST_PASSES, step_timeline, with_shown_micro_batches
from tensortide.timelines.timeline import Timeline
from tensortide.timing.collectives import Nodes, nodes_of
from tests.studies.scale.test_captured import node, plain, step

CLOSED = ClosedForm(Transformer(layers=8, hidden=1024, heads=16, seq=512))
DEGREES: list[dict[str, Any]] = [
    {},
    {"micro_batch": 2},
    {"data": 2, "micro_batch": 1},
    {"pipeline": 2, "micro_batch": 1},
    {"pipeline": 4, "micro_batch": 2, "schedule": "gpipe"},
    {"data": 2, "pipeline": 2, "micro_batch": 1, "overlap_pipeline": True, "overlap_data": True},
    {"data": 2, "tensor": 2, "pipeline": 2, "micro_batch": 1, "zero": 1},
    {"data": 4, "micro_batch": 1, "zero": 2},
    {"pipeline": 2, "micro_batch": 1, "chunks": 2, "schedule": "interleaved"},
    {"data": 2, "pipeline": 2, "micro_batch": 1, "chunks": 2, "schedule": "interleaved", "recompute": "full"},
]
every = pytest.mark.parametrize("degrees", DEGREES, ids=str)


def assert_conserved(line: Timeline, step_ns: float) -> None:
    """Assert that the step ends at ``step_ns``, and that runs and gaps of each lane add up to it."""
    events = line.events
    assert line.makespan_ns == int(events.end_ns.max()) == pytest.approx(step_ns, abs=1)
    for lane, own in enumerate(spent_ns(line).sum(axis=1)):
        clock = idle = 0
        on_lane = events.lane == lane
        for start, end in sorted(zip(events.start_ns[on_lane].tolist(), events.end_ns[on_lane].tolist(), strict=True)):
            assert clock <= start < end  # one thing at a time
            idle += start - clock
            clock = end
        assert own + idle + line.makespan_ns - clock == line.makespan_ns


def predicted(predictor: Predictor, one: Configuration, where: Nodes) -> tuple[Timeline, dict[str, float]]:
    """The Timeline of a step, conserved, and the parts of its prediction."""
    line, found = predictor.timeline(one, where), predictor.predict(one, where)
    assert type(line) is Timeline
    assert line.lanes == tuple(lane.name for lane in lanes_of_ranks(one))
    assert_conserved(line, found.time.time_ns)
    return line, found.parts


@every
def test_a_captured_step_has_all_that_its_prediction_counts(degrees: dict[str, Any]) -> None:
    one = plain(**degrees)
    line, parts = predicted(step(), one, node(one.devices))
    spent, busy = spent_ns(line), computing_ns(line)
    inside = sum(parts[name] for name in ("compute", "recompute", "tensor", "context", "expert"))
    assert max(busy) == pytest.approx(inside)
    assert spent[busy.index(max(busy)), RunKind.TRANSFER] == pytest.approx(parts["transfer"], abs=1)
    after = spent[:, RunKind.EXCHANGE_REPLICAS :]
    last = after[:, : RunKind.UPDATE + 1 - RunKind.EXCHANGE_REPLICAS].sum(axis=1).argmax()
    exchanged = spent[last, [RunKind.EXCHANGE_REPLICAS, RunKind.EXCHANGE_STAGES]].sum()
    assert exchanged == pytest.approx(parts["data"], abs=2)
    assert spent[last, RunKind.UPDATE] == pytest.approx(parts["optimizer"], abs=1)
    assert spent[:, RunKind.STRAGGLERS] == pytest.approx(parts["straggler"], abs=1)
    assert (exchanged > 0) == (one.data > 1 or one.pipeline > 1)  # the table is tied: of the first stage and the last


@every
def test_a_step_of_the_closed_form_has_all_of_its_parts(degrees: dict[str, Any]) -> None:
    """Its pipeline is the replay, stretched to the sum of the closed form."""
    one = replace(Configuration(batch=8, micro_batch=8), **degrees)
    line, parts = predicted(CLOSED, one, nodes_of("A100-SXM-80GB", devices_per_node=one.devices))
    for own in spent_ns(line):
        assert own[[RunKind.EXCHANGE_REPLICAS, RunKind.EXCHANGE_STAGES]].sum() == pytest.approx(parts["data"], abs=2)
        assert own[RunKind.UPDATE] == pytest.approx(parts["optimizer"], abs=1)
        assert own[RunKind.ONCE_PER_STEP] == pytest.approx(parts["rest"], abs=1)
        assert own[RunKind.STRAGGLERS] == pytest.approx(parts["straggler"], abs=1)
    layers = sum(parts[name] for name in ("compute", "tensor", "host", "context", "expert"))
    busy = computing_ns(line)
    assert busy[-1] == pytest.approx(layers + parts["head"], rel=0.02)
    assert busy[0] == pytest.approx(layers + (parts["head"] if one.pipeline == 1 else 0), rel=0.02)


def test_a_stage_may_have_nothing_to_compute() -> None:
    """As the first of two has where a step is one op, or the stage is a view of what it reads."""
    one = Configuration(batch=2, micro_batch=1, pipeline=2)
    kept_bytes = [8, 16]
    for empty in (0, 1):
        stages = [StageTime(0, 0) if stage == empty else StageTime(10, 20) for stage in (0, 1)]
        line = step_timeline(one, play("1f1b", stages, 2, 2), [[], []], [(RunKind.UPDATE, 5)], kept_bytes)
        assert line.makespan_ns == 65
        assert computing_ns(line) == [60 * (empty != lane) for lane in (0, 1)]
        assert line.peak_bytes == 2 * kept_bytes[0]


def test_ranks_of_a_stage_have_lanes_that_are_alike() -> None:
    one = plain(data=2, tensor=2, pipeline=2, micro_batch=1)
    line = step().timeline(one, node(8))
    rows: list[set[tuple[str, int, int]]] = [set() for _ in line.lanes]
    events = line.events
    for op, lane, start, end in zip(events.index, events.lane, events.start_ns, events.end_ns, strict=True):
        rows[lane].add((line.recorded.ops[op].label, int(start), int(end)))
    assert rows[0] == rows[1] == rows[2] == rows[3] != rows[4] == rows[5] == rows[6] == rows[7]


def test_bytes_of_the_timeline_are_activations_of_the_first_rank() -> None:
    """1F1B has as many micro-batches in flight there as stages, GPipe all."""
    one = plain(data=2, pipeline=2, micro_batch=1)
    few, all_of_them = (step().timeline(replace(one, schedule=name), node(4)).peak_bytes for name in ("1f1b", "gpipe"))
    assert 2 * few == all_of_them > 0


def test_a_step_of_many_micro_batches_is_shown_with_some() -> None:
    one = Configuration(batch=100_000, pipeline=8, data=16)
    some = with_shown_micro_batches(one)
    assert some.micro_batches % 8 == 0
    assert 0.9 * MOST_PASSES < 2 * some.micro_batches * 8 <= MOST_PASSES
    assert replace(some, batch=one.batch) == one
    assert with_shown_micro_batches(some) == some
    where = nodes_of("A100-SXM-80GB", nodes=16)
    line = CLOSED.timeline(one, where)
    assert len(line.lanes) == 8
    assert_conserved(line, CLOSED.predict(some, where).time.time_ns)


def test_the_best_of_a_search_has_its_timeline() -> None:
    found: Scale = scale(Problem(nodes=node(4), base=plain(), degrees=DegreeRequest(tensor=1)), step())
    assert found.best is not None
    assert found.best.found is not None
    assert found.timeline is not None
    assert_conserved(found.timeline, found.best.found.time.time_ns)
