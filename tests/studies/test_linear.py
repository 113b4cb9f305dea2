"""Linear networks: exactly what DTR's own simulator finds, and which tensor is there when."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import PlanError
from tensortide.plans.remat.policies import policy as policy_of
from tensortide.replays.remat import Deallocation, Simulator
from tensortide.studies.remat.grid import play_all
from tensortide.studies.remat.linear import LIMIT, asymptotics, budget_of, chen, linear_network, treeverse
from tensortide.studies.remat.results import Cell
from tensortide.studies.remat.subject import Subject
from tests.marks import some_slow

DEALLOCATIONS: dict[str, Deallocation] = {"RuntimeV2EagerOptimized": "eager", "RuntimeV2Optimized": "none"}


@pytest.mark.parametrize("longest", some_slow([16, 64, 256], [64, 256]))
def test_every_run_is_as_in_the_reference(longest: int, reference: Path) -> None:
    rows: list[dict[str, Any]] = json.loads(gzip.decompress((reference / "dtr/linear_network.json.gz").read_bytes()))
    assert len(rows) == 384
    rows = [row for row in rows if row["n"] <= longest]
    subjects = {n: Subject("", linear_network(n), compat=True) for n in {row["n"] for row in rows}}
    jobs = []
    for row in rows:
        assert budget_of(row["bound"], row["n"]) == row["B"]
        cell = Cell(policy_of(row["heuristic"]).name, row["B"], LIMIT, DEALLOCATIONS[row["runtime"]])
        jobs.append((subjects[row["n"]], cell))
    for row, run in zip(rows, play_all(jobs), strict=True):
        assert run.status == row["status"], row
        assert (run.remat_ns, run.clock_ns, run.peak_bytes) == (row["remat"], row["clock"], row["max_memory"]), row
        assert (run.evictions, run.eviction_hash) == (row["evictions"], row["evict_seq_sha256"]), row
        assert run.evaluations == row["evals"], row


def test_known_numbers_of_ops_computed_again() -> None:
    """Table of section 6 of the specification of DTR: 64 and 256 layers."""
    growth = asymptotics([64, 256], ["n/2", "2sqrt", "log2"], ["dtr-eq", "msps", "lru"], compat=True)
    found: dict[tuple[float, str], list[int | str]] = {}
    for trial in growth.trials:
        row = found.setdefault((trial.at, growth.panels[trial.panel]), [])
        row.append(trial.run.remat_ns if trial.run.status == "ok" else trial.run.status)
    assert found == {
        (64, "n/2"): [32, 33, 35],
        (64, "2sqrt"): [49, 60, 161],
        (64, "log2"): [196, 159, 889],
        (256, "n/2"): [128, 129, 131],
        (256, "2sqrt"): [230, 304, 1982],
        (256, "log2"): [1107, 888, "thrash"],
    }
    assert growth.curves(1)["msps"][0].budget_bytes == 16


def test_the_bounds() -> None:
    def recurrence(m: int) -> float:
        return 2 if m == 1 else m / 2 + 2 * recurrence(m // 2)

    for n in (1, 2, 16, 1024):
        assert treeverse(n) == recurrence(n) - n
    assert chen(100) == 100


def test_an_unlimited_run_makes_everything_once() -> None:
    simulation = Simulator(linear_network(9)).run("dtr")
    assert (simulation.clock_ns, simulation.peak_bytes, simulation.recomputations) == (18, 9, 0)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(PlanError, match="no budget 'cube'"):
        asymptotics([4], ["cube"], ["dtr"])
    with pytest.raises(PlanError, match="no policy"):
        asymptotics([4], ["n"], ["best"])
    with pytest.raises(PlanError, match="0 layers"):
        linear_network(0)
    assert Simulator(linear_network(1)).run("dtr").clock_ns == 2
