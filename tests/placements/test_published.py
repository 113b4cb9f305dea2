"""The published simulator is reproduced: every case, trace, shared layer and time of a layer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tensortide.placements import (
    COMPAT,
    Event,
    Net,
    NetProblem,
    Rates,
    Settings,
    layer_times,
    named_placement,
    simulate,
)
from tensortide.placements import read_net as read_spec
from tests.marks import some_slow
from tests.placements.cases import PLACEMENT, PUBLISHED, cluster, net, published

NAMES = {"wakeup": "wakeup", "op": "op_done", "transfer": "transfer_done"}


def settings_of(case: dict[str, Any]) -> Settings:
    return Settings(
        batch_size=case["batch_size"],
        batches=case["batches"],
        pipeline_batches=case["pipeline_batches"],
        comp_penalization=case["comp"],
        comm_penalization=case["comm"],
        mode=COMPAT,
    )


def test_orders_are_the_published_ones() -> None:
    for name, order in published("sim_cases")["orders"].items():
        assert list(net(name).order) == order


@pytest.mark.parametrize("every", some_slow([11, 1], [1]))
def test_every_case_is_met_to_the_byte(every: int) -> None:
    cases = published("sim_cases")["cases"]
    assert len(cases) == 968
    for case in cases[::every]:
        found = simulate(net(case["net"]), cluster(case["graph"]), case["placement"], settings_of(case))
        assert found.mode == "compat"
        assert found.makespan == pytest.approx(case["makespan"], rel=1e-14, abs=0)
        assert found.score == pytest.approx(case["score"], rel=1e-14, abs=0)
        assert list(found.peaks) == case["peak_bytes"]
        counts = (found.events, found.ops, found.transfers, found.jumps, found.edges)
        assert counts == tuple(case[key] for key in ("n_events", "n_ops", "n_transfers", "jumps", "max_jumps"))


@pytest.mark.parametrize("every", some_slow([3, 1], [1]))
def test_problems_score_the_cases_with_their_penalty(every: int) -> None:
    problems: dict[tuple[str, str, Settings], NetProblem] = {}
    for case in published("sim_cases")["cases"][::every]:
        key = case["net"], case["graph"], settings_of(case)
        if key not in problems:
            problems[key] = NetProblem(net(key[0]), cluster(key[1]), key[2])
        scores, over = problems[key].evaluate(np.array(case["placement"]))
        expected = case["makespan"] if case["penalised"] is None else case["penalised"]
        assert scores[0] == pytest.approx(expected, rel=1e-14, abs=0)
        assert (over[0] > 0) == (case["penalised"] is not None)


def test_named_placements_are_the_published_ones() -> None:
    for case in published("sim_cases")["cases"]:
        if not case["pname"].startswith("rand"):
            devices = len(cluster(case["graph"]).devices)
            assert list(named_placement(case["pname"], len(case["placement"]), devices)) == case["placement"]


@pytest.mark.parametrize("number", range(4))
def test_traces_are_met_event_by_event(number: int) -> None:
    trace = published("event_traces")[number]
    case = {"batch_size": 128, **trace["case"]}
    found = simulate(net(case["net"]), cluster(case["graph"]), case["placement"], settings_of(case))
    assert [_named(event) for event in found.trace] == [tuple(row[:6] + row[8:]) for row in trace["events"]]
    times = [row[6:8] for row in trace["events"]]
    np.testing.assert_allclose([[event.start, event.end] for event in found.trace], times, rtol=1e-14, atol=0)
    np.testing.assert_allclose(found.memory.moments, trace["mem_ts"], rtol=1e-14, atol=0)
    assert found.memory.nbytes.tolist() == trace["mem"]


def _named(event: Event) -> tuple[object, ...]:
    woken = event.kind == "wakeup"
    queue = ("transfer" if event.on_lane else "op") if woken else None
    layer = (None, None) if woken else (event.layer, event.backward)
    return (NAMES[event.kind], queue, event.resource, event.batch, *layer, event.source, event.target)


@pytest.mark.parametrize("number", range(4))
def test_shared_layers_are_expanded_as_published(number: int) -> None:
    case = published("sharding_cases")[number]
    alexnet = net(case["net"])
    genes = {name: case["shards"].get(name, 1) for name in alexnet.order}
    found = simulate(alexnet, cluster(case["graph"]), genes, PUBLISHED)
    assert found.makespan == pytest.approx(case["time"], rel=1e-14, abs=0)
    assert (list(found.peaks), found.events) == (case["peak"], case["n_events"])
    order, parents = found.net.order, found.net.parents
    outputs = [list(layer.output) for layer in found.net.layers(128)]
    rows = [[name, found.placement[i], outputs[i], [order[p] for p in parents[i]]] for i, name in enumerate(order)]
    assert rows == case["order"]


def test_times_of_layers_are_the_published_ones() -> None:
    graphs = ("malvik", "cluster2", "colocrl-4")
    devices = {device.row.name: (name, i) for name in graphs for i, device in enumerate(cluster(name).devices)}
    tables = published("op_times")["ops"]
    assert len(tables) == 20
    for key, rows in tables.items():
        name, model = key.split("|")
        graph, device = devices[model]
        layers = net(name).layers(128)
        times = layer_times(net(name), cluster(graph), layers, COMPAT, Rates(compute=0.9))
        for i, (layer, _, shape, weights, forward, backward) in enumerate(rows):
            assert (layers[i].name, list(layers[i].output), layers[i].params * 4) == (layer, shape, weights)
            found = times.forward[i, device], times.backward[i, device]
            assert found == pytest.approx((forward, backward), rel=1e-9, abs=0)


def test_the_net_with_a_block_is_met() -> None:
    folder = PLACEMENT / "inputs" / "examples"
    expected = json.loads((folder / "blocks_expected.json").read_text("utf-8"))
    blocks: Net = read_spec(folder / "blocks.json")
    assert list(blocks.order) == expected["order"]
    layers = blocks.layers(128)
    times = layer_times(blocks, cluster("cluster2"), layers, COMPAT, Rates(compute=0.9))
    for i, (name, shape, weights, forward, backward) in enumerate(expected["ops"]):
        assert (layers[i].name, list(layers[i].output), layers[i].params * 4) == (name, shape, weights)
        assert (times.forward[i, 1], times.backward[i, 1]) == pytest.approx((forward, backward), rel=1e-9, abs=0)
    for case in expected["cases"]:
        settings = replace(PUBLISHED, batches=case["batches"], pipeline_batches=case["pipeline_batches"])
        found = simulate(blocks, cluster("cluster2"), case["placement"], settings)
        assert found.makespan == pytest.approx(case["makespan"], rel=1e-14, abs=0)
        assert (list(found.peaks), found.events) == (case["peak_bytes"], case["n_events"])


def test_best_known_placements_have_their_scores_and_bounds() -> None:
    for row in json.loads((PLACEMENT / "best_known_placements.json").read_text("utf-8")).values():
        settings = replace(PUBLISHED, batches=row["batches"], pipeline_batches=row["pipeline_batches"])
        problem = NetProblem(net(row["net"]), cluster(row["device_graph"]), settings)
        scores, _ = problem.evaluate(np.array(row["placement"]))
        assert scores[0] == pytest.approx(row["best"], rel=1e-14, abs=0)
        bounds = problem.bounds
        assert bounds.critical_path_ms == pytest.approx(row["critical_path_lb_one_batch"], rel=1e-14, abs=0)
        assert bounds.best_ms <= scores[0] * (1 + 1e-15)
