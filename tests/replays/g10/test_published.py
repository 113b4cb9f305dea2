"""Policies replayed on recorded traces: times and traffic of the original's own runs, within the stated tolerances."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tensortide.replays.g10 import POLICIES, G10Machine
from tensortide.replays.g10.machine import PAGE
from tensortide.replays.g10.planner import scheme
from tests.marks import some_slow
from tests.replays.g10.traces import recorded_trace

TOLERANCES = {"flashneuron": 0.02, "g10-gds": 0.05, "g10-host": 0.05, "uvm-lru": 0.10, "deepum": 0.10, "g10": 0.05}
TRACES = ("BERT_Base-256", "VIT-512", "BERT_Base-128", "Inceptionv3-512")
KEYS = {row.title: name for name, row in POLICIES.items()}
CYCLES_PER_NS = 1.2


def runs(reference: Path, name: str) -> list[dict[str, Any]]:
    rows = json.loads((reference / "g10" / "results.json").read_text())
    return [row for row in rows if row["workload"] == name]


@pytest.mark.parametrize("name", some_slow(TRACES, {"BERT_Base-256", "Inceptionv3-512"}))
def test_each_policy_takes_the_time_that_the_original_printed(reference: Path, name: str) -> None:
    trace = recorded_trace(reference, name)
    for row in runs(reference, name):
        policy = KEYS[row["policy"]]
        found = POLICIES[policy].play(trace, G10Machine(), compat=True)
        assert trace.ideal_ns == pytest.approx(row["ideal_cycles"] / CYCLES_PER_NS, abs=1)
        assert found.step_ns == pytest.approx(row["reported_cycles"] / CYCLES_PER_NS, rel=TOLERANCES[policy])
        assert found.stall_ns is not None
        assert found.compute_ns is not None
        assert found.stall_ns + found.overlap_ns + found.compute_ns == found.step_ns


@pytest.mark.parametrize("name", some_slow(["BERT_Base-256", "VIT-512"], {"BERT_Base-256"}))
def test_pages_on_demand_move_as_many_bytes_as_in_the_original_and_prefetched_ones_nearly(
    reference: Path, name: str
) -> None:
    trace = recorded_trace(reference, name)
    told = {KEYS[row["policy"]]: row for row in runs(reference, name)}
    for policy, relative in (("uvm-lru", 0.0), ("deepum", 0.10)):
        found = POLICIES[policy].play(trace, G10Machine()).traffic
        counts = told[policy]
        assert found.host_in // PAGE == pytest.approx(counts["incoming_pg_cpu"], rel=relative)
        assert found.host_out // PAGE == pytest.approx(counts["outgoing_pg_cpu"], rel=relative)
        assert (found.ssd_in, found.ssd_out) == (0, 0)


@pytest.mark.parametrize("sizes", some_slow(["the least", "all"], {"all"}))
def test_g10_takes_the_published_time_with_any_memory_at_the_host(reference: Path, sizes: str) -> None:
    trace = recorded_trace(reference, "BERT_Base-256")
    with (reference / "g10" / "figure_tables.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == "host_memory" and row["policy"] == "G10"]
    mine = [row for row in rows if (row["model"], row["batch"]) == ("BERT_Base", "256")]
    assert len(mine) == 6
    for row in mine if sizes == "all" else mine[:1]:
        host_bytes = int(row["setting"].removeprefix("host_GB=")) * 10**9
        found = POLICIES["g10"].play(trace, G10Machine(host_bytes=host_bytes))
        assert found.step_ns == pytest.approx(float(row["value"]) / CYCLES_PER_NS, rel=TOLERANCES["g10"])


def test_flashneuron_offloads_the_bytes_that_the_original_offloads(reference: Path) -> None:
    for name in TRACES:
        trace = recorded_trace(reference, name)
        told = next(row for row in runs(reference, name) if row["policy"] == "FlashNeuron")
        found = POLICIES["flashneuron"].play(trace, G10Machine()).traffic
        assert (found.ssd_out, found.ssd_in) == (told["offloaded_bytes_gpu2ssd"], told["fetched_bytes_ssd2gpu"])


@pytest.mark.parametrize(
    ("name", "policy", "host"), [("BERT_Base-256", "G10-Host", True), ("VIT-512", "G10-GDS", False)]
)
def test_the_planner_moves_the_tensors_that_the_original_moves(
    reference: Path, name: str, policy: str, host: bool
) -> None:
    """And it fetches ahead those that the original does; the others are forced out."""
    trace = recorded_trace(reference, name)
    away: set[int] = set()
    fetched: set[int] = set()
    with gzip.open(reference / "g10" / name / "policies" / policy / "prefetch_guide.config.gz", "rt") as guide:
        for tensor, to in re.findall(r"Tensor: (\d+) G:. From: \S+, To: (\S+)", guide.read()):
            (fetched if to == "In_gpu" else away).add(int(tensor))
    planned = scheme(trace, G10Machine(), host=host, granular=True)
    assert {move.tensor for move in (*planned.moves, *planned.forced)} == away
    assert {move.tensor for move in planned.moves} == fetched
