"""Two folders of results compared, trial by trial."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from tensortide.errors import ExitStatus, RequestError
from tensortide.shown import Show, Shown
from tensortide.studies.experiment.results import Outcome, read_results
from tensortide.studies.experiment.summary import interval, told_apart


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A trial in both folders. ``factor``: the median step of the second by that of the first, with its interval."""

    workload: Annotated[str, Show("workload", pick=True, fold=True)]
    mode: Annotated[str, Show("mode", pick=True)]
    policy: Annotated[str, Show("policy", pick=True, fold=True)]
    budget: Annotated[str, Show("budget")]
    first: Annotated[str, Show("first", at_width=120)]
    second: Annotated[str, Show("second", at_width=120)]
    first_ns: Annotated[float | None, Show("first", unit="ns")] = None
    second_ns: Annotated[float | None, Show("second", unit="ns")] = None
    time_factor: Annotated[float | None, Show("times")] = None
    low_factor: Annotated[float | None, Show("from", at_width=110)] = None
    high_factor: Annotated[float | None, Show("to", at_width=110)] = None
    peak_change: Annotated[float | None, Show("peak", at_width=90)] = None

    @property
    def differs(self) -> Annotated[bool, Show("differs", at_width=100)]:
        """True if the interval leaves out 1, or if the trial ended otherwise."""
        if self.first != self.second or self.time_factor is None:
            return self.first != self.second
        return not (self.low_factor or self.time_factor) <= 1 <= (self.high_factor or self.time_factor)


class Compared(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """The trials that both folders have, and the number of those that one alone has."""

    SECTION = "trials.of_comparison"

    folders: tuple[str, str]
    pairs: tuple[Pair, ...]
    alone: tuple[int, int]

    @property
    def status(self) -> ExitStatus:
        """The answer: there is one."""
        return ExitStatus.HOLDS


def compared(first: Path, second: Path) -> Compared:
    """Compare the trials that both folders have: those whose keys in the files of experiments are equal, whatever has
    changed in the files that they name. Of several versions of these it is the one that both have, else the last.

    Raises RequestError for a folder without results, and if no trial is in both.
    """
    all_one, all_two = read_results(first), read_results(second)
    same = [key for key in all_one if key in all_two]
    one, two = (by_name(each) | by_name({key: each[key] for key in same}) for each in (all_one, all_two))
    both = [name for name in one if name in two]
    if not both:
        raise RequestError(f"{first} and {second} have no trial in common")
    names = told_apart([one[name].trial for name in both])
    pairs = tuple(_pair(one[name], two[name], *words) for name, words in zip(both, names, strict=True))
    return Compared(folders=(str(first), str(second)), pairs=pairs, alone=(len(one) - len(both), len(two) - len(both)))


def by_name(outcomes: Mapping[str, Outcome]) -> dict[bytes, Outcome]:
    """The outcomes by what their trials are, without the files that these name."""
    return {one.trial.content: one for one in outcomes.values()}


def _pair(one: Outcome, two: Outcome, workload: str, policy: str) -> Pair:
    trial = one.trial
    times = [tuple(float(each.step_ns) for each in side.repetitions) for side in (one, two)]
    made = Pair(
        workload=workload,
        mode=trial.mode,
        policy=policy,
        budget=trial.budget_text,
        first=one.status,
        second=two.status,
    )
    if one.status != "ok" or two.status != "ok" or not all(times[0]):
        return made
    before, after = map(statistics.median, times)
    ends = interval(times[1], times[0])
    return msgspec.structs.replace(
        made,
        first_ns=before,
        second_ns=after,
        time_factor=after / before,
        low_factor=ends[0],
        high_factor=ends[1],
        peak_change=(two.peak_bytes or 0) / one.peak_bytes - 1 if one.peak_bytes else None,
    )
