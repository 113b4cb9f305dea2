"""``tensortide compare`` as a user runs it: two revisions of a model, settings of one of them, times, limits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import called, for_a_shell

FILES = ("compare", "main.tide", "branch.tide")
REVISION = """
import torch
from torch import nn

def build(wide, layers=4):
    class Mlp(nn.Module):
        def __init__(self, times):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(64, 64 * times), nn.Linear(64 * times, 64)

        def forward(self, x):
            return self.fc2(torch.relu(self.fc1(x)))

    class Block(nn.Module):
        def __init__(self, times):
            super().__init__()
            self.norm, self.mlp = nn.LayerNorm(64), Mlp(times)

        def forward(self, x):
            return x + self.mlp(self.norm(x))

    model = nn.Sequential()
    model.blocks = nn.Sequential(*(Block(8 if i == wide else 4) for i in range(layers)))
    model.head = nn.Linear(64, 10)
    return model

def train(batch=32, wide={wide}, layers=4):
    model = build(wide, layers)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)
    x = torch.rand(batch, 64)

    def step():
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    return step
"""
SCRIPT = """
import torch
from main import build
model = build(-1)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)
for _ in range(3):
    model(torch.rand(32, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
UNPRICED = """
import torch

@torch.library.custom_op("compared::mix", mutates_args=())
def mix(x: torch.Tensor) -> torch.Tensor:
    return x.sin()

@mix.register_fake
def _like(x):
    return torch.empty_like(x)

def train():
    model = torch.nn.Linear(8, 8)
    return lambda: mix(model(torch.randn(2, 8)))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compare")
    (path / "main.py").write_text(REVISION.replace("{wide}", "-1"))
    (path / "branch.py").write_text(REVISION.replace("{wide}", "3"))
    (path / "script.py").write_text(SCRIPT)
    for name in ("main", "branch"):
        run(path, "capture", f"{name}.py:train", "-o", f"{name}.tide", "--quiet")
    return path


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    done = called(folder, *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def refused(folder: Path, *arguments: str) -> str:
    done = called(folder, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    return done.stderr


def as_json(folder: Path, *arguments: str, code: int = 0) -> Any:
    return json.loads(run(folder, *arguments, "--json", code=code))["sections"]


def metric(sections: Any, name: str) -> tuple[float, float]:
    table = sections["comparison"]["tables"]["all_metrics"]
    row = table["name"].index(name)
    return table["reference"][row], table["value_b"][row]


def test_the_first_screen_says_that_one_layer_doubled(folder: Path) -> None:
    screen = run(folder, *FILES).splitlines()[:24]
    assert any("blocks.3.mlp doubled" in line for line in screen)
    assert any(line.startswith("Peak memory") for line in screen)
    assert "optimizer state of blocks.3.mlp" in " ".join(screen)


def test_a_saved_graph_is_compared_with_a_workload(folder: Path) -> None:
    assert "No difference" in run(folder, "compare", "main.tide", "main.py:train")
    assert "blocks.2.mlp doubled" in run(folder, "compare", "main.tide", "main.py:train", "--set=B:wide=2")


@pytest.mark.slow
def test_a_script_is_compared(folder: Path) -> None:
    """The script draws its input in every step, and does the same otherwise."""
    text = run(folder, "compare", "main.tide", "--quiet", "--", sys.executable, "script.py")
    assert "B: script.py" in text
    assert "22 modules match." in text
    assert "rand  added    1 " in text


def test_settings_of_all_and_of_one(folder: Path) -> None:
    one = "main.py:train"
    found = as_json(folder, "compare", one, one, "--set", "layers=1", "--set", "B:batch=64")
    before, after = metric(found, "forward_flops")
    assert after == 2 * before
    text = run(folder, "compare", one, one, one, "--set=layers=2", "--set=b:batch=64", "--set=C:layers=3")
    assert "A → B: batch 32 → 64; all modules scale alike" in text
    assert "A → C: layers 2 → 3; blocks.2 was added" in text


def test_a_larger_batch_is_not_worse_and_a_sample_has_its_costs(folder: Path) -> None:
    one = "main.py:train"
    text = run(folder, "compare", one, one, "--set", "layers=1", "--set", "B:batch=64", "--machine", "t4")
    assert re.search(r"Per sample: time -?\S+ % \(\d.*\), FLOPs \S+ % \(\d", text.replace("\n", " "))
    assert "worse" not in text
    assert "Per sample" not in (other := run(folder, *FILES))
    assert "worse" in other


def test_the_page_is_one_command_away(folder: Path) -> None:
    (then,) = re.findall("^next: tensortide (.*)", run(folder, *FILES, "--depth", "1"), re.MULTILINE)
    assert then == "compare main.tide branch.tide --depth 1 --html compare.html"
    assert "next:" not in run(folder, *then.split())
    assert (folder / "compare.html").exists()


def test_another_reference(folder: Path) -> None:
    text = run(folder, *FILES, "--reference", "B")
    assert "blocks.3.mlp halved" in text
    assert "B (reference): branch" in text


def test_times_are_predicted_on_a_machine(folder: Path) -> None:
    found = as_json(folder, *FILES, "--machine", "A100-SXM-80GB")
    before, after = metric(found, "step_time")
    assert min(before, after) > 0
    for step_time, target in ((before, "main.tide"), (after, "branch.tide")):
        shown = as_json(folder, "time", target, "--machine", "A100-SXM-80GB")
        assert round(shown["machines"]["tables"]["machines"]["step_ns"][0]) == step_time
    assert 0 < found["over_time"]["curves"]["resident"]["x_ns"][-1] < max(before, after)  # of the ops, without the host


def test_predicted_is_compared_with_measured(folder: Path, tmp_path: Path) -> None:
    """A list of times, and a file of durations: both are of the step of the reference."""
    ops = len(as_json(folder, "report", "main.tide")["ops"]["tables"]["ops"]["op"])
    (tmp_path / "times.csv").write_text("op,ns\n" + "".join(f"{i},1000\n" for i in range(ops)))
    run(folder, "time", "main.tide", "--from", str(tmp_path / "times.csv"), "-o", str(tmp_path / "m.durations.json"))
    for measured in ("times.csv", "m.durations.json"):
        found = as_json(folder, "compare", "main.tide", str(tmp_path / measured), "--machine", "A100-SXM-80GB")
        assert metric(found, "step_time")[1] == 1000 * ops
        assert metric(found, "flops")[0] == metric(found, "flops")[1]
        kinds = found["ops"]["tables"]["kinds"]
        assert sum(kinds["b_time_ns"]) <= 1000 * ops


def test_limits_set_the_exit_status(folder: Path) -> None:
    """0 within them, 1 beyond one, 4 where unknown costs leave it open, 2 where nothing can be said."""
    assert "Within all thresholds" in run(folder, *FILES, "--threshold", "peak=+50%", "--threshold", "flops=+1G")
    text = run(folder, *FILES, "--threshold", "peak=+2%", "--threshold", "flops=+50%", code=1)
    assert "Exceeded peak=+2%: Peak memory " in text
    assert "over the limit" in text
    assert "Exceeded flops" not in text
    notes = as_json(folder, *FILES, "--threshold", "flops=+1k", code=1)["comparison"]["notes"]
    assert [note["kind"] for note in notes].count("failure") == 1
    assert "did you mean peak" in refused(folder, *FILES, "--threshold", "peek=+2%")
    assert "predict them with --machine" in refused(folder, *FILES, "--threshold", "time=+2%")
    error = json.loads(called(folder, *FILES, "--threshold", "peek=+2%", "--json").stdout)
    assert error["exit_status"] == 2
    (folder / "unpriced.py").write_text(UNPRICED)
    run(folder, "capture", "unpriced.py:train", "-o", "unpriced.tide", "--quiet")
    same = ("compare", "unpriced.tide", "unpriced.tide")
    assert "no cost rule" in run(folder, *same, "--threshold", "flops=+50%", code=4)
    assert "Exceeded" in run(folder, *same, "--threshold", "flops=+50%", "--threshold", "peak=-50%", code=1)


def test_what_cannot_be_compared_is_refused(folder: Path) -> None:
    assert "takes two steps" in refused(folder, "compare", "main.tide")
    assert "there is no step C" in refused(folder, "compare", "main.tide", "main.tide", "--set=C:batch=2")
    assert "--reference takes one of A, B" in refused(folder, "compare", "main.tide", "main.tide", "--reference=D")
    assert "cannot read no.tide" in refused(folder, "compare", "main.tide", "no.tide")
    assert "no hyperparameter 'bach'" in refused(folder, "compare", "main.py:train", "branch.py:train", "--set=bach=2")
    (folder / "t.csv").write_text("op,ns\n0,1\n")
    assert "the reference must be the step" in refused(folder, "compare", "t.csv", "main.tide")
    other = ("compare", "branch.tide", "m.durations.json")
    run(folder, "time", "main.tide", "-o", "m.durations.json", "--quiet")
    assert "durations" in refused(folder, *other)


def test_files_of_every_format(folder: Path) -> None:
    names = {"html": "c.html", "csv": "c.csv", "markdown": "c.md", "figure": "c.svg"}
    text = run(folder, *FILES, *(f"--{kind}={n}" for kind, n in names.items()))
    for name in names.values():
        assert (folder / name).stat().st_size > 500
        assert f"wrote {name}" in text
    assert "blocks.3.mlp doubled" in (folder / "c.md").read_text()
    assert (folder / "c.csv").read_text().startswith("depth,module,path,kind,")


@pytest.mark.slow  # tests of statuses run the line that bisects
def test_a_git_bisect_finds_the_revision(folder: Path, tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init", "-q", "-b", "main")
    for number in range(4):
        (tmp_path / "train.py").write_text(REVISION.replace("{wide}", "-1" if number < 2 else "3") + f"\n# {number}\n")
        git("add", "train.py")
        git("commit", "-qm", f"revision {number}")
    git("bisect", "start", "main", "main~3")
    both = ("compare", str(folder / "main.tide"), "train.py:train")
    with for_a_shell(tmp_path, *both, "--threshold", "peak=+2%", "--quiet") as compare:
        found = git("bisect", "run", "sh", "-c", compare)
    assert "is the first bad commit" in found
    assert "revision 2" in found
