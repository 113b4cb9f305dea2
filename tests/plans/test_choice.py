"""What decides under a budget, by its text: built-in policies, those of a Python file, plans."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from tensortide.errors import PlanError, PlanFileError, WorkloadError
from tensortide.executors import SERIAL
from tensortide.plans import Plan, save_plan
from tensortide.plans.remat.choice import decision, policy, source_digest
from tensortide.plans.remat.policies import POLICIES, Heuristic
from tensortide.plans.remat.schedule import recorded
from tensortide.replays.remat import Simulator
from tensortide.replays.remat.budgets import budgets as parse_budgets
from tensortide.studies.remat.designs import conduct, contest
from tensortide.studies.remat.grid import play_all
from tensortide.studies.remat.subject import Subject
from tests.replays.remat.steps import random_graph

MINE = """
from tensortide.plans.remat.policies import Heuristic, Work

class Oldest:
    name = "oldest"

    def begin(self):
        pass

    def choose(self, pool, state):
        return max(enumerate(pool), key=lambda entry: (-state.last_access_ns[entry[1]], entry[0]))[1], len(pool)

class OnlyChoose:
    def choose(self, pool, state):
        return pool[0], 1

class Needs:
    def __init__(self, seed):
        self.seed = seed

def made():
    return Oldest()

class Outside:
    def choose(self, pool, state):
        return -1, 1

oldest = Oldest()
like_lru = Heuristic("whatever", Work.LAST_ACCESS)
number = 5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


@pytest.fixture
def sim() -> Simulator:
    return Simulator(recorded(random_graph(random.Random(5), 60, in_place=0.0, kept=0.02), [10] * 60))


@pytest.mark.parametrize("name", POLICIES)
def test_a_built_in_policy_comes_first(name: str, folder: Path) -> None:
    (folder / name).write_text("a file of that name")
    assert decision(name) == policy(name)


@pytest.mark.parametrize("name", ["Oldest", "made", "oldest", "like_lru"])
def test_a_policy_of_a_file_plays_like_the_built_in_one_that_it_copies(name: str, folder: Path, sim: Simulator) -> None:
    own = f"mine.py:{name}"
    budget = int(sim.baseline_bytes * 0.8)
    ours, theirs = sim.run(own, budget), sim.run("lru", budget)
    assert ours.policy == own, "it is called what names it"
    assert (ours.status, ours.peak_bytes, ours.clock_ns) == (theirs.status, theirs.peak_bytes, theirs.clock_ns)
    assert theirs.clock_ns > sim.schedule.model_ns, "the budget asks for evictions"
    assert sim.has_kernel(policy(own)) == (name == "like_lru" and sim.has_kernel(policy("lru")))


def test_a_policy_needs_no_more_than_choose(folder: Path, sim: Simulator) -> None:
    run = sim.run("mine.py:OnlyChoose", int(sim.baseline_bytes * 0.9))
    assert run.policy == "mine.py:OnlyChoose"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("def choose(self, pool, state): return pool[len(pool)], 1", "IndexError: list index out of range"),
        ("def choose(self, pool, state): return state.evicted_classes_ns('x'), 1", "TypeError: "),
        ("def choose(self, pool): return 0", "TypeError: .* positional arguments"),
        ("begin = lambda self: 1 / 0\n    choose = None.__init__", "ZeroDivisionError: division by zero"),
        ("def __init__(self): raise ValueError('no')\n    choose = None.__init__", "ValueError: no"),
    ],
)
def test_a_policy_that_raises_is_an_error_with_its_line(body: str, error: str, folder: Path, sim: Simulator) -> None:
    (folder / "bad.py").write_text(f"class Bad:\n    {body}\n")
    with pytest.raises(PlanError, match=rf"^bad.py:Bad failed: {error}") as found:
        sim.run("bad.py:Bad", int(sim.baseline_bytes * 0.8))
    if "choose(self, pool):" not in body:
        assert "\n  at " in str(found.value)
        assert f"bad.py:2: {body.splitlines()[0]}" in str(found.value)


def test_a_heuristic_of_a_class_of_ones_own_scores_by_it_and_names_its_line(folder: Path, sim: Simulator) -> None:
    head = "from tensortide.plans.remat.policies import Heuristic, Work\n\nclass Mine(Heuristic):\n"
    (folder / "scored.py").write_text(
        f"{head}    def cost(self, storage, state):\n        return -state.last_access_ns[storage] / self.power\n\n"
        "class Newest(Mine):\n    power = 1\n\n"
        "newest, broken = Newest('', Work.ONE), Mine('', Work.ONE)\n"
    )
    budget = int(sim.baseline_bytes * 0.8)
    ours, theirs = sim.run("scored.py:newest", budget), sim.run("lru", budget)
    assert ours.clock_ns != theirs.clock_ns, "not played as the built-in cell of the same fields"
    with pytest.raises(PlanError, match=r"^scored.py:broken failed: AttributeError: .*power") as found:
        sim.run("scored.py:broken", budget)
    assert "scored.py:5: return -state.last_access_ns" in str(found.value)


def test_an_experiment_takes_policies_of_files(folder: Path, sim: Simulator) -> None:
    lines = contest(["lru", "mine.py:Oldest"])
    subject = Subject("step", sim.recording)
    found = conduct("sweep", [subject], lines, parse_budgets("0.9,0.8"), play=partial(play_all, where=SERIAL))
    theirs, ours = found.curves(0).values()
    assert [row.runs[0].clock_ns for row in ours] == [row.runs[0].clock_ns for row in theirs]


def test_finished_runs_of_a_policy_are_those_of_its_source(folder: Path) -> None:
    assert source_digest("lru") == source_digest("random:3") == ""
    before = source_digest("mine.py:Oldest")
    (folder / "mine.py").write_text(MINE + "\n# changed\n")
    assert "" != before != source_digest("mine.py:Oldest")
    assert source_digest("tensortide.plans.remat.policies:Random")


def test_a_plan_is_a_path(folder: Path) -> None:
    plan = Plan("0" * 32, ())
    for name in ("plan.json", "lru", "best"):
        save_plan(plan, folder / name)
    assert decision("plan.json") == decision("./lru") == decision("best") == decision(Path("lru")) == plan
    assert decision("lru") == POLICIES["lru"].make(0)
    assert decision(plan) is plan
    with pytest.raises(PlanError, match=r"plan\.json is a plan"):
        policy("plan.json")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("dtr-x", PlanError, r"there is no policy 'dtr-x'; did you mean dtr(.|\n)*FILE\.py:NAME"),
        ("random:x", PlanError, "there is no policy 'random:x'"),
        ("lru+sqrt+sqrt", PlanError, "there is no policy"),
        ("none.json", PlanFileError, r"cannot read none\.json"),
        ("mine.py", PlanFileError, r"mine\.py is not a tensortide plan"),
        ("none.py:X", WorkloadError, r"there is no file none\.py"),
        ("mine.py:Oldset", WorkloadError, "has no 'Oldset'; did you mean Oldest"),
        ("mine.py:Needs", PlanError, "cannot be made without arguments"),
        ("mine.py:number", PlanError, "is no policy: it has no choose"),
    ],
)
def test_what_decides_nothing_says_so(text: str, error: type[Exception], message: str, folder: Path) -> None:
    with pytest.raises(error, match=message):
        decision(text)


def test_a_choice_outside_the_pool_is_an_error(folder: Path, sim: Simulator) -> None:
    with pytest.raises(PlanError, match=r"mine\.py:Outside chose \(-1, 1\)"):
        sim.run("mine.py:Outside", int(sim.baseline_bytes * 0.8))


def test_objects_are_taken_as_they_are() -> None:
    mine = POLICIES["lru"].make(0)
    assert isinstance(mine, Heuristic)
    assert decision(mine) is mine
