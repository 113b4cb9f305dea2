"""The machine at hand: which calibration is taken, what its rates become, and the store that has both."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from tensortide.timing import device, host
from tensortide.timing.calibration import Calibration, Rates, Stored, Underway, path_for, save
from tensortide.timing.durations import Platform
from tensortide.timing.estimates import Provenance
from tensortide.timing.families import VIEW
from tensortide.timing.intervals import WIDE, Pool, Quantiles
from tensortide.timing.local import Local, device_of, local, of
from tensortide.timing.models.constants import ANY
from tensortide.timing.models.saturating import PRODUCTS
from tensortide.timing.predict import predict
from tensortide.timing.store import folder, path_of, paths_of, software_of
from tensortide.timing.work import Work, elementwise, product
from tests.timing.test_calibration import MACHINE, RATES, calibration

MEASURED = Rates(
    flops_per_s={"float32": 1e12, "float64": 2e12, "bfloat16": 3e12, "float16": 4e12, "tf32": 5e12},
    bytes_per_s=6e11,
    links={"host to device": 7e9, "device to host": 8e9, "device to device": 9e9},
)


@pytest.fixture(scope="module")
def found() -> Calibration:
    return calibration()


def pool(half: float) -> Pool:
    return Pool(Quantiles(half, 2 * half, 40))


def test_measured_rates_take_the_place_of_those_of_the_catalogue_and_nothing_else_does() -> None:
    card = Platform(device="cuda", name="NVIDIA L4")  # at 72 W it may not hold its clock, unless that was measured
    row, here = device("L4"), device_of(card, MEASURED, 2_000_000)
    assert {name: getattr(here, f"{name}_tflops") for name in ("fp32", "fp64", "bf16", "fp16", "tf32")} == {
        "fp32": 1,
        "fp64": 2,
        "bf16": 3,
        "fp16": 4,
        "tf32": 5,
    }
    assert (here.memory_gbytes_per_s, here.l2_mbytes) == (600, 2)
    assert (here.pcie_gbytes_per_s, here.intra_link_gbytes_per_s) == (7, 9)
    assert (here.kind, here.arch, here.tdp_watts) == ("gpu", "", None)
    assert (here.memory_gbytes, here.compute_units, here.int8_tops) == (row.memory_gbytes, row.compute_units, 242)
    assert device_of(card, RATES).l2_mbytes == row.l2_mbytes
    assert device_of(MACHINE, MEASURED).kind == "cpu"


def test_the_calibration_of_this_software_is_taken_before_a_newer_one(found: Calibration, tmp_path: Path) -> None:
    one, many = (msgspec.structs.replace(MACHINE, threads=count) for count in (2, 64))
    save(Stored(found), path_for(one, tmp_path))
    newer = save(Stored(msgspec.structs.replace(found, machine=many)), path_for(many, tmp_path))
    os.utime(newer, (2e9, 2e9))
    here, warnings = local(one, tmp_path)
    assert isinstance(here, Local)
    assert (here.calibration.machine.threads, here.same, warnings) == (2, True, ())


def test_a_calibration_that_is_not_complete_is_said_and_not_used(found: Calibration, tmp_path: Path) -> None:
    path = path_for(MACHINE, tmp_path)
    begun = Underway(when="2026-01-01T00:00:00+00:00", clock="thread", before=RATES)
    save(Stored(None, begun), path)
    here, (half, none) = local(MACHINE, tmp_path)
    assert not isinstance(here, Local)
    assert "is not complete (0 steps measured), so it is not used yet. Go on with it: tensortide time calibrate" in half
    assert "is not calibrated" in none
    save(Stored(found, begun), path)
    here, warnings = local(MACHINE, tmp_path)
    assert isinstance(here, Local)
    assert warnings == (half,)


def test_of_other_calibrations_the_newest_is_taken_and_said(found: Calibration, tmp_path: Path) -> None:
    for latest, threads in ((1e9, 4), (3e9, 8), (2e9, 16)):
        machine = msgspec.structs.replace(MACHINE, threads=threads)
        path = save(Stored(msgspec.structs.replace(found, machine=machine)), path_for(machine, tmp_path))
        os.utime(path, (latest, latest))
    here, (warning,) = local(MACHINE, tmp_path)
    assert isinstance(here, Local)
    assert (here.calibration.machine.threads, here.same) == (8, False)
    assert "on 8 threads, and this is torch 2.13.0 on 2 threads: intervals are a factor of 2" in warning


def test_what_bounds_an_op_is_the_longer_of_its_arithmetic_and_its_bytes(found: Calibration) -> None:
    here = of(found)
    large, moving = predict([product(2048, 2048, 2048), elementwise(30_000, 1000)], here)
    assert (large.bound, moving.bound) == ("compute", "memory")
    assert large.ns >= 2 * 2048**3 / 100  # never faster than the measured peak
    free = {name: msgspec.structs.replace(one, compute=9.0) for name, one in found.model.families.items()}
    loose = msgspec.structs.replace(found, model=msgspec.structs.replace(found.model, families=free))
    kernels = predict([product(2048, 2048, 2048)], of(loose))[0]  # of a library that was measured at 9 times the peak
    assert kernels.ns >= 2 * 2048**3 / 100 / 9


def test_intervals_are_those_of_the_family_and_of_what_lies_outside(found: Calibration) -> None:
    pools = {"mm": pool(0.1), PRODUCTS: pool(0.2), ANY: pool(0.3), VIEW: pool(0.4)}
    here = of(msgspec.structs.replace(found, pools=pools, outside=pool(0.5)))
    cases = [
        (product(256, 256, 256), Provenance.CALIBRATED, 0.1),
        (product(1 << 14, 256, 256), Provenance.EXTRAPOLATED, 0.5),
        (elementwise(300, 1000), Provenance.CALIBRATED, 0.3),
        (Work(VIEW), Provenance.CALIBRATED, 0.4),
    ]
    for each, (work, provenance, half) in zip(predict([c[0] for c in cases], here), cases, strict=True):
        assert (each.provenance, each.below, each.above) == (provenance, half, 2 * half), work
    assert here.calibration.pool("bmm", Provenance.CALIBRATED) == pool(0.2)
    other = predict([cases[0][0]], of(here.calibration, same=False))[0]
    assert (other.provenance, other.below) == (Provenance.EXTRAPOLATED, WIDE.all.below)


def test_the_best_of_two_measurements_of_the_ceilings_counts_and_any_change_is_drift() -> None:
    low = Rates(flops_per_s={"float32": 1e11, "float64": 5e10}, bytes_per_s=1e10, noise_share=0.1, links={"x": 1.0})
    high = Rates(flops_per_s={"float32": 2e11}, bytes_per_s=3e10, noise_share=0.3, links={"x": 2.0, "y": 3.0})
    for best in (low.best(high), high.best(low)):
        assert best.flops_per_s == {"float32": 2e11, "float64": 5e10}
        assert (best.bytes_per_s, best.noise_share, best.links) == (3e10, 0.3, {"x": 2.0, "y": 3.0})
    slower = Rates(flops_per_s={"float32": 1e11}, bytes_per_s=2.5e10)
    assert high.drift(slower) == pytest.approx(0.5)  # a fall counts as a rise does
    assert slower.drift(high) == pytest.approx(1.0)


# -- the store and the host -------------------------------------------------------------------------


def test_files_of_a_device_are_its_own_and_the_newest_comes_first(tmp_path: Path) -> None:
    names = [("A core", "torch 2.1"), ("A core", "torch 2.2"), ("A core II", "torch 2.1")]
    for when, (name, software) in enumerate(names, 1):
        path = path_of(name, software, ".x", tmp_path)
        path.write_text("")
        os.utime(path, (when, when))
    assert paths_of("A core", ".x", tmp_path) == [
        path_of(*names[1], ".x", tmp_path),
        path_of(*names[0], ".x", tmp_path),
    ]
    assert paths_of("A core", ".y", tmp_path) == []
    assert paths_of("A core", ".x", tmp_path / "none") == []


def test_the_store_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TENSORTIDE_MEASURED", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert folder() == Path.home() / ".cache" / "tensortide" / "measured"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder() == tmp_path / "tensortide" / "measured"
    monkeypatch.setenv("TENSORTIDE_MEASURED", str(tmp_path / "mine"))
    assert folder() == tmp_path / "mine"


def test_software_is_the_minor_version_and_on_a_cpu_the_threads() -> None:
    assert software_of(MACHINE) == "torch 2.13 2 threads"
    assert software_of(Platform(device="cuda", name="T4", threads=2, versions={"torch": "2.9.1+cu128"})) == "torch 2.9"
    assert software_of(Platform(device="cpu", name="x", threads=2)) == ""


def test_the_last_level_cache_is_the_largest_in_binary_units(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for index, text in enumerate(("48K", "2M", "1024", "junk", "")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(f"{text}\n")
    monkeypatch.setattr(host, "_CACHES", tmp_path)
    assert host.cache_bytes() == 2 << 20
    (tmp_path / "index1" / "size").write_text("1G")
    assert host.cache_bytes() == 1 << 30
    monkeypatch.setattr(host, "_CACHES", tmp_path / "none")
    assert host.cache_bytes() is None


def test_memory_is_what_is_left_of_the_system_and_of_the_container(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = {"MemAvailable": "1000 kB"}
    monkeypatch.setattr(host, "_line_of", lambda file, key: text.get(key, ""))
    monkeypatch.setattr(host, "_GROUP", tmp_path)
    assert host.available_bytes() == 1_024_000
    (tmp_path / "memory.current").write_text("300000")
    (tmp_path / "memory.max").write_text("max")
    assert host.available_bytes() == 1_024_000
    for limit, left in ((800_000, 500_000), (100_000, 0), (9_000_000, 1_024_000)):
        (tmp_path / "memory.max").write_text(str(limit))
        assert host.available_bytes() == left
    text.clear()
    (tmp_path / "memory.max").unlink()
    assert host.available_bytes() is None


def test_the_load_is_that_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (1.234, 5.0, 9.0))
    assert host.load_average() == 1.23
