"""Statistics of trials: medians with intervals, slowdowns against the baseline of the same workload, throughput."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeAlias

import msgspec
import numpy as np

from tensortide.replays.remat.simulation import UNLIMITED
from tensortide.shown import Show
from tensortide.studies.experiment.results import Outcome
from tensortide.studies.experiment.trials import NONE, Scalar, Trial

DRAWS = 10_000
"""Samples that an interval is made of."""
SEED = 0
"""Seed of the first draw; the same results give the same intervals."""


Ends: TypeAlias = tuple[float, float] | tuple[None, None]
"""The ends of an interval of 95 %; of a single value there is none."""


def medians(values: Sequence[float], seed: int = SEED) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The medians of ``DRAWS`` samples with replacement of ``values``, which are as many as these."""
    drawn = np.random.default_rng(seed).integers(0, len(values), (DRAWS, len(values)))
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = np.median(np.asarray(values, np.float64)[drawn], axis=1)
    return found


@functools.cache
def interval(values: tuple[float, ...], base: tuple[float, ...] = (1.0,)) -> Ends:
    """The ends of the interval of the median of ``values`` by that of ``base``, each drawn by itself (percentile
    bootstrap); None if both are single. A page that is drawn again draws no samples again."""
    if max(len(values), len(base)) < 2:
        return None, None
    low, high = np.percentile(medians(values) / medians(base, SEED + 1), (2.5, 97.5))
    return float(low), float(high)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A trial with the statistics of its repetitions; a repetition counts by the median of its steps.

    ``ratio_share``: the budget by the peak of the baseline; of a way without a budget its own peak by that.
    """

    trial: Trial
    key: str
    status: Annotated[str, Show("status", pick=True)]
    workload: Annotated[str, Show("workload", pick=True, fold=True)]
    settings: Annotated[str, Show("settings", data=True)]
    mode: Annotated[str, Show("mode", pick=True)]
    policy: Annotated[str, Show("policy", pick=True, fold=True)]
    budget: Annotated[str, Show("budget")]
    ratio_share: Annotated[float | None, Show("of peak", at_width=100)] = None
    repetitions: Annotated[int, Show("n", at_width=110)] = 0
    median_ns: Annotated[float | None, Show("step", unit="ns")] = None
    low_ns: Annotated[float | None, Show("from", unit="ns", at_width=150)] = None
    high_ns: Annotated[float | None, Show("to", unit="ns", at_width=150)] = None
    slowdown: Annotated[float | None, Show("slowdown", unit="ratio")] = None
    slowdown_low: Annotated[float | None, Show("from", unit="ratio", at_width=150)] = None
    slowdown_high: Annotated[float | None, Show("to", unit="ratio", at_width=150)] = None
    peak_bytes: Annotated[int | None, Show("peak", at_width=90)] = None
    samples_per_s: Annotated[float | None, Show("samples/s", unit="amount", at_width=110)] = None
    process_bytes: Annotated[int | None, Show("process", at_width=130)] = None
    mean_ns: Annotated[float | None, Show("mean", unit="ns", at_width=170)] = None
    std_ns: Annotated[float | None, Show("std", unit="ns", at_width=170)] = None
    evictions: Annotated[int | None, Show("evictions", at_width=170)] = None
    recomputations: Annotated[int | None, Show("recomputed", at_width=130)] = None
    reason: Annotated[str, Show("reason", data=True)] = ""


def lines(trials: Mapping[str, Trial], outcomes: Mapping[str, Outcome], states: Mapping[str, int]) -> list[Line]:
    """A line for each of ``trials``, which are given by key; ``states`` has those that run, with the number of their
    repetitions that have ended."""
    names = told_apart([*trials.values()])
    return [
        _line(key, trial, name, outcomes, states.get(key))
        for (key, trial), name in zip(trials.items(), names, strict=True)
    ]


def common(trials: Sequence[Trial]) -> dict[str, Scalar]:
    """The settings that all ``trials`` have."""
    first = trials[0].set if trials else {}
    return {name: value for name, value in first.items() if all(trial.set.get(name) == value for trial in trials)}


def told_apart(trials: Sequence[Trial]) -> list[tuple[str, str]]:
    """The workload of each trial, with the settings that not all of them have, and its policy: each with other keys in
    which trials differ, those that are about the policy with that."""
    same = common(trials)
    alike: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        alike.setdefault((trial.mode, trial.policy), []).append(trial)
    others = [
        name for name in _OTHERS if any(len({getattr(each, name) for each in group}) > 1 for group in alike.values())
    ]

    def with_keys(word: str, settings: Mapping[str, Scalar], trial: Trial, names: Sequence[str]) -> str:
        keys = {name: value for name in names if (value := getattr(trial, name)) != _USUAL[name]}
        return " ".join([word, *(f"{name}={value}" for name, value in {**settings, **keys}.items())])

    ways, steps = ([name for name in others if (name in _WAYS) == is_way] for is_way in (True, False))
    return [
        (
            with_keys(trial.workload, {k: v for k, v in trial.set.items() if k not in same}, trial, steps),
            with_keys(trial.policy, {}, trial, ways),
        )
        for trial in trials
    ]


_USUAL = {field.name: field.default for field in msgspec.structs.fields(Trial)}
_COLUMNS = ("workload", "set", "mode", "policy", "budget", "timeout", "retries")
"""Keys that a table has columns for, and those that do not decide the result."""
_OTHERS = tuple(name for name in _USUAL if name not in _COLUMNS)
_WAYS = ("deallocation", "limit", "search")
"""Keys of the way to run a step: its ways are compared in one picture."""


def _line(key: str, trial: Trial, name: tuple[str, str], outcomes: Mapping[str, Outcome], done: int | None) -> Line:
    found, base = outcomes.get(key), outcomes.get(trial.baseline.key)
    line = Line(
        trial=trial,
        key=key,
        status=found.status if found is not None else "waiting" if done is None else "running",
        repetitions=done or 0,
        workload=name[0],
        settings=" ".join(f"{each}={value}" for each, value in trial.set.items()),
        mode=trial.mode,
        policy=name[1],
        budget=trial.budget_text,
        ratio_share=_ratio(trial, found, base),
        reason="" if found is None else found.reason,
    )
    return line if found is None or found.status != "ok" else _measured(line, found, base)


def _measured(line: Line, found: Outcome, base: Outcome | None) -> Line:
    """The line with the statistics of repetitions, and against those of the baseline."""
    values, last = tuple(float(one.step_ns) for one in found.repetitions), found.repetitions[-1]
    middle, ends = statistics.median(values), interval(values)
    of_base = tuple(float(one.step_ns) for one in base.repetitions) if base is not None and base.status == "ok" else ()
    usual = statistics.median(of_base) if of_base else 0
    slower = interval(values, of_base) if usual and line.trial.policy != NONE else (None, None)
    return msgspec.structs.replace(
        line,
        repetitions=len(values),
        median_ns=middle,
        low_ns=ends[0],
        high_ns=ends[1],
        mean_ns=statistics.fmean(values),
        std_ns=statistics.stdev(values) if len(values) > 1 else None,
        slowdown=middle / usual if usual else None,
        slowdown_low=slower[0],
        slowdown_high=slower[1],
        samples_per_s=None if found.batch is None or not middle else found.batch * 1e9 / middle,
        peak_bytes=found.peak_bytes,
        process_bytes=found.process_peak_bytes,
        evictions=last.evictions,
        recomputations=last.recomputations,
    )


def _ratio(trial: Trial, found: Outcome | None, base: Outcome | None) -> float | None:
    """The budget by the peak of the baseline; without a limit the peak by that."""
    limit = trial.budget if trial.has_limit else None
    if limit is not None and limit.ratio is not None:
        return limit.ratio
    if found is None or base is None or not base.peak_bytes:
        return None
    nbytes = found.peak_bytes if limit is None or limit.bytes_of(0) >= UNLIMITED else limit.nbytes
    return None if nbytes is None else nbytes / base.peak_bytes
