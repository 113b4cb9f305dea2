"""Bad input to ``tensortide plan``: one message, exit status 2, nothing written; and input that is odd but legal."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tensortide.graph import save
from tensortide.graph.model import TENSOR, Call, Graph, Meta, Op, Phase, Role, Storage, Tensor
from tensortide.plans import Compute, Fetch, Lane, Plan, in_order, save_plan
from tests.cli.command import called
from tests.plans.dags import random_dag


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step, another one, and plans that do not execute it."""
    path = tmp_path_factory.mktemp("plan_errors")
    step, other = random_dag(3, 12), random_dag(4, 12)
    save(step, path / "step.tide")
    save(other, path / "other.tide")
    order = in_order(step, range(len(step)), "cpu")
    save_plan(order, path / "good.json")
    save_plan(in_order(other, range(len(other)), "cpu"), path / "other.json")
    steps = order.lanes[0].steps
    bad = {
        "illegal": steps[::-1],
        "range": (Compute(10**6), *steps),
        "link": (*steps[:1], Fetch(0, "tape"), *steps[1:]),
        "state": (Fetch(0, "host"), *steps),
    }
    for name, found in bad.items():
        save_plan(Plan(order.graph, (Lane("cpu", found),)), path / f"{name}.json")
    text = (path / "good.json").read_text()
    (path / "half.json").write_text(text[: len(text) // 2])
    (path / "hostile.json").write_text(text.replace('"lanes"', '"lanes":' + "[" * 50_000))
    durations = {"format": "tensortide durations", "version": 5, "durations": {"ns": [0] * len(step), "source": "none"}}
    (path / "foreign.durations.json").write_text(json.dumps(durations))
    return path


ERRORS = [
    (("--budget", "-5"), "-5"),
    (("--budget", "0"), "is more than"),
    (("--budget", "8 gigs"), "is no budget"),
    (("--budget", "80%", "--offload", "host", "--host-link", "tape"), "tape"),
    (("--budget", "80%", "--offload", "host", "--host-link", "0GB/s"), "no link"),
    (("--budget", "80%", "--offload", "host", "--host-memory", "much"), "much"),
    (("--budget", "80%", "--host-memory", "1GiB"), "goes with --offload host"),
    (("--budget", "80%", "--host-link", "pcie4"), "--host-link goes with --offload host"),
    (("--budget", "80%", "--offload", "host", "--ssd-link", "nvme"), "--ssd-link goes with --offload ssd"),
    (("--budget", "80%", "--pin", "no.such.module"), "names no tensor"),
    (("--budget", "80%", "--durations", "foreign.durations.json"), "foreign.durations.json"),
    (("--budget", "80%", "--against", "none.json"), "none.json"),
    (("--budget", "80%", "--against", "step.tide"), "step.tide is not a tensortide plan"),
    (("--budget", "80%", "--against", "other.json"), "another graph"),
    (("--budget", "80%", "--against", "range.json"), "computes op 1000000"),
    (("--budget", "80%", "--against", "link.json"), "no such link"),
    (("--budget", "80%", "--against", "state.json", "--offload", "host"), "step 0"),
    (("--budget", "80%", "--against", "illegal.json"), "illegal.json does not execute this step: step 0"),
    (("--budget", "80%", "--against", "half.json"), "half.json is damaged"),
    (("--budget", "80%", "--against", "hostile.json"), "hostile.json"),
    (("--budget", "80%", "--plan", "no/such/plan.json"), "no/such does not exist"),
    (("--budget", "80%", "--effort", "-1"), "effort"),
    (("--budget", "80%", "--effort", "inf"), "effort"),
    (("--budget", "80%", "--effort", "nan"), "effort"),
    (("--budget", "80%", "--time-limit", "-1"), "time-limit"),
]


@pytest.mark.parametrize(
    ("arguments", "words"), ERRORS, ids=lambda given: " ".join(given) if type(given) is tuple else ""
)
def test_bad_input_is_one_message(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    before = sorted(folder.iterdir())
    done = called(folder, "plan", "step.tide", *arguments)
    assert done.returncode == 2, done.stdout
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not done.stdout
    assert sorted(folder.iterdir()) == before


def test_a_tier_too_small_for_a_tensor_says_what_can_never_go(folder: Path) -> None:
    done = called(folder, "plan", "step.tide", "--budget", "100%", "--offload", "host", "--host-memory", "1B")
    assert done.returncode == 0
    assert "can never move to host" in done.stderr


def test_no_time_at_all_gives_a_plan_and_a_bound(folder: Path) -> None:
    done = called(folder, "plan", "step.tide", "--budget", "95%", "--time-limit", "0", "--json")
    facts = json.loads(done.stdout)["sections"]["plan"]["facts"]
    assert facts["status"] == "fits"
    assert facts["bound_ns"] >= facts["base_ns"]


def test_the_plan_to_beat_stands_beside(folder: Path) -> None:
    done = called(folder, "plan", "step.tide", "--budget", "100%", "--against", "good.json", "--json")
    assert "good.json" in json.loads(done.stdout)["sections"]["plan"]["tables"]["rivals"]["name"]


def test_without_solvers_planning_goes_on_and_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("scipy", "ortools", *sys.modules):
        if name.split(".")[0] in ("scipy", "ortools"):
            monkeypatch.setitem(sys.modules, name, None)
    done = called(folder, "plan", "step.tide", "--budget", "90%")
    assert done.returncode in (0, 4), done.stderr
    assert "Traceback" not in done.stderr


def graph_of(ops: int, nbytes: int = 0) -> Graph:
    """So many ops, each of which reads what the one before it made."""
    calls = (Call("made.first.default", (), 0), Call("made.next.default", (("x", TENSOR),), 1))
    return Graph(
        tuple(Op(min(i, 1), (i - 1,) if i else (), (i,), Phase.FORWARD) for i in range(ops)),
        calls[: min(ops, 2)],
        tuple(Tensor(i, "uint8", (nbytes,), (1,)) for i in range(ops)),
        tuple(Storage(nbytes, "cpu", Role.ACTIVATION, i, None if i == ops - 1 else i + 2) for i in range(ops)),
        meta=Meta("tiny"),
    )


@pytest.mark.parametrize("ops", [0, 1, 2])
def test_empty_steps_and_tensors_without_bytes_are_planned(tmp_path: Path, ops: int) -> None:
    """There is no backward pass in them either."""
    save(graph_of(ops), tmp_path / "tiny.tide")
    done = called(tmp_path, "plan", "tiny.tide", "--budget", "1KiB")
    assert done.returncode == 0, done.stderr
    assert "Fits" in done.stdout
