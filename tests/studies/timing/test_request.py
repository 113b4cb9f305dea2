"""The times of a step, asked from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensortide.errors import ExitStatus, RequestError, UnknownCost, status_of
from tensortide.graph import load, save
from tensortide.recorder import capture
from tensortide.studies.timing.request import TimedStep, TimeRequest, answer
from tensortide.targets.requests import CaptureRequest, MeasureRequest, TimesRequest
from tensortide.timing import device, estimate, load_durations


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("timing") / "small.tide"
    save(capture("mlp", hyperparameters={"inputs": 8, "hidden": 8, "classes": 4, "batch": 2}), path)
    return path


def test_times_are_predicted_written_and_shown(graph: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    found = answer(TimeRequest(target=str(graph), output=file, capture=CaptureRequest(machines=("T4",))))
    assert isinstance(found, TimedStep)
    assert found.durations.ns == estimate(load(graph), device("T4")).ns == load_durations(file).ns
    assert found.wrote == (file,)
    assert [one.nodes.device.name for one in found.predicted] == ["T4"]
    assert [section.key for section in found.document().sections] == ["machines", "time"]
    assert "small.tide" in repr(found)  # it shows itself


def test_what_was_measured_stands_against_a_prediction(graph: Path, tmp_path: Path) -> None:
    (tmp_path / "times.csv").write_text("".join(f"{i},1000\n" for i in range(len(load(graph)))))
    how = MeasureRequest(recorded=tmp_path / "times.csv")
    found = answer(TimeRequest(target=str(graph), how=how, against="t4"))
    assert found.against is not None
    assert found.against.machine == "T4"
    assert set(found.durations.ns) == {1000}
    assert found.document().sections[-1].key == "against"


def test_what_is_unknown_cannot_be_answered_strictly(graph: Path) -> None:
    asked = TimeRequest(
        target=str(graph), how=MeasureRequest(strict=True), capture=CaptureRequest(machines=("tpu v4",))
    )
    with pytest.raises(UnknownCost) as caught:
        answer(asked)
    assert status_of(caught.value) is ExitStatus.CANNOT


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"times": TimesRequest(measure=True), "how": MeasureRequest(isolated=True)}, "--measure and --isolated"),
        ({"how": MeasureRequest(steps=3)}, "--steps goes with --measure or --isolated"),
        (
            {"output": Path("x.json"), "capture": CaptureRequest(machines=("t4", "l4"))},
            "--output takes a single",
        ),
    ],
)
def test_what_does_not_go_together_is_no_request(options: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        TimeRequest(target="mlp", **options)  # type: ignore[arg-type]
