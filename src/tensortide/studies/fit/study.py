"""The study: each action captured, ranked; the largest batch; the cheapest set of actions that fits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import msgspec

from tensortide.cost import Resolver
from tensortide.errors import TensortideError
from tensortide.executors import SERIAL, Where, run_all
from tensortide.graph.model import Graph
from tensortide.graph.unroll import unrolled
from tensortide.plans.instance import instance
from tensortide.plans.under_budget.idle import Least, least_of_one_op
from tensortide.progress import detail
from tensortide.recorder.changes import Accumulated, Change, NotApplicable
from tensortide.recorder.target import Scalar
from tensortide.studies.fit.actions import Action, Refused, accumulation, actions, smaller, unmeasured
from tensortide.studies.fit.largest import Largest, largest_batch
from tensortide.studies.fit.loop import Part, parts
from tensortide.studies.fit.results import Fit, Gain, Outcome, Together
from tensortide.studies.fit.subject import Capture, Subject
from tensortide.studies.fit.trial import Trial, gathering_ns, tried
from tensortide.studies.fit.verdict import Fits, verdict
from tensortide.timing import Durations
from tensortide.timing.catalogue import Device

_SETS = 24
"""Most sets of actions that are captured."""
_SAME = 1.1
"""An action is left out of a set that fits without it, if the step is not slower by more than this factor."""

_Key: TypeAlias = tuple[tuple[tuple[str, Scalar], ...], tuple[Change, ...]]
"""Settings and changes of a capture."""


class _Taken(NamedTuple):
    """An action that can be taken, and what it gains."""

    action: Action
    gain: Gain


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
        self.base = tried(subject.graph, subject.timed_device, durations=durations, resolver=resolver)
        self.verdict = verdict(
            subject.graph,
            asked=subject.timed_device,
            card=subject.card,
            durations=durations,
            reserved_bytes=self.base.reserved_bytes,
            timed=subject.timed,
            resolver=resolver,
        )
        self._known: dict[_Key, Trial | TensortideError] = {}
        self.one_op = self._too_large()
        self.outcomes: list[Outcome] = []
        self.tried = self.planned = 0

    def run(self) -> Fit:
        subject, base = self.subject, self.base
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
        return Fit(
            *(subject, self.verdict, base, tuple(ranked), largest, together, tuple(loop)),
            *(self.tried, self.planned, stopped, self.one_op),
        )

    def _too_large(self) -> Least | None:
        """The op that needs more than the memory by itself, if one does."""
        graph = self.subject.graph
        if self._judged(self.base) != "too large":
            return None
        least = least_of_one_op(instance(graph, graph.index.main_device, [0] * len(graph)))
        return least if least.nbytes > self.verdict.judged_bytes else None

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
            self._known[key] = tried(graph, self.subject.timed_device, resolver=self.resolver)
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
        time = found.step_ns
        if time is None:
            return found
        if turns > 2:  # two were captured: each further one is as the second
            once = tuple(Accumulated(1) if isinstance(change, Accumulated) else change for change in changes)
            time += (turns - 2) * (time - (self._trial(settings, once).step_ns or 0))
        devices = max((action.devices for action in taken), default=1)
        time += gathering_ns(self.subject.graph, self.subject.row, devices, self.subject.rates)
        for action in taken:
            time = round(time / action.samples)
        return msgspec.structs.replace(found, step_ns=time)

    def _rank(self, one: Outcome) -> tuple[bool, bool, tuple[int, float]]:
        """Smaller is better: what makes the step fit by itself comes before what does not."""
        return one.trial is None, one.trial is not None and not self._fits(one.trial), one.rank

    def _judged(self, trial: Trial) -> Fits:
        return self.verdict.judged(trial.peak_bytes, trial.reserved_bytes)

    def _fits(self, trial: Trial) -> bool:
        return self._judged(trial) == "fits"

    # -- actions one by one ---------------------------------------------------------------------

    def _each(self) -> None:
        every = [*actions(self.subject)]
        single = [one for one in every if isinstance(one, Action)]
        self.planned = len(single) + (0 if self._no_batch() else 1 + self.subject.trains)
        self._capture(single)
        for action in every:
            if isinstance(action, Refused):
                self.outcomes.append(Outcome(action, reason=action.reason))
            elif self.subject.untried:
                self.outcomes.append(Outcome(action, reason=self.subject.why_not))
            elif self.subject.again is None or _key(action.settings, action.changes) in self._known:
                self._try(action)
        if self.stop():
            raise Stopped

    def _capture(self, taken: Sequence[Action]) -> None:
        """Capture the step with each of these actions."""
        subject = self.subject
        if subject.again is None:
            return
        capture = partial(_captured, subject.again, subject.settings, subject.timed_device, self.resolver)
        self.say(f"capturing the step with each of {self.planned} actions")
        for done, (number, found) in enumerate(run_all(capture, taken, self.where, self.stop), 1):
            self._known[_key(taken[number].settings, taken[number].changes)] = found
            self.say(f"captured the step with {taken[number].title} ({done} of {self.planned})")

    def _try(self, action: Action) -> Outcome:
        self.tried += 1
        try:
            trial = self._of([action])
        except TensortideError as error:
            reason = str(error).partition("\n")[0]
            outcome = Outcome(Refused(action.key, action.title, reason), reason=reason)
            detail("skipped", f"{action.title}: {reason}")
        else:
            saved, lost = self.base.peak_bytes - trial.peak_bytes, self._lost_ns(trial)
            share = None if lost is None else lost / self.base.step_ns if self.base.step_ns else 0.0
            fitting = self._judged(trial)
            gain = Gain(trial.peak_bytes, trial.reserved_bytes, trial.step_ns, fitting, saved, lost, share)
            outcome = Outcome(action, gain)
        self.outcomes.append(outcome)
        return outcome

    def _lost_ns(self, trial: Trial) -> int | None:
        """The time that a trial takes longer than the step as it is; None without times."""
        return None if trial.step_ns is None or self.base.step_ns is None else trial.step_ns - self.base.step_ns

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

        limit = self.verdict.margin.sure_bytes(self.subject.limit_bytes)
        return largest_batch(name, value, reserved, limit)

    def _batches(self, largest: Largest | None) -> None:
        if self.subject.untried:
            self.outcomes += (Outcome(one, reason=self.subject.why_not) for one in unmeasured(self.subject))
            return
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
        every = [_Taken(one.action, one.trial) for one in self.outcomes if isinstance(one.action, Action) and one.trial]
        taken = [one for one in every if one.gain.saved_bytes > 0]
        whole = [one for one in taken if one.action.devices == 1 and one.action.key != "smaller"]
        least = self._set(_most(whole))
        if least is not None and least.fits != "fits":
            return least
        too_large: list[frozenset[str]] = []
        tried = 0
        for some in sorted(_sets(whole), key=self._expected):
            keys = frozenset(one.action.key for one in some)
            if tried >= _SETS or any(keys <= known for known in too_large):  # a part of what is too large is, too
                continue
            tried += 1
            found = self._set(some)
            if found is not None and found.fits == "fits":
                return self._without_needless(found)
            if found is not None:
                too_large.append(keys)
        return least

    def _set(self, taken: Sequence[_Taken]) -> Together | None:
        """The step with these actions; None if it cannot have them together."""
        chosen = [one.action for one in taken]
        if not chosen:
            return None
        self.say(f"looking for a set that fits: {', '.join(action.title for action in chosen)}")
        try:
            return self._made(chosen, self._of(chosen))
        except TensortideError:
            return None

    def _made(self, chosen: Sequence[Action], trial: Trial) -> Together:
        return Together(tuple(chosen), trial, self._lost_ns(trial), self._judged(trial))

    def _without_needless(self, found: Together) -> Together:
        """``found`` without the actions that it fits without, at about the same time."""
        for action in found.actions[::-1]:
            rest = [each for each in found.actions if each is not action]
            if not rest:
                break
            self.say(f"looking whether it fits without {action.title}")
            trial = self._of(rest)
            if self._fits(trial) and (trial.step_ns or 0) <= _SAME * (found.trial.step_ns or 0):
                found = self._made(rest, trial)
        return found

    def _expected(self, some: Sequence[_Taken]) -> tuple[float, int]:
        """The time of a set as its actions by themselves suggest; without times, fewer actions before more, and of as
        many those that save most."""
        base = self.base.step_ns
        if base is None:
            return len(some), -sum(one.gain.saved_bytes for one in some)
        scale = 1.0
        for one in some:
            if one.action.slot == "precision":
                scale = (base + (one.gain.lost_ns or 0)) / base
        return scale * (base + sum(one.gain.lost_ns or 0 for one in some if one.action.slot != "precision")), 0


def _key(settings: Mapping[str, Scalar], changes: Sequence[Change]) -> _Key:
    return tuple(sorted(settings.items())), tuple(changes)


def _captured(
    again: Capture, settings: Mapping[str, Scalar], row: Device | None, resolver: Resolver | None, action: Action
) -> Trial | TensortideError:
    """The figures of the step with an action, or the reason why it cannot be captured."""
    try:
        graph = unrolled(again({**settings, **action.settings}, action.changes, False))
        return tried(graph, row, resolver=resolver)
    except TensortideError as error:
        return TensortideError(str(error))  # which travels, whatever the kind


def _most(taken: Sequence[_Taken]) -> list[_Taken]:
    """Select of each slot the action that saves most."""
    return [*{one.action.slot: one for one in sorted(taken, key=lambda one: one.gain.saved_bytes)}.values()]


def _sets(taken: Sequence[_Taken]) -> Iterator[tuple[_Taken, ...]]:
    """Every set of actions, at most one of each slot."""
    slots: dict[str, list[_Taken | None]] = {}
    for one in taken:
        slots.setdefault(one.action.slot, [None]).append(one)
    for chosen in itertools.product(*slots.values()):
        if some := tuple(one for one in chosen if one is not None):
            yield some
