"""The study: each action captured, ranked; the largest batch; the cheapest set of actions that fits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from tensortide.cost import Resolver
from tensortide.errors import ExitStatus, TensortideError
from tensortide.executors import SERIAL, Where, run_all
from tensortide.graph.model import Graph
from tensortide.graph.unroll import unrolled
from tensortide.recorder.changes import Accumulated, Change, NotApplicable
from tensortide.recorder.target import Scalar
from tensortide.shown import Shown
from tensortide.studies.fit.actions import Action, Refused, accumulation, actions, smaller
from tensortide.studies.fit.largest import Largest, largest_batch
from tensortide.studies.fit.loop import Part, parts
from tensortide.studies.fit.subject import Capture, Subject
from tensortide.studies.fit.trial import Trial, gathering_ns, tried
from tensortide.studies.fit.verdict import Fits, Verdict, fits, verdict
from tensortide.timing import Durations
from tensortide.timing.catalogue import Device

MOST = 5
"""Actions that are recommended."""
LEAST_SAVED = 0.02
"""Share of the peak that an action saves at least to be recommended."""
_SETS = 24
"""Most sets of actions that are captured."""
_SAME = 1.1
"""An action is left out of a set that fits without it, if the step is not slower by more than this factor."""

_STATUSES = {"yes": ExitStatus.HOLDS, "tight": ExitStatus.UNDECIDED, "no": ExitStatus.FAILS}
_Key: TypeAlias = tuple[tuple[tuple[str, Scalar], ...], tuple[Change, ...]]
"""Settings and changes of a capture."""


class Outcome(msgspec.Struct, frozen=True):
    """An action and the step with it, whose time is that of the same samples. ``lost_share`` is of the step's time;
    ``reason``: why it cannot be taken."""

    action: Action | Refused
    trial: Trial | None = None
    saved_bytes: int = 0
    lost_ns: int = 0
    lost_share: float = 0.0
    reason: str = ""

    @property
    def line(self) -> str:
        """The code or the option that does it."""
        return self.action.line if isinstance(self.action, Action) else ""

    @property
    def rank(self) -> tuple[int, float]:
        """Smaller is better: first what loses no time, by bytes saved and share of time won; then by bytes saved
        for each nanosecond lost."""
        if self.lost_ns <= 0:
            return 0, -self.saved_bytes * (1 - self.lost_share)
        return 1, -self.saved_bytes / self.lost_ns


class Together(msgspec.Struct, frozen=True):
    """A set of actions that makes the step fit, and the step with it."""

    actions: tuple[Action, ...]
    trial: Trial
    lost_ns: int
    fits: bool


class Fit(Shown, msgspec.Struct, frozen=True, dict=True):
    """Everything that was found. ``outcomes`` are ranked; ``stopped`` if the search was, and is thus not complete.

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
    stopped: bool = False

    def fits(self, trial: Trial) -> Fits:
        """Tell whether the step with these figures fits."""
        return fits(trial.peak_bytes, trial.reserved_bytes, self.subject.limit_bytes)

    @property
    def status(self) -> ExitStatus:
        """The answer to whether the step fits as it is."""
        return _STATUSES[self.fits(self.base)]

    @property
    def worthwhile(self) -> tuple[Outcome, ...]:
        """Outcomes that save enough to be worth an action, the best first."""
        least = LEAST_SAVED * self.base.peak_bytes
        return tuple(one for one in self.outcomes if one.trial is not None and one.saved_bytes >= least)

    @property
    def recommended(self) -> tuple[Outcome, ...]:
        """At most ``MOST`` outcomes worth an action, the best first."""
        return self.worthwhile[:MOST]


class Stopped(Exception):
    """The search is to end with what is known."""


def fit(
    subject: Subject,
    *,
    durations: Durations | None = None,
    resolver: Resolver | None = None,
    say: Callable[[str], None] = lambda message: None,
    stop: Callable[[], bool] = lambda: False,
    where: Where = SERIAL,
) -> Fit:
    """Study how ``subject`` fits. ``stop`` is polled between captures and ends the study with what is known.

    Steps with a single action are captured on the workers of ``where``; later captures depend on earlier ones, and run
    one by one. Raises RunError as ``executors.run_all``.
    """
    return _Study(subject, durations, resolver, say, stop, where).run()


class _Study:
    def __init__(
        self,
        subject: Subject,
        durations: Durations | None,
        resolver: Resolver | None,
        say: Callable[[str], None],
        stop: Callable[[], bool],
        where: Where,
    ) -> None:
        self.subject, self.resolver, self.say, self.stop = subject, resolver, say, stop
        self.durations, self.where = durations, where
        self.base = tried(subject.graph, subject.row, durations=durations, resolver=resolver)
        self._known: dict[_Key, Trial | TensortideError] = {}
        self.outcomes: list[Outcome] = []

    def run(self) -> Fit:
        subject, base = self.subject, self.base
        found = verdict(
            subject.graph,
            asked=subject.row,
            memory_bytes=None if subject.limit_bytes == subject.row.usable_bytes else subject.limit_bytes,
            durations=self.durations,
            reserved_bytes=base.reserved_bytes,
            resolver=self.resolver,
        )
        largest: Largest | None = None
        together: Together | None = None
        loop: list[Part] = []
        stopped = False
        try:
            self._each()
            largest = self._largest()
            self._batches(largest)
            if not self._fits(base):
                together = self._together()
            loop.extend(parts(subject, lambda settings, first: self._graph(settings, first=first), self.say))
        except Stopped:
            stopped = True
        ranked = sorted(self.outcomes, key=self._rank)
        return Fit(subject, found, base, tuple(ranked), largest, together, tuple(loop), stopped)

    # -- captures -------------------------------------------------------------------------------

    def _graph(
        self, settings: Mapping[str, Scalar] = {}, changes: Sequence[Change] = (), *, first: bool = False
    ) -> Graph:
        """Capture the step again. Raises Stopped if the search is to end."""
        if self.stop():
            raise Stopped
        if self.subject.again is None:
            raise NotApplicable(self.subject.why_not)
        return unrolled(self.subject.again({**self.subject.settings, **settings}, changes, first))

    def _trial(self, settings: Mapping[str, Scalar] = {}, changes: Sequence[Change] = ()) -> Trial:
        """The figures of the step with these settings and changes."""
        key = _key(settings, changes)
        if key not in self._known:
            graph = self._graph(settings, changes)
            self._known[key] = tried(graph, self.subject.row, resolver=self.resolver)
        found = self._known[key]
        if isinstance(found, TensortideError):
            raise found
        return found

    def _of(self, taken: Iterable[Action]) -> Trial:
        """The figures of the step with actions, its time that of the same samples."""
        taken = tuple(taken)
        changes = tuple(change for action in taken for change in action.changes)
        settings = {name: value for action in taken for name, value in action.settings.items()}
        found = self._trial(settings, changes)
        turns = max((action.turns for action in taken), default=1)
        time = found.time_ns
        if turns > 2:  # two were captured: each further one is as the second
            once = tuple(Accumulated(1) if isinstance(change, Accumulated) else change for change in changes)
            time += (turns - 2) * (time - self._trial(settings, once).time_ns)
        devices = max((action.devices for action in taken), default=1)
        time += gathering_ns(self.subject.graph, self.subject.row, devices)
        for action in taken:
            time = round(time / action.samples)
        return msgspec.structs.replace(found, time_ns=time)

    def _rank(self, one: Outcome) -> tuple[bool, bool, tuple[int, float]]:
        """Smaller is better: what makes the step fit by itself comes before what does not."""
        return one.trial is None, one.trial is not None and not self._fits(one.trial), one.rank

    def _fits(self, trial: Trial) -> bool:
        return fits(trial.peak_bytes, trial.reserved_bytes, self.subject.limit_bytes) == "yes"

    # -- actions one by one ---------------------------------------------------------------------

    def _each(self) -> None:
        every = [*actions(self.subject)]
        self._capture([one for one in every if isinstance(one, Action)])
        for action in every:
            if isinstance(action, Refused):
                self.outcomes.append(Outcome(action, reason=action.reason))
            elif self.subject.again is None or _key(action.settings, action.changes) in self._known:
                self._try(action)
        if self.stop():
            raise Stopped

    def _capture(self, taken: Sequence[Action]) -> None:
        """Capture the step with each of these actions."""
        subject = self.subject
        if subject.again is None:
            return
        capture = partial(_captured, subject.again, subject.settings, subject.row, self.resolver)
        self.say(f"capturing the step with {len(taken)} actions, one by one")
        for done, (number, found) in enumerate(run_all(capture, taken, self.where, self.stop), 1):
            self._known[_key(taken[number].settings, taken[number].changes)] = found
            self.say(f"captured the step with {taken[number].title} ({done} of {len(taken)})")

    def _try(self, action: Action) -> Outcome:
        try:
            trial = self._of([action])
        except TensortideError as error:
            reason = str(error).partition("\n")[0]
            outcome = Outcome(Refused(action.key, action.title, reason), reason=reason)
        else:
            saved, lost = self.base.peak_bytes - trial.peak_bytes, trial.time_ns - self.base.time_ns
            outcome = Outcome(action, trial, saved, lost, lost / self.base.time_ns if self.base.time_ns else 0.0)
        self.outcomes.append(outcome)
        return outcome

    # -- batches --------------------------------------------------------------------------------

    def _no_batch(self) -> str:
        """Return why the batch cannot be set; empty if it can."""
        if self.subject.again is None:
            return self.subject.why_not
        if self.subject.batch is None:
            return "no hyperparameter of the workload is its batch (batch=...)"
        return "" if self.subject.batch[1] > 1 else "the batch is one sample"

    def _largest(self) -> Largest | None:
        batch = self.subject.batch
        if self.subject.again is None or batch is None:
            return None
        name, value = batch

        def reserved(samples: int) -> int:
            if samples == value:
                return self.base.reserved_bytes
            self.say(f"looking for the largest batch: capturing with {name}={samples:,}")
            return self._trial({name: samples}).reserved_bytes

        return largest_batch(name, value, reserved, self.subject.limit_bytes)

    def _batches(self, largest: Largest | None) -> None:
        if reason := self._no_batch():
            for key, title in (("accumulate", "accumulated gradients"), ("smaller", "smaller batch")):
                self.outcomes.append(Outcome(Refused(key, title, reason), reason=reason))
            return
        assert self.subject.batch is not None
        batch = self.subject.batch[1]
        fitting = self._fits(self.base)
        if self.subject.trains:
            turns = [count for count in range(2, batch + 1) if batch % count == 0]
            self._try(self._accumulated(turns, fitting))
        count = batch // 2 if fitting or largest is None or not largest.batch else largest.batch
        action = smaller(self.subject, min(count, batch - 1))
        self.say(f"capturing the step with {action.title}")
        self._try(action)

    def _accumulated(self, turns: Sequence[int], fitting: bool) -> Action:
        """The fewest turns in which the step fits, or the most if it fits in none."""
        low, high = 0, 0 if fitting else len(turns) - 1
        while low < high:
            middle = (low + high) // 2
            action = accumulation(self.subject, turns[middle])
            self.say(f"looking for the fewest turns: capturing with {action.title}")
            if self._fits(self._trial(action.settings, action.changes)):
                high = middle
            else:
                low = middle + 1
        return accumulation(self.subject, turns[low])

    # -- sets of actions ------------------------------------------------------------------------

    def _together(self) -> Together | None:
        """The cheapest set of actions that fits; else the one that needs least."""
        taken = [one for one in self.outcomes if isinstance(one.action, Action) and one.saved_bytes > 0]
        usable = [one for one in taken if isinstance(one.action, Action) and one.action.devices == 1]
        whole = [one for one in usable if one.action.key != "smaller"]
        least = self._set(_most(whole))
        if least is not None and not least.fits:
            return least
        too_large: list[frozenset[str]] = []
        tried = 0
        for some in sorted(_sets(whole), key=self._expected_ns):
            keys = frozenset(one.action.key for one in some)
            if tried >= _SETS or any(keys <= known for known in too_large):  # a part of what is too large is, too
                continue
            tried += 1
            found = self._set(some)
            if found is not None and found.fits:
                return self._without_needless(found)
            if found is not None:
                too_large.append(keys)
        return least

    def _set(self, outcomes: Sequence[Outcome]) -> Together | None:
        """The step with the actions of ``outcomes``; None if it cannot have them together."""
        chosen = [one.action for one in outcomes if isinstance(one.action, Action)]
        if not chosen:
            return None
        self.say(f"looking for a set that fits: {', '.join(action.title for action in chosen)}")
        try:
            return self._made(chosen, self._of(chosen))
        except TensortideError:
            return None

    def _made(self, chosen: Sequence[Action], trial: Trial) -> Together:
        return Together(tuple(chosen), trial, trial.time_ns - self.base.time_ns, self._fits(trial))

    def _without_needless(self, found: Together) -> Together:
        """``found`` without the actions that it fits without, at about the same time."""
        for action in found.actions[::-1]:
            rest = [each for each in found.actions if each is not action]
            if not rest:
                break
            self.say(f"looking whether it fits without {action.title}")
            trial = self._of(rest)
            if self._fits(trial) and trial.time_ns <= _SAME * found.trial.time_ns:
                found = self._made(rest, trial)
        return found

    def _expected_ns(self, some: Sequence[Outcome]) -> float:
        """The time of a set as its actions by themselves suggest."""
        scale = 1.0
        for one in some:
            if isinstance(one.action, Action) and one.action.slot == "precision":
                scale = (self.base.time_ns + one.lost_ns) / self.base.time_ns
        others = sum(one.lost_ns for one in some if isinstance(one.action, Action) and one.action.slot != "precision")
        return scale * (self.base.time_ns + others)


def _key(settings: Mapping[str, Scalar], changes: Sequence[Change]) -> _Key:
    return tuple(sorted(settings.items())), tuple(changes)


def _captured(
    again: Capture, settings: Mapping[str, Scalar], row: Device, resolver: Resolver | None, action: Action
) -> Trial | TensortideError:
    """The figures of the step with an action, or the reason why it cannot be captured."""
    try:
        graph = unrolled(again({**settings, **action.settings}, action.changes, False))
        return tried(graph, row, resolver=resolver)
    except TensortideError as error:
        return TensortideError(str(error))  # which travels, whatever the kind


def _most(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Select of each slot the action that saves most."""
    found: dict[str, Outcome] = {}
    for one in sorted(outcomes, key=lambda one: one.saved_bytes):
        assert isinstance(one.action, Action)
        found[one.action.slot] = one
    return [*found.values()]


def _sets(outcomes: Sequence[Outcome]) -> Iterator[tuple[Outcome, ...]]:
    """Every set of actions, at most one of each slot."""
    slots: dict[str, list[Outcome | None]] = {}
    for one in outcomes:
        assert isinstance(one.action, Action)
        slots.setdefault(one.action.slot, [None]).append(one)
    for chosen in itertools.product(*slots.values()):
        if some := tuple(one for one in chosen if one is not None):
            yield some
