"""A person with a training script: ``--`` that is forgotten is understood or answered with the exact command, and a
script says how it runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tensortide.cli import console
from tensortide.cli.scripts import with_script
from tensortide.errors import CaptureError, RequestError, WorkloadError
from tensortide.graph import Graph
from tensortide.recorder.script import ScriptOptions
from tensortide.recorder.script_command import Script
from tensortide.targets import opening
from tests.cli.command import called, on_terminal, tensortide

LOOP = """
    model = torch.nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for i in range(9):
        loss = model(torch.ones(2, 4, device=device)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print("loss", loss.item())
"""
TRAIN = f"""
import argparse, time
import torch

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pause", type=float, default=0)
    parser.add_argument("name", nargs="?")
    args = parser.parse_args()
    lr, device = args.lr, args.device
    open("started", "w").close()
    time.sleep(args.pause)
{LOOP}
if __name__ == "__main__":
    main()
"""
BY_HAND = f"""
import sys
import torch
def main(lr, device="cpu"):
{LOOP}
if __name__ == "__main__":
    main(float(dict(word.split("=") for word in sys.argv[1:]).get("lr", 0.1)))
"""
LIBRARY = "def step():\n    loss().backward()\n"


OURS = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
"""The path on which ``python`` is the interpreter of the tests, as where an environment is active."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scripts")
    (path / "pkg").mkdir()
    for name, text in {
        "train.py": TRAIN,
        "pkg/train.py": TRAIN,
        "my train.py": TRAIN,
        "hand.py": BY_HAND,
        "steps.py": LIBRARY,
        "looped.py": BY_HAND.replace("(lr, device", "(lr=0.1, device"),
    }.items():
        (path / name).write_text(text)
    return path


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("fit train.py --lr 1e-3", "fit -- train.py --lr 1e-3"),
        ("report ./train.py", "report -- ./train.py"),
        ("time train.py name", "time -- train.py name"),
        ("fit python train.py --lr 3", "fit -- python train.py --lr 3"),
        ("fit --machine t4 python -m pkg.train --lr 3", "fit --machine t4 -- python -m pkg.train --lr 3"),
        ("fit python -u hand.py --x", "fit -- python -u hand.py --x"),
        (
            "fit --machine t4 torchrun --nproc_per_node 8 train.py --lr 1",
            "fit --machine t4 -- torchrun --nproc_per_node 8 train.py --lr 1",
        ),
        ("count mpirun -np 4 python train.py -x", "count -- mpirun -np 4 python train.py -x"),
        ("fit train.py --machine t4 --lr 2", "fit --machine t4 -- train.py --lr 2"),
        ("report train.py --json --html=x.html", "report --json --html=x.html -- train.py"),
        ("count train.py --help", "count --help -- train.py"),
        ("count --help train.py", "count --help -- train.py"),
        ("fit -h -- train.py --lr 1", "fit -h -- train.py --lr 1"),
        ("count train.py --help-all", "count --help-all -- train.py"),
        ("check --assert peak<=1GiB train.py --lr 1", "check --assert peak<=1GiB -- train.py --lr 1"),
        ("remat simulate train.py --budget 60%", "remat simulate --budget 60% -- train.py"),
        ("count --set file=train.py mlp", "count --set file=train.py mlp"),
        ("count missing.py", "count missing.py"),
        ("time calibrate train.py", "time calibrate train.py"),
        ("report gpt2 --html train.py", "report gpt2 --html train.py"),
    ],
)
def test_a_forgotten_separator_is_understood(typed: str, meant: str, here: Path) -> None:
    del here
    own, _, script = meant.partition(" -- ")
    assert with_script(typed.split()) == [*own.split(), *(["--", f"-- {script}"] if script else [])]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            "fit train.py --device cuda --lr 1",
            ["fit --device cuda -- P train.py --lr 1", "fit -- P train.py --device cuda --lr 1"],
        ),
        ("report hand.py --html x.html", ["report --html x.html -- P hand.py", "report -- P hand.py --html x.html"]),
        ("report train.py --machin t4", ["report --machine t4 -- P train.py", "report -- P train.py --machin t4"]),
        (
            "fit train.py --gpu=t4 --lr 1",
            ["fit --machine=t4 -- P train.py --lr 1", "fit -- P train.py --gpu=t4 --lr 1"],
        ),
        ("fit train.py --card t4", ["fit --machine t4 -- P train.py", "fit -- P train.py --card t4"]),
        (
            "report hand.py --top 3 --gpus 2",
            ["report --top 3 --machine 2 -- P hand.py", "report -- P hand.py --top 3 --gpus 2"],
        ),
        ("train.py --lr 1", ["report -- P train.py --lr 1"]),
        ("torchrun --nproc_per_node 2 train.py", ["report -- torchrun --nproc_per_node 2 train.py"]),
        ("-- python train.py", ["report -- python train.py"]),
        ("fit --memory 24GiB train.py:main", ["fit --memory 24GiB -- P train.py"]),
        ("fit train.py:main --lr 3 --machine t4", ["fit --machine t4 -- P train.py --lr 3"]),
        (
            "fit train.py:main --device cuda",
            ["fit --device cuda -- P train.py", "fit -- P train.py --device cuda"],
        ),
        ("count hand.py:main", ["count -- P hand.py"]),
        ("compare mlp train.py", ["capture -o train.tide -- P train.py", "compare mlp train.tide"]),
        (
            "compare --top 3 train.py --lr 1 -v train.py --machine t4 --device cuda",
            [
                "capture -o train.tide --machine t4 --device cuda -- P train.py --lr 1 -v",
                "capture -o train-2.tide --machine t4 --device cuda -- P train.py",
                "compare --top 3 train.tide train-2.tide --machine t4",
            ],
        ),
        (
            "compare --step 3 -- python train.py -- python -m pkg.train --lr 1",
            [
                "capture -o train.tide --step 3 -- python train.py",
                "capture -o train-2.tide --step 3 -- python -m pkg.train --lr 1",
                "compare train.tide train-2.tide",
            ],
        ),
        ("count --top 3 steps.py", ["count --top 3 steps.py:step"]),
    ],
)
def test_a_command_that_may_mean_something_else_is_answered_with_the_exact_one(
    typed: str, said: list[str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del here
    monkeypatch.setattr(
        "tensortide.cli.scripts._with_interpreter", lambda command: ["P"] * command[0].endswith(".py") + [*command]
    )
    with pytest.raises((RequestError, WorkloadError)) as error:
        with_script(typed.split())
    lines = [line.partition("  #")[0].strip() for line in str(error.value).splitlines()]
    assert [line for line in lines if line.startswith("tensortide ")] == [f"tensortide {one}" for one in said]


@pytest.mark.parametrize("typed", ["run train.py", "run -- python train.py", "time steady python train.py --lr 1"])
def test_a_verb_that_takes_no_script_says_so_first(typed: str, here: Path) -> None:
    done = called(here, *typed.split())
    assert done.returncode == 2
    assert done.stderr.startswith("error: train.py is a script, which has no step to call: ")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("fit --gpu t4 train.py", "Unknown option: --gpu. Did you mean --machine?"),
        ("fit --gpus=t4 -- python train.py", "Unknown option: --gpus=t4. Did you mean --machine?"),
        ("place compare gpt2 --option population=50", "Unknown option: --option. Did you mean --grid?"),
        ("time gpt2 --card t4", "Unknown option: --card. Did you mean --machine?"),
        ("report hand.py --html x.html --json --top 3", "--html may be an option of tensortide report or of hand.py."),
        ("fit train.py --set lr=3", "Give the script its own option, as in train.py --lr 3"),
        ("count --set lr=3 -- python -m pkg.train", "Give the script its own option, as in pkg.train --lr 3"),
        ("count --set lr=3 -- python hand.py", "Give the script its own arguments"),
    ],
)
def test_an_option_that_is_ours_or_the_scripts_by_another_name_is_said(typed: str, said: str, here: Path) -> None:
    done = called(here, *typed.split())
    assert done.returncode == 2
    assert said in done.stderr


def test_help_after_a_script_is_ours_and_says_how_to_see_its_own(here: Path) -> None:
    done = called(here, "fit", "train.py", "--lr", "1", "--help")
    assert done.stdout == called(here, "fit", "--help").stdout
    assert re.fullmatch("note: this is the help of tensortide fit; .*train.py --lr 1 --help is .*\n", done.stderr)


def test_a_function_that_trains_in_a_loop_is_noted_and_counted(here: Path) -> None:
    done = called(here, "count", "looped.py:main", "--json")
    assert done.returncode == 0
    assert (
        "looped.py:main trains in a loop, all of whose steps count. For one of them: tensortide count --json"
        in done.stderr
    )
    assert json.loads(done.stdout)["format"] == "tensortide.document"  # what the function prints is no part of it
    assert "loss" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "typed",
    [
        "fit train.py:main",
        "fit 'my train.py' --device cuda",
    ],
)
def test_a_command_that_is_said_runs_as_it_stands(typed: str, folder: Path) -> None:
    refused = tensortide(folder, *shlex.split(typed), PATH=OURS)
    assert refused.returncode == 2
    said = next(line.strip() for line in refused.stderr.splitlines() if line.strip().startswith("tensortide "))
    done = tensortide(folder, *shlex.split(said)[1:], PATH=OURS)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("typed", "device", "how"),
    [
        ("fit --memory 24GiB", "A100-SXM-80GB", "on fake tensors of a pretended A100-SXM-80GB: values that it prints"),
        ("fit", "A100-SXM-80GB", "on fake tensors of a pretended A100-SXM-80GB: values that it prints"),
        ("report --machine t4", "T4", "on fake tensors of a pretended T4: values that it prints"),
        ("count --fake", None, "on fake tensors: values that it prints"),
        ("fit --real --memory 24GiB", None, "for real on the CPU, to a step that repeats; --machine t4 records it"),
        ("fit --device cpu", None, "for real on the CPU, to a step that repeats; --machine t4 records it"),
        ("count --compiled --keep-running", None, "for real on the CPU, to its end"),
    ],
)
def test_a_script_says_how_it_runs_before_it_does(
    typed: str, device: str | None, how: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ScriptOptions] = []

    def capture(script: Script, options: ScriptOptions, **others: object) -> Graph:
        asked.append(options)
        raise CaptureError("stopped here")

    monkeypatch.setattr(opening, "capture_script", capture)
    err = called(here, *typed.split(), "--", "train.py").stderr
    assert err.startswith(f"note: running train.py {how}")
    assert err.endswith("error: stopped here\n")
    assert [each.machine for each in asked] == [device]
    assert called(here, *typed.split(), "--quiet", "--", "train.py").stderr == "error: stopped here\n"


@pytest.mark.slow
def test_a_script_with_a_memory_limit_runs_on_fake_tensors_and_says_so_once(folder: Path) -> None:
    done = tensortide(folder, "fit", "--memory", "24GiB", "--json", "--", "train.py")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    note, *printed = done.stderr.splitlines()
    assert note == (
        "note: running train.py on fake tensors of a pretended A100-SXM-80GB: values that it prints below (losses) are "
        "stand-ins"
    )
    assert printed == ["loss 1.0"]


@pytest.mark.slow
def test_a_script_that_runs_for_real_says_so_first(folder: Path) -> None:
    lines = tensortide(folder, "count", "--", "train.py").stderr.splitlines()
    said = "note: running train.py for real on the CPU, to a step that repeats; --machine t4 records it"
    assert lines[0].startswith(said)
    assert "note: running" not in tensortide(folder, "count", "--quiet", "--", "train.py").stderr


@pytest.mark.slow
def test_ctrl_c_ends_a_script_with_one_line(folder: Path) -> None:
    for typed in (("fit", "train.py", "--pause", "60"), ("count", "python", "train.py", "--pause", "60")):
        (folder / "started").unlink(missing_ok=True)
        seen = on_terminal(folder, *typed, PATH=OURS, interrupt=lambda _: (folder / "started").exists())
        assert seen.returncode == 130
        assert seen.stdout.rstrip().splitlines()[-1].strip().endswith("interrupted")
        assert "Traceback" not in seen.stdout


def test_progress_keeps_one_line_in_a_notebook(folder: Path) -> None:
    """A notebook obeys carriage returns, and no other code of a terminal."""
    (folder / "slow.py").write_text(
        "import time, torch\ndef f():\n    x = torch.ones(2)\n    def step():\n        time.sleep(2.5)\n"
        "        return x + 1\n    return step\n"
    )
    shown = on_terminal(folder, "count", "slow.py:f", NO_COLOR="1", COLUMNS="80").stdout
    progress = shown.partition("slow.py:f")[0].removesuffix("\x1b[1m")
    assert "\x1b" not in progress
    assert re.search(r"\r\d s: \w.* \.\.\.", progress)
    assert "\n" not in progress
    kept: list[str] = []
    for part in progress.split("\r"):
        kept[: len(part)] = part
    assert not "".join(kept).strip()


def test_off_a_terminal_a_line_comes_every_ten_seconds_and_the_same_one_after_thirty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(console, "LINE_S", 10.0)
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: now))
    with console.progress(quiet=False) as say:
        for now, message in ((9, "a"), (10, "a"), (39, "a"), (40, "a"), (49, "b"), (50, "b")):  # noqa: B007
            say(message)
    assert capsys.readouterr().err.splitlines() == ["10 s: a", "40 s: a", "50 s: b"]


def test_what_goes_on_is_said_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(console, "LINE_S", 0.0)
    monkeypatch.setattr(console, "STILL_S", 0.1)
    monkeypatch.setattr(console, "_TICK_S", 0.05)
    said = ""
    with console.progress(quiet=False) as say:
        say("recording")
        deadline = time.monotonic() + 60
        while said.count("recording") < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
            said += capsys.readouterr().err
    assert said.count("s: recording\n") >= 3
