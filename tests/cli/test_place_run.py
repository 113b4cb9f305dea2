"""``tensortide place --run``, ``--plan`` and the exports, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import called, tensortide
from tests.cli.test_place_graphs import NET, cluster

WORKLOADS = """
import multiprocessing, os, signal, sys, time, torch
from torch import nn

def layers(optimizer="sgd", dropout=0.0, fails="", width=8):
    model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Dropout(dropout)) for _ in range(3)))
    plain = optimizer == "sgd"
    made = (torch.optim.SGD if plain else torch.optim.Adam)(model.parameters(), lr=0.1, foreach=None if plain else True)
    x = torch.randn(4, width)
    def step():
        rank = multiprocessing.parent_process() is not None
        if rank:
            print("a step")
        if rank and fails in ("SIGINT", "SIGTERM"):
            os.kill(multiprocessing.parent_process().pid, getattr(signal, fails))
            time.sleep(600)
        elif fails and rank:
            os.kill(os.getpid(), signal.SIGKILL) if fails == "killed" else sys.exit("the disk is full")
        loss = model(x).square().mean()
        loss.backward()
        made.step()
        made.zero_grad()
        return loss.detach()
    return step
"""
SPEED = ("--budget", "30", "-q")
BRIEFLY = ("--option", "planned=100")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("placed_run")
    (path / "two.json").write_text(cluster(2))
    star: dict[str, object] = {"devices": [{"name": "gpu", "count": 300, "device": "A100-SXM-80GB"}]}
    star["links"] = [{"between": ["gpu0", "gpu*"], "link": "300GB/s,2us"}]
    (path / "many.json").write_text(json.dumps(star))
    (path / "w.py").write_text(WORKLOADS)
    (path / "net.json").write_text(json.dumps(NET))
    done = called(path, "capture", "w.py:layers", "-o", "w.tide")
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("w.tide", "--run", "1"),
            "--run takes a workload, which every process builds anew: a built-in example, file.py",
        ),
        (("net.json", "--run", "1"), "net.json is a network of layers: --run goes with a captured step"),
        (("net.json", "--split-points", "s.json"), "--split-points goes with a captured step"),
        (("w.py:layers", "--run", "1", "--device", "cuda"), "--device cuda is predicted and does not run"),
        (
            ("w.py:layers", "--run", "1", "--ranks", "2"),
            "--run and --ranks exclude each other: the step runs as the CPU",
        ),
        (("w.py:layers", "--run", "1", "--compiled"), "--run and --compiled exclude each other"),
        (("w.py:layers", "--run", "1", "--first-step"), "--run and --first-step exclude each other"),
        (
            ("w.py:layers", "--run", "1", "--data", "2", "--set", "dropout=0.5", "--keep-random"),
            "draws random numbers, and 2 groups would draw others than one process does",
        ),
        (("w.py:layers", "--run", "1", "--data", "3"), "2 devices are not 3 equal groups: 2 / 3 is not whole"),
        (
            ("w.py:layers", "--bucket-bytes", "1MiB"),
            "--bucket-bytes goes with --data: it says how groups exchange gradients",
        ),
        (("w.py:layers", "--no-overlap"), "--no-overlap goes with --data: it says how groups exchange gradients"),
        (
            ("w.py:layers", "--data", "2", "--no-overlap", "--bucket-bytes", "0"),
            "--no-overlap and --bucket-bytes exclude each other: gradients go one by one",
        ),
        (("w.py:layers", "--data", "2", "--bucket-bytes", "much"), "much"),
        (
            ("w.py:layers", "--run", "1", "--set", "dropout=0.5"),
            "draws random numbers, and processes would draw others",
        ),
        (("w.py:layers", "--run", "1", "--set", "optimizer=adam"), "(capturable=True or fused=True)"),
        (("w.py:layers", "--run", "1", "--machine", "many.json"), "300 devices would be as many processes"),
        (("w.py:layers", "--plan", "none.json"), "--plan none.json: there is no such file; --out writes a Plan"),
        (("w.py:layers", "--plan", "two.json"), "two.json"),
        (("w.py:layers", "--device-map", "no/such/map.json"), "no/such"),
        (("w.py:layers", "--out", "a.json", "--device-map", "./a.json"), "--out and --device-map are one file, "),
        (("w.py:layers", "--split-points", "two.json"), "--machine and --split-points are one file, two.json"),
    ],
)
def test_what_cannot_be_is_one_message_before_any_search(folder: Path, arguments: tuple[str, ...], text: str) -> None:
    machine = () if "--machine" in arguments else ("--machine", "two.json")
    done = called(folder, "place", *arguments, *machine, "-q")
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert "per step" not in done.stdout


def test_a_plan_is_played_again_if_it_is_of_the_step(folder: Path) -> None:
    first = called(folder, "place", "w.tide", "--machine", "two.json", *SPEED, *BRIEFLY, "--out", "p.json", "--json")
    assert first.returncode == 0, first.stderr
    again = called(folder, "place", "w.tide", "--machine", "two.json", "--plan", "p.json", "-q", "--json")
    assert again.returncode == 0, again.stderr
    written = json.loads((folder / "p.json").read_text())
    (folder / "old.json").write_text(json.dumps({**written, "tensortide": "0.0.1"}))
    del written["tensortide"]
    (folder / "older.json").write_text(json.dumps(written))
    facts = [json.loads(done.stdout)["sections"]["placed_step"]["facts"] for done in (first, again)]
    assert facts[0]["step_ns"] == facts[1]["step_ns"]
    assert facts[0]["moved_bytes"] == facts[1]["moved_bytes"] > 0
    for arguments, text in (
        (("--budget", "5"), "--plan and --budget exclude each other: a Plan is played as it is, without a search"),
        (("--pin", "0=gpu1"), "--plan and --pin exclude each other"),
        (("--micro-batches", "2"), "p.json is a Plan of another step: give the target, --set, --micro-batches"),
        (("--by", "closure"), ""),
        (("--micro-batches", "2", "--plan", "old.json"), "; it was written by tensortide 0.0.1 (this is "),
        (("--micro-batches", "2", "--plan", "older.json"), "; it was written by an older tensortide (this is "),
    ):
        plan = () if "--plan" in arguments else ("--plan", "p.json")
        done = called(folder, "place", "w.tide", "--machine", "two.json", *plan, "-q", *arguments)
        assert done.returncode == (2 if text else 0)
        assert text in done.stderr


def test_exports_are_files_of_other_tools_or_one_message(folder: Path) -> None:
    asked = ("place", "w.tide", "--machine", "two.json", *SPEED, "--depth", "1")
    files = ("--device-map", "map.json", "--split-points", "points.json")
    whole = called(folder, *asked, *files, *BRIEFLY, "--pin", "0=gpu1", "--pin", "1=gpu1", "--pin", "2=gpu1")
    assert whole.returncode == 0, whole.stderr
    assert json.loads((folder / "map.json").read_text()) == {"": 1}
    assert json.loads((folder / "points.json").read_text()) == {}
    back = ("--pin", "0=gpu0", "--pin", "1=gpu1", "--pin", "2=gpu0")
    early = called(folder, *asked, *files, *back, *BRIEFLY, "--out", "back.json")
    stages = "points.json is not written: a device has several stages of the forward pass, and a pipeline has one for "
    assert (early.returncode, early.stdout) == (2, "")
    assert early.stderr == f"error: {stages}each: pin otherwise (--pin)\n"
    assert not (folder / "back.json").exists()
    assert called(folder, *asked, *back, *BRIEFLY, "--out", "back.json").returncode == 0
    played = ("place", "w.tide", "--machine", "two.json", "--depth", "1", "--plan", "back.json", "-q")
    done = called(folder, *played, *files)
    assert done.returncode == 2
    assert done.stderr == f"error: {stages}each: search with --algorithm contiguous --option loops=1\n"
    assert "per step on 2 devices" in done.stdout  # what was searched is shown all the same
    assert json.loads((folder / "map.json").read_text()) == {"0": 0, "1": 1, "2": 0}
    batches = ("--micro-batches", "4", "--schedule", "1f1b")
    advised = called(folder, *asked, *files, *batches, "--algorithm", "contiguous", "--option", "loops=1")
    assert advised.returncode == 0, advised.stderr


@pytest.mark.slow
def test_the_placement_runs_here_and_again_from_its_plan(folder: Path) -> None:
    asked = ("place", "w.py:layers", "--machine", "two.json", "--set", "dropout=0.5", "--keep-random", "-q")
    pins = [part for number in range(3) for part in ("--pin", f"{number}.0=gpu{number % 2}")]
    done = tensortide(
        folder, *asked, *pins, "--budget", "20", "--run", "2", "--out", "r.json", "--html", "r.html", "--json"
    )
    assert done.returncode == 0, done.stderr
    ran = json.loads(done.stdout)["sections"]["placed_run"]  # prints of steps are not in between
    assert ran["facts"]["same_losses"] is ran["facts"]["same_state"] is ran["facts"]["bytes_as_planned"] is True
    assert ran["facts"]["steps"] == 2
    assert ran["tables"]["losses"]["loss"] == ran["tables"]["losses"]["alone"]
    ranks = ran["tables"]["ranks"]
    assert ranks["device"] == ["gpu0", "gpu1"]
    assert ranks["sent_bytes"] == ranks["planned_bytes"]
    assert min(ranks["sent_bytes"]) > 0
    assert all(0 < share < 1 for share in (*ranks["busy_share"], *ranks["predicted_share"]))
    assert {lane["label"] for lane in ran["spans"]["measured"]["lanes"]} >= {"gpu0", "gpu1", "gpu0 > gpu1"}
    assert (folder / "r.html").stat().st_size > 10_000
    again = called(folder, *asked, "--plan", "r.json", "--run", "1", "--micro-batches", "1")
    assert again.returncode == 0, again.stderr
    assert "Losses of 1 step in 2 processes are bit-identical to those of one process." in " ".join(
        again.stdout.split()
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fails", "text"),
    [("killed", "was killed by signal 9; the others were ended"), ("exit", "SystemExit: the disk is full")],
)
def test_a_rank_that_ends_is_one_message_below_the_placement(folder: Path, fails: str, text: str) -> None:
    asked = ("place", "w.py:layers", "--machine", "two.json", "--set", f"fails={fails}", *SPEED, "--run", "1")
    done = called(folder, *asked)
    assert done.returncode == 2
    assert text in done.stderr
    assert done.stderr.count("\n") == 1
    assert "per step on" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("fails", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_an_interrupted_run_shows_the_placement(folder: Path, fails: str, status: int) -> None:
    asked = ("place", "w.py:layers", "--machine", "two.json", "--set", f"fails={fails}", *SPEED, "--run", "1")
    done = tensortide(folder, *asked, "--out", f"{fails}.json")
    assert done.returncode == status
    assert done.stderr == "interrupted" + (" by SIGTERM" if fails == "SIGTERM" else "") + "\n"
    assert "per step on" in done.stdout
    assert (folder / f"{fails}.json").exists()


@pytest.mark.slow
def test_shards_run_here_and_again_from_their_plan(folder: Path) -> None:
    shards = ("--shard", "0.0=output:2", "--shard", "1.0=batch:2")
    pins = ("--pin", "0.0.shard1=gpu1", "--pin", "1.0.shard1=gpu1")
    asked = ("place", "w.py:layers", "--machine", "two.json", "--device", "cpu", "-q", "--json")
    done = called(folder, *asked, *shards, *pins, "--budget", "10", "--out", "s.json")
    assert done.returncode == 0, done.stderr
    again = called(folder, *asked, *shards, "--plan", "s.json", "--run", "2")
    assert again.returncode == 0, again.stderr
    ran = json.loads(again.stdout)["sections"]["placed_run"]
    assert ran["facts"]["losses_agree"]
    assert ran["facts"]["bytes_as_planned"]
    assert min(ran["tables"]["ranks"]["sent_bytes"]) > 0
    whole = called(folder, *asked, "--plan", "s.json", "--run", "2")
    assert whole.returncode == 2
    assert (
        "s.json is a Plan of another step: give the target, --set, --micro-batches, --shard and --data" in whole.stderr
    )


@pytest.mark.slow
def test_groups_run_here_and_again_from_their_plan_and_are_exported(folder: Path) -> None:
    (folder / "four.json").write_text(cluster(4))
    asked = ("place", "w.py:layers", "--machine", "four.json", "--data", "2", "-q", "--json")
    pins = ("--pin", "0=gpu0", "--pin", "1=gpu1", "--pin", "2=gpu1")
    files = ("--device-map", "g.map.json", "--split-points", "g.points.json", "--out", "g.json")
    buckets = ("--bucket-bytes", "300", "--depth", "1")
    done = called(folder, *asked, *buckets, *pins, *files, "--budget", "20", "--run", "2")
    assert done.returncode == 0, done.stderr
    sections = json.loads(done.stdout)["sections"]
    ran, exchanges = sections["placed_run"], sections["placed_step"]["tables"]["exchanges"]
    assert ran["facts"]["same_losses"] is ran["facts"]["same_state"] is ran["facts"]["bytes_as_planned"] is True
    averages = ran["tables"]["averages"]
    assert averages["device"] == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert averages["gradients_bytes"] == averages["planned_bytes"] == 2 * exchanges["gradients_bytes"]
    assert exchanges["exchanges"] == [1, 2]
    assert all(0 < ns <= whole for ns, whole in zip(exchanges["exposed_ns"], exchanges["time_ns"], strict=True))
    assert ran["tables"]["sent"]["source"] == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert json.loads((folder / "g.map.json").read_text()) == {"0": 0, "1": 1, "2": 1}
    assert json.loads((folder / "g.points.json").read_text()) == {"1": "BEGINNING"}
    again = called(folder, *asked, "--plan", "g.json", "--run", "1", "--depth", "1", "--no-overlap")
    assert again.returncode == 0, again.stderr
    ran = json.loads(again.stdout)["sections"]["placed_run"]
    assert ran["facts"]["same_losses"] is ran["facts"]["bytes_as_planned"] is True
    one = called(folder, "place", "w.py:layers", "--machine", "two.json", "--plan", "g.json", "--device", "cpu")
    assert one.returncode == 2
    assert "g.json is a Plan of another step: give the target" in one.stderr


@pytest.mark.slow
def test_shards_of_groups_run_here(folder: Path) -> None:
    (folder / "four.json").write_text(cluster(4))
    asked = ("place", "w.py:layers", "--machine", "four.json", "--data", "2", "-q", "--json", "--budget", "10")
    done = called(folder, *asked, "--shard", "0.0=output:2", "--pin", "0.0.shard1=gpu1", "--run", "2")
    assert done.returncode == 0, done.stderr
    ran = json.loads(done.stdout)["sections"]["placed_run"]
    assert ran["facts"]["losses_agree"] is ran["facts"]["bytes_as_planned"] is True
    assert min(ran["tables"]["averages"]["gradients_bytes"]) > 0
