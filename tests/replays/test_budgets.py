"""Budgets as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from tensortide.errors import PlanError, TensortideError
from tensortide.replays.remat.budgets import Budget, activation_bytes, budgets, one_budget, resolved
from tensortide.request import Request, option_of
from tensortide.studies.experiment.grammar import trial_of
from tensortide.studies.live import RunRequest
from tensortide.studies.planning.request import PlanRequest
from tensortide.studies.remat.simulate import SimulateRequest
from tensortide.timelines import timeline
from tests.graphs import stored

HOW_ONE = "write a size (8GiB), a part of the peak (60% or 0.6), or of the activations at the peak (60%act)"
TENTHS = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]


def ratios(text: str) -> list[float | None]:
    return [budget.ratio for budget in budgets(text)]


def test_ranges_of_ratios() -> None:
    assert ratios("1.0:0.1") == TENTHS
    assert ratios("0.1:1.0") == TENTHS[::-1]
    assert ratios("100%:10%") == TENTHS
    assert ratios("1:.8:.05") == [1.0, 0.95, 0.9, 0.85, 0.8]
    assert ratios("1.0:0.75") == [1.0, 0.9, 0.8]
    assert ratios("0.9, 0.5,50 %") == [0.9, 0.5]


def test_sizes() -> None:
    assert budgets("8GiB") == (Budget(nbytes=8 << 30),)
    assert budgets("3GiB:1GiB:1GiB") == tuple(Budget(nbytes=n << 30) for n in (3, 2, 1))
    assert budgets("0.5,100B") == (Budget(ratio=0.5), Budget(nbytes=100))


def test_they_are_resolved_from_the_largest_down_and_each_once() -> None:
    assert resolved(budgets("0.3,100B,0.7,10B"), 100) == [(100, 1.0), (70, 0.7), (30, 0.3), (10, 0.1)]
    assert resolved(budgets("0.5,0.501"), 10) == [(5, 0.5)]
    assert resolved(budgets("1.0:0.1"), 10061179152)[3] == (7042825406, 0.7)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no budget: write ratios"),
        ("much", "'much' is no budget"),
        ("1.0:x", "'x' in '1.0:x' is no budget"),
        ("1.0:0.1:0.1:0.1", "no range"),
        ("0", "is more than '0'"),
        ("1.0:0.1:0", "is more than '0'"),
        ("-0.5", "no budget"),
        ("nan", "no budget"),
        ("1.0:2GiB", "mixes"),
        ("8GiB:2GiB", "needs a step"),
        ("8589934592", "write 8589934592B for bytes"),
        ("1:0.1:0.0001", "9,001 budgets"),
        ("1e30B", "none at all"),
        ("0.5,,0.4", "no budget"),
    ],
)
def test_anything_else_is_one_clear_error(text: str, why: str) -> None:
    with pytest.raises(PlanError, match=why):
        budgets(text)


VERBS: tuple[type[Request], ...] = (RunRequest, PlanRequest, SimulateRequest)


def read_by_all(text: str) -> list[tuple[float | None, int | None] | str]:
    """The budget of ``text``, or the error, by each verb that takes one."""
    found: list[tuple[float | None, int | None] | str] = []
    for kind in (*VERBS, None):
        try:
            if kind is None:
                made: Any = trial_of({"workload": "mlp", "policy": "lru", "budget": text}, "", "").budget
            else:
                read = option_of(kind, "budget").opt.read
                assert read is not None
                made = read(text)
            found.append((made.ratio, made.nbytes))
        except TensortideError as error:
            found.append(str(error).removeprefix(": .budget: "))
    return found


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("0.6", (0.6, None)),
        ("60%", (0.6, None)),
        ("120%", (1.2, None)),
        ("1", (1.0, None)),
        ("99999GiB", (None, 99999 << 30)),
        ("60B", (None, 60)),
        ("8589934592", (None, 8 << 30)),
        ("2", "a budget of 2 would be 2 bytes: 2MiB, 2GiB or 2%? Bytes are written 2B"),
        ("60", "a budget of 60 would be 60 bytes: 60MiB, 60GiB or 60%? Bytes are written 60B"),
        ("4e3", "a budget of 4e3 would be 4e3 bytes: 4e3MiB, or 4e3GiB? Bytes are written 4e3B"),
        ("4096", "a budget of 4096 would be 4096 bytes: 4096MiB, or 4096GiB? Bytes are written 4096B"),
        ("60%avt", f"'60%avt' is no budget: {HOW_ONE}"),
    ],
)
def test_all_verbs_read_a_budget_alike(text: str, means: tuple[float | None, int | None] | str) -> None:
    assert read_by_all(text) == [means] * 4


def test_all_verbs_but_experiments_read_a_part_of_the_activations() -> None:
    assert read_by_all("60%act")[:3] == [(0.6, None)] * 3
    assert "an experiment knows the peak of its baseline alone" in str(read_by_all("60%act")[3])


def test_a_part_of_the_activations_leaves_all_else() -> None:
    graph = stored("mlp_activations")
    device = graph.index.main_device
    peak, some = timeline(graph, lifetimes="last_use", device=device).peak_bytes, activation_bytes(graph, device)
    assert 0 < some < peak
    assert one_budget("100%act", "").bytes_of(peak, some) == peak
    assert one_budget("60%act", "").bytes_of(peak, some) == peak - some + int(some * 0.6)
    with pytest.raises(PlanError, match="60%act: there are no activations at the peak"):
        one_budget("60%act", "").bytes_of(peak, 0)


@pytest.mark.parametrize("text", ["120%act", "8GiBact", "5act"])
def test_what_is_no_part_of_the_activations_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="no part of the activations"):
        one_budget(text, "")
