"""Configuration files of Exprimo: all published ones run; faults are named with file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from tensortide.errors import PlacementError, TensortideError
from tensortide.placements import read_net
from tensortide.placements.search import Budget
from tensortide.placements.search.genetic import Genetic
from tensortide.placements.search.map_elites import MapElites
from tensortide.placements.search.session import Elite
from tensortide.reports.artefacts import write_artefacts
from tensortide.reports.render.archive import render_animation
from tensortide.reports.render.terminal import render_text
from tensortide.reports.sections.placement import of_configured
from tensortide.studies.placement.config import read_config
from tensortide.studies.placement.configured import ConfiguredRun, measure_of, run_config, subject_of
from tensortide.studies.placement.optimizers import FASTEST, SLOWEST, GeneticArguments, MapElitesArguments
from tests.conftest import ROOT
from tests.marks import some_slow
from tests.placements.cases import EXPRIMO

EXAMPLES = ROOT / "examples" / "placement"
OWN = sorted(EXAMPLES.glob("e*.json"))
CONFIGS = sorted((EXPRIMO / "configs").rglob("*.json"))


def run(path: Path, proposals: int, **options: object) -> ConfiguredRun:
    return run_config(read_config(path), budget=Budget(proposals), **options)  # type: ignore[arg-type] # by name


@pytest.mark.parametrize("path", some_slow(CONFIGS, set(CONFIGS) - {*CONFIGS[::3]}), ids=lambda path: path.stem)
def test_a_published_configuration_runs_and_repeats(path: Path) -> None:
    one, two = run(path, 60), run(path, 60)
    assert one.placed.search.history == two.placed.search.history
    assert one.placed.placement == two.placed.placement
    assert one.placed.search.proposals <= 60


def test_a_search_sees_single_devices_only_if_its_configuration_says_so(tmp_path: Path) -> None:
    done = run(EXPRIMO / "configs" / "experiments" / "e3" / "e3_hc-resnet50.json", 300)
    single = done.placed.single
    assert single is not None
    assert done.placed.search.score_ms > 2 * single.makespan
    write_artefacts(done, tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["score_ms"] == done.placed.search.score_ms == manifest["last_state_score_ms"]
    assert manifest["study_score_ms"] == manifest["single_device_ms"] == single.score
    assert "203 ms, which this search has not found" in (tmp_path / "output.log").read_text()
    random, given = (
        run(written(tmp_path, include_trivial_solutions_in_initialization=trivial), 50) for trivial in (False, True)
    )
    assert random.placed.search.score_ms > given.placed.search.score_ms == pytest.approx(43.407, abs=1e-3)


@pytest.mark.parametrize("path", some_slow(OWN, OWN[1:]), ids=lambda path: path.stem)
def test_an_experiment_of_the_examples_runs(path: Path) -> None:
    found = run(path, 60).placed.search
    assert found.proposals <= 60
    assert found.single_ms is None


def test_alexnet_of_the_examples_takes_the_published_time() -> None:
    subject = subject_of(read_config(EXAMPLES / "e3_hc_alexnet_normal.json"))
    assert subject.run([1] * len(subject.net.order)).makespan == 43.407329867080456


def test_processors_are_logged_if_the_configuration_asks(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_artefacts(run(written(tmp_path, monitor_processors=True), 100), tmp_path)
    head, *rows = (tmp_path / "processor_util.csv").read_text().splitlines()
    assert head.startswith("seconds,placements,used_by_search")
    assert [int(row.split(",")[1]) for row in rows][-1] == 100
    assert all(len(row.split(",")) == len(head.split(",")) for row in rows)


def test_a_report_says_if_nothing_was_measured(tmp_path: Path, measured: Measured) -> None:
    asks = run(written(tmp_path, benchmarking_function={"model_type": "alexnet"}), 10)
    assert "Nothing was measured" in render_text(of_configured(asks))
    assert "Nothing was measured" not in render_text(of_configured(measured.done))


def test_real_batches_are_trained_layer_by_layer(tmp_path: Path) -> None:
    config = read_config(
        written(
            tmp_path,
            benchmarking_function={"batches": 2, "device_map": {"1": "cpu"}},
            net_path=str(EXPRIMO / "nets" / "mnist.json"),
        )
    )
    net = read_net(config.net)
    ms = measure_of(config, net, (0, 1), 4)(dict.fromkeys(net.order, 1))
    assert ms is not None
    assert ms > 0
    with pytest.raises(PlacementError, match=r"device 9 of the placement is cuda:8.*device_map"):
        measure_of(config, net, (9,), 4)
    layer = {"type": "Input", "parents": [], "tensor": [4, 2, 2, 3]}
    (tmp_path / "free.json").write_text(json.dumps({"name": "free", "layers": {"data": layer}}))
    free = read_net(tmp_path / "free.json")
    with pytest.raises(PlacementError, match="free has no layer with weights: there is nothing to train"):
        measure_of(config, free, (0, 1), 4)({"data": 1})
    with pytest.raises(PlacementError, match="no benchmarking_function"):
        measure_of(read_config(EXAMPLES / "e3_hc_alexnet_normal.json"), net, (0,), 4)


def measure(order: dict[str, int]) -> float | None:
    return None if order["fc6"] == 1 else 100.0 + sum(order.values())


class Measured(NamedTuple):
    """A search that went on with measured times, and the folder of its artefacts."""

    done: ConfiguredRun
    folder: Path
    wrote: frozenset[str]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("artefacts")
    done = run(EXPRIMO / "configs" / "ga-malvik-alexnet.json", 400, measure=measure)
    wrote = frozenset(path.relative_to(folder).as_posix() for path in write_artefacts(done, folder))
    return Measured(done, folder, wrote)


def test_artefacts_have_the_published_names_and_say_how_they_came_about(measured: Measured) -> None:
    done, folder, wrote = measured
    assert {
        "output.log",
        "event_trace.pdf",
        "placement.svg",
        "time_history.csv",
        "ga_solution.json",
        "fitness_history.pdf",
        "diversity_history.pdf",
        "checkpoints/gen_0005.json",
        "checkpoints/scores.csv",
        "manifest.json",
        "placement.json",
        "trace.json",
    } <= wrote
    assert all((folder / name).stat().st_size for name in wrote)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["proposals"] == 400
    assert len(manifest["inputs_sha256"]) == 3
    solution = json.loads((folder / "ga_solution.json").read_text())
    devices = {name: layer["device"] for name, layer in solution["layers"].items()}
    assert devices == json.loads((folder / "placement.json").read_text())
    rows = (folder / "time_history.csv").read_text().splitlines()
    assert rows[-1] == f"400,{done.placed.search.score_ms}"


def test_an_archive_is_logged_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = run(EXPRIMO / "configs" / "me-malvik-alexnet.json", 1100)
    wrote = {path.relative_to(tmp_path).as_posix() for path in write_artefacts(done, tmp_path)}
    assert {"archive_plot.pdf", "archive_logs/step_000500.csv", "archive_logs/1_simulation_finished.csv"} <= wrote
    cells = (tmp_path / "archive_logs" / "1_simulation_finished.csv").read_text().splitlines()
    assert len(cells) == 1 + len(done.placed.search.notes.archive)
    assert cells[0] == "niche,score_ms,placement"


def test_a_search_goes_on_with_measured_times_and_shows_the_best_measured(measured: Measured) -> None:
    done = measured.done
    assert done.second is not None
    assert done.measured is not None
    times = [ms for _, ms in done.measured.log if ms is not None]
    assert done.second.score_ms == min(times)
    assert len(done.measured.log) == done.second.evaluations
    shown = of_configured(done)["measured"]
    assert shown.fact("measured_time_ns") == round(min(times) * 1e6)
    assert shown.fact("out_of_memory") == sum(ms is None for _, ms in done.measured.log)
    best = json.loads((measured.folder / "measured_placement.json").read_text())
    assert measure(best) == min(times)


def written(folder: Path, **changes: object) -> Path:
    config = json.loads((EXPRIMO / "configs" / "ga-malvik-alexnet.json").read_text())
    for key in ("net_path", "device_graph_path"):
        config[key] = str(EXPRIMO / config[key])
    for key, value in changes.items():
        (config if key in config or key == "log_dirs" else config["optimizer_args"])[key] = value
    path = folder / "config.json"
    path.write_text(json.dumps(config, indent=1))
    return path


@pytest.mark.parametrize(
    ("changes", "key", "text"),
    [
        ({"log_dirs": "x"}, "log_dirs", "unknown key 'log_dirs'; near names: log_dir"),
        ({"populaton_size": 5}, "populaton_size", "near names: population_size"),
        ({"generations": "many"}, "generations", "Expected `int`, got `str`"),
        ({"optimizer": "genetic"}, "optimizer", "there is no optimizer 'genetic'; there are: "),
        ({"elite_size": 99}, "elite_size", "contradict each other: the elite is larger than the population"),
        ({"min_mutation_rate": 0.95}, "min_mutation_rate", "max_mutation_rate on line"),
        ({"pipeline_batches": 3}, "pipeline_batches", "no more batches are in flight than there are"),
        ({"crossover_type": "zigzag"}, "crossover_type", "not uniform, one-point or K-point"),
        ({"mutation_sharding_rate": 1.2}, "mutation_sharding_rate", "a rate is 0 to 1"),
        ({"mutation_rate": 2.0}, "mutation_rate", "mutation_rate: a rate is 0 to 1"),
        ({"generations": -1}, "generations", "generations: it is 0 or more"),
        ({"benchmarking_function": {"batch": 3}}, "batch", "near names: batches"),
        ({"benchmarking_function": {"batches": 3, "drop_batches": 3}}, "drop_batches", "batches 3 leave none to time"),
        ({"benchmarking_function": {"batches": 1}}, "benchmarking_function", "drop_batches 1 of batches 1 leave none"),
        ({"net_path": "nets/none.json"}, "net_path", "there is no file nets/none.json"),
    ],
)
def test_a_fault_is_named_with_file_and_line(tmp_path: Path, changes: dict[str, object], key: str, text: str) -> None:
    path = written(tmp_path, **changes)
    line = next(n for n, found in enumerate(path.read_text().splitlines(), 1) if f'"{key}"' in found)
    with pytest.raises(PlacementError) as error:
        read_config(path)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert text in str(error.value)


@pytest.mark.parametrize("fps", [0, -1, 1e-9, 101, 1e300, "fast", None])
def test_an_animation_that_no_file_can_hold_is_refused_before_the_search(tmp_path: Path, fps: object) -> None:
    config = json.loads((EXPRIMO / "configs" / "me-malvik-alexnet.json").read_text())
    config |= {key: str(EXPRIMO / config[key]) for key in ("net_path", "device_graph_path")}
    config["optimizer_args"] |= {"plot_animation": True, "animation_fps": fps}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config, indent=1))
    with pytest.raises(PlacementError, match=r"config.json:\d+: .*(animation_fps|GIF)"):
        read_config(path)


@pytest.mark.parametrize("fps", some_slow([SLOWEST, FASTEST], [FASTEST]))
def test_the_slowest_and_the_fastest_animation_are_written(tmp_path: Path, fps: float) -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    archives = [(steps, [Elite((0, 0, 0), steps, ())]) for steps in (1, 2)]
    with image.open(render_animation(archives, (1, 1, 1), (0, 2), tmp_path / "a.gif", fps)) as found:
        assert found.n_frames == 2
        assert found.info["duration"] == pytest.approx(1000 / fps, abs=5)


def test_a_file_that_is_no_configuration_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for text in ("", "[]", '{"net_path": "a", "net_path": "b"}', "{}"):
        path.write_text(text)
        with pytest.raises(TensortideError):
            read_config(path)


def test_every_key_of_the_genetic_search_and_of_map_elites_sets_its_option() -> None:
    genetic = {
        "population_size": 7,
        "generations": 3,
        "mutation_rate": 0.2,
        "mutation_sharding_rate": 0.7,
        "crossover_rate": 0.1,
        "crossover_type": "3-point",
        "parent_selection_mechanism": "tournament",
        "parent_selection_function": "exponential",
        "tournament_size": 4,
        "s": 1.5,
        "evolve_mutation_rate": True,
        "min_mutation_rate": 0.01,
        "max_mutation_rate": 0.5,
        "elite_size": 2,
        "zone_mutation_rate": 0.3,
        "include_trivial_solutions_in_initialization": False,
    }
    assert msgspec.convert(genetic, GeneticArguments).search() == Genetic(
        7, 3, 0.2, 0.7, 0.1, 3, "tournament", "exponential", 1.5, 4, True, 0.01, 0.5, 0.3, "evolved", 2, False
    )
    elites = {
        "dimension_sizes": [1, 2, 3],
        "initial_size": 5,
        "steps": 9,
        "mutation_rate": 0.2,
        "copy_mutation_rate": 0.3,
        "replace_mutation_rate": 0.4,
        "zone_mutation_rate": 0.5,
        "crossover_rate": 0.6,
        "selection": "tournament",
        "tournament_size": 4,
        "include_trivial_solutions": False,
        "archive_log_period": 8,
    }
    assert msgspec.convert(elites, MapElitesArguments).search() == MapElites(
        (1, 2, 3), 5, 9, 0.2, 0.0, 0.3, 0.4, 0.5, 0.6, "tournament", 4, False, log_period=8
    )
