"""``tensortide check`` as a user, a job of GitHub Actions, and ``git bisect run`` call it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import called, for_a_shell

TRAIN = """
import torch
from torch import nn

def step(batch=2, width=8, depth=3):
    hidden = [width] * depth
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, h), nn.Linear(h, 8)) for h in hidden))

    def run():
        model(torch.randn(batch, 8)).sum().backward()

    return run

def fails():
    raise ValueError("no model today")
"""
DOUBLED = TRAIN.replace("[width] * depth", "[width, 2 * width, *[width] * (depth - 2)]")
CHECKS = """
[check.step]
target = "train.py:step"
set = { batch = 4 }
assert = ["flops <= +1% of baseline", "no recomputation"]

[check.fits]
target = "train.py:step"
assert = ["peak <= 1GiB on cuda", "parameters == 432"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "tensortide.toml").write_text(CHECKS)
    return tmp_path


def outside() -> dict[str, str]:
    """An environment that is no job, whatever runs the tests."""
    return dict.fromkeys(("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"), "")


def run(folder: Path, *arguments: str, code: int = 0, **environment: str) -> str:
    done = called(folder, "check", *arguments, **{**outside(), **environment})
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if code not in (2, 3):
        assert done.stderr == ""
    return done.stdout + done.stderr


def sections(folder: Path, *arguments: str, code: int = 0, **environment: str) -> Any:
    done = called(folder, "check", *arguments, "--json", **{**outside(), **environment})
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)["sections"]


def test_all_checks_of_a_file_run_and_a_baseline_is_accepted_on_purpose(folder: Path) -> None:
    text = run(folder, "step", code=2)
    assert "there is no baseline baselines/step.json" in text
    assert "--accept" in text
    assert "accepted baselines/step.json: a new baseline" in run(folder, "step", "--accept")
    text = run(folder)
    assert "2 of 2 hold" in text
    found = sections(folder)["check_0"]
    assert found["facts"] == {"check": "step", "holds": True}
    assert found["tables"]["assertions"]["outcome"] == ["holds", "holds"]


def test_a_baseline_of_another_step_is_in_the_way_of_no_check_that_has_only_limits(folder: Path) -> None:
    run(folder, "fits", "--accept")
    path = folder / "tensortide.toml"
    other = CHECKS.replace(".fits]", ".fits]\nset = { batch = 3 }")
    path.write_text(other)
    assert "2 assertions hold" in run(folder, "fits")
    path.write_text(other.replace(".fits]", '.fits]\nbaseline = "baselines/fits.json"'))
    assert "batch was 2, is 3" in run(folder, "fits", code=2)


def test_a_layer_that_doubled_is_named_with_its_share(folder: Path) -> None:
    run(folder, "step", "--accept")
    (folder / "train.py").write_text(DOUBLED)
    text = run(folder, "step", code=1)
    assert "FAILS" in text
    assert "1.0 " in text
    found = sections(folder, "step", code=1)["checks"]
    grown = found["tables"]["grown_flops"]
    assert set(grown["path"]) == {"1.0", "1.1"}
    assertion = {name: values[0] for name, values in found["tables"]["assertions"].items()}
    assert sum(grown["difference_flops"]) == assertion["value"] - assertion["baseline"]
    assert assertion["outcome"] == "fails"
    again = run(folder, "step", "--accept")
    assert "modules differ" in again
    assert "2 of 2 hold" not in run(folder, code=1)  # the parameters of the other check are another number
    assert "all 2 assertions hold" in run(folder, "step")


def test_an_inline_check_takes_a_target_of_any_kind(folder: Path) -> None:
    assert "holds" in run(folder, "train.py:step", "--assert", "peak <= 1GiB", "--assert", "coverage == 100%")
    called(folder, "capture", "train.py:step", "-o", "step.tide")
    assert "the assertion fails" in run(folder, "step.tide", "--assert", "parameters <= 1", code=1)
    assert "predicted for H100" in run(folder, "step.tide", "--assert", "time(h100-sxm) <= 1 s")
    text = run(folder, "train.py:step", "--assert", "time <= 1 s", "--machine", "2xh100-sxm")
    assert "on cuda of H100-SXM-80GB" in text
    assert "UNDECIDED" in run(folder, "train.py:step", "--assert", "time <= 1 s", code=4)
    text = run(folder, "train.py:step", "--assert", "parameters == 240", "--set", "width=4", "--set", "depth=3", code=1)
    assert "228, 12 below the limit" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train.py:step", "--assert", "peek <= 1"], "column 1 of 'peek <= 1': there is no metric 'peek'"),
        (["train.py:step", "--assert", "flops <= baseline"], "needs a baseline: name its file (--baseline FILE"),
        (["train.py:step", "--assert", "flops <= baseline", "--baseline", "no.json"], "there is no baseline no.json"),
        (["train.py:fails", "--assert", "peak <= 1B"], "no model today"),
        (["train.py:nope", "--assert", "peak <= 1B"], "has no 'nope'"),
        (["--assert", "peak <= 1B"], "--assert goes with one target"),
        (["train.py:step", "--assert", "time <= 1 s", "--machine", "local"], "machines of the catalogue"),
        (["train.py:step", "--assert", "peak <= 1B", "--machine", "24GB"], "24GB is a size, not a card"),
        (["train.py:step", "--assert", "time(h1) <= 1 s"], "no device is called 'h1'"),
        (["train.py:step"], "there is no check 'train.py:step'"),
        (["step", "--set", "batch=1"], "--set goes with --assert"),
        (
            ["train.py:step", "--assert", "ops <= 1", "--machine", "t4", "--machine", "l4"],
            "this takes a single --machine; name others",
        ),
        (["train.py:step", "--assert", "ops <= 1", "--file", "c.toml"], "--assert and --file exclude each other"),
        (["step", "--baseline", "b.json"], "--baseline goes with --assert"),
        (["step", "--file", "no.toml"], "cannot read no.toml"),
        (["step", "--summary"], "GITHUB_STEP_SUMMARY"),
        (["step", "--wrong"], "Unknown option"),
    ],
)
def test_what_cannot_be_checked_is_an_error_of_its_own(folder: Path, arguments: list[str], words: str) -> None:
    done = called(folder, "check", *arguments, "--json", **outside())
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    status = 3 if "train.py:fails" in arguments else 2  # a program that fails by itself is no mistake of the command
    assert (done.returncode, json.loads(done.stdout)["exit_status"]) == (status, status)


def test_one_check_that_cannot_be_tried_leaves_the_others_and_no_baseline_half_accepted(folder: Path) -> None:
    path = folder / "tensortide.toml"
    path.write_text(CHECKS + '[check.broken]\ntarget = "train.py:fails"\nassert = ["peak <= 1GiB"]\n')
    text = run(folder, "--accept", code=3)
    assert "2 of 3 hold, 1 could not be tried" in text
    assert "no model today" in text
    assert "no baseline was written" in text
    assert "accepted" not in text
    assert not (folder / "baselines").exists()
    found = sections(folder, "fits", "broken", code=3)
    assert [found[key]["facts"]["holds"] for key in found] == [True, False]
    whole = path.read_text()
    path.write_text(whole.replace("parameters == 432", "time <= 1 s"))
    assert "1 of 2 undecided, which is no pass" in run(folder, "fits", code=4)
    assert "0 of 2 hold, 1 undecided, 1 could not be tried" in run(folder, "fits", "broken", code=3)
    path.write_text(whole.replace("parameters == 432", "parameters == 1"))
    done = called(folder, "check", "fits", "broken", **outside())
    assert done.returncode == 1  # that an assertion fails is known
    assert "1 fails, 1 could not be tried" in done.stdout


def test_a_job_of_github_gets_annotations_and_a_summary(folder: Path) -> None:
    run(folder, "step", "--accept")
    (folder / "train.py").write_text(DOUBLED)
    summary = folder / "summary.md"
    summary.write_text("# before\n")
    job = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    lines = run(folder, "step", "--summary", code=1, **job).splitlines()
    (error,) = [line for line in lines if line.startswith("::")]
    assert error.startswith("::error file=tensortide.toml,line=5,title=tensortide step::flops <= +1%25 of baseline: ")
    assert "| Assertion | Captured for | Value | Limit | Margin | Verdict |" in summary.read_text()
    assert summary.read_text().startswith("# before\n# step\n")
    done = called(folder, "check", "step", "--json", **{**outside(), **job})
    json.loads(done.stdout)  # and nothing else
    assert done.stderr.startswith("::error ")
    (folder / "train.py").write_text("def step(batch):\n    raise ValueError('a,b: c\\n100 %')\n")
    lines = run(folder, "step", code=3, **job).splitlines()
    (error,) = [line for line in lines if line.startswith("::")]
    assert "%0A" in error
    assert "100 %25" in error
    assert "::" not in run(folder, "fits", code=2)


def test_an_annotation_names_its_file_from_the_root_of_the_repository(folder: Path) -> None:
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    job = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(folder)}
    assert "::error file=tensortide.toml,title=" in run(inner, "step", code=2, **job)
    (inner / "train.py").write_text(TRAIN)
    text = run(inner, "train.py:step", "--assert", "parameters == 1", code=1, **job)
    assert "::error file=a/b/train.py,title=" in text


def test_every_medium_has_the_table(folder: Path) -> None:
    options = ["--markdown", "c.md", "--html", "c.html", "--csv", "c.csv"]
    run(folder, "train.py:step", "--assert", "parameters <= 1", *options, code=1)
    assert "parameters \\<= 1" in (folder / "c.md").read_text()
    assert "<html" in (folder / "c.html").read_text()
    assert (folder / "c.csv").read_text().splitlines()[1].startswith("parameters <= 1,cpu,432,<= 1,")
    assert "could not be tried" in run(folder, "step", "--csv", "none.csv", "--markdown", "none.md", code=2)
    assert "there is no baseline" in (folder / "none.md").read_text()
    assert not (folder / "none.csv").exists()


GIT = shutil.which("git")


def git(folder: Path, *arguments: str) -> str:
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


BISECT = "CHECK; s=$?; case $s in 3|4) s=125;; 2) s=128;; esac; exit $s"
"""As the documentation advises: a commit of which nothing can be told is skipped."""


@pytest.mark.slow
@pytest.mark.skipif(GIT is None, reason="git is not installed")
def test_git_bisect_finds_the_commit_that_doubled_a_layer_past_one_that_cannot_be_checked(folder: Path) -> None:
    run(folder, "step", "--accept")
    git(folder, "init", "-q", "-b", "main")
    texts = {number: f"{TRAIN}# commit {number}\n" for number in range(8)}
    texts |= {number: f"{DOUBLED}# commit {number}\n" for number in (5, 6, 7)}
    texts[3] = f"import not_there\n{TRAIN}"  # tried first: neither good nor bad
    hashes = []
    for number, text in texts.items():
        (folder / "train.py").write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", f"commit {number}")
        hashes.append(git(folder, "rev-parse", "HEAD").strip())
    git(folder, "bisect", "start", hashes[7], hashes[0])
    with for_a_shell(folder, "check", "step", **outside()) as check:
        found = git(folder, "bisect", "run", "sh", "-c", BISECT.replace("CHECK", check))
    assert f"{hashes[5]} is the first bad commit" in found, found
    assert "commit 5" in found


def test_each_assertion_is_about_the_device_that_its_row_names_in_every_medium(folder: Path) -> None:
    texts = ["peak <= 1GiB", "time(h100-sxm) <= 1 s", "time(t4) <= 1 s", "peak <= 1GiB on cuda"]
    asked = [part for text in texts for part in ("--assert", text)]
    alone = sections(folder, "train.py:step", "--assert", "peak <= 1GiB")["checks"]["tables"]["assertions"]
    text = run(folder, "train.py:step", *asked, "--markdown", "c.md", "--html", "c.html")
    for medium in (text, (folder / "c.md").read_text(), (folder / "c.html").read_text()):
        assert all(name in medium for name in ("Captured for", "cuda of T4", "A100-SXM-80GB"))
    lines = [f'"{text}"' for text in texts]
    (folder / "tensortide.toml").write_text(
        f'[check.all]\ntarget = "train.py:step"\nassert = [{", ".join(lines)}]\n'
        '[check.t4]\ntarget = "train.py:step"\nmachine = "t4"\nassert = ["peak <= 1GiB", "time(h100-sxm) <= 1 s"]\n'
    )
    found = sections(folder)
    table = found["check_0"]["tables"]["assertions"]
    assert table["device"] == ["cpu", "cuda", "cuda", "cuda"]
    assert table["machine"] == ["", "H100-SXM-80GB", "T4", "A100-SXM-80GB"]
    assert table["value"][0] == alone["value"][0]
    assert found["check_1"]["tables"]["assertions"]["machine"] == ["T4", "H100-SXM-80GB"]


def test_what_one_capture_alone_can_tell_stays_in_it(folder: Path) -> None:
    called(folder, "capture", "train.py:step", "-o", "step.tide")
    asked = ["--assert", "peak <= 1GiB", "--assert", "time(h100-sxm) <= 1 s"]
    for target in (["step.tide"], ["train.py:step", "--real"]):
        table = sections(folder, *target, *asked)["checks"]["tables"]["assertions"]
        assert table["device"] == ["cpu", "cpu"]
        assert "predicted for H100" in table["remark"][1]
