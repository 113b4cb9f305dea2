"""Calibration: constants that are recovered, its file, the machine that it is of, and predictions by it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tensortide.errors import GraphFileError, TensortideError
from tensortide.reports.blocks import Note, Table
from tensortide.reports.sections.measurements import of_calibration
from tensortide.timelines.step import HostModel, step_timeline
from tensortide.timing import device, estimate
from tensortide.timing.calibration import Calibration, Chunk, Rates, Stored, Underway, load, path_for, save
from tensortide.timing.durations import Platform
from tensortide.timing.estimates import Provenance
from tensortide.timing.families import VIEW, works
from tensortide.timing.fit.calibration import fit_calibration
from tensortide.timing.intervals import LEAST
from tensortide.timing.local import Local, device_of, local, of
from tensortide.timing.models.constants import NAMES
from tensortide.timing.predict import predict
from tensortide.timing.rates import columns
from tensortide.timing.sequence import LARGE, in_sequence, reuse
from tensortide.timing.work import Work, elementwise, product
from tests.graphs import Builder
from tests.timing.test_saturating import made, product_ns

RATES = Rates(flops_per_s={"float32": 1e11}, bytes_per_s=2e10)  # 100 FLOP and 20 bytes per ns
MACHINE = Platform(device="cpu", name="A core", threads=2, versions={"torch": "2.13.0"})
BETWEEN_NS = 1000.0


def chunks(parts: int = 6) -> list[Chunk]:
    """Steps of the made-up device of ``test_saturating``, with ``BETWEEN_NS`` after each op, and views."""
    works, ns = made()
    found = []
    for part in range(parts):
        mine, times = works[part::parts], ns[part::parts]
        count = len(mine)
        whole = sum(times) + 500 + BETWEEN_NS * (count + 1)
        found.append(Chunk(f"step {part}", (*mine, Work(VIEW)), tuple(range(count + 1)), (*times, 500.0), whole))
    return found


def calibration(machine: Platform = MACHINE, after: Rates = RATES) -> Calibration:
    return fit_calibration(machine, "wall", "2026-01-02T03:04:05+00:00", chunks(), before=RATES, after=after)


@pytest.fixture(scope="module")
def found() -> Calibration:
    return calibration()


def test_a_fit_recovers_the_constants_of_a_made_up_machine(found: Calibration) -> None:
    here = of(found)
    sides = [(2, 100, 300, 700), (1, 900, 40, 1000), (4, 64, 512, 512)]
    moving = elementwise(3000, 1000)
    predicted = [one.ns for one in predict([*(product(m, n, k, batch=b) for b, m, n, k in sides), moving], here)]
    assert predicted == pytest.approx([*(product_ns(*side) for side in sides), 2000 + moving.nbytes / 10], rel=0.05)
    assert found.model.families[VIEW].launch_ns == pytest.approx(500)


def test_the_same_steps_give_the_same_constants(found: Calibration) -> None:
    assert calibration() == found


def test_what_was_fitted_to_is_calibrated_and_what_lies_beyond_is_not(found: Calibration) -> None:
    here = of(found)
    kinds = {
        Provenance.CALIBRATED: product(256, 256, 256),
        Provenance.EXTRAPOLATED: product(1 << 14, 256, 256),
        Provenance.UNKNOWN: Work("other_memory", known=False),
    }
    for kind, work in kinds.items():
        assert predict([work], here)[0].provenance is kind
    assert predict([Work("softmax", read_bytes=4000)], here)[0].provenance is Provenance.EXTRAPOLATED
    assert predict([product(256, 256, 256, dtype="int8")], here)[0].provenance is Provenance.UNKNOWN
    half = predict([product(256, 256, 256, dtype="float64")], device_of(MACHINE, RATES))
    assert half[0].provenance is Provenance.UNKNOWN  # its rate was not measured


def few(count: int) -> Calibration:
    """A calibration with ``count`` softmaxes more, of growing sizes that the bandwidth bounds."""
    asked = [elementwise(3000 * (i + 1), 1000, family="softmax") for i in range(count)]
    ns = [2000 + work.nbytes / 10 for work in asked]
    more = Chunk("softmaxes", tuple(asked), tuple(range(count)), tuple(ns), sum(ns) + BETWEEN_NS * count)
    steps = [*chunks(), more]
    return fit_calibration(MACHINE, "wall", "2026-01-02T03:04:05+00:00", steps, before=RATES, after=RATES)


def test_ops_of_one_family_that_no_other_step_has_count_as_one() -> None:
    count, steps = LEAST + 1, chunks()
    for kind in range(count):
        asked = [elementwise(3000 * (kind + 1) + i, 1000, family=f"kind {kind}") for i in range(9)]
        ns = [2000 + work.nbytes / 10 for work in asked]
        steps.append(Chunk(f"step of {kind}", tuple(asked), tuple(range(9)), tuple(ns), sum(ns) + 9 * BETWEEN_NS))
    there = fit_calibration(MACHINE, "wall", "2026-01-02T03:04:05+00:00", steps, before=RATES, after=RATES)
    assert count <= there.outside.all.count < 3 * count


def test_a_family_of_fewer_than_four_samples_is_extrapolated() -> None:
    work = elementwise(6000, 1000, family="softmax")
    for count, kind in ((3, Provenance.EXTRAPOLATED), (4, Provenance.CALIBRATED)):
        there = few(count)
        found = predict([work], of(there))[0]
        outside = there.outside.of(found.ns)
        assert found.provenance is kind
        assert ((found.below, found.above) == (outside.below, outside.above)) is (count < 4)
        assert found.ns == pytest.approx(2000 + work.nbytes / 10, rel=0.1)


def test_constants_that_no_sample_says_anything_of_are_not_identified_and_ops_resting_on_them_extrapolated() -> None:
    there = few(8)
    row = there.model.families["softmax"]
    assert {name: row.identified(name) for name in NAMES} == {"compute": False, "memory": True, "launch_ns": False}
    moving = elementwise(6000, 1000, family="softmax")
    thinking = moving._replace(vector_flops=10**10)
    assert [each.provenance for each in predict([moving, thinking], of(there))] == [
        Provenance.CALIBRATED,
        Provenance.EXTRAPOLATED,
    ]
    (shown,) = (block for block in of_calibration(there)["calibration"].blocks if isinstance(block, Table))
    cells = {column.key: column.values for column in shown.columns}
    place = cells["family"].index("softmax")
    assert (cells["compute_share"][place], cells["launch_ns"][place]) == (None, None)
    assert cells["memory_share"][place] == pytest.approx(0.5, rel=0.05)
    assert any(
        isinstance(block, Note) and block.text.startswith("Blank")
        for block in of_calibration(there)["calibration"].blocks
    )


def test_no_prediction_is_shorter_than_the_arithmetic_at_the_measured_peak(found: Calibration) -> None:
    for side in (64, 256, 1024, 4096):
        assert predict([product(side, side, side)], of(found))[0].ns >= 2 * side**3 / 100


def test_ceilings_that_drift_widen_the_interval_of_steps(found: Calibration) -> None:
    moved = calibration(after=Rates(flops_per_s={"float32": 0.6e11}, bytes_per_s=2e10))
    assert moved.drift_share == pytest.approx(0.4)
    assert moved.rates == found.rates
    assert moved.step_share >= math.log(1.4) > found.step_share


def test_a_step_is_followed_by_the_work_between_ops_and_its_interval_is_that_of_steps(found: Calibration) -> None:
    builder = Builder()
    tensor = builder.storage(4_000_000)
    for birth in range(3):
        result = builder.storage(4_000_000, birth=birth)
        builder.op([tensor], [result], name="aten.relu.default")
        tensor = result
    graph = builder.graph()
    wide = msgspec.structs.replace(found, step_share=0.9)
    durations = estimate(graph, of(found))
    line = step_timeline(graph, durations, of(wide))
    refills = [found.model.sequel.refills(columns([row], of(found))) for row in in_sequence(graph, *works(graph))[0]]
    assert not np.concatenate(refills).any()  # nothing lies between ops of one kind
    whole = sum(durations.ns) * (1 + found.overhead) + 3 * found.between_ns
    assert line.estimate.time_ns == pytest.approx(whole, abs=9)
    assert line.estimate.low_ns == pytest.approx(whole * math.exp(-0.9), rel=1e-3)
    assert "calibrated 2026-01-02 with torch 2.13.0 on 2 threads" in durations.source


# -- the sequence of a step --------------------------------------------------------------------------


def test_bytes_are_counted_from_the_last_op_of_the_same_name_on_and_the_step_repeats() -> None:
    names, nbytes = ["mm", "relu", "mm", "copy"], [100, 1000, 100, 5000]
    # mm after the copy of the step before; relu after mm, copy, mm; mm after relu; copy after mm, relu, mm
    assert reuse(names, nbytes) == [4096, 4096, 512, 1024]
    assert reuse(["view"] * 5, [0] * 5) == [0] * 5


def test_ops_after_others_and_new_pages_take_longer_as_they_were_measured_to() -> None:
    """A made-up machine on which ops take 8 us more where 40 MB lie between, and 0.3 ns for each byte of new pages."""
    works, ns = made()
    placed = [
        (
            [work._replace(after_bytes=after, fresh_bytes=fresh) for work in works],
            [time + 8000 * (after / 4e6) ** 2 / (1 + (after / 4e6) ** 2) + 0.3 * fresh for time in ns],
        )
        for after, fresh in ((0, 0), (1 << 20, 0), (1 << 22, 0), (40_000_000, 0), (0, LARGE))
    ]
    steps = [
        Chunk(f"step {i}", tuple(made_), tuple(range(len(made_))), tuple(times), sum(times) + 1000.0 * len(times))
        for i, (made_, times) in enumerate(placed)
    ]
    fitted = fit_calibration(MACHINE, "wall", "2026-01-02T03:04:05+00:00", steps, before=RATES, after=RATES)
    added = fitted.model.sequel
    assert added.refill_ns == pytest.approx(8000, rel=0.15)
    assert added.refill_bytes == pytest.approx(4e6, rel=0.15)
    assert added.page_ns == pytest.approx(0.3, rel=0.1)
    small = elementwise(4, 16)
    near, far = predict([small, small._replace(after_bytes=40_000_000)], of(fitted))
    assert far.ns - near.ns == pytest.approx(8000, rel=0.2)


# -- the store --------------------------------------------------------------------------------------


def test_a_file_gives_back_what_was_saved(found: Calibration, tmp_path: Path) -> None:
    stored = Stored(found, Underway(when=found.when, clock="wall", before=RATES, chunks=tuple(chunks())))
    assert load(save(stored, path_for(MACHINE, tmp_path / "new"))) == stored
    assert load(tmp_path / "missing") == Stored()


def test_only_a_calibration_of_this_machine_is_used(found: Calibration, tmp_path: Path) -> None:
    save(Stored(found), path_for(MACHINE, tmp_path))
    here, warnings = local(MACHINE, tmp_path)
    assert isinstance(here, Local)
    assert (here.name, here.same, warnings) == ("A core", True, ())
    other = msgspec.structs.replace(MACHINE, name="Another core")
    save(Stored(found), path_for(other, tmp_path))  # moved there by hand
    guess, (warning,) = local(other, tmp_path)
    assert not isinstance(guess, Local)
    assert "Another core is not calibrated" in warning
    assert "tensortide time calibrate" in warning


@pytest.mark.parametrize("changes", [{"threads": 1}, {"versions": {"torch": "2.14.1"}}])
def test_other_threads_or_software_are_said_and_are_not_calibrated(
    changes: dict[str, object], found: Calibration, tmp_path: Path
) -> None:
    save(Stored(found), path_for(MACHINE, tmp_path))
    machine = msgspec.structs.replace(MACHINE, **changes)
    here, (warning,) = local(machine, tmp_path)
    assert "was calibrated with torch 2.13.0 on 2 threads" in warning
    (one,) = predict([product(256, 256, 256)], here)
    assert one.provenance is Provenance.EXTRAPOLATED
    assert one.below > 0.6
    save(Stored(calibration(machine)), path_for(machine, tmp_path))
    assert local(machine, tmp_path)[1] == ()


def test_a_damaged_store_is_one_warning_and_none_of_it_is_used(found: Calibration, tmp_path: Path) -> None:
    path = save(Stored(found), path_for(MACHINE, tmp_path))
    content = json.loads(path.read_text())
    negative = json.loads(path.read_text())
    negative["stored"]["calibration"]["model"]["families"]["mm"]["compute"] = -1.0
    pooled = json.loads(path.read_text())
    del pooled["stored"]["calibration"]["model"]["families"]["any"]
    damaged = [
        path.read_bytes()[:-40],
        json.dumps(negative).encode(),
        json.dumps(pooled).encode(),
        json.dumps(content | {"version": 9}).encode(),
        json.dumps(content | {"format": "other"}).encode(),
        b"",
    ]
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(GraphFileError, match=path.name):
            load(path)
        guess, (first, second) = local(MACHINE, tmp_path)
        assert not isinstance(guess, Local)
        assert path.name in first
        assert "It is not used" in first
        assert "not calibrated" in second


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("calibration", "step"), 1e6),
        (("calibration", "overhead"), 1e30),
        (("calibration", "between_ns"), 1e30),
        (("calibration", "cache_bytes"), -5),
        (("calibration", "machine", "threads"), -3),
        (("calibration", "model", "families", "mm", "launch_ns"), 1e300),
        (("calibration", "outside", "all", "below"), -5.0),
        (("underway", "when"), "yesterday"),
        (("underway", "when"), "2026-01-02T03:04:05"),
    ],
)
def test_absurd_values_in_a_store_are_damage(
    found: Calibration, tmp_path: Path, place: tuple[str, ...], value: object
) -> None:
    underway = Underway(when="2026-01-02T03:04:05+00:00", clock="wall", before=found.before)
    path = save(Stored(found, underway), path_for(MACHINE, tmp_path))
    content = json.loads(path.read_text())
    *outer, last = place
    where = content["stored"]
    for name in outer:
        where = where[name]
    assert last in where
    where[last] = value
    path.write_text(json.dumps(content))
    with pytest.raises(GraphFileError, match=path.name):
        load(path)


def test_an_uncalibrated_machine_is_that_of_the_catalogue_or_a_guess_for_its_threads(tmp_path: Path) -> None:
    gpu = Platform(device="cuda", name="NVIDIA H100 PCIe")
    assert local(gpu, tmp_path)[0] == device("H100-PCIe-80GB")
    guess, (warning,) = local(MACHINE, tmp_path)
    assert (guess.fp32_tflops, guess.memory_gbytes_per_s) == (0.2, 20.0)
    assert "0.2 TFLOP/s in fp32 and 20 GB/s are assumed for 2 threads" in warning
    assert warning.endswith("tensortide time calibrate")
    assert predict([product(256, 256, 256)], guess)[0].provenance is Provenance.PHYSICS


def test_a_gpu_that_nobody_knows_is_an_error_and_one_of_the_catalogue_says_how_to_calibrate(tmp_path: Path) -> None:
    with pytest.raises(TensortideError, match=r"neither in the catalogue nor calibrated.*calibrate --device cuda"):
        local(Platform(device="cuda", name="A GPU of next year"), tmp_path)
    (warning,) = local(Platform(device="cuda", name="NVIDIA H100 PCIe"), tmp_path)[1]
    assert "51 TFLOP/s in fp32 and 2000 GB/s are by the catalogue" in warning
    assert warning.endswith("tensortide time calibrate --device cuda")


def test_the_step_of_a_cpu_that_is_not_calibrated_has_an_interval_of_a_factor_of_2(
    found: Calibration, tmp_path: Path
) -> None:
    builder = Builder()
    builder.op([builder.storage(4_000_000)], [builder.storage(4_000_000, birth=0)], name="aten.relu.default")
    graph = builder.graph()
    guess = local(MACHINE, tmp_path)[0]
    for here in (guess, of(found, same=False)):
        line = step_timeline(graph, estimate(graph, here), here).estimate
        assert line.high_ns / line.time_ns > 1.99
        assert line.time_ns / line.low_ns > 1.99
    assert HostModel.of(of(found)).least == found.step_share < 0.1
    durations = estimate(graph, guess)
    assert durations.forecast is not None
    (row,) = durations.forecast.rows
    known = msgspec.structs.replace(row, below=0.03, above=0.03, provenance=Provenance.MEASURED)
    stored = msgspec.structs.replace(durations.forecast, rows=(known,))
    line = step_timeline(graph, msgspec.structs.replace(durations, forecast=stored), guess).estimate
    assert line.high_ns / line.time_ns < 1.04  # a step of calls that were measured is known
    assert "(assumed for 2 threads: fp32 0.2 TFLOP/s, 20 GB/s; run tensortide time" in estimate(graph, guess).source


@pytest.mark.parametrize("index", [(), (0, 3), (-1,)])
def test_a_measured_step_has_one_work_and_one_time_per_op(index: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="one work and one time per op"):
        Chunk("a step", (Work("mm"),), index, (1.0,) * len(index), 1.0)


def test_rates_are_positive_and_have_one_of_float32() -> None:
    for flops, nbytes in (({}, 1.0), ({"float32": 0.0}, 1.0), ({"float32": 1.0}, -1.0)):
        with pytest.raises(ValueError, match="rates are positive"):
            Rates(flops_per_s=flops, bytes_per_s=nbytes)
