"""Workloads of dnn-partitioning and networks of Paleo, as a user asks for them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tensortide.cli.show import Files
from tensortide.errors import OutputError, RequestError, TensortideError
from tensortide.executors.request import WorkerRequest
from tensortide.placements import PartitionProblem, Settings, read_split, read_workload
from tensortide.reports.pictures import Scatter
from tensortide.reports.render.terminal import render_text
from tensortide.reports.sections.paleo import document
from tensortide.studies.placement.comparison import PlaceCompareRequest
from tensortide.studies.placement.comparison import answer as compared
from tensortide.studies.placement.paleo_net import PaleoRequest, answer
from tensortide.studies.placement.placed import PlaceRequest
from tensortide.studies.placement.placed import answer as placed
from tensortide.studies.placement.placed_workload import PlacedWorkload
from tensortide.studies.placement.request import ClusterRequest, NetRequest, SearchRequest
from tensortide.timing.paleo.scaling import EXCHANGES
from tests.conftest import ROOT
from tests.placements.cases import EXPRIMO, PLACEMENT

WORKLOAD = ROOT / "tests" / "data" / "placement" / "partitions" / "bert24_training.json"
ALEXNET = EXPRIMO / "nets" / "alex_v2.json"


def test_a_workload_is_split_and_written_as_the_published_programs_read_it(tmp_path: Path) -> None:
    search = SearchRequest(algorithm="contiguous", budget=200)
    found = placed(PlaceRequest(target=str(WORKLOAD), search=search, out=tmp_path / "split.json"))
    assert isinstance(found, PlacedWorkload)
    assert found.single_ns == pytest.approx(217.81e6, rel=1e-4)
    assert found.load_ns < 49.40e6  # the published split by experts
    workload = read_workload(WORKLOAD)
    problem = PartitionProblem(workload)
    loads, _ = problem.loads(problem.genes(read_split(tmp_path / "split.json", workload)))
    assert loads.max() * 1e6 == found.load_ns
    text = render_text(found.document())
    assert "per sample on" in text
    assert "accelerator5" in text


def test_options_of_other_targets_are_refused_for_a_workload() -> None:
    with pytest.raises(RequestError, match="is a workload, which names its devices: --batch goes with other targets"):
        placed(PlaceRequest(target=str(WORKLOAD), net=NetRequest(batch=3)))


def test_searches_of_workloads_are_compared() -> None:
    asked = PlaceCompareRequest(problems=(str(WORKLOAD),), algorithms="contiguous,random", seeds=1, budget=60)
    asked = replace(asked, workers=WorkerRequest(threads=1))
    lines = compared(asked)
    assert [(line.problem, line.algorithm) for line in lines] == [
        ("bert24_training", "contiguous"),
        ("bert24_training", "random"),
    ]
    best = lines[0].outcomes[0]
    workload = read_workload(WORKLOAD)
    problem = PartitionProblem(workload)
    split = dict(zip((node.id for node in workload.nodes), best.placement, strict=True))
    loads, _ = problem.loads(problem.genes(split))  # type: ignore[arg-type] # nodes share no device
    assert loads.max() == best.score_ms
    cluster = ClusterRequest(machine=Path("2xl4"))
    with pytest.raises(RequestError, match="is a workload, which names its devices: --machine goes with other"):
        compared(replace(asked, cluster=cluster))
    for asks in (lambda: answer(PaleoRequest(net=WORKLOAD)), lambda: NetRequest().subject(WORKLOAD, cluster)):
        with pytest.raises(RequestError, match="is a workload of dnn-partitioning: tensortide place and place compare"):
            asks()


def test_what_is_predicted_is_drawn_and_no_trace_is_empty(tmp_path: Path) -> None:
    found = placed(PlaceRequest(target=str(WORKLOAD), search=SearchRequest(algorithm="random", budget=20)))
    assert any(isinstance(block, Scatter) for block in found.document().sections[0].blocks)
    made = document(answer(PaleoRequest(net=ALEXNET)))
    drawn = next(block for block in made.sections[0].blocks if isinstance(block, Scatter))
    assert [one.label for one in drawn.points] == ["linear", *EXCHANGES]
    with pytest.raises(OutputError, match="there is nothing to trace"):
        Files(trace=tmp_path / "t.json").write(made, table="layers")
    assert not (tmp_path / "t.json").exists()


def test_shares_too_small_for_any_time_are_refused() -> None:
    with pytest.raises(RequestError, match="--utilization takes a finite number from 1e-09"):
        NetRequest(utilization=1e-300)
    with pytest.raises(TensortideError, match="comm_penalization is 1e-300: 1e-09 or more"):
        Settings(comm_penalization=1e-300)


def test_paleo_predicts_the_published_totals_of_alexnet() -> None:
    found = answer(PaleoRequest(net=ALEXNET, device="titan-x", platform="ideal", batch=128))
    assert found.step is not None
    step = (found.step.forward, found.step.backward, found.step.update)
    assert [round(ms, 3) for ms in step] == [33.162, 89.084, 1.687]
    assert found.parameters == 50_303_912 == sum(layer.parameters for layer in found.layers)
    fc6 = next(layer for layer in found.layers if layer.layer == "fc6")
    assert [round(ns / 1e6, 3) for ns in (fc6.forward_ns, fc6.data_ns, fc6.weights_ns)] == [1.397, 28.076, 1.397]
    assert "124 ms a step on one titan-x" in render_text(document(found))


def test_paleo_predicts_the_published_scaling_of_alexnet() -> None:
    found = answer(PaleoRequest(net=ALEXNET, device="k80", platform="mxnet", batch=512))
    last = found.workers[-1]
    assert (last.workers, last.batch) == (128, 128 * 512)
    assert last.speedup_factor == pytest.approx(51.89, abs=0.005)
    assert last.compute_ns == pytest.approx(1067.1e6, abs=1e5)


def test_numbers_of_workers_are_given() -> None:
    asked: dict[str, Any] = {"net": ALEXNET, "device": "k80", "platform": "mxnet", "batch": 512}
    usual, own = answer(PaleoRequest(**asked)), answer(PaleoRequest(**asked | {"workers": "100,1,64,64"}))
    assert [row.workers for row in own.workers] == [1, 64, 100]
    assert {row for row in usual.workers if row.workers in (1, 64)} == {*own.workers[:2]}
    for text in ("0", "1,,2", "1.5", "many", "9" * 5000):
        with pytest.raises(RequestError, match="--workers takes numbers from 1 to 1,000,000,000"):
            PaleoRequest(**asked | {"workers": text})


def test_paleo_predicts_a_split_network_as_a_hybrid() -> None:
    path = PLACEMENT / "inputs" / "paleo" / "nets" / "alex_v2_2gpu.json"
    found = answer(PaleoRequest(net=path, device="k20", network="pcie2"))
    assert found.hybrid is not None
    assert found.hybrid.workers == 2
    assert "on 2 workers" in render_text(document(found))
    given: list[dict[str, Any]] = [{"overlap": True}, {"scaling": "strong"}, {"workers": "1,2"}]
    for options in given:
        with pytest.raises(RequestError, match="--overlap, --scaling and --workers are of other nets"):
            answer(PaleoRequest(net=path, device="k20", network="pcie2", **options))


def test_a_name_that_paleo_lacks_is_one_message() -> None:
    with pytest.raises(TensortideError, match="Paleo has no device called 'titan'"):
        answer(PaleoRequest(net=ALEXNET, device="titan"))


def test_what_takes_no_time_is_0_ns_and_no_fault(tmp_path: Path) -> None:
    layer = {"type": "Input", "parents": [], "tensor": [1, 2, 2, 3]}
    (tmp_path / "net.json").write_text(json.dumps({"name": "free", "layers": {"data": layer}}))
    found = answer(PaleoRequest(net=tmp_path / "net.json"))
    assert {one.speedup_factor for one in found.workers} == {1.0}
    assert "0 ns a step" in render_text(document(found))
    node = {"id": 1, "cpuLatency": 0, "fpgaLatency": 0, "size": 1, "supportedOnFpga": 1, "isBackwardNode": 0}
    split = {"nodes": [node], "edges": [], "maxSizePerFPGA": 2, "maxFPGAs": 2, "maxCPUs": 1}
    (tmp_path / "split.json").write_text(json.dumps(split))
    assert "0 ns per sample" in render_text(placed(PlaceRequest(target=str(tmp_path / "split.json"))).document())


def test_more_accelerators_than_sets_of_them_can_be_listed_are_no_fault(tmp_path: Path) -> None:
    node = {"cpuLatency": 1, "fpgaLatency": 1, "size": 1, "supportedOnFpga": 1, "isBackwardNode": 0}
    split = {"nodes": [node | {"id": i} for i in range(4)], "edges": [], "maxSizePerFPGA": 2, "maxFPGAs": 300}
    (tmp_path / "split.json").write_text(json.dumps(split | {"maxCPUs": 1}))
    search = SearchRequest(algorithm="contiguous", budget=400)
    found = placed(PlaceRequest(target=str(tmp_path / "split.json"), search=search))
    assert isinstance(found, PlacedWorkload)
    assert found.fits
