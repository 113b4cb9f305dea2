"""Formulas of ordinary workloads claim nothing that a capture contradicts, find most totals, and so does ``solve``."""

from __future__ import annotations

import functools
import inspect

import pytest

from tensortide import symbolic
from tensortide.formulas import Symbolic
from tests.formulas.judge import Truth, judged, verdicts
from tests.formulas.ordinary_structure import CASES

pytestmark = pytest.mark.slow


HELD = {
    "adapter": {"batch"},
    "latents": {"batch", "inputs"},
    "micro_batches": {"inputs", "hidden"},
    "mobile": {"batch", "image"},
    "positions": {"batch"},
    "recommender": {"width", "rows"},
    "shared_reader": {"batch", "inputs"},
    "two_thresholds": {"batch"},
}
"""Integers of a case that its formulas are not asked for: each would take many more captures. Elsewhere they are."""


@functools.cache
def formulas_of(name: str) -> Symbolic:
    """Derive the formulas of a case in its other integers, as its users would."""
    parameters = inspect.signature(CASES[name].workload).parameters.values()
    over = [p.name for p in parameters if type(p.default) is int and p.name not in HELD.get(name, ())]
    return symbolic(f"{CASES[name].workload.__module__}:{name}", over=over)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("wide", {"width": 18}),
        ("two_thresholds", {"hidden": 1022}),
        ("capped_embedding", {"hidden": 2048}),
        ("window", {"window": 2160}),
        ("adapter", {"outputs": 3}),
        ("capacity", {"experts": 300}),
        ("recommender", {"batch": 1}),
    ],
)
def test_no_claim_is_wrong(name: str, setting: dict[str, int]) -> None:
    """At a setting far from the samples, totals are right, or said to be extrapolated, or not claimed."""
    formulas, workload = formulas_of(name).formulas, CASES[name].workload
    found = verdicts(formulas, {**formulas.defaults, **setting}, Truth(workload, setting))
    assert [total for total, verdict in found.items() if verdict == "wrong"] == []


@pytest.mark.parametrize(
    ("name", "symbol", "goal", "met"),
    [
        ("capped_embedding", "hidden", "parameters = 64480288", 15681),
        ("wide", "inputs", "flops >= 674921", 1),
        ("window", "seq", "peak_bytes <= 112136", 2),
        ("two_thresholds", "hidden", "parameters = 9224127", 759),
        ("adapter", "outputs", "flops >= 57018", 2),
        ("capacity", "batch", "flops >= 1000000000", 64),
        ("timestep", "width", "parameters = 5611", 43),
        ("latents", "hidden", "peak_bytes <= 2198736", 1),
    ],
)
def test_a_proved_solution_holds(name: str, symbol: str, goal: str, met: int) -> None:
    """What ``solve`` answers is what a capture of it says, and no better value is known."""
    assert judged(CASES[name].workload, formulas_of(name), symbol, goal, met).fault == ""


@pytest.mark.parametrize(
    "name",
    [
        "tiny",
        "positions",
        "timestep",
        "convolution",
        "unpadded",
        "audio",
        "capacity",
        "mobile",
        "gated",
        "grid",
        "padded_to_multiple",
        "windows",
        "doubled",
        "grouped_convolution",
        "micro_batches",
        "odd_sequences",
    ],
)
def test_totals_are_found(name: str) -> None:
    """At most two of the eleven totals are without a formula, and no hyperparameter is held; none is said to lack what
    it has."""
    found = formulas_of(name)
    assert len(found.formulas.totals) >= 9
    assert not found.held
    assert not [lost for lost in found.numeric if lost.partition(":")[0] in found.formulas.totals]


@pytest.mark.parametrize(("name", "structural"), [("shared_reader", {"layers", "every"}), ("dense_net", {"layers"})])
def test_what_changes_the_ops_is_not_held(name: str, structural: set[str]) -> None:
    """Of two layers one reads, whatever ``every`` is; half of the channels is rounded for odd numbers of layers. Peaks
    that have no formula in these are claimed at the workload's own numbers."""
    found = formulas_of(name)
    assert set(found.structural) == structural
    assert len(found.formulas.totals) >= 9
    assert "peak_bytes" in found.formulas.totals
