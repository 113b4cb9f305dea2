"""The study of scale: every candidate is predicted or refused with its reason; the fastest that fits comes first."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import tensortide
from tensortide.errors import DegreesError, ExitStatus, RequestError
from tensortide.parallelism.closed import Configuration, Transformer, predict_step
from tensortide.reports.render.json import render_json
from tensortide.reports.sections.scale import document
from tensortide.studies.scale import ClosedForm, DegreeRequest, Problem, Scale, scale
from tensortide.studies.scale.launched import Launched
from tensortide.studies.scale.request import ScaleRequest, StrategyRequest, answer
from tensortide.studies.scale.study import resized
from tensortide.timing.collectives import Nodes, nodes_of
from tests.graphs import stored

SHAPE = Transformer(layers=24, hidden=2048, heads=16, seq=1024)
A100 = "A100-SXM-80GB"


def nodes(count: int) -> Nodes:
    return nodes_of(A100, devices_per_node=8, nodes=count)


def asked(where: Nodes, base: Configuration, **given: int) -> Problem:
    return Problem(nodes=where, base=base, degrees=DegreeRequest(**given))


def searched(memory_bytes: int | None = None, price: float | None = None, **given: int) -> Scale:
    request = asked(nodes(2), Configuration(batch=64), **given)
    return scale(replace(request, memory_bytes=memory_bytes, price_per_hour=price), ClosedForm(SHAPE))


def test_a_search_has_every_way_to_divide_the_devices_once() -> None:
    found = searched()
    configurations = [one.configuration for one in found.outcomes]
    assert len(set(configurations)) == len(configurations)
    assert {one.devices for one in configurations} == {16}
    triples = {(one.data, one.tensor, one.pipeline) for one in configurations}
    assert triples == {
        (d, t, p) for d in (1, 2, 4, 8, 16) for t in (1, 2, 4, 8, 16) for p in (1, 2, 4, 8, 16) if d * t * p == 16
    }


def test_ranks_that_outnumber_heads_of_keys_have_one_each_in_the_closed_form() -> None:
    """Of 16 heads, 4 of keys: each of 8 ranks has two heads, and keys and values of one, as 8 heads of keys give it."""
    few, many = (replace(SHAPE, kv_heads=heads) for heads in (4, 8))
    request = asked(nodes(1), Configuration(batch=8), tensor=8, micro_batch=8)
    found = scale(request, ClosedForm(few))
    assert [(one.configuration.kv_group, one.reason) for one in found.outcomes] == [
        (2, ""),
        (0, "heads of keys of a rank: kv_heads / tensor = 4/8 is no whole number"),
    ]
    assert found.best is not None
    one = found.best.configuration
    shared, own = predict_step(few, one, nodes(1)), predict_step(many, replace(one, kv_group=0), nodes(1))
    assert shared.memory == own.memory
    hidden, head = 2048, 2048 // 16
    weights = 24 * (2 * hidden * 2 * head + 2 * hidden * head + 8 * hidden**2 // 8) + SHAPE.vocab * hidden // 8
    assert shared.memory.weights == 2 * weights
    assert few.flops(8) < many.flops(8)
    request = asked(nodes(1), Configuration(batch=8), tensor=8, micro_batch=8, kv_group=4)
    again = scale(request, ClosedForm(many)).outcomes[0].reason
    assert again == "queries of a head on a rank: heads / (kv_heads * kv-group) = 16/32 is no whole number"


def test_micro_batches_reach_from_one_sample_to_the_batch_of_a_replica() -> None:
    sizes = {one.configuration.micro_batch for one in searched(data=2, tensor=8, pipeline=1).outcomes}
    assert sizes == {1, 2, 4, 8, 16, 32}


def test_the_best_is_the_fastest_of_those_that_fit() -> None:
    found = searched()
    times = [one.found.time.time_ns for one in found.legal if one.found is not None]
    assert times == sorted(times)
    assert found.best is found.outcomes[0]
    alone = searched(data=found.outcomes[0].configuration.data, tensor=1, pipeline=1)
    assert alone.best is not None
    assert alone.best.found is not None
    best = found.outcomes[0].found
    assert best is not None
    assert best.time.time_ns <= alone.best.found.time.time_ns


def test_one_configuration_is_what_the_closed_form_says() -> None:
    given = {"data": 4, "tensor": 2, "pipeline": 2, "micro_batch": 2}
    found = searched(**given)
    assert len(found.outcomes) == 1
    made = found.outcomes[0].found
    assert made is not None
    alone = predict_step(SHAPE, replace(Configuration(batch=64), **given), nodes(2))
    assert made.time == alone.time
    assert made.peak_bytes == alone.memory.total


def test_what_is_refused_has_its_quotient_or_its_bytes() -> None:
    found = searched(memory_bytes=8 * 2**30)
    assert found.legal
    reasons = {one.configuration: one.reason for one in found.refused}
    large = Configuration(batch=64, data=16)
    assert reasons[large].startswith("needs ")
    assert reasons[large].endswith("a device has 8.00 GiB for it")
    assert not any("layers of a chunk" in reason for reason in reasons.values()), "24 layers are 16 uneven stages"


def test_nothing_fits_is_a_verdict_with_the_least_memory() -> None:
    found = searched(memory_bytes=2**20)
    assert found.best is None
    assert (found.strong, found.weak) == ((), ())
    text = document(found).summary()
    assert "None of" in text
    assert "GiB" in text


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"tensor": 3}, r"devices / \(tensor\) = 16/\(3\)"),
        ({"data": 4, "tensor": 4, "pipeline": 4}, "data .* = 4 .* there are 16 devices"),
    ],
)
def test_degrees_that_no_devices_are_left_for_are_an_error(given: dict[str, int], part: str) -> None:
    with pytest.raises(DegreesError, match=part):
        searched(**given)


def test_interleaved_schedules_are_searched_over_their_chunks() -> None:
    base = Configuration(batch=64, schedule="interleaved")
    found = scale(asked(nodes(2), base, tensor=8, pipeline=2, micro_batch=1), ClosedForm(SHAPE))
    assert {one.configuration.chunks for one in found.outcomes} == {2, 3, 4, 6}
    whole = scale(asked(nodes(2), base, tensor=8, pipeline=1), ClosedForm(SHAPE))
    assert {one.configuration.schedule for one in whole.outcomes} == {"1f1b"}


def test_efficiency_falls_with_strong_scaling_and_hardly_with_weak() -> None:
    found = searched(tensor=2, pipeline=1)
    for rows, least in ((found.strong, 0.3), (found.weak, 0.8)):
        shares = [row.efficiency_share for row in rows]
        assert shares[0] == 1
        assert least < shares[-1] <= shares[0]
        assert [row.devices for row in rows] == sorted(row.devices for row in rows)
    assert len({row.configuration.batch for row in found.strong}) == 1
    assert len({row.configuration.batch / row.configuration.data for row in found.weak}) == 1


def test_fewer_replicas_take_the_faster_micro_batch_unless_it_is_given() -> None:
    small = Transformer(layers=2, hidden=128, heads=4, seq=128)  # bound by the host, whatever the micro-batch
    request = asked(nodes(1), Configuration(batch=8), tensor=1, pipeline=1)
    found = scale(request, ClosedForm(small))
    assert found.strong[0].configuration.micro_batch == 8
    request = asked(nodes(1), Configuration(batch=8), tensor=1, pipeline=1, micro_batch=1)
    fixed = scale(request, ClosedForm(small))
    assert {row.configuration.micro_batch for row in fixed.strong} == {1}


def test_a_search_that_is_stopped_shows_what_it_has() -> None:
    asked_ = itertools.chain([False] * 5, itertools.repeat(True))
    found = scale(asked(nodes(2), Configuration(batch=64)), ClosedForm(SHAPE), stop=lambda: next(asked_))
    assert len(found.outcomes) == 5
    assert found.untried == len(searched().outcomes) - 5
    assert not found.strong
    assert not found.weak
    assert any("not tried" in getattr(block, "text", "") for block in document(found)["scale"].blocks)


def test_a_resized_cluster_has_part_of_a_node_or_whole_nodes() -> None:
    some = nodes(4)
    for devices in (1, 4, 8, 16, 64):
        made = resized(some, devices)
        assert made is not None
        assert made.size == devices
    assert resized(some, 12) is None


def test_the_document_has_parts_that_add_up_and_all_refused() -> None:
    found = searched(price=2, memory_bytes=16 * 2**30)
    flops = SHAPE.flops(64) / 312e12
    made = document(found)["scale"]
    best = found.best
    assert best is not None
    assert best.found is not None
    assert sum(int(str(ns)) for ns in made.table("parts")["ns"]) == pytest.approx(best.found.time.time_ns, rel=1e-6)
    assert len(made.table("refused")) == len(found.refused)
    assert len(made.table("configurations")) == len(found.legal)
    assert made.fact("mfu_share") == pytest.approx(flops / 16 / (best.found.time.time_ns / 1e9))
    assert made.fact("price_per_1e9_tokens") == pytest.approx(
        2 * float(str(made.fact("device_hours_per_1e9_tokens"))), rel=1e-3
    )
    assert '"scaling"' in render_json(document(found))


@pytest.mark.parametrize(
    ("given", "part"),
    [({"batch": 8}, "--run takes the batch"), ({"strategy": StrategyRequest(zero=1)}, "--zero is predicted")],
)
def test_what_cannot_run_is_an_error_before_the_study(given: dict[str, Any], part: str) -> None:
    with pytest.raises(RequestError, match=part):
        answer(ScaleRequest(target="mlp", steps=2, **given))


def test_the_step_of_one_of_several_ranks_is_predicted_as_it_was_launched(tmp_path: Path) -> None:
    whole = stored("mlp")
    one = replace(whole, meta=replace(whole.meta, workload="train.py", groups={"0": (0, 1)}))
    tensortide.save(one, tmp_path / "rank.tide")
    found = answer(ScaleRequest(target=str(tmp_path / "rank.tide"), devices=2))
    assert isinstance(found, Launched)
    assert (found.ranks, len(found.rows), found.groups) == (2, 1, ())
    with pytest.raises(DegreesError, match="the launch has 2 ranks: --devices 4 is another number"):
        answer(ScaleRequest(target=str(tmp_path / "rank.tide"), devices=4))
    with pytest.raises(DegreesError, match="its own options say how it is divided"):
        answer(ScaleRequest(target=str(tmp_path / "rank.tide"), strategy=StrategyRequest(zero=1)))
    with pytest.raises(DegreesError, match="no options for degrees are known"):
        answer(ScaleRequest(target=str(tmp_path / "rank.tide"), degrees=DegreeRequest(tensor=2)))


def test_the_status_says_whether_a_configuration_may_fit() -> None:
    found, none = searched(), searched(memory_bytes=2**20)
    assert (found.status, none.status) == (ExitStatus.HOLDS, ExitStatus.FAILS)
    assert replace(none, untried=1).status is ExitStatus.UNDECIDED
