"""Workloads of dnn-partitioning: read, and their max-load as its paper defines it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import TensortideError
from tensortide.placements import PartitionProblem, read_split, read_workload
from tests.reference import COMMITTED

FOLDER = COMMITTED / "placement" / "partitions"


def node(number: int, cpu: float = 10.0, accelerator: float = 1.0, **more: Any) -> dict[str, Any]:
    fields = {"name": f"n{number}", "supportedOnFpga": 1, "isBackwardNode": 0, "colorClass": number, "size": 10.0}
    return {"id": number, "cpuLatency": cpu, "fpgaLatency": accelerator, **fields, **more}


def edge(source: int, target: int, cost: float = 0.5) -> dict[str, Any]:
    return {"sourceId": source, "destId": target, "cost": cost, "size": 4.0}


def file(nodes: list[dict[str, Any]], edges: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"maxSizePerFPGA": 100.0, "maxFPGAs": 2, "maxCPUs": 1, "nodes": nodes, "edges": edges, **more}


def write(folder: Path, content: object, name: str = "workload.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(content), "utf-8")
    return path


CHAIN = file([node(1), node(2, 20, 2), node(3, 30, 3)], [edge(1, 2), edge(1, 3), edge(2, 3, 0.25)])


def test_a_load_counts_each_crossing_output_once(tmp_path: Path) -> None:
    problem = PartitionProblem(read_workload(write(tmp_path, CHAIN)))
    assert (problem.names, problem.devices) == (("n1", "n2", "n3"), 3)
    loads, sizes = problem.loads(np.array([1, 2, 2]))
    assert loads.tolist() == [0, 1.5, 5.5]  # both readers of node 1 are on the second accelerator
    assert sizes.tolist() == [0, 10, 20]
    assert problem.loads(np.array([1, 2, 1]))[0].tolist() == [0, 4 + 0.5 + 0.25, 2 + 0.5 + 0.25]
    assert problem.loads(np.array([0, 1, 1]))[0].tolist() == [10, 5.5, 0]  # a CPU pays for no transfer
    assert problem.evaluate(np.array([1, 1, 1]))[0][0] == 6


def test_the_published_split_has_the_published_load() -> None:
    workload = read_workload(FOLDER / "bert24_training.json")
    problem = PartitionProblem(workload)
    expert = problem.genes(read_split(FOLDER / "bert24_expert.json", workload))
    scores, over = problem.evaluate(np.array([expert, [1] * len(expert)]))
    assert np.round(scores, 4).tolist() == [49.4049, 217.813]  # of the original: expert, one accelerator
    assert over.tolist() == [0, 0]
    assert problem.bounds.best_ms < 39.94


@st.composite
def workloads(draw: st.DrawFn) -> dict[str, Any]:
    count = draw(st.integers(1, 6))
    times = st.sampled_from([0.0, 1.0, 2.5])
    nodes = [
        node(
            i,
            draw(times) * 10,
            draw(times),
            colorClass=draw(st.integers(0, count)),
            size=draw(st.sampled_from([0.0, 60.0])),
            isBackwardNode=int(draw(st.booleans())),
        )
        for i in range(count)
    ]
    costs = [draw(st.sampled_from([0.0, 0.5, 2.0])) for _ in range(count)]
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count) if draw(st.booleans())]
    return file(nodes, [edge(a, b, costs[a]) for a, b in pairs], maxCPUs=draw(st.integers(0, 2)))


@given(workloads())
def test_loads_follow_the_definition_on_every_split(tmp_path_factory: pytest.TempPathFactory, content: Any) -> None:
    workload = read_workload(write(tmp_path_factory.mktemp("drawn"), content))
    problem = PartitionProblem(workload)
    rows = np.array(list(itertools.product(range(problem.devices), repeat=len(problem.names))))[:500]
    scores, over = problem.evaluate(rows)
    assert problem.penalty_ms_per_byte >= 1
    fitting, others = scores[(over == 0) & np.isfinite(scores)], scores[over >= 0.01]
    assert not len(fitting) or not len(others) or fitting.max() < others.min()
    for row, score, above in zip(rows, scores, over, strict=True):
        device = {one["id"]: int(row[gene]) for one, gene in zip(content["nodes"], problem.place, strict=True)}
        loads, sizes = [], []
        for number in range(problem.devices):
            own = [one for one in content["nodes"] if device[one["id"]] == number]
            cpu = number < content["maxCPUs"]
            moved = {
                one["sourceId"]: one["cost"]
                for one in content["edges"]
                if (device[one["sourceId"]] == number) != (device[one["destId"]] == number)
            }
            time = sum(one["cpuLatency" if cpu else "fpgaLatency"] for one in own)
            loads.append(time + (0 if cpu else sum(moved.values())))
            sizes.append(0 if cpu else sum(one["size"] for one in own))
        assert above == sum(max(0, size - 100) for size in sizes)
        assert score == pytest.approx(max(loads) + problem.penalty_ms_per_byte * above)
        assert problem.bounds.best_ms <= score + 1e-9


def test_a_split_is_read_by_device_and_backward_nodes_follow(tmp_path: Path) -> None:
    nodes = [node(1), node(2), node(3, colorClass=1, isBackwardNode=1)]
    workload = read_workload(write(tmp_path, file(nodes, [edge(1, 2), edge(2, 3)])))
    split = {"cpus": [{"load": 0, "nodes": []}], "fpgas": [{"nodes": [2]}, {"nodes": [1]}], "maxLoad": -1}
    found = read_split(write(tmp_path, split, "split.json"), workload)
    assert found == {1: 2, 2: 1, 3: 2}
    assert PartitionProblem(workload).genes(found).tolist() == [2, 1]
    split["fpgas"] = [{"nodes": [1]}, {"nodes": [9]}]
    with pytest.raises(TensortideError, match=r"split\.json: a split of another workload: 1 nodes are missing, 1 do"):
        read_split(write(tmp_path, split, "split.json"), workload)


def test_nodes_that_no_accelerator_supports_stay_on_a_cpu(tmp_path: Path) -> None:
    content = file([node(1, supportedOnFpga=0), node(2)], [edge(1, 2)])
    problem = PartitionProblem(read_workload(write(tmp_path, content)))
    scores, _ = problem.evaluate(np.array([[0, 1], [1, 1]]))
    assert scores.tolist() == [10, np.inf]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"nodes": []}, "not a workload of nodes and edges"),
        (file([], []), "there are no nodes"),
        (file([node(1), node(1)], []), "two nodes have the id 1"),
        (file([node(1)], [edge(1, 2)]), "there is no node 2"),
        (file([node(1), node(2)], [edge(1, 2), edge(2, 1)]), "nodes form a cycle: "),
        (file([node(1, cpu=-1)], []), "node 1: cpuLatency, fpgaLatency and size are 0 or more"),
        (file([node(1), node(2), node(3)], [edge(1, 2, 1), edge(1, 3, 2)]), "edges out of node 1 have different costs"),
        (file([node(1)], [], maxCPUs=0, maxFPGAs=0), "maxCPUs is 0 and maxFPGAs 0"),
        (file([node(1, supportedOnFpga=0)], [], maxCPUs=0), "node 1 runs on CPUs alone, and maxCPUs is 0"),
        (file([node(1)], [], maxSizePerFPGA="big"), "Expected `float`, got `str`"),
    ],
)
def test_a_wrong_workload_is_one_error(tmp_path: Path, content: object, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(TensortideError, match=message) as caught:
        read_workload(path)
    assert str(caught.value).startswith(str(path))
