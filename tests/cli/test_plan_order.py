"""``tensortide plan order`` as a user runs it: text, JSON, the files it writes, Ctrl-C."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from tensortide.graph import load, save
from tensortide.importers.tf1.load import import_graph
from tensortide.plans import load_plan
from tensortide.plans.order import problem
from tensortide.plans.order.proof import Proof, verify
from tensortide.replays import replay
from tests.cli.command import called, on_terminal, tensortide
from tests.golden import assert_golden
from tests.graphs import path_of
from tests.importers.tf1.costs.files import graph_file
from tests.plans.dags import random_dag


def run(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = called(folder, "plan", "order", *arguments)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("order")
    shutil.copy(path_of("gpt2"), path / "gpt2.tide")
    save(random_dag(3, 12), path / "small.tide")
    save(random_dag(5, 600, 0.15), path / "hard.tide")
    return path


def test_a_real_step_is_proved_and_its_plan_replays_to_the_peak(folder: Path) -> None:
    done = run(folder, "gpt2.tide", "--json", "--plan", "best.json")
    found = json.loads(done.stdout)["sections"]["order"]
    facts, order = found["facts"], found["tables"]["order"]
    graph, plan = load(folder / "gpt2.tide"), load_plan(folder / "best.json")
    assert facts["proved"]
    assert (
        verify(graph, msgspec.json.decode(facts["proof"], type=Proof), device=facts["device"]) == facts["lower_bytes"]
    )
    assert list(plan.order) == order["number_op"]
    assert replay(graph, plan).peak_bytes == max(order["resident_bytes"]) == facts["upper_bytes"]
    assert facts["upper_bytes"] < facts["captured_peak_bytes"]
    assert sum(found["tables"]["roles"]["size_bytes"]) == facts["upper_bytes"]


def test_the_same_target_gives_the_same_bytes(folder: Path) -> None:
    first, second = (run(folder, "gpt2.tide", "--json").stdout for _ in range(2))
    assert first == second
    text = [run(folder, "gpt2.tide", "--time-limit", seconds).stdout for seconds in ("30", "60")]
    assert text[0] == text[1]
    assert "blocks.[" in text[0]


def test_a_workload_is_captured_first(folder: Path) -> None:
    text = run(folder, "mlp", "--set=layers=2", "--top", "2").stdout
    assert re.search(r"Minimal peak +\S+ MiB +proved: no order needs less", text)
    assert re.search(r"and \d+ more tensors", text)


def test_the_text_says_what_was_found(folder: Path) -> None:
    done = run(folder, "small.tide", "--plan", "small.json", "--csv", "small.csv")
    assert done.stderr == ""
    assert len((folder / "small.csv").read_text().splitlines()) == 1 + 12
    assert_golden(done.stdout, Path(__file__).with_name("plan_order.txt"))


def test_what_is_not_proved_says_so(folder: Path) -> None:
    text = run(folder, "hard.tide", "--time-limit", "0.5", "--quiet").stdout
    assert "the best order found; none needs less than" in text
    assert re.search(r"lower bound .* by .*; gap [\d.]+ KiB, [\d.]+ %", text)
    assert "The time limit ended the search" in text


def test_a_graph_file_with_loops(folder: Path, reference: Path) -> None:
    """Read as ``count`` reads it; the plan is one of the loops written out."""
    file = str(graph_file(reference, "dynamic_rnn_with_backprop"))
    options = ("--bind", "a=7,batch,24", "--set", "batch=3", "--drop", "Gradient/Compute/.*")
    done = run(folder, file, *options, "--plan", "loop.json", "--json")
    facts = json.loads(done.stdout)["sections"]["order"]["facts"]
    graph = import_graph(
        file,
        preparation="catamount",
        drop=["Gradient/Compute/.*"],
        bind={"a": ("7", "batch", "24")},
        settings={"batch": 3},
    ).graph
    assert len(graph.loops) == 1
    assert (facts["loops"], facts["proved"]) == ("written out", True)
    assert replay(graph, load_plan(folder / "loop.json")).peak_bytes == facts["upper_bytes"]
    text = re.sub(r"\s+", " ", run(folder, file, *options).stdout)
    assert "the bounds hold for all orders of them" in text


def test_a_long_loop_stays_together(folder: Path, reference: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem, "FREE", 200)
    text = run(folder, str(graph_file(reference, "simple_while")), "--set", "bound=100").stdout
    assert "proved: no such order needs less" in text
    assert "The bounds hold for the orders that do so" in re.sub(r"\s+", " ", text)


def test_wrong_wishes_are_refused_before_any_work(folder: Path) -> None:
    assert "nothing is on device 'cuda'" in run(folder, "small.tide", "--device", "cuda", code=2).stderr
    assert "does not exist" in run(folder, "small.tide", "--plan", "none/plan.json", code=2).stderr
    assert "--bind goes with " in run(folder, "small.tide", "--bind", "a=b", code=2).stderr
    assert "--time-limit takes a finite number above 0" in run(folder, "small.tide", "--time-limit", "0", code=2).stderr


def test_a_plan_on_standard_output_is_alone_there(folder: Path) -> None:
    done = tensortide(folder, "plan", "order", "small.tide", "--plan", "/dev/stdout")
    assert json.loads(done.stdout)["format"] == "tensortide plan"


def test_ctrl_c_keeps_the_best_so_far(folder: Path) -> None:
    """On a terminal the bounds are shown on the way; Ctrl-C ends the search, and what it found is printed and saved."""
    command = ("plan", "order", "hard.tide", "--plan", "hard.json")
    seen = on_terminal(folder, *command, interrupt=lambda shown: "Ctrl-C to stop here" in shown, COLUMNS="120")
    assert seen.returncode == 0, seen.stdout
    assert re.search(r"best \S+ KiB, at least \S+ KiB, gap", seen.stdout)
    assert "The search was stopped by hand" in seen.stdout
    assert len(load_plan(folder / "hard.json").order) == 600
