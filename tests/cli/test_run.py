"""``tensortide run``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from tensortide.cli import main

SMALL = ["mlp", "--set", "batch=8", "--set", "inputs=16", "--set", "hidden=16", "--set", "layers=2", "--steps", "1"]


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = 0
    try:
        main(["run", *arguments])
    except SystemExit as error:
        status = int(error.code or 0)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_table_of_both_kinds_of_steps(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = output(capsys, *SMALL, "--budget", "1GiB")
    assert status == 0
    for part in ("mlp under 1.0", "dtr-eq", "Peak", "Ordinary step", "recomputed", "making room"):
        assert part in out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_device_that_is_not_there_is_an_error_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = output(capsys, *SMALL, "--budget", "1GiB", "--device", "cuda")
    assert (status, out, err.count("\n")) == (3, "", 1)
    assert "no cuda device was found: choose the device 'cpu'" in err


@pytest.mark.parametrize("real", [[], ["--real"]], ids=["fake", "real"])
def test_results_are_compared_with_those_of_ordinary_steps(capsys: pytest.CaptureFixture[str], real: list[str]) -> None:
    status, out, err = output(capsys, *SMALL, *real, "--budget", "1GiB", "--quiet")
    assert (status, err) == (0, "")
    assert "Results are those of ordinary steps, bit for bit, after 3 steps of each kind" in " ".join(out.split())
    _, out, _ = output(capsys, *SMALL, *real, "--budget", "1GiB", "--json")
    facts = json.loads(out)["sections"]["run"]["facts"]
    assert facts["results"] == "equal"
    assert facts["compared_steps"] == 3
    assert facts["compared_bytes"] > 0


CONVOLVED = """
import torch

def step(channels=4):
    model = torch.nn.Sequential(*(torch.nn.Conv2d(n, channels, 3, padding=1) for n in (3, channels, channels)))
    images = torch.rand(4, 3, 8, 8)

    def work():
        model(images).square().mean().backward()
        model.zero_grad()

    return work
"""


def test_workspace_over_the_budget_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Convolutions take more workspace than a small budget leaves: it is no bound on that."""
    (tmp_path / "file.py").write_text(CONVOLVED)
    for budget, is_over in ((24 << 10, True), (1 << 20, False)):
        target = (f"{tmp_path}/file.py:step", "--budget", f"{budget}B", "--steps", "1", "--no-plain", "--quiet")
        status, out, _ = output(capsys, *target, "--json")
        section = json.loads(out)["sections"]["run"]
        assert status == 0
        assert (section["facts"]["peak_bytes"] > budget) == is_over
        assert (
            any("over the budget: the workspace of kernels" in one["text"] for one in section.get("notes", ()))
            == is_over
        )


STRAYS = """
import torch
from tensortide.errors import RunError
from tensortide.run.budget import current

def work():
    x = torch.ones(8)

    def step():
        try:
            current()
        except RunError:
            x.mul_(3)
        else:
            x.mul_(2)

    return step
"""


def test_results_that_differ_are_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(STRAYS)
    arguments = [f"{tmp_path / 'work.py'}:work", "--budget", "1GiB", "--steps", "1"]
    status, out, _ = output(capsys, *arguments)
    assert status == 1
    assert "Results differ from those of ordinary steps, first in x" in " ".join(out.split())
    _, out, _ = output(capsys, *arguments, "--json")
    section = json.loads(out)["sections"]["run"]
    assert (section["facts"]["results"], section["facts"]["first_difference"]) == ("differ", "x")
    assert section["notes"][0]["kind"] == "failure"


def test_a_share_says_of_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = output(capsys, *SMALL, "--budget", "120%")
    assert re.search(r"Budget .*120% of the peak of the captured step, \S+ % of the peak", " ".join(out.split()))
    _, out, _ = output(capsys, *SMALL, "--budget", "1GiB")
    assert "captured step" not in out


def test_a_share_is_of_the_same_peak_as_that_of_plan(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", *SMALL[:-2], "--budget", "120%", "--json"])
    planned = json.loads(capsys.readouterr().out)["sections"]["plan"]["facts"]
    _, out, _ = output(capsys, *SMALL, "--budget", "120%", "--json")
    assert json.loads(out)["sections"]["run"]["facts"]["budget_bytes"] == planned["budget_bytes"]


def test_json_has_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = output(capsys, *SMALL, "--budget", "1GiB", "--policy", "lru", "--json")
    assert status == 0
    figures = json.loads(out)["sections"]["run"]["facts"]
    assert figures["policy"] == "lru"
    assert 0 < figures["before_bytes"] < figures["peak_bytes"] <= figures["budget_bytes"] == 1 << 30
    assert figures["ops"] > 10
    parts = ("base_ns", "recompute_ns", "arguments_ns", "search_ns", "overhead_ns")
    assert sum(figures[part] for part in parts) >= figures["step_ns"] * 0.99


ONLY_SO = """
import torch
from tensortide.run.budget import current

def work():
    x = torch.ones(8)

    def step():
        current()
        x.mul_(2).sum()

    return step
"""


def test_a_step_that_fits_only_under_a_budget_runs_under_it_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "work.py").write_text(ONLY_SO)
    arguments = [f"{tmp_path / 'work.py'}:work", "--budget", "1GiB", "--steps", "1"]
    status, out, _ = output(capsys, *arguments, "--no-plain")
    assert status == 0
    assert "Step under the budget" in out
    assert "of the step: the program, and the run's own work" in " ".join(out.split())
    assert "Ordinary" not in out
    status, out, _ = output(capsys, *arguments, "--no-plain", "--json")
    assert status == 0
    figures = json.loads(out)["sections"]["run"]["facts"]
    assert (figures["plain_ns"], figures["slowdown_factor"]) == (None, None)
    status, _, err = output(capsys, *arguments)
    assert status != 0
    assert "no memory budget is open" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*SMALL, "--budget", "1B"), "asks for"),
        ((*SMALL, "--budget", "60"), "a budget of 60 would be 60 bytes: 60MiB, 60GiB or 60%? Bytes are written 60B"),
        ((*SMALL, "--budget", "0"), "is more than '0'"),
        ((*SMALL, "--budget", "8000"), "would be 8000 bytes: 8000MiB, or 8000GiB? Bytes are written 8000B"),
        ((*SMALL, "--budget", "much"), "is no budget"),
        ((*SMALL, "--budget", "1GiB", "--policy", "best"), "no policy"),
        ((*SMALL[:-2], "--budget", "1GiB", "--steps", "0"), "--steps takes"),
        (("nothing_of_that_name", "--budget", "1GiB"), "nothing_of_that_name"),
    ],
)
def test_bad_input_is_one_error(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str) -> None:
    status, out, err = output(capsys, *arguments)
    assert status != 0
    assert message in out + err
    assert "Traceback" not in out + err


DEEP = """
import torch
from torch import nn

def work():
    model = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.Tanh())])
    x = torch.randn(1024, 64)

    def step():
        model(x).mean().backward()
        model.zero_grad()
        return None

    return step
"""


@pytest.mark.slow
def test_the_least_budget_of_a_step_is_found_and_confirmed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "work.py"
    file.write_text(DEEP)
    status, out, err = output(capsys, f"{file}:work", "--least", "--steps", "1", "--no-plain", "--json")
    assert status == 0, err
    found = json.loads(out)["sections"]
    facts, run = found["least"]["facts"], found["run"]["facts"]
    assert facts["failed_bytes"] < facts["least_bytes"] == run["budget_bytes"] < facts["plain_peak_bytes"] * 0.7
    assert facts["op_bytes"] <= facts["least_bytes"]
    assert facts["simulated_bytes"] == pytest.approx(facts["least_bytes"], rel=0.3)
    assert facts["simulated_bytes"] <= facts["fast_bytes"] <= facts["plain_peak_bytes"]
    assert run["peak_bytes"] <= run["budget_bytes"]
    assert facts["varies"] == ""


CHANGES = """
import torch

def work():
    x = torch.randn(64, 64, requires_grad=True)
    calls = [0]

    def step():
        calls[0] += 1
        y = x
        for _ in range(4 + (calls[0] == 4)):
            y = (y * 1.5).tanh()
        y.sum().backward()
        x.grad = None

    return step
"""


@pytest.mark.slow
def test_the_least_budget_says_that_a_step_changes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(CHANGES)
    status, out, err = output(capsys, f"{tmp_path / 'work.py'}:work", "--least", "--steps", "1", "--json")
    assert status == 0, err
    section = json.loads(out)["sections"]["least"]
    assert re.fullmatch(r"3 calls ran (\d+), \1, \d+ ops", section["facts"]["varies"])
    assert section["notes"][0]["text"].startswith("The step differs from call to call: 3 calls ran")


def test_least_is_asked_for_alone(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--least", "--budget", "1GiB"], ["--least", "--compare"], []):
        status, out, err = output(capsys, *SMALL, *arguments)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert "exclude each other" in err or "give either --budget" in err


def test_a_step_that_reads_a_value_is_compared_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "reads.py").write_text(
        "import torch\ndef reads():\n    x = torch.ones(256, 64)\n    return lambda: (x * 2).sin().sum().item()\n"
    )
    with pytest.raises(SystemExit) as ended:
        main(["run", f"{tmp_path}/reads.py:reads", "--budget", "1GiB", "--compare", "--steps", "1", "--no-plain"])
    shown = capsys.readouterr()
    assert ended.value.code in (0, None), shown.err
    assert "redicted" in shown.out


def test_the_log_of_a_step_is_played_under_its_budget(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "step.log.gz"
    sizes = ("--set", "batch=256", "--set", "inputs=64", "--set", "hidden=64", "--set", "layers=6")
    limits = ("--budget", "620KiB", "--steps", "1", "--no-plain")
    status, out, _ = output(capsys, "mlp", *sizes, *limits, "--save-log", str(log), "--json")
    assert status == 0
    measured = json.loads(out)["sections"]["run"]["facts"]
    with pytest.raises(SystemExit) as ended:
        main(["remat", "simulate", str(log), "--budget", "620KiB", "--policy", "dtr-eq", "--json"])
    assert ended.value.code in (0, None)
    played = json.loads(capsys.readouterr().out)["sections"]["simulation"]["facts"]
    assert measured["recomputations"] > 0
    # The steps that are measured took other times than the one of the log, and the policy decides by times.
    assert played["recomputed"] > 0
    for peak in (played["peak_bytes"], measured["peak_bytes"]):
        assert 0.9 * played["budget_bytes"] < peak <= played["budget_bytes"]


def test_a_log_that_cannot_be_written_is_an_error_before_the_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, _, err = output(capsys, *SMALL, "--budget", "1GiB", "--save-log", str(tmp_path / "none" / "step.log"))
    assert status == 2
    assert "does not exist" in err
    status, _, err = output(capsys, *SMALL, "--least", "--save-log", str(tmp_path / "step.log"))
    assert status == 2
    assert "--save-log" in err
