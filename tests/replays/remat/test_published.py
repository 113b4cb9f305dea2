"""Runs of DTR's own simulator, to the byte: synthetic logs, recorded models, the worked example."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tensortide.importers.dtrlog.read import read_recording
from tensortide.plans.remat.policies import policy
from tensortide.plans.remat.schedule import schedule
from tensortide.replays.remat import Deallocation, Simulation, Simulator
from tensortide.replays.remat.collecting import BanishingEngine
from tensortide.replays.remat.simulation import Rules
from tensortide.timelines.events import Kind
from tests.importers.dtrlog.logs import SYNTHETIC, WORKED
from tests.marks import some_slow
from tests.reference import dtr_log
from tests.replays.remat.published import (
    FILES,
    NEIGHBOURHOODS,
    cell,
    differs,
    figures,
    largest_op,
    play,
    read,
    recording,
    simulator,
)

MODELS = ("ResNet-32 (56)", "U-Net (6)", "Transformer (10)", "Unrolled GAN", "LSTM (512)")
SLOW = ("Transformer (10)", "Unrolled GAN", "LSTM (512)")
LONG = ("syn01", "syn05", "syn07", "syn09", "syn10")
STALE_MODELS = {
    ("ResNet-32 (56)", "DTR", 0.3, True),
    ("ResNet-32 (56)", "AbE", 0.4, False),
    ("Unrolled GAN", "DTR", 0.3, False),
}
"""Runs of recorded models in which the original's cached regions are not what a traversal finds."""


@pytest.mark.parametrize("log", some_slow(SYNTHETIC, LONG))
def test_synthetic_runs(reference: Path, log: str) -> None:
    path = dtr_log(reference, log)
    folder = path.parent
    rows = [row for row in read(folder / "golden.json.gz")["runs"] if row["log"] == f"{log}.log"]
    stale = {
        cell(row): row["fresh_traversal"]
        for row in read(folder / "stale_region_cells.json")
        if row["log"] == f"{log}.log"
    }
    assert len(rows) == 165
    differing = set()
    for number, row in enumerate(rows):
        run = play(path, row)
        if number % 7 == 0:
            assert figures(play(path, row, compiled=False)) == figures(run)
        if differs(run, row):
            differing.add(cell(row))
            fresh = stale[cell(row)]
            assert {key: figures(run)[key] for key in fresh} == fresh
    assert differing == set(stale)


@pytest.mark.parametrize("log", SYNTHETIC)
def test_synthetic_baselines(reference: Path, log: str) -> None:
    path = dtr_log(reference, log)
    folder = path.parent
    (row,) = [row for row in read(folder / "golden.json.gz")["baselines"] if row["log"] == f"{log}.log"]
    sim = simulator(path, "RuntimeV1", False)
    run = sim.run("lru")
    assert differs(run, row) == {}
    assert sim.baseline_bytes == row["max_memory"]
    assert sim.schedule.constant_bytes == row["const_memory"]
    assert largest_op(path) == row["bottleneck_memory"]
    assert (sim.schedule.model_ns, len(sim.schedule.cost_ns)) == (row["model_compute"], row["ops"])
    engine = BanishingEngine(schedule(recording(path), views=True), policy("lru"), Rules(clock_ns=1, collect=False))
    engine.run()
    assert (sum(engine.banished), sum(engine.pinned)) == (row["banished"], row["pins"])


def published(reference: Path, name: str) -> Any:
    return read(reference / "dtr" / name)


@pytest.mark.parametrize(
    ("model", "every"),
    some_slow([("ResNet-32 (56)", 12), ("U-Net (6)", 9), *((m, 1) for m in MODELS)], [(m, 1) for m in MODELS]),
)
def test_recorded_models(reference: Path, model: str, every: int) -> None:
    path = dtr_log(reference, FILES[model])
    rows = [row for row in published(reference, "runs.jsonl.gz") if row["model"] == model][::every]
    assert len(rows) > 10
    differing = set()
    for row in rows:
        run = play(path, row)
        if differs(run, row):
            assert row["heuristic"] in NEIGHBOURHOODS
            differing.add((model, *cell(row)[1:]))
        elif "evict_head" in row:
            roots = run.schedule.root.tolist()
            trace = run.trace()
            first = itertools.islice((roots[i] for kind, i in trace if kind >= Kind.EVICT), 40)
            assert list(first) == row["evict_head"]
    assert differing <= STALE_MODELS


@pytest.mark.parametrize("model", some_slow(MODELS, SLOW))
def test_recorded_models_without_a_budget(reference: Path, model: str) -> None:
    path = dtr_log(reference, FILES[model])
    (row,) = [row for row in published(reference, "baselines.json") if FILES[row["model"]] == FILES[model]]
    sim = simulator(path, "RuntimeV1", False)
    run = sim.run("lru")
    assert differs(run, row) == {}
    assert (sim.baseline_bytes, sim.schedule.constant_bytes) == (row["max_memory"], row["const_memory"])
    assert largest_op(path) == row["bottleneck_memory"]
    (peaks,) = [row for row in published(reference, "inf_budget_policies.json") if FILES[row["model"]] == FILES[model]]
    policies: dict[str, Deallocation] = {
        "V1_banish": "banish",
        "V2_no_eager": "none",
        "V2_eager": "eager",
        "V2_no_dealloc": "ignore",
    }
    for key, deallocation in policies.items():
        run = Simulator(recording(path), compat=True, deallocation=deallocation).run("lru")
        wanted = {ours: peaks[key][theirs] for ours, theirs in (("max_memory", "peak"), ("clock", "clock"))}
        wanted |= {"final_memory": peaks[key]["final"], "evictions": peaks[key]["evict"], "remat_compute": 0}
        assert {name: figures(run)[name] for name in wanted} == wanted


EXACT = {
    ("resnet32-56", "DTREqClass", 0.5): (323076537, 31171049, 368, 4290, "415e196b3925e429"),
    ("resnet32-56", "DTR", 0.3): (343937011, 52031523, 389, 5327, "c82efc3b03d05ee2"),
    ("resnet32-56", "DTRLocal", 0.5): (349272501, 57367013, 377, 5723, "47c1c50e7c3dc01c"),
    ("resnet32-56", "LRU", 0.8): (311535207, 19629719, 359, 4324, "a59513ed2c7dd685"),
    ("unet-6", "DTREqClass", 0.5): (504377313, 69099020, 260, 3849, "d4e67fad3c54ff88"),
    ("transformer-10", "DTR", 0.4): (299241223, 22982104, 1355, 8221, "cb59eef5ce623c26"),
    ("unroll_gan-512", "DTREqClass", 0.3): (139437029, 13985551, 4728, 106169, "c391ba1c2bc4a3f2"),
    ("lstm-128", "DTREqClass", 0.5): (824095121, 54636287, 6021, 437755, "b5793ac20c20769e"),
}
"""Clock, recomputation, evictions, evaluations and hash, as section 9 of the specification has them."""


@pytest.mark.parametrize(
    "run", [pytest.param(run, id=str(run), marks=[pytest.mark.slow] * (run[0] == "lstm-128")) for run in EXACT]
)
def test_exact_checks(reference: Path, run: tuple[str, str, float]) -> None:
    log, heuristic, ratio = run
    sim = simulator(dtr_log(reference, log), "RuntimeV2EagerOptimized", False)
    found = figures(sim.run(heuristic, int(sim.baseline_bytes * ratio), overhead_limit=2))
    keys = ("clock", "remat_compute", "evictions", "heuristic_evals", "evict_seq_sha256")
    assert tuple(found[key] for key in keys) == EXACT[run]


NAMES = ["w", "x", "a", "a$", "av", "b", "s", "c", "d", "g", "h", "gw"]


def told(run: Simulation) -> list[list[object]]:
    """The trace of a run in the words of the worked example: event, tensor, clock and bytes after it."""
    made, clock, memory = run.schedule, 1, 0
    ends, storage, nbytes = made.output_ends.tolist(), made.storage.tolist(), made.nbytes.tolist()
    op_of = [op for op, (a, b) in enumerate(itertools.pairwise(ends)) for _ in range(a, b)]
    resident: set[int] = set()
    said: list[list[object]] = []
    for kind, index in run.trace():
        if kind == Kind.EVICT:
            resident.discard(index)
            memory -= int(made.storage_bytes[index])
            said.append(["evict", NAMES[int(made.root[index])], clock, memory])
            continue
        op = index if kind == Kind.RUN else op_of[index]
        outputs = list(range(ends[op], ends[op + 1])) if kind == Kind.RUN else [index]
        assert kind in (Kind.RUN, Kind.RECOMPUTE)
        clock += int(made.cost_ns[op])
        memory += sum(nbytes[v] for v in range(ends[op], ends[op + 1]) if storage[v] not in resident)
        resident.update(storage[v] for v in range(ends[op], ends[op + 1]))
        for value in outputs:
            word = "remat" if kind == Kind.RECOMPUTE else "run" if value == outputs[0] else "run*"
            said.append([word, NAMES[value], clock, memory])
    return said


@pytest.mark.parametrize("compiled", [False, True])
def test_worked_example(reference: Path, compiled: bool) -> None:
    sim = Simulator(read_recording(WORKED, copy_on_write=True), compat=True)
    example = read(reference / "dtr" / "worked_example.json.gz")
    for key, wanted in example["traces"].items():
        heuristic, budget = key.split("@")
        run = sim.run(heuristic, int(budget), compiled=compiled)
        assert told(run) == [event for event in wanted["events"] if event[0] != "pin"], key
        assert (run.status, run.clock_ns, run.remat_ns) == (wanted["status"], wanted["clock"], wanted["remat_compute"])
        assert (run.peak_bytes, run.final_bytes) == (wanted["max_memory"], wanted["final_memory"])
        assert run.evaluations == wanted["evals"]
    assert len(example["traces"]) == 30
    assert sim.baseline_bytes == example["baseline"]["max_memory"] == 234
    assert sim.schedule.model_ns == example["baseline"]["model_compute"] == 581
