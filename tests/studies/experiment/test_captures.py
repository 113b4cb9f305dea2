"""Steps of an experiment: each is captured once, and what is read of it is what was captured."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import RequestError
from tensortide.importers.imported import Imported
from tensortide.studies.experiment import captures
from tensortide.studies.experiment.captures import is_shared, simulator_for, step_for
from tensortide.studies.experiment.results import Repetition
from tensortide.studies.experiment.trials import Scalar, Trial
from tensortide.studies.experiment.ways import Asked, simulated
from tensortide.targets.durations import timed
from tensortide.timing.durations import beside
from tests.graphs import path_of

BASE = Trial(workload="mlp", set={"batch": 4, "inputs": 3, "hidden": 3})
UNDER = Trial(workload="mlp", set=BASE.set, policy="lru")
WIDE: dict[str, Scalar] = {"batch": 64, "inputs": 3, "hidden": 3}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Imported]:
    """The steps that are captured meanwhile."""
    found: list[Imported] = []

    def counted(*given: Any) -> Imported:
        found.append(timed(*given))
        return found[-1]

    monkeypatch.setattr("tensortide.studies.experiment.captures.timed", counted)
    monkeypatch.setattr(captures, "_played", {})
    monkeypatch.setattr(captures, "made", set())
    return found


def test_the_baseline_captures_and_the_others_read_it(made: list[Imported], tmp_path: Path) -> None:
    file = str(tmp_path / "captures/key.tide")
    assert not is_shared(UNDER, file)
    first = step_for(BASE, file, measure=False)
    assert is_shared(UNDER, file)
    assert not is_shared(BASE, file)
    second = step_for(UNDER, file, measure=False)
    assert len(made) == 1
    assert made[0].durations is not None
    assert first.graph == second.graph == made[0].graph
    assert first.durations_ns == second.durations_ns == tuple(made[0].durations.ns)
    step_for(BASE, file, measure=False)  # a baseline that runs again, in another version of its file
    assert len(made) == 2


def test_a_capture_that_was_deleted_is_made_again(made: list[Imported], tmp_path: Path) -> None:
    step_for(UNDER, str(tmp_path / "captures/key.tide"), measure=False)
    assert len(made) == 1


@pytest.mark.parametrize("end", [0, 100])
@pytest.mark.parametrize("which", ["graph", "durations"])
def test_a_capture_that_is_damaged_is_made_again(which: str, end: int, made: list[Imported], tmp_path: Path) -> None:
    file = tmp_path / "captures/key.tide"
    step_for(BASE, str(file), measure=False)
    damaged = file if which == "graph" else beside(file)
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:end])
    step_for(UNDER, str(file), measure=False)
    assert damaged.read_bytes() == whole
    assert len(made) == 2
    assert captures.made == {str(file)}  # the process takes no other trial


def test_a_trial_is_of_the_step_of_its_baseline(made: list[Imported], tmp_path: Path) -> None:
    files, found = [tmp_path / f"captures/{name}.tide" for name in "ab"], list[Repetition]()
    _, step = (
        simulated(Asked(trial=trial, capture=str(file)), found.append).step
        for file, trial in zip(files, (BASE, Trial(workload="mlp", set=WIDE)), strict=True)
    )
    assert step
    for pair in (files, map(beside, files)):
        shutil.copy(*pair)  # another step where that of WIDE was, its times with it
    captures._played.clear()  # trials run in another process
    under = Trial(workload="mlp", set=WIDE, policy="lru")
    simulated(Asked(trial=under, budget_bytes=1 << 20, capture=str(files[1]), step=step), found.append)
    assert len(made) == 3
    assert found[-1].peak_bytes == found[-2].peak_bytes > found[-3].peak_bytes
    simulated(Asked(trial=under, budget_bytes=1 << 20, capture=str(files[1]), step=step), found.append)
    assert len(made) == 3


def test_a_step_that_has_changed_since_its_baseline_is_refused(made: list[Imported], tmp_path: Path) -> None:
    file = tmp_path / "captures/key.tide"
    step = simulated(Asked(trial=BASE, capture=str(file)), lambda found: None).step
    changed = Trial(workload="mlp", set=WIDE, policy="lru")  # stands for a workload whose imports have changed
    for of in (changed, Trial(workload=str(path_of("mlp_activations")), policy="lru")):
        with pytest.raises(RequestError, match="changed since the baseline ran: give --out another folder"):
            simulator_for(of, str(tmp_path / "captures/other.tide"), step)
    assert not (tmp_path / "captures/other.tide").exists()


@pytest.mark.parametrize("deallocation", ["eager", "ignore"])
def test_a_simulation_of_what_was_kept_is_that_of_the_step(
    deallocation: Any, made: list[Imported], tmp_path: Path
) -> None:
    trial = Trial(workload="mlp", set=WIDE, policy="dtr-eq", deallocation=deallocation)
    found: list[Repetition] = []
    for capture in ("", str(tmp_path / "captures/key.tide"), str(tmp_path / "captures/key.tide")):
        assert simulated(Asked(trial=trial, budget_bytes=11_500, capture=capture), found.append).batch == 64
    assert found[0] == found[1] == found[2]
    assert found[0].evictions
    assert len(made) == 1


def test_a_step_that_is_a_file_is_read_from_it(made: list[Imported], tmp_path: Path) -> None:
    trial = Trial(workload=str(path_of("mlp_activations")), policy="lru")
    assert simulator_for(trial, str(tmp_path / "captures/key.tide")).schedule.model_ns
    assert not made
    assert not [*tmp_path.iterdir()]
