"""Configurations and comparisons whose searches share layers among devices: their files can be read and measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tensortide.errors import TensortideError
from tensortide.placements import read_assignment
from tensortide.placements.search import Budget
from tensortide.reports.artefacts import write_artefacts
from tensortide.studies.placement.comparison import Task, compare, contenders
from tensortide.studies.placement.config import Config, read_config
from tensortide.studies.placement.configured import ConfiguredRun, measure_of, run_config, subject_of
from tensortide.studies.placement.scores import score_all, write_all
from tests.placements.cases import EXPRIMO

ALEXNET = EXPRIMO / "configs" / "ga-malvik-alexnet.json"


def written(folder: Path, **arguments: object) -> Path:
    """The genetic search of AlexNet, with other arguments and the published rate of sharing."""
    config = json.loads(ALEXNET.read_text())
    config |= {key: str(EXPRIMO / config[key]) for key in ("net_path", "device_graph_path")}
    for key in ("mutation_sharding_rate", "evolve_mutation_rate", "zone_mutation_rate"):
        config["optimizer_args"].pop(key, None)
    config["optimizer_args"] |= {"population_size": 20, "mutation_rate": 0.3, "checkpoint_period": 1}
    config["optimizer_args"] |= {"plot_fitness_history": False, "print_diversity": False} | arguments
    config["plot_event_trace"] = False
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[ConfiguredRun, Path]:
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("shared")
    done = run_config(read_config(written(folder)), budget=Budget(400))
    write_artefacts(done, folder)
    return done, folder


def test_files_of_a_search_that_shares_have_lists_and_score_what_it_found(shared: tuple[ConfiguredRun, Path]) -> None:
    done, folder = shared
    placed = done.placed
    assert placed.shared > 0
    assert placed.single is not None
    assert placed.search.score_ms < placed.single.score
    solution = json.loads((folder / "ga_solution.json").read_text())
    devices = {name: layer["device"] for name, layer in solution["layers"].items()}
    assert devices == json.loads((folder / "placement.json").read_text())
    assert sum(isinstance(one, list) for one in devices.values()) == placed.shared
    assert (folder / "placement.svg").read_text().count("NVIDIA") == len(devices) + placed.shared
    assert len([*(folder / "checkpoints").glob("gen_*.json")]) == len(placed.search.notes.generations)
    scored = score_all(placed.subject, [folder / "placement.json", folder / "ga_solution.json"])
    assert [one.run.score for one in scored] == [placed.search.score_ms] * 2
    for path in write_all(placed.subject, scored, folder / "written"):
        assert json.loads(path.read_text()) == devices


def test_a_configuration_of_more_devices_than_share_layers_names_the_rate_to_set(tmp_path: Path) -> None:
    def on(count: int, **arguments: object) -> Config:
        link = {"type": "pcie3", "bandwidth": 128}
        devices = [
            {"model": "V100", "clock": 1312, "peak_gflops": 14000, "memory": 32, "type": "gpu"}
            | {"neighbours": [{"device": other, "comm_channel": 0} for other in range(count) if other != number]}
            for number in range(count)
        ]
        graph = tmp_path / f"{count}.json"
        graph.write_text(json.dumps({"comm_channels": [link], "devices": devices}))
        return replace(read_config(written(tmp_path, allow_cpu=True, **arguments)), device_graph=graph)

    budget = Budget(5)
    with pytest.raises(TensortideError, match=r"15 devices may be used, and at most 14 .* mutation_sharding_rate"):
        run_config(on(15), budget=budget)
    for config in (on(14), on(15, mutation_sharding_rate=0)):
        assert run_config(config, budget=budget).placed.search.proposals == 5


def test_shards_are_trained_where_real_batches_are_measured(tmp_path: Path) -> None:
    benchmark = {"batches": 2, "device_map": {"0": "cpu", "1": "cpu"}}
    path = written(tmp_path, benchmarking_function=benchmark)
    config = replace(read_config(path), net=EXPRIMO / "nets" / "mnist.json")
    net = subject_of(config).net
    ms = measure_of(config, net, (0, 1), 4)({name: (0, 1) if "conv" in name else 1 for name in net.order})
    assert ms is not None
    assert ms > 0


def test_searches_that_share_are_compared_and_kept(tmp_path: Path, shared: tuple[ConfiguredRun, Path]) -> None:
    subject = shared[0].placed.subject
    tasks = [
        Task("alexnet", subject.problem, one, 400, 0)
        for one in contenders(["genetic"], ["population=50", "sharing_rate=0,0.5"])
    ]
    alone, sharing = compare(tasks, saved=tmp_path / "runs.jsonl")
    again = compare(tasks, saved=tmp_path / "runs.jsonl")
    assert [line.outcomes for line in again] == [alone.outcomes, sharing.outcomes]
    best = sharing.outcomes[0]
    assert best.score_ms < alone.outcomes[0].score_ms
    assert "+" in best.devices
    path = tmp_path / "best.json"
    path.write_text(json.dumps(dict(zip(subject.net.order, best.placement, strict=True))))
    assert subject.run(read_assignment(path, subject.net).devices).score == best.score_ms
