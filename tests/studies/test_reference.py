"""Sweeps over published logs by the rules of DTR's own simulator: its results, to the nanosecond."""

from __future__ import annotations

import csv
import functools
import gzip
import json
from pathlib import Path

import pytest

from tensortide.importers.dtrlog.read import read_recording
from tensortide.plans.remat.policies import policy as policy_of
from tensortide.replays.remat import Deallocation
from tensortide.replays.remat.budgets import Budget, budgets
from tensortide.studies.remat.designs import banishing, conduct, contest
from tensortide.studies.remat.grid import play_all
from tensortide.studies.remat.results import Cell
from tensortide.studies.remat.subject import Subject
from tests.marks import some_slow
from tests.reference import dtr_log

STALE = {
    ("ResNet-32 (56)", "DTR", "0.3", "ignore"),
    ("Unrolled GAN", "DTR", "0.3", "eager"),
}
"""Runs that the original's cached regions decide otherwise than a fresh look at what is evicted does."""


@functools.cache
def subject(reference: Path, name: str) -> Subject:
    manifest = dtr_log(reference, "resnet32-56").with_name("manifest.json")
    (slug,) = (each["slug"] for each in json.loads(manifest.read_bytes()) if each["name"] == name)
    return Subject(slug, read_recording(dtr_log(reference, slug), copy_on_write=True), compat=True)


def rules(row: dict[str, str]) -> Deallocation | None:
    """How ``row`` deals with what is dropped; None if it is not a run of a sweep or of the banishing experiment."""
    if row["heuristic"].startswith("Ab") or row["seed"] not in ("", "0"):
        return None
    ignored = row["no_dealloc"] == "True"
    if row["runtime"] == "RuntimeV2EagerOptimized":
        return "ignore" if ignored else "eager"
    return "banish" if row["runtime"] == "RuntimeV1" and row["heuristic"] == "DTRUnopt" and not ignored else None


def job(subject: Subject, row: dict[str, str]) -> tuple[Subject, Cell]:
    """What ``row`` is a run of."""
    name, deallocation = policy_of(row["heuristic"]).name, rules(row)
    budget = Budget(ratio=float(row["ratio"])).bytes_of(subject.baseline_bytes)
    assert budget == int(row["budget"]), row
    assert deallocation is not None
    policy = f"random:{row['seed']}" if name == "random" else name
    return subject, Cell(policy, budget, float(row["overhead_limit"]), deallocation)


@pytest.mark.slow
def test_every_published_run(reference: Path) -> None:
    rows = list(csv.DictReader(gzip.decompress((reference / "dtr/runs.csv.gz").read_bytes()).decode().splitlines()))
    ours = [
        row
        for row in rows
        if rules(row) is not None and (row["model"], row["heuristic"], row["ratio"], rules(row)) not in STALE
    ]
    assert len(ours) == 291
    for row, run in zip(ours, play_all([job(subject(reference, row["model"]), row) for row in ours]), strict=True):
        assert (run.status, run.clock_ns, run.remat_ns) == (
            row["status"],
            int(row["clock"]),
            int(row["remat_compute"]),
        ), row
        assert (run.peak_bytes, run.eviction_hash) == (int(row["max_memory"]), row["evict_seq_sha256"]), row


MODELS = ["ResNet-32 (56)", "U-Net (6)", "Transformer (10)", "Unrolled GAN", "LSTM (512)"]


@pytest.mark.parametrize("model", some_slow(MODELS, MODELS[3:]))
def test_bands_of_the_figures(model: str, reference: Path) -> None:
    step = subject(reference, model).step
    rows = {row["model"]: row for row in json.loads((reference / "dtr/baselines.json").read_bytes())}
    assert list(rows) == MODELS
    row = rows[model]
    assert (step.baseline_bytes, step.constant_bytes) == (row["max_memory"], row["const_memory"])
    assert (step.bottleneck_bytes, step.model_ns) == (row["bottleneck_memory"], row["model_compute"])


def test_the_table_of_overheads(reference: Path) -> None:
    """Section 9 of the specification of DTR, two lines of ResNet-32."""
    found = conduct("sweep", [subject(reference, "ResNet-32 (56)")], contest(["dtr-eq", "lru"]), budgets("1.0:0.1"))
    shown = [
        [f"{row.number:.4f}" if row.number is not None else row.status for row in rows]
        for rows in found.curves(0).values()
    ]
    assert " ".join(shown[0]) == "1.0021 1.0131 1.0248 1.0463 1.0737 1.1068 1.1404 1.1786 1.3322 oom"
    assert " ".join(shown[1]) == "1.0025 1.0323 1.0672 1.0952 1.1301 thrash thrash thrash thrash oom"


def test_hearing_of_what_is_dropped_is_worth_much(reference: Path) -> None:
    found = conduct("banishing", [subject(reference, "ResNet-32 (56)")], banishing(), budgets("0.5"))
    banished, eager, ignored = (rows[0].number or 0 for rows in found.curves(0).values())
    assert f"{eager:.4f}" == "1.1068"
    assert banished < eager < ignored
