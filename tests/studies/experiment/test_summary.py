"""Statistics of trials against exact distributions: medians of samples with replacement, counted by binomials."""

from __future__ import annotations

import math
import random
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.replays.remat.budgets import Budget
from tensortide.studies.experiment.results import Outcome, Repetition
from tensortide.studies.experiment.summary import common, interval, lines, told_apart
from tensortide.studies.experiment.trials import Trial


def reached(n: int, rank: int) -> float:
    """The probability that the median of ``n`` draws out of ``n`` values is at most that of ``rank`` (from 1)."""
    part = rank / n
    return sum(math.comb(n, k) * part**k * (1 - part) ** (n - k) for k in range(n // 2 + 1, n + 1))


@pytest.mark.parametrize("n", [3, 5, 7, 9, 11, 15])
def test_ends_of_an_interval_are_those_of_the_exact_distribution(n: int) -> None:
    values = random.Random(n).sample(range(1000), n)
    ranks = {end: next(r for r in range(1, n + 1) if reached(n, r) >= end) for end in (0.025, 0.975)}
    near = [end for end in ranks for r in range(1, n + 1) if abs(reached(n, r) - end) < 0.006]
    found = interval(tuple(float(value) for value in values))
    for end, value in zip(ranks, found, strict=True):
        if end not in near:
            assert value == sorted(values)[ranks[end] - 1]


@given(st.lists(st.floats(1, 1e9), min_size=2, max_size=8).map(tuple), st.floats(0.5, 4))
@pytest.mark.property
def test_an_interval_is_repeated_exactly_scales_and_has_the_median_within(values: tuple[float, ...], by: float) -> None:
    low, high = found = interval(values)
    assert found == interval.__wrapped__(values)
    assert low is not None
    assert high is not None
    middle = sorted(values)[len(values) // 2]
    assert min(values) <= low <= middle * (1 + 1e-9)
    assert high <= max(values)
    scaled = interval(tuple(by * value for value in values))
    assert scaled == pytest.approx((by * low, by * high))
    assert interval(tuple(by * value for value in values), (by,)) == pytest.approx(found)


def test_single_values_have_no_interval() -> None:
    assert interval((3.0,)) == interval((3.0,), (1.0,)) == (None, None)


def outcome(trial: Trial, *times: int, peak: int = 100, **keys: object) -> Outcome:
    repetitions = tuple(Repetition(times_ns=(time - 1, time, 5 * time), peak_bytes=peak) for time in times)
    return Outcome(trial=trial, status="ok", repetitions=repetitions, batch=4, **keys)  # type: ignore[arg-type]


def test_names_have_what_tells_trials_apart() -> None:
    trials = [
        Trial(workload="mlp", set={"batch": batch, "hidden": 8}, mode="live", seed=seed)
        for batch in (1, 2)
        for seed in (0, 5)
    ]
    assert common(trials) == {"hidden": 8}
    names = ["mlp batch=1", "mlp batch=1 seed=5", "mlp batch=2", "mlp batch=2 seed=5"]
    assert told_apart(trials) == [(name, trials[0].policy) for name in names]
    assert told_apart(trials[:1]) == [("mlp", trials[0].policy)]


OTHER: dict[str, Any] = {
    "workload": "gpt2",
    "set": {"batch": 2},
    "mode": "live",
    "policy": "lru",
    "budget": Budget(ratio=0.5),
    "repeats": 2,
    "dropped": 2,
    "steps": 2,
    "seed": 2,
    "threads": 2,
    "device": "cuda",
    "save_log": True,
    "deallocation": "none",
    "limit": 3.0,
    "machine": "a100",
    "measure": True,
    "search": 5.0,
    "timeout": 5.0,
    "retries": 2,
}
"""Another value of each key of a trial."""


@pytest.mark.parametrize("key", OTHER)
def test_trials_that_a_key_parts_have_other_names(key: str) -> None:
    for mode in ("simulated", "live"):
        for policy in ("dtr", "plan"):
            one = Trial(workload="mlp", mode=mode, policy=policy, budget=Budget(nbytes=9))
            two = msgspec.structs.replace(one, **{key: OTHER[key]})
            trials = [one.canonical(), two.canonical()]
            names = zip(trials, told_apart(trials), strict=True)
            told = {(trial.mode, trial.budget_text, *name) for trial, name in names}
            assert len(told) == 1 + (one.key != two.key), (mode, policy)


def test_a_key_has_no_effect_in_the_mode_that_its_description_does_not_begin_with() -> None:
    hints = get_type_hints(Trial, include_extras=True)
    assert OTHER.keys() == hints.keys()
    for key, hint in hints.items():
        of = get_args(hint)[1].description.partition(":")[0].partition(",")[0].lower()
        for mode in ("simulated", "live"):
            one = Trial(workload="mlp", mode=mode, policy="dtr", budget=Budget(nbytes=9))
            if of in ("simulated", "live") and of != mode:
                assert msgspec.structs.replace(one, **{key: OTHER[key]}).key == one.key, (key, mode)


@pytest.mark.parametrize("key", ["deallocation", "limit", "search"])
def test_a_key_of_the_policy_is_told_with_it(key: str) -> None:
    kinds = [
        Trial(workload="mlp", policy="plan", **{key: value})
        for value in (getattr(Trial(workload="mlp"), key), OTHER[key])
    ]
    assert told_apart(kinds) == [("mlp", "plan"), ("mlp", f"plan {key}={OTHER[key]}")]


def test_a_line_has_the_statistics_of_its_repetitions_and_those_against_the_baseline() -> None:
    base = Trial(workload="mlp", mode="live")
    under = Trial(workload="mlp", mode="live", policy="lru", budget=Budget(ratio=0.5))
    fixed = Trial(workload="mlp", mode="live", policy="lru", budget=Budget(nbytes=80))
    free = Trial(workload="mlp", mode="live", policy="lru", budget=Budget(nbytes=1 << 62))
    alone = Trial(workload="other", mode="live", policy="checkpoint")
    trials = {trial.key: trial for trial in (base, under, fixed, alone, free)}
    outcomes = {
        base.key: outcome(base, 10, 20, 30),
        under.key: outcome(under, 40, 60, 80, peak=45, process_peak_bytes=7),
        free.key: outcome(free, 20, peak=60, budget_bytes=1 << 62),
        fixed.key: Outcome(trial=fixed, status="infeasible", reason="too small", budget_bytes=80),
    }
    one, two, three, four, five = lines(trials, outcomes, {alone.key: 0})
    assert (one.median_ns, one.mean_ns, one.std_ns, one.slowdown, one.slowdown_low) == (20, 20, 10, 1, None)
    assert (one.ratio_share, one.samples_per_s) == (1, 2e8)
    assert (two.median_ns, two.slowdown, two.peak_bytes, two.process_bytes, two.ratio_share) == (60, 3, 45, 7, 0.5)
    assert two.slowdown_low is not None
    assert two.slowdown_high is not None
    assert 40 / 30 <= two.slowdown_low < 3 < two.slowdown_high <= 80 / 10
    assert (three.status, three.median_ns, three.reason, three.ratio_share) == ("infeasible", None, "too small", 0.8)
    assert (five.ratio_share, five.slowdown) == (0.6, 1)
    assert (four.status, four.median_ns) == ("running", None)
