"""``tensortide capture -o step.log``: a captured step as a DTR log, which simulates like the step itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensortide.cli import main
from tensortide.errors import RequestError
from tensortide.graph import load
from tensortide.importers.dtrlog.read import read_recording
from tensortide.plans.remat.schedule import recorded
from tensortide.replays.remat import Simulator
from tensortide.targets.requests import CaptureRequest, TimedRequest
from tensortide.targets.saving import G10Request, SaveRequest, answer
from tensortide.timing import device, estimate
from tests.graphs import path_of, stored


def test_a_log_of_a_step_simulates_like_the_step(tmp_path: Path) -> None:
    path, graph = tmp_path / "step.jsonl.gz", stored("gpt2_cpu")
    with pytest.raises(SystemExit) as ended:
        main(["capture", str(path_of("gpt2_cpu")), "-o", str(path)])
    assert ended.value.code == 0
    own = Simulator(recorded(graph, estimate(graph, device("A100-SXM-80GB")).ns), workspace=False)
    log = Simulator(read_recording(path))
    own.schedule.gradient[:] = log.schedule.gradient[:] = 0  # which differ by one: a log has no sums and no roots
    assert own.baseline_bytes == log.baseline_bytes
    constants = own.schedule.constant_bytes
    for share in (0.9, 0.8, 0.7):
        budget = constants + int((own.baseline_bytes - constants) * share)
        mine, its = own.run("dtr-eq", budget), log.run("dtr-eq", budget)
        assert (mine.status, mine.clock_ns, mine.peak_bytes) == (its.status, its.clock_ns, its.peak_bytes)
        assert mine.counts[1:] == its.counts[1:]


def test_a_measurement_without_a_log_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["capture", "mlp", "-o", str(tmp_path / "mlp.tide"), "--measure"])
    assert ended.value.code == 2
    assert "--durations and --measure go with a log" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_python_asks_the_same(tmp_path: Path) -> None:
    settings = CaptureRequest(set=("inputs=8", "hidden=8", "classes=4", "batch=2"))
    graph, path = answer(SaveRequest(target="mlp", output=tmp_path / "small.tide", step=TimedRequest(capture=settings)))
    assert len(load(path)) == len(graph)
    again, log = answer(SaveRequest(target=str(path), output=tmp_path / "small.log"))
    assert len(again) == len(graph)
    assert len(read_recording(log).graph) > 0
    with pytest.raises(RequestError, match="--output and --g10 exclude each other"):
        SaveRequest(target=str(path), output=log, files=G10Request(g10=tmp_path))
