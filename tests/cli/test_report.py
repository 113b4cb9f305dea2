"""``tensortide report`` on the command line: the answer on one screen, the commands that it prints, and the verdict,
which stands last on a terminal."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.cli.command import called, on_terminal
from tests.golden import assert_golden
from tests.graphs import path_of

SCRIPT = """
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--name")
asked = parser.parse_args()
model = nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=asked.lr)
for _ in range(3):
    nn.functional.cross_entropy(model(torch.randn(8, 64)), torch.zeros(8, dtype=torch.long)).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
INFERENCE = """
import torch

def forward(batch=4):
    model, x = torch.nn.Linear(8, 16), torch.randn(batch, 8)
    return lambda: model(x)
"""


ROOT = Path(__file__).parents[2]
SHOWN = {
    "docs/report.md": (("report", "gpt2"), None),
    "README.md": (("report", "gpt2"), 15),
    "docs/fit.md": (("fit", "gpt2", "--machine", "a100-sxm-40gb", "--set", "batch=32"), None),
}
"""Pages of the docs that show an answer about ``gpt2``, its command, and how many of its lines."""
BLOCK = re.compile(r"(?<=```text\n)gpt2\n.*?(?=```)", re.DOTALL)
TORCH = re.compile(r"torch [^,]+")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report")
    (path / "train.py").write_text(SCRIPT)
    (path / "a b.py").write_text(INFERENCE)
    shutil.copy(path_of("mlp"), path / "mlp.tide")
    shutil.copy(path_of("mlp_a100"), path / "a100.tide")
    return path


def commands(text: str) -> list[list[str]]:
    """The commands that a report prints, as a shell splits them."""
    return [shlex.split(line)[1:] for line in re.findall(r"^next: (.*)$", text, re.MULTILINE)]


@pytest.mark.parametrize(
    ("arguments", "fit"),
    [
        pytest.param(["mlp.tide"], "fit mlp.tide --machine T4", marks=pytest.mark.slow),
        pytest.param(["a100.tide"], "fit a100.tide", marks=pytest.mark.slow),
        (["a b.py:forward", "--set", "batch=2"], "fit 'a b.py:forward' --set batch=2 --machine T4"),
        (["mlp.tide", "--machine", "h100", "--depth", "1"], "fit mlp.tide --machine h100"),
        pytest.param(
            ["--", "train.py", "--lr", "0.1", "--name", "it's <b>"],
            """fit --machine T4 -- train.py --lr 0.1 --name 'it'"'"'s <b>'""",
            marks=pytest.mark.slow,
        ),
        pytest.param(["mlp", "--machine", "local"], "", marks=pytest.mark.slow),  # its memory is not known
        pytest.param(
            ["mlp", "--compiled"],
            "",
            marks=[pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")],  # of what torch imports
        ),
        pytest.param(["mlp", "--first-step", "--set", "batch=8"], "fit mlp --set batch=8", marks=pytest.mark.slow),
    ],
)
def test_the_commands_that_it_prints_run(folder: Path, arguments: list[str], fit: str) -> None:
    done = called(folder, "report", *arguments)
    assert done.returncode == 0, done.stderr
    found = commands(done.stdout)
    assert [one[0] for one in found] == [*(["fit"] if fit else []), "report"]
    assert f"next: tensortide {fit}" in done.stdout
    ran = [called(folder, *one) for one in found]
    assert [one.stderr for one in ran if one.returncode] == []
    assert "Where it goes" in ran[-1].stdout
    assert (folder / "report.html").stat().st_size > 10_000
    (folder / "report.html").unlink()
    assert "--full" not in called(folder, *found[-1]).stdout  # what is shown already is not named


def test_a_step_that_fits_no_size_is_to_fit_the_largest(folder: Path) -> None:
    done = called(folder, "report", "a b.py:forward", "--set", "batch=20000000000")
    assert commands(done.stdout)[0][-2:] == ["--machine", "MI300X"]


def test_full_and_files_have_all_sections(folder: Path) -> None:
    answer, full = (called(folder, "report", "mlp.tide", *more).stdout for more in ((), ("--full",)))
    assert "Where it goes" not in answer
    assert len(answer.splitlines()) <= 45
    for title in ("Totals", "Where it goes", "Most expensive ops", "Memory over the step", "Memory-time by role"):
        assert title in full
    plain, with_full = (called(folder, "report", "mlp.tide", "--json", *more).stdout for more in ((), ("--full",)))
    assert plain == with_full
    assert {"verdict", "cost", "modules", "ops", "memory", "idle", "about"} <= set(json.loads(plain)["sections"])


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_the_docs_show_what_is_printed(folder: Path, name: str) -> None:
    page, (arguments, most) = (ROOT / name).read_text("utf-8"), SHOWN[name]
    (shown,) = BLOCK.findall(page)
    (version,) = TORCH.findall(shown)
    printed = "".join(called(folder, *arguments).stdout.splitlines(keepends=True)[:most])
    assert_golden(page.replace(shown, TORCH.sub(version, printed)), ROOT / name)


def on_screen(folder: Path, *arguments: str, height: int) -> list[str]:
    shown = on_terminal(folder, *arguments, COLUMNS="100", LINES=str(height), TERM="dumb").stdout
    text = re.split(r"\r +\r", shown)[-1]  # without a line of progress, which goes away
    return text.replace("\r\n", "\n").rstrip("\n").split("\n")


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [
        pytest.param(("report", "mlp.tide"), "fits GPUs from 16 GB on", marks=pytest.mark.slow),
        (("report", "mlp.tide", "--full"), "fits GPUs from 16 GB on"),
        pytest.param(("memory", "mlp.tide", "--idle"), "of memory-time is inactive.", marks=pytest.mark.slow),
        (("compare", "mlp.tide", "a100.tide"), "parameters 59.3x (94 → 5.58 k)."),
    ],
)
def test_the_verdict_stands_last_where_it_may_have_left_the_screen(
    folder: Path, arguments: tuple[str, ...], verdict: str
) -> None:
    long, short = (on_screen(folder, *arguments, height=height) for height in (24, 2000))
    assert long[: len(short)] == short
    said = [line for line in long[len(short) :] if line]
    assert said
    assert "\n".join(said) in "\n".join(short)
    assert verdict in said[-1]
    piped = called(folder, *arguments).stdout.rstrip("\n").split("\n")
    assert len(piped) == len(short)
