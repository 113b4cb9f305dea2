"""The machine at hand, calibrated: steps kept as they finish, interruptions, predictions of what was not measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tensortide
from tensortide.errors import CaptureError, OutputError, RequestError
from tensortide.profile.calibration import run
from tensortide.profile.calibration.plan import PLAN as WHOLE
from tensortide.profile.calibration.run import RESOLUTION_NS, calibrate, chunk_of
from tensortide.profile.host import chosen_threads, machine_of
from tensortide.profile.measure import measure
from tensortide.recorder import resolver
from tensortide.timelines.step import step_timeline
from tensortide.timing import Durations, Measurement, estimate, identity
from tensortide.timing.calibration import Rates, Stored, load, path_for, save
from tensortide.timing.durations import Sample
from tensortide.timing.families import FAMILIES, VIEW, works
from tensortide.timing.fit import saturating
from tensortide.timing.fit.robust import soft_l1
from tensortide.timing.local import Local, local, of
from tests.profile.tiny import PLAN, small_ceilings


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_ceilings():
        yield


@pytest.fixture
def _coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants are fitted in a round: nothing here depends on their values."""
    monkeypatch.setattr(saturating, "soft_l1", partial(soft_l1, rounds=1))


MEASURED: dict[tuple[str, str], Any] = {}


@pytest.fixture
def once(_coarse: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Steps are built as ever, and measured once for all tests of what becomes of their times."""

    def measured(build: Callable[[], Any], *, name: str, clock: Any, **how: Any) -> Any:
        made = build()
        if (name, clock) not in MEASURED:
            MEASURED[name, clock] = measure(lambda: made, name=name, clock=clock, **how)
        return MEASURED[name, clock]

    monkeypatch.setattr(run, "measure", measured)
    return measured


@pytest.mark.usefixtures("once")
def test_a_machine_is_calibrated_and_known_from_then_on(tmp_path: Path) -> None:
    said: list[str] = []
    found, path = calibrate(plan=PLAN, store=tmp_path, clock="thread", progress=said.append)
    assert found.steps == tuple(PLAN)
    assert f"step 1 of {len(PLAN)}: linear layers" in said
    assert found.machine.threads == 1
    assert load(path).underway is None
    here, warnings = local(found.machine, tmp_path)
    assert isinstance(here, Local)
    assert (here.calibration, warnings) == (found, ())


@pytest.mark.usefixtures("once")
def test_an_interrupted_calibration_goes_on_where_it_stopped(tmp_path: Path) -> None:
    def interrupt() -> Any:
        raise KeyboardInterrupt

    cut = {**PLAN, "products": interrupt}
    with pytest.raises(KeyboardInterrupt):
        calibrate(plan=cut, store=tmp_path, clock="thread")
    said: list[str] = []
    notes: list[str] = []
    found, path = calibrate(plan=PLAN, store=tmp_path, clock="thread", progress=said.append, note=notes.append)
    assert notes == ["going on with a calibration that was interrupted: 2 of 4 steps are measured"]
    assert [text for text in said if text.startswith("step")] == ["step 3 of 4: products", "step 4 of 4: pointwise ops"]
    assert found.steps == tuple(PLAN)
    with pytest.raises(KeyboardInterrupt):
        calibrate(plan=cut, store=tmp_path, clock="thread")
    assert load(path).calibration == found  # until the next one is complete, the last one counts


@pytest.mark.usefixtures("once")
def test_steps_that_were_measured_with_another_clock_are_measured_again(tmp_path: Path) -> None:
    def interrupt() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(plan={**PLAN, "products": interrupt}, store=tmp_path, clock="thread")
    notes: list[str] = []
    calibrate(plan=PLAN, store=tmp_path, clock="wall", threads=1, note=notes.append)
    assert notes == ["2 steps that were measured with the thread clock are measured again"]


@pytest.mark.usefixtures("once")
def test_a_calibration_that_another_process_completed_is_kept(tmp_path: Path) -> None:
    """Only what is complete counts, and steps that are underway do not delete it."""
    found, path = calibrate(plan=PLAN, store=tmp_path, clock="thread")
    path.unlink()

    def elsewhere() -> Any:
        save(Stored(found), path)
        return PLAN["products"]()

    def interrupt() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(plan={"first": elsewhere, "second": interrupt}, store=tmp_path, clock="wall", threads=1)
    kept = load(path)
    assert kept.calibration == found
    assert kept.underway is not None


@pytest.mark.usefixtures("once")
def test_an_old_interruption_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(plan={**PLAN, "pointwise ops": interrupt}, store=tmp_path, clock="thread")
    notes: list[str] = []
    monkeypatch.setattr(run, "FRESH", -run.FRESH)
    calibrate(plan=PLAN, store=tmp_path, clock="thread", note=notes.append)
    assert not notes


@pytest.mark.usefixtures("once")
def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    with chosen_threads(1):
        path = path_for(machine_of(()), tmp_path)
    path.write_bytes(b"{")
    notes: list[str] = []
    calibrate(plan=PLAN, store=tmp_path, clock="thread", note=notes.append)
    assert len(notes) == 1
    assert "It is replaced" in notes[0]


def test_a_late_step_is_measured_over_fewer_repetitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: Callable[..., Any]
) -> None:
    monkeypatch.setattr(run, "LIMIT_S", 0)
    seen: list[int] = []

    def counting(*args: Any, repeats: int, **how: Any) -> Any:
        seen.append(repeats)
        return once(*args, repeats=repeats, **how)

    monkeypatch.setattr(run, "measure", counting)
    calibrate(plan=PLAN, store=tmp_path, clock="thread")
    assert set(seen) == {run.FEWER}


def test_what_cannot_be_calibrated_is_an_error_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no device tpu here"):
        calibrate(plan=PLAN, store=tmp_path, device="tpu")
    with pytest.raises(CaptureError, match="one thread"):
        calibrate(plan=PLAN, store=tmp_path, clock="thread", threads=2)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is not a directory"):
        calibrate(plan=PLAN, store=tmp_path / "file" / "store")


def test_ops_that_launch_no_kernel_are_no_samples_of_an_accelerator() -> None:
    graph = tensortide.capture("mlp", hyperparameters={"batch": 2})
    ns = tuple(0 if op.is_view else 10 if op.index == 3 else 5000 for op in graph)
    ones = (1,) * len(graph)
    found = Measurement(how="step", clock="kernel", min_ns=ns, p90_ns=ns, samples=ones, step=Sample(10**9, 1, 1, 1))
    durations = Durations(ns, "test", "measured", 0, identity(graph), found)
    chunk = chunk_of("mlp", graph, durations)
    assert VIEW not in {chunk.works[i].family for i in chunk.index}
    assert len(chunk.index) == sum(n > 0 for n in ns)
    assert min(chunk.ns) in (RESOLUTION_NS, 5000)
    assert chunk.step_ns == sum(chunk.ns)  # the time in which the device waits is none of its ops


def test_a_step_of_the_cpu_has_samples_of_what_was_measured_and_its_median() -> None:
    graph = tensortide.capture("mlp", hyperparameters={"batch": 2})
    ns = tuple(10 if op.index == 1 else 1000 + op.index for op in graph)
    ones = (1,) * len(graph)
    step = Sample(median_ns=9000, min_ns=8000, p90_ns=9900, n=9)
    found = Measurement(how="step", clock="wall", min_ns=ns, p90_ns=ns, samples=ones, step=step, stand_ins={2: "why"})
    chunk = chunk_of("mlp", graph, Durations(ns, "test", "measured", 1, identity(graph), found))
    kept = [op for op in graph if op.index != 2]
    assert chunk.ns == tuple(float(RESOLUTION_NS if op.index == 1 else 1000 + op.index) for op in kept)
    assert chunk.step_ns == 9000
    assert [chunk.works[i].family == VIEW for i in chunk.index] == [op.is_view for op in kept]


@pytest.mark.usefixtures("once")
def test_the_file_has_the_ceilings_before_and_after_and_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = (Rates(flops_per_s={"float32": rate * 1e11}, bytes_per_s=rate * 1e10) for rate in (1, 2))
    measured = iter([before, after])
    monkeypatch.setattr(run, "measure_ceilings", lambda device, clock: next(measured))
    monkeypatch.setattr(run, "cache_bytes", lambda: 12345)
    found, _ = calibrate(plan=PLAN, store=tmp_path, clock="thread")
    assert (found.before, found.after, found.cache_bytes) == (before, after, 12345)


def test_steps_that_begin_in_time_are_measured_over_all_repetitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: Callable[..., Any]
) -> None:
    """The limit is shared evenly: of four steps the second may begin until half of it has passed."""
    seen: list[int] = []

    def counting(*args: Any, repeats: int, **how: Any) -> Any:
        seen.append(repeats)
        return once(*args, repeats=repeats, **how)

    monkeypatch.setattr(run, "measure", counting)
    times = iter([0, *(run.LIMIT_S * share for share in (0.2, 0.55, 0.7, 1.1))])
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: next(times)))
    calibrate(plan=PLAN, store=tmp_path, clock="thread")
    assert seen == [run.REPEATS, run.FEWER, run.REPEATS, run.FEWER]


@pytest.mark.slow
def test_the_steps_have_ops_of_every_family() -> None:
    found = set()
    for build in WHOLE.values():
        found |= {work.family.removesuffix("_small") for work in works(tensortide.capture(build), resolver)[0]}
    plain = {family.name for family in FAMILIES} - {
        "convolution",
        "linear",
    }  # what autograd makes of linear layers: addmm
    kinds = {f"convolution{way}_{kind}" for way in ("", "_backward") for kind in ("1x1", "kxk", "depthwise")}
    assert found >= plain | kinds | {"pointwise", "transcendental", "reduction", VIEW}


@pytest.mark.slow
def test_a_model_that_was_not_measured_takes_about_what_is_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "REPEATS", 3)
    names = ("linear layers", "3x3 convolutions", "pointwise ops", "small linear layers", "large images", "pooling")
    plan = {name: WHOLE[name] for name in (*names, "wide linear layers", "wide 3x3 convolutions", "products")}
    found, _ = calibrate(plan=plan, store=tmp_path, clock="thread")
    settings = {"batch": 4, "image": 64}
    graph, durations = measure("resnet18", hyperparameters=settings, repeats=3, clock="thread", threads=1)
    assert durations.measurement is not None
    assert durations.measurement.step is not None
    here = of(found)
    line = step_timeline(graph, estimate(graph, here, resolver=resolver), here)
    assert 0.5 < line.estimate.time_ns / durations.measurement.step.median_ns < 2
