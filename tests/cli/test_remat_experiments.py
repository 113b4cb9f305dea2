"""``tensortide remat sweep`` and its kin as a user runs them: tables, files, figures, resuming, Ctrl-C."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path

import pytest

from tensortide.importers.dtrlog.write import write_log
from tensortide.studies.remat.linear import linear_network
from tests.cli.command import called, on_terminal
from tests.marks import some_slow

POLICIES = "dtr,lru,random"


def run(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run an experiment, in one process unless ``arguments`` name more: on a busy machine others would be started."""
    jobs = () if "--threads" in arguments else ("--threads", "1")
    done = called(folder, "remat", *arguments, *jobs)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("remat")
    for n in (12, 30, 900):
        recording = linear_network(n)
        write_log(recording.graph, [1000] * len(recording.graph), path / f"chain{n}.log")
    return path


def test_a_sweep_prints_a_table_and_writes_files(folder: Path) -> None:
    files = ("--csv", "sweep.csv", "--figure", "sweep.svg", "--save", "sweep.jsonl")
    command = ("sweep", "chain12.log", "chain30.log", "--budgets", "1.0:0.2:0.2", "--policies", POLICIES, *files)
    done = run(folder, *command, "--threads", "2")
    assert done.stderr == ""
    text = " ".join(done.stdout.split())
    assert "chain12 24 cuda 24.0 us 12 B" in text
    assert "of peak Budget dtr lru random 100 % 12 B 1.0000^ 1.0000^ 1.0000^" in text
    assert "thrash: given up, because it took more than 2 times as long as the step" in text
    assert text.endswith("wrote sweep.svg wrote sweep.csv")
    rows = list(csv.DictReader((folder / "sweep.csv").read_text().splitlines()))
    assert len(rows) == 2 * 5 * (2 + 10)
    assert {row["policy"] for row in rows} == {"dtr", "lru", *(f"random:{seed}" for seed in range(10))}
    assert "chain30" in (folder / "sweep.svg").read_text()
    figure, lines = (folder / "sweep.svg").read_bytes(), (folder / "sweep.jsonl").read_bytes()
    assert run(folder, *command).stdout == done.stdout
    assert ((folder / "sweep.svg").read_bytes(), (folder / "sweep.jsonl").read_bytes()) == (figure, lines)


def test_what_fails_everywhere_is_drawn_too(folder: Path) -> None:
    budgets = ("--budgets", "0.3,0.1", "--policies", "lru,size,dtr")
    text = run(folder, "sweep", "chain12.log", "chain30.log", *budgets, "--figure", "failed.png").stdout
    assert {"oom", "thrash"} <= set(text.split())
    assert (folder / "failed.png").stat().st_size > 5000


def test_json_has_every_run(folder: Path) -> None:
    found = json.loads(
        run(folder, "sweep", "chain30.log", "--budgets", "0.5,20B", "--policies", "dtr", "--json").stdout
    )
    tables = found["sections"]["sweep"]["tables"]
    assert tables["runs"]["budget_bytes"] == [20, 15]
    assert tables["runs"]["status"] == ["ok", "ok"]
    assert tables["budgets_0"]["dtr"] == tables["runs"]["overhead"]
    assert tables["steps"]["baseline_bytes"] == [30]


@pytest.mark.slow
def test_the_other_experiments(folder: Path) -> None:
    budgets = ("--budgets", "0.9,0.4")
    text = run(folder, "ablation", "chain12.log", *budgets, "--figure", "cells.png").stdout
    assert "wrote cells.png" in text
    assert (folder / "cells.png").stat().st_size > 20_000
    text = run(folder, "banishing", "chain30.log", *budgets, "--figure", "banishing.pdf").stdout
    assert "banish, dtr-unopt" in text
    assert (folder / "banishing.pdf").read_bytes().startswith(b"%PDF")
    text = run(folder, "accesses", "chain30.log", *budgets, "--figure", "accesses.png").stdout
    assert "dtr-local, all" in text
    assert "dtr-local, bounds" not in text


def test_growth(folder: Path) -> None:
    done = run(
        folder,
        *("growth", "--sizes", "16,64", "--budgets", "2sqrt,log2", "--policies", "dtr-eq,msps,lru", "--compat"),
        *("--heatmap", "map.png", "--csv", "growth.csv"),
    )
    text = " ".join(done.stdout.split())
    assert "64 16 49^ 60 161" in text
    assert "64 6 196 159^ 889" in text
    assert text.endswith("wrote growth.csv wrote map.png")
    assert len((folder / "growth.csv").read_text().splitlines()) == 1 + 2 * 2 * 3


@pytest.mark.slow
def test_all_figures_come_out_of_one_command(folder: Path) -> None:
    command = (
        "figures",
        "chain12.log",
        "chain30.log",
        "--out",
        "all",
        "--format",
        "svg",
        "--budgets",
        "0.9,0.5",
        "--sizes",
        "8,16",
    )
    run(folder, *command)
    names = {path.name for path in (folder / "all").iterdir()}
    results = ("sweep", "ablation", "banishing", "accesses", "growth")
    kinds = ("csv", "json", "svg")
    assert names == {*(f"{name}.{kind}" for name in results for kind in kinds), "residency.svg", "runs.jsonl"}
    before = {path.name: path.read_bytes() for path in (folder / "all").iterdir()}
    run(folder, *command, "--quiet")
    assert {path.name: path.read_bytes() for path in (folder / "all").iterdir()} == before


def test_wrong_wishes_are_refused_before_any_work(folder: Path) -> None:
    (folder / "other.jsonl").write_text("{}\n")
    for arguments, why in (
        (("--budgets", "much"), "'much' is no budget"),
        (("--policies", "best"), "there is no policy 'best'"),
        (("--figure", "a.gif"), "ends in .png, .svg, .pdf"),
        (("--save", "other.jsonl"), "other.jsonl does not hold runs"),
        (("--csv", "none/a.csv"), "does not exist"),
    ):
        message = run(folder, "sweep", "chain12.log", *arguments, code=2).stderr
        assert why in message
        assert message.startswith("error: ")
        assert "Traceback" not in message
    assert (
        "--limit takes a number from 1, not 0.5" in run(folder, "sweep", "chain12.log", "--limit", "0.5", code=2).stderr
    )


@pytest.mark.parametrize("policies", some_slow(["dtr", "dtr+sqrt"], ["dtr+sqrt"]))
def test_ctrl_c_leaves_what_is_finished(folder: Path, tmp_path: Path, policies: str) -> None:
    """On a terminal progress is shown; after Ctrl-C, in threads as in processes, the same command goes on."""
    save = tmp_path / "runs.jsonl"
    budgets = ("--budgets", "0.9:0.05:0.001") if policies == "dtr" else ("--budgets", "0.6:0.05:0.01")
    command = ("remat", "sweep", str(folder / "chain900.log"), *budgets, "--policies", policies, "--limit", "50")
    seen = on_terminal(
        folder,
        *(*command, "--save", str(save), "--threads", "2"),
        interrupt=lambda _: save.exists() and save.read_bytes().count(b"\n") > 3,
        COLUMNS="120",
    )
    assert seen.returncode == 130, seen.stdout
    assert "Traceback" not in seen.stdout
    kept = save.read_bytes()
    assert kept.endswith(b"\n")
    assert kept.count(b"\n") > 3
