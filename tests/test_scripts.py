"""The scripts that developers run: tests that a change needs, slow tests that a landing runs, lines that count."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.import_graph import changed_paths, package_imports, reached, reached_tests
from scripts.room_sizes import code_lines, line_counts, over_limit, sizes
from scripts.slow_tests import (
    CYCLE,
    RECOUNT_AFTER_S,
    UNLISTED_S,
    Table,
    choose,
    landing_base,
    landing_changes,
    landing_number,
    read_table,
    share,
    updated,
    with_unlisted,
    write_table,
)
from tests.conftest import ROOT
from tests.cpu_budget import CpuBudget, budgets, over_budget
from tests.marks import some_slow

SOURCE = '''"""A module.

Of two lines."""

# A comment.
x = """text
that counts"""
"""Said of x."""


def f() -> None:
    """Do nothing."""  # twice
    return  # once
'''

IMPORTS = {"cost": {"graph"}, "reports": {"cost", "units"}, "cli": {"reports", "cost"}, "graph": {"errors"}}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for room in ("cost", "graph", "reports", "cli"):
        (tmp_path / "tests" / room).mkdir(parents=True)
        (tmp_path / "tests" / room / f"test_{room}.py").write_text("from tests.graph import steps\n", "utf-8")
    (tmp_path / "tests" / "graph" / "test_graph.py").write_text("", "utf-8")
    (tmp_path / "tests" / "graph" / "steps.py").touch()
    (tmp_path / "tests" / "cost" / "test_cost.py").write_text("import tensortide\n", "utf-8")
    (tmp_path / "tests" / "test_import.py").touch()
    return tmp_path


def test_a_change_reaches_the_rooms_that_import_it_nearest_first() -> None:
    assert reached(["graph"], IMPORTS) == {"graph": 0, "cost": 1, "reports": 2, "cli": 2}
    assert reached(["cli"], IMPORTS) == {"cli": 0}
    assert reached(["errors"], IMPORTS) == {"errors": 0, "graph": 1, "cost": 2, "reports": 3, "cli": 3}


def test_a_change_runs_the_tests_of_its_room_and_then_of_those_that_import_it(tree: Path) -> None:
    order = ["tests/graph", "tests/cost", "tests/cli", "tests/reports"]
    assert reached_tests(["src/tensortide/graph/rules/linalg.py"], IMPORTS, tree) == order
    assert reached_tests(["src/tensortide/cli/app.py", "README.md"], IMPORTS, tree) == [
        "tests/cli",
        "tests/test_import.py",
    ]
    assert reached_tests(["src/tensortide/units.py"], IMPORTS, tree)[0] == "tests/test_import.py"
    assert reached_tests(["tests/data/dtr/a.json"], IMPORTS, tree) == ["tests"]
    assert reached_tests([], IMPORTS, tree) == []


def test_a_script_or_a_file_that_tests_read_runs_the_tests_that_import_its_package(tree: Path) -> None:
    (tree / "scripts").mkdir()
    (tree / "scripts" / "make.py").write_text("from tests.steps.stored import load\n", "utf-8")
    (tree / "tests" / "steps").mkdir()
    (tree / "tests" / "steps" / "stored.py").touch()
    (tree / "tests" / "graph" / "test_graph.py").write_text("from scripts.make import NAMES\n", "utf-8")
    (tree / "tests" / "cost" / "test_cost.py").write_text("from tests.steps import stored\n", "utf-8")
    assert reached_tests(["tests/steps/gpt2.tide"], IMPORTS, tree) == [
        "tests/cost",
        "tests/test_import.py",
        "tests/graph",
    ]
    assert reached_tests(["scripts/make.py"], IMPORTS, tree) == ["tests/test_import.py", "tests/graph"]


@pytest.mark.parametrize("gone", ["tests/test_gone.py", "tests/gone/test_a.py", "src/tensortide/gone/a.py"])
def test_what_is_gone_runs_the_tests_at_the_top(tree: Path, gone: str) -> None:
    assert reached_tests([gone], IMPORTS, tree) == ["tests/test_import.py"]


def test_both_names_of_a_renamed_file_are_changes_and_names_are_as_they_are(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y", *arguments], check=True
        )

    git("init", "-q")
    (tmp_path / "a b.py").write_text("x = 1\n" * 20, "utf-8")
    git("add", ".")
    git("commit", "-q", "-m", "x")
    git("mv", "a b.py", "ü.py")
    (tmp_path / "new\nline.py").touch()
    (tmp_path / os.fsdecode(b"no text \xff.py")).touch()
    assert sorted(changed_paths("HEAD", tmp_path)) == ["a b.py", "new\nline.py", "no text \udcff.py", "ü.py"]


def test_a_changed_test_runs_its_room_and_a_changed_helper_those_that_import_it(tree: Path) -> None:
    assert reached_tests(["tests/graph/test_graph.py"], IMPORTS, tree) == ["tests/graph"]
    assert reached_tests(["tests/graph/steps.py"], IMPORTS, tree) == ["tests/graph", "tests/cli", "tests/reports"]


def test_names_of_the_package_itself_reach_the_rooms_that_take_them() -> None:
    assert {"cli", "reports", "pytest_plugin"} <= reached(["__init__"], package_imports()).keys()


def test_a_changed_conftest_runs_the_tests_below_its_folder(tree: Path) -> None:
    (tree / "tests" / "conftest.py").touch()
    (tree / "tests" / "cost" / "conftest.py").touch()
    order = ["tests/test_import.py", "tests/cli", "tests/cost", "tests/graph", "tests/reports"]
    assert reached_tests(["tests/conftest.py"], IMPORTS, tree) == order
    assert reached_tests(["tests/cost/conftest.py"], IMPORTS, tree) == ["tests/cost"]


def slow_table(seed: int, files: int = 120) -> Table:
    drawn = random.Random(seed)
    return Table(1, {f"tests/room{i % 9}/test_{i}.py": drawn.uniform(1, 60) for i in range(files)})


@pytest.mark.parametrize("commits", [1, 2, 3, 4, 5, 6, 8, 12, 60])
def test_landings_that_are_not_counted_visit_all_turns(commits: int) -> None:
    table = slow_table(3)
    turns = {name for landing in range(CYCLE) for name in share(table, landing * commits)}
    assert turns == set(table.cpu_s)


@pytest.mark.parametrize("seed", range(5))
def test_no_slow_test_goes_unrun_for_more_than_eight_landings(seed: int) -> None:
    """Over simulated landings, counted once or twice, with files that come, go and change their durations, and time for
    a third of them."""
    drawn, table, landing = random.Random(seed), slow_table(seed), 0
    unrun = dict.fromkeys(table.cpu_s, 0)
    for _ in range(100):
        landing += drawn.choice((1, 2))
        changed = drawn.sample(range(9), 2)
        chosen = choose(table, landing, [f"tests/room{room}" for room in changed], sum(table.cpu_s.values()) / 3)
        unrun = {name: 0 if name in chosen else unrun.get(name, 0) + 1 for name in table.cpu_s}
        assert max(unrun.values()) <= 8
        seconds = {
            name: old_s * drawn.uniform(0.9, 1.1) for name, old_s in table.cpu_s.items() if drawn.random() < 0.99
        }
        table = Table(landing, {**seconds, f"tests/room1/test_new_{landing}.py": drawn.uniform(1, 60)})


def test_slow_tests_of_changed_rooms_come_after_the_share_and_before_the_others() -> None:
    table = slow_table(0)
    chosen = choose(table, 3, ["tests/room4", "tests/room7/test_7.py"], 1e9)
    turn = share(table, 3)
    assert chosen[: len(turn)] == turn
    near = [name for name in sorted(table.cpu_s) if name.startswith("tests/room4/") and name not in turn]
    assert chosen[len(turn) : len(turn) + len(near)] == near
    assert sorted(chosen) == sorted(table.cpu_s)
    assert chosen[-1] in share(table, 2)
    assert chosen[-1] in share(table, 1)


def test_chosen_slow_tests_fit_the_time_that_is_left() -> None:
    table = slow_table(1)
    allowed_s = sum(table.cpu_s.values()) / 2
    assert 0.9 * allowed_s < sum(table.cpu_s[name] for name in choose(table, 0, [], allowed_s)) <= allowed_s
    assert choose(table, 2, ["tests/room1"], 0.0) == share(table, 2)


def test_every_slow_test_has_its_turn_at_two_numbers_in_a_row_of_a_cycle() -> None:
    table = slow_table(2)
    turns = [name for landing in range(10, 10 + CYCLE) for name in share(table, landing)]
    assert sorted(turns) == sorted([*table.cpu_s, *table.cpu_s])
    assert not set(share(table, 10)) & set(share(table, 12))


def test_files_that_the_table_does_not_list_are_chosen_and_those_that_are_gone_are_not(tree: Path) -> None:
    (tree / "tests" / "cost" / "test_cost.py").write_text("@pytest.mark.slow\ndef test_all(): ...\n", "utf-8")
    (tree / "tests" / "graph" / "test_graph.py").write_text("VALUES = some_slow([1, 2], [2])\n", "utf-8")
    table = with_unlisted(Table(4, {"tests/cost/test_cost.py": 3.0, "tests/gone/test_gone.py": 9.0}), tree)
    assert table == Table(4, {"tests/cost/test_cost.py": 3.0, "tests/graph/test_graph.py": UNLISTED_S})


def test_a_file_with_slow_tests_but_no_mark_is_chosen_once_it_is_listed(tree: Path) -> None:
    table = Table(4, {"tests/cost/test_cost.py": 3.0})
    assert with_unlisted(table, tree) == table


def test_every_file_with_slow_tests_is_chosen(request: pytest.FixtureRequest) -> None:
    """Of the files that this run collects."""
    budget = request.config.pluginmanager.get_plugin(CpuBudget.__name__)
    assert isinstance(budget, CpuBudget)
    assert budget.slow_files - with_unlisted(read_table()).cpu_s.keys() == set()


def test_a_report_changes_the_durations_of_the_files_that_it_has(tmp_path: Path) -> None:
    report = tmp_path / "report.csv"
    report.write_text('"tests/a.py::test_x[1,2]",2.5\ntests/a.py::test_y,1.0\ncollection,9.0\n', "utf-8")
    old = Table(4, {"tests/a.py": 9.0, "tests/b.py": 1.0})
    assert updated(old, report) == Table(4, {"tests/a.py": 3.5, "tests/b.py": 1.0})


def test_a_landing_begins_four_hours_before_the_last_commit(tmp_path: Path) -> None:
    def git(*arguments: str, at_s: int = 0) -> str:
        dates = {"GIT_COMMITTER_DATE": f"{at_s} +0000", "GIT_AUTHOR_DATE": f"{at_s} +0000"}
        names = {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        command = ["git", "-C", str(tmp_path), *arguments]
        return subprocess.run(
            command, env={**dates, **names}, check=True, capture_output=True, text=True
        ).stdout.strip()

    table = tmp_path / "tests" / "slow_tests.csv"
    table.parent.mkdir()
    git("init", "-q")
    found = []
    for hour, number in ((0, 1), (9, 1), (10, 1), (12, 2)):
        write_table(Table(number, {"tests/a.py": float(hour)}), table)
        git("add", ".")
        git("commit", "-q", "-m", "x", at_s=1_700_000_000 + 3600 * hour)
        found.append(git("rev-parse", "HEAD"))
    assert landing_base(tmp_path) == found[0]
    assert landing_changes(found[0], tmp_path) == ["tests/slow_tests.csv"]
    assert landing_changes(found[3], tmp_path) == ["tests/slow_tests.csv"]  # a clone of this commit alone
    assert landing_number(read_table(table), found[0], tmp_path) == 2
    assert landing_number(read_table(table), found[3], tmp_path) == 2 + 4
    assert landing_base(tmp_path, older_by_s=RECOUNT_AFTER_S) == found[2]
    write_table(Table(3, {"tests/a.py": 12.0}), table)
    assert landing_number(read_table(table), found[3], tmp_path) == 3


def test_a_room_over_its_lines_or_without_a_limit_is_named() -> None:
    lines = line_counts(iter([("cost/a.py", "x = 1\n" * 11), ("new/a.py", "x = 1\n")]))
    assert over_limit(lines, {"cost": 10}) == ["cost: 11 lines, limit 10", "new: 1 lines, no row"]
    assert over_limit(lines, {"cost": 11, "new": 1}) == []


@pytest.mark.parametrize("tier", ["fast", "slow"])
def test_every_room_of_tests_has_a_budget(tier: str) -> None:
    rooms = {path.name for path in Path(__file__).parent.iterdir() if path.is_dir() and any(path.rglob("test_*.py"))}
    assert budgets(tier).keys() >= {*rooms, "top", "collection"}


@pytest.mark.parametrize(("tier", "most_cpu_s"), [("fast", 625), ("slow", 2000)])
def test_budgets_add_up_to_what_a_tier_may_take(tier: str, most_cpu_s: int) -> None:
    """They may only fall: the goal of fast tests is 450."""
    assert sum(budgets(tier).values()) <= most_cpu_s


def test_a_room_is_over_its_budget_by_more_than_half() -> None:
    assert over_budget({"cost": 15.0, "graph": 5.0}, {"cost": 10.0, "graph": 5.0}) == []
    assert over_budget({"cost": 15.2, "new": 1.0}, {"cost": 10.0}) == [
        "cost: 15 CPU s, budget 10",
        "new: 1 CPU s, budget 0",
    ]


def test_what_most_rooms_take_is_the_pace_of_the_machine() -> None:
    allowed = dict.fromkeys(("cost", "graph", "plans", "run"), 10.0)
    assert over_budget({"cost": 14.0, "graph": 16.0, "plans": 15.0, "run": 18.0}, allowed) == []
    assert over_budget({"cost": 14.0, "graph": 16.0, "plans": 15.0, "run": 24.0}, allowed) == [
        "run: 24 CPU s, budget 10"
    ]
    assert len(over_budget(dict.fromkeys(allowed, 31.0), allowed)) == 4


CONFTEST = """
import pathlib
import tests.cpu_budget as plugin

plugin.TABLE = pathlib.Path(__file__).with_name("rooms.toml")


def pytest_addoption(parser):
    parser.addoption("--cpu-budget")
    parser.addoption("--cpu-report")


def pytest_configure(config):
    config.pluginmanager.register(plugin.CpuBudget(config))
"""

BUSY = """
import time


def test_busy():
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
"""


@pytest.mark.parametrize(
    ("processes", "allowed_s", "status"),
    some_slow([(0, 0.01, 1), (0, 100, 0), (2, 0.01, 1), (2, 100, 0)], [(0, 100, 0), (2, 0.01, 1), (2, 100, 0)]),
)
def test_a_run_over_its_budget_fails(tmp_path: Path, processes: int, allowed_s: float, status: int) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST, "utf-8")
    room = tmp_path / "tests" / "cost"
    room.mkdir(parents=True)
    (room / "test_busy.py").write_text(BUSY, "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]", "utf-8")
    rows = f"cost.fast_cpu_s = {allowed_s}\ncollection.fast_cpu_s = 100\n"
    (tmp_path / "rooms.toml").write_text(rows, "utf-8")
    options = ["-p", "no:cacheprovider", "-p", "xdist", "--cpu-budget=fast", "-n", str(processes)]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == status, ran.stdout + ran.stderr
    assert ("over budget by more than half (tests/rooms.toml): cost" in ran.stdout) == bool(status)


def test_lines_of_code_are_those_that_do_something() -> None:
    assert code_lines(SOURCE) == 4


def test_a_renamed_room_is_counted_as_the_new_one() -> None:
    def sources() -> Iterator[tuple[str, str]]:
        yield from (("capture/a.py", "x = 1\n"), ("capture/g10/b.py", "y = 1\n\n"), ("units.py", "# nothing\n"))

    lines, code = sizes(sources(), {"capture": "recorder", "capture/g10": "importers"})
    assert lines == {"recorder": 1, "importers": 2, "top": 1}
    assert code == {"recorder": 1, "importers": 1, "top": 0}
