"""``tensortide plan TRACE --policies`` as a user runs it: table, files, errors."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tensortide.replays.g10 import POLICIES
from tests.cli.command import called
from tests.studies.planning.test_g10_comparison import write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "trace")
    return tmp_path


def test_policies_and_our_plan_are_printed_and_written_side_by_side(folder: Path) -> None:
    machine = ("--offload", "host,ssd", "--host-link", "4GB/s,45us", "--ssd-link", "1GB/s,65us", "--host-memory", "1GB")
    asked = (
        "plan",
        "trace",
        "--policies",
        "all",
        "--budget",
        "60MiB",
        *machine,
        "--effort",
        "0.01",
        "--time-limit",
        "3",
    )
    done = called(folder, *asked, "--json", "--csv", "policies.csv", "--figure", "policies.png")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    table = found["sections"]["policies"]["tables"]["policies"]
    assert table["policy"] == [*(row.title for row in POLICIES.values()), "ours"]
    ideal, *times, ours = table["step_ns"]
    assert ideal <= ours
    assert all(time is None or ours <= time for time in times)
    assert "wire 4 GB/s, drive 1 GB/s" in found["subtitle"][0]
    assert (folder / "policies.png").stat().st_size > 10_000
    with (folder / "policies.csv").open(encoding="utf-8") as file:
        assert len(list(csv.reader(file))) == 1 + len(table["policy"])


def test_a_trace_that_fits_is_played_on_the_authors_machine(folder: Path) -> None:
    done = called(folder, "plan", "trace", "--policies", "ideal,g10")
    assert done.returncode == 0, done.stderr
    assert "40.00 GiB on the device" in done.stdout
    assert "Ours: 30.0 ms, 0 % over the ideal time" in done.stdout


def test_a_budget_that_no_plan_can_keep_is_a_no(folder: Path) -> None:
    done = called(folder, "plan", "trace", "--policies", "ideal", "--budget", "1KiB")
    assert done.returncode == 1, done.stderr
    assert "no plan fits 1,024 bytes" in " ".join(done.stdout.split())


def test_an_unknown_policy_is_one_message(folder: Path) -> None:
    done = called(folder, "plan", "trace", "--policies", "lru")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: --policies: there is no policy 'lru': it is all, or some of ideal, uvm-lru, flashneuron, deepum, "
        "g10-gds, g10-host, g10\n"
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--policies", "all", "--torch", "less.py"], "--torch and --policies exclude each other"),
        (["--policies", "all", "--plan", "p.json"], "--plan and --policies exclude each other"),
        (["--policies", "all", "--order", "free"], "--order and --policies exclude each other"),
        (["--policies", "all", "--pin", "parameter"], "--pin and --policies exclude each other"),
        (["--policies", "all", "--against", "p.json"], "--against and --policies exclude each other"),
        (["--policies", "all", "--keep-random"], "--keep-random and --policies exclude each other"),
        (["--compat-memory", "--budget", "50%"], "--compat-memory goes with --policies"),
    ],
)
def test_options_that_a_comparison_would_ignore_are_refused(tmp_path: Path, options: list[str], named: str) -> None:
    run = called(tmp_path, "plan", "mlp", *options)
    assert run.returncode == 2
    assert named in run.stderr
    assert not list(tmp_path.iterdir())
