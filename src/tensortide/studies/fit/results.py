"""Findings of the study: each action with its gain, the set that fits, and the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from tensortide.errors import ExitStatus
from tensortide.plans.under_budget.idle import Least
from tensortide.shown import Show, Shown
from tensortide.studies.fit.actions import Action, Refused
from tensortide.studies.fit.largest import Largest
from tensortide.studies.fit.loop import Part
from tensortide.studies.fit.subject import Subject
from tensortide.studies.fit.trial import Trial
from tensortide.studies.fit.verdict import Fits, Verdict

MOST = 5
"""Actions that are recommended."""
LEAST_SAVED = 0.02
"""Share of the peak that an action saves at least to be recommended."""
_STATUSES = {"fits": ExitStatus.HOLDS, "unsure": ExitStatus.UNDECIDED, "too large": ExitStatus.FAILS}


class Gain(Trial, frozen=True):
    """A step with an action, its time that of the same samples, against the step without: ``step_change`` is of the
    time of that. Without times ``lost_ns`` and ``step_change`` are None."""

    fits: Annotated[Fits, Show()]
    saved_bytes: Annotated[int, Show("saved")]
    lost_ns: int | None
    step_change: Annotated[float | None, Show("change", "change")]

    @property
    def saved_per_ms_bytes(self) -> int | None:
        """Bytes saved for each millisecond lost."""
        return round(self.saved_bytes * 1e6 / self.lost_ns) if self.lost_ns is not None and self.lost_ns > 0 else None


class Outcome(msgspec.Struct, frozen=True):
    """An action and the step with it; ``reason``: why it cannot be taken."""

    action: Action | Refused
    trial: Gain | None = None
    reason: Annotated[str, Show("Why not", fold=True)] = ""

    @property
    def line(self) -> Annotated[str, Show(unit="code", data=True)]:
        """The code or the option that does it."""
        return self.action.line if isinstance(self.action, Action) else ""

    @property
    def rank(self) -> tuple[int, float]:
        """Smaller is better: first what loses no time, by bytes saved and share of time won; then by bytes saved
        for each nanosecond lost. Without times, by bytes saved."""
        one = self.trial
        if one is None or one.lost_ns is None or one.step_change is None:
            return 0, 0.0 if one is None else -one.saved_bytes
        if one.lost_ns <= 0:
            return 0, -one.saved_bytes * (1 - one.step_change)
        return 1, -one.saved_bytes / one.lost_ns


class Together(msgspec.Struct, frozen=True):
    """A set of actions that makes the step fit, and the step with it."""

    actions: tuple[Action, ...]
    trial: Trial
    lost_ns: int | None
    fits: Fits


class Fit(Shown, msgspec.Struct, frozen=True, dict=True):
    """Everything that was found. ``outcomes`` are ranked; ``stopped`` if the search was, and is thus not complete:
    then ``tried`` of the ``planned`` actions were.

    ``together`` is the cheapest set found that fits, or what needs least if none does; None if the step fits as it is.
    """

    SECTION = "fit"
    subject: Subject
    verdict: Verdict
    base: Trial
    outcomes: tuple[Outcome, ...]
    largest: Largest | None
    together: Together | None
    parts: tuple[Part, ...]
    tried: int
    planned: int
    stopped: bool = False
    one_op: Least | None = None
    """An op that needs more than the memory by itself, if one does: nothing that leaves it as it is makes the step
    fit."""
    command: str = ""
    """The command to type next."""

    @property
    def machine(self) -> Annotated[str, Show("Machine")]:
        """The device that it is to fit on."""
        return self.subject.machine

    @property
    def fits(self) -> Annotated[Fits, Show()]:
        """The answer: the step fits as it is, or not."""
        return self.verdict.judged(self.base.peak_bytes, self.base.reserved_bytes)

    @property
    def cheapest_set(self) -> Annotated[str, Show("Cheapest set that fits", fold=True)]:
        """The titles of the actions that make the step fit; empty if it fits, or if none do."""
        one = self.together
        return " + ".join(action.title for action in one.actions) if one is not None and one.fits == "fits" else ""

    @property
    def status(self) -> ExitStatus:
        """The answer to whether the step fits as it is."""
        return _STATUSES[self.fits]

    @property
    def worthwhile(self) -> tuple[Outcome, ...]:
        """Outcomes that save enough to be worth an action, the best first."""
        least = LEAST_SAVED * self.base.peak_bytes
        return tuple(one for one in self.outcomes if one.trial is not None and one.trial.saved_bytes >= least)

    @property
    def recommended(self) -> tuple[Outcome, ...]:
        """At most ``MOST`` outcomes worth an action, the best first."""
        return self.worthwhile[:MOST]


@dataclass(frozen=True, repr=False)
class FitOnMachines(Shown):
    """A step on several machines, ``each`` studied by itself."""

    SECTION = "fit.of_each"
    each: tuple[Fit, ...]

    @property
    def command(self) -> str:
        """The command to type next."""
        return next((one.command for one in self.each if one.command), "")

    @property
    def status(self) -> ExitStatus:
        """The answer to whether the step fits any of them."""
        return ExitStatus.of_any(one.status for one in self.each)
