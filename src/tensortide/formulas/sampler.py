"""Captures of a workload: each setting once, what it refuses skipped, remembered and learned from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tensortide.cost import Count, count
from tensortide.cost.evaluate import Resolver
from tensortide.errors import DataDependent, TensortideError, WorkloadError
from tensortide.expr import Condition, Expr
from tensortide.expr.floors import quotients
from tensortide.formulas.lift import Skeleton, skeleton
from tensortide.formulas.observe import NOTHING_SEEN, Observed, Path, guessed, observed, refused_comparison, thresholds
from tensortide.formulas.space import SMALL, Scalar, Setting, Space
from tensortide.graph.model import Graph
from tensortide.plans.order.minimal import MinimalFootprint, footprint, sure_bounds
from tensortide.progress import detail
from tensortide.search_limit import SearchLimit

_HASTY, _DRAWS, _CAREFUL = 3, 8, 60
"""Settings to try where another question may do, before values are chosen with care, and then."""

TELLING = 3
"""A smaller value of a size is a factor of too many others."""

_SHARES = (0.6, 0.3, 0.1)
"""Shares of the time that one attempt after the other has."""

_LARGEST_BYTES = 1 << 44
"""A sample with a larger storage is not used: sums of its bytes might not fit the arrays of a timeline."""


@dataclass(frozen=True)
class Sample:
    """One capture: where it was made, on what path through the workload's code, and the sizes that this computed.

    ``seen`` is the course as it was observed; ``path`` and ``made`` have names for the sizes that were read from
    tensors, as far as these are plain.
    """

    setting: Setting
    graph: Graph
    path: Path = ()
    made: tuple[Expr, ...] = ()
    seen: Observed = NOTHING_SEEN
    resolver: Resolver | None = None
    _least: dict[int, MinimalFootprint] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def skeleton(self) -> Skeleton:
        """Everything but the sizes."""
        return skeleton(self.graph)

    def least(self, work: int) -> MinimalFootprint:
        """Bounds of the least memory of its storages under any order of its ops, found with so much ``work``."""
        if work not in self._least:
            self._least[work] = footprint(self.graph, workspace=False, work_limit=work)
        return self._least[work]

    @cached_property
    def sure_least(self) -> tuple[int, int]:
        """The same without a search."""
        return sure_bounds(self.graph, workspace=False)

    @cached_property
    def count(self) -> Count:
        """Its costs."""
        return count(self.graph, resolver=self.resolver)


class OutOfTime(WorkloadError):
    """Formulas that take longer than the limit."""


class Clock:
    """The limits of formulas, in seconds and in captures (None: no limit): a share for each attempt, each with fewer
    symbols."""

    def __init__(self, limit_s: float | None, most_captures: float | None = None) -> None:
        self._limit_s, self._most_captures = limit_s, most_captures
        self.reached = ""
        """The limit that was reached, in words, once it was: something was left out."""
        self._shares = iter(_SHARES)
        self.restart()

    def capture(self) -> None:
        """Count a capture."""
        self._left.spend(1)

    def check(self) -> None:
        """Raise OutOfTime after the end."""
        if not self._left.spent:
            return
        if self._left.work_left:
            self.reached, more = f"the time limit of {self._limit_s:g} s was reached", "--limit SECONDS (limit=)"
        else:
            self.reached = f"the limit of {self._most_captures:g} captures was reached"
            more = "--work-limit (work_limit=)"
        raise OutOfTime(f"{self.reached}: allow more with {more}, or ask for fewer symbols with --symbols (over=)")

    def restart(self) -> None:
        """Allow the share of the next attempt."""
        share = next(self._shares, _SHARES[-1])
        self._left = SearchLimit(
            seconds=math.inf if self._limit_s is None else share * self._limit_s,
            work=math.inf if self._most_captures is None else share * self._most_captures,
        )


class Sampler:
    """Captures ``workload`` within ``space``; ``settings`` are the hyperparameters that stay as they are."""

    def __init__(
        self,
        workload: Callable[..., Any],
        space: Space,
        settings: Mapping[str, Scalar],
        clock: Clock,
        *,
        name: str,
        resolver: Resolver | None,
        progress: Callable[[str], None],
    ) -> None:
        self.space = space
        self.clock = clock
        self.illegal: dict[str, str] = {}
        self.captures = 0
        self.home: Skeleton | None = None
        """The ops of the step with the default sizes, and the fewest repetitions that are studied."""
        self._workload = workload
        self.settings = dict(settings)
        self.name = name
        self._resolver = resolver
        self.progress = progress
        self._samples: dict[tuple[int, ...], Sample | None] = {}
        self._seen: dict[object, tuple[Graph | TensortideError, Observed]] = {}
        """What was captured, by the hyperparameters that vary and those that do not; shared with narrower samplers."""
        self._aside: set[tuple[int, ...]] = set()
        self._suspected: set[Condition] = set()
        """Divisions that were tried with a remainder."""
        self._refused: list[Setting] = []
        self._compared: set[tuple[str, str]] = set()
        """Pairs of sizes of which the first was tried as one that must not exceed the second."""
        self.far: dict[tuple[str, ...], Setting] = {}
        """Settings in which some sizes are far above their defaults, by the names of these."""
        self._careful = False
        """True if the workload refused all settings that were drawn without care, for reasons that it does not show."""

    def beyond(self, condition: Condition, setting: Setting) -> Sampler:
        """A sampler of what meets a condition, with the values of ``setting`` in place of defaults that do not."""
        return self._within(self.space.beyond(condition, setting))

    def counting(self, expr: Expr) -> Sampler:
        """A sampler with the value of ``expr``, which counts repetitions, as one more hyperparameter."""
        return self._within(self.space.counting(expr))

    def _within(self, space: Space) -> Sampler:
        settings = {**self.settings, **{name: value for name, value in space.all.items() if name not in space.turns}}
        within = Sampler(
            self._workload,
            space,
            settings,
            self.clock,
            name=self.name,
            resolver=self._resolver,
            progress=self.progress,
        )
        within._seen = self._seen
        return within

    def holding(self, names: Container[str]) -> Sampler:
        """A sampler with the hyperparameters ``names`` at their defaults."""
        return self._within(self.space.holding(names))

    @property
    def legal(self) -> list[Sample]:
        """All captures that there are."""
        return [sample for key, sample in self._samples.items() if sample is not None and key not in self._aside]

    @property
    def all_captures(self) -> list[Sample]:
        """The same with those that count for nothing."""
        return [sample for sample in self._samples.values() if sample is not None]

    def without(self, names: Container[str], samples: Sequence[Sample]) -> list[Sample]:
        """Hold the hyperparameters ``names`` at their defaults, as in ``samples``: of all captures these are kept."""
        over = self.space.over = tuple(name for name in self.space.over if name not in names)
        kept = [replace(sample, setting={name: sample.setting[name] for name in over}) for sample in samples]
        self._samples, self._aside = {tuple(sample.setting.values()): sample for sample in kept}, set()
        return kept

    def spread(self, sizes: frozenset[str]) -> None:
        """Let small defaults of the hyperparameters ``sizes``, which repeat nothing, take larger values. Captures at
        small ones, which tell few expressions apart, count no longer."""
        self.space.sizes = sizes
        small = [name for name in sizes if self.space.all[name] <= SMALL and name not in self.space.values]
        for sample in self.legal:
            values = [sample.setting[name] for name in sizes]
            if any(sample.setting[name] < TELLING for name in small) or len(set(values)) < len(values):
                self.forget(sample.setting)

    def forget(self, setting: Setting) -> None:
        """Let a capture count no longer among those that formulas are made from, until it is asked for again."""
        self._aside.add(tuple(setting[name] for name in self.space.over))

    def at(self, setting: Setting) -> Sample | None:
        """The capture at ``setting``; None if that is illegal: the workload refuses it or a condition excludes it."""
        setting = {name: setting[name] for name in self.space.over}
        key = tuple(setting.values())
        self._aside.discard(key)
        if key not in self._samples:
            self._samples[key] = self._captured(setting) if self.space.allows(setting) else None
        return self._samples[key]

    def _captured(self, setting: Setting) -> Sample | None:
        given = {name: value for name, value in setting.items() if name not in self.space.turns}
        graph, seen = self._observed(given)
        known = guessed(seen, given, (v for n, v in self.space.all.items() if n not in setting))
        self.space.quotients |= {(d, n): None for expr in known.made for n, d in quotients(expr) if n.symbols}
        if isinstance(graph, TensortideError):
            if isinstance(graph, DataDependent) and not self.legal:
                raise needs_size(graph)
            self._skip(setting, str(graph).partition("\n")[0])
            self._learn(setting, known)
            return None
        if max((storage.nbytes for storage in graph.storages), default=0) >= _LARGEST_BYTES:
            self._skip(setting, "larger than is needed")
            return None
        return Sample(setting, graph, known.path, known.made, seen, self._resolver)

    def _skip(self, setting: Setting, reason: str) -> None:
        self.illegal[shown(setting)] = reason
        detail("skipped", f"{shown(setting)}: {reason}")

    def _observed(self, given: Setting) -> tuple[Graph | TensortideError, Observed]:
        """Capture at the values ``given``, or take what was captured there before."""
        key = (frozenset(given.items()), frozenset((n, v) for n, v in self.settings.items() if n not in given))
        if key not in self._seen:
            self.progress(f"capturing at {shown(given)}")
            self.captures += 1
            self.clock.capture()
            assume = self.space.assumed(given)
            self._seen[key] = observed(self._workload, given, self.settings, name=self.name, assume=assume)
        return self._seen[key]

    def _learn(self, setting: Setting, seen: Observed) -> None:
        """Take the last thing that the workload found before it refused, and that its defaults do not have, as what
        every legal setting must avoid; else a division with a remainder, which its defaults divide without."""
        culprit = next((c for c in reversed(seen.path) if self.space.at(c, {}) is False), None)
        needed = culprit.opposite if culprit is not None else self._exact_division(setting, seen.made)
        if needed is None:
            self._refused.append(setting)
            needed = self._comparison()
        if needed is not None and needed not in self.space.where:
            self.space.where.append(needed)

    def _comparison(self) -> Condition | None:
        """The comparison of two sizes that the refused settings fail that nothing else explains."""
        legal, tried = [sample.setting for sample in self.all_captures], self._compared
        refused = [setting for setting in self._refused if self.space.allows(setting)]
        return refused_comparison(self.space, legal, refused, lambda setting: self.at(setting) is not None, tried)

    def _exact_division(self, setting: Setting, made: Iterable[Expr]) -> Condition | None:
        """The last of the divisions made at a refused setting that leaves a remainder there, if the workload refuses
        settings near its own in which only this division does; those it takes there need not be exact."""
        space = self.space
        rests = [Condition(top % bottom, "==") for expr in made for top, bottom in quotients(expr)]
        several = [c for c in dict.fromkeys(rests) if space.at(c, {}) and space.at(c, setting) is False]
        left = [c for c in reversed(several) if c not in self._suspected]
        while left:
            alone = ((c, next(self._breaking(c, [o for o in several if o != c]), None)) for c in left)
            condition, near = next(((c, near) for c, near in alone if near is not None), (None, None))
            if condition is None or near is None:
                return None
            self._suspected.add(condition)
            if self.at(near) is None:
                return condition
            left, several = [c for c in left if c != condition], [c for c in several if c != condition]
        return None

    def _breaking(self, condition: Condition, others: Sequence[Condition]) -> Iterator[Setting]:
        """A setting near the workload's own at which ``condition`` does not hold, but all else does."""
        space = self.space
        names = sorted(condition.expr.symbols & space.defaults.keys())
        near = ({**space.defaults, name: space.all[name] + more} for more in (1, 2, 3) for name in names)
        fits = (s for s in near if space.at(condition, s) is False and space.meets(s, others))
        return itertools.islice(fits, 1)

    def crossed(self, sample: Sample) -> list[Condition]:
        """The thresholds between a sample and the workload's own setting, as conditions that hold at that setting."""
        sides = thresholds(sample.path, sample.setting)
        return [condition.opposite for condition in sides if self.space.at(condition, {}) is False]

    def generic(
        self,
        vary: Sequence[str],
        fixed: Mapping[str, int],
        known: Sequence[Sample] = (),
        *,
        large: bool = False,
        patient: bool = True,
    ) -> Sample | None:
        """A new legal sample with generic values of the hyperparameters ``vary``; None if none was found.

        Each of them differs from all ``known`` samples that have the ``fixed`` values too, while there are few. Unless
        ``patient``, no more than a few settings are tried.
        """
        seen = [sample.setting for sample in known]
        if not vary:
            sample = self.at({name: fixed[name] for name in self.space.over})
            return None if sample is None or sample.setting in seen else sample
        alike = [s for s in seen if all(s[name] == value for name, value in fixed.items() if name not in vary)][:3]
        # small hyperparameters have few legal values: they need not differ from every sample
        free = [n for n in vary if n not in self.space.tied]
        apart = [n for n in free if len(alike) == 1 or self.space.all[n] > SMALL]

        def new(setting: Setting) -> bool:
            return setting not in seen

        def distinct(setting: Setting) -> bool:
            return new(setting) and not any(setting[name] == old[name] for old in alike for name in apart)

        refused = len(self.illegal)
        if not self._careful:
            sample = self._drawn(
                self.space.draws(vary, fixed, large), distinct if patient else new, _DRAWS if patient else _HASTY
            )
            if sample is not None or not patient:
                return sample
        self.space.careful = True
        sample = self._drawn(self.space.draws(vary, fixed, large), new, _CAREFUL if patient else _HASTY)
        self.space.careful = False
        self._careful = self._careful or (sample is not None and len(self.illegal) >= refused + _DRAWS)
        return sample

    def _drawn(self, drawn: Iterator[Setting], fits: Callable[[Setting], bool], most: int) -> Sample | None:
        """The first legal sample at one of the settings drawn that ``fits``, after ``most`` of them None."""
        self.space.blocked.clear()
        tried = itertools.islice((setting for setting in drawn if fits(setting) and self.space.allows(setting)), most)
        return next((sample for setting in tried if (sample := self.at(setting)) is not None), None)

    def first(self, vary: Sequence[str], fixed: Mapping[str, int]) -> Sample:
        """As ``generic``. Raises WorkloadError if no legal setting was found."""
        sample = self.generic(vary, fixed)
        if sample is not None:
            return sample
        blocked = ", ".join(f"{condition} ({times} times)" for condition, times in self.space.blocked.most_common(3))
        found = f"the conditions exclude what was drawn: {blocked}" if blocked else "too few values are tried"
        setting, reason = next(iter(self.illegal.items()), ("", ""))
        if reason:
            found = f"at {setting}: {reason}"
        raise WorkloadError(
            f"found no legal setting of {', '.join(vary)} in {self.captures} captures; {found}\n"
            "Say which are legal: --condition 'hidden % heads == 0' (in Python: where=)"
        )


def needs_size(error: DataDependent) -> DataDependent:
    """The error of a step whose sizes depend on data, with what formulas need to know instead."""
    what, where, *_ = str(error).splitlines()
    give = f"--assume '{error.place}=NUMBER' (assume={{'{error.place}': NUMBER}})" if error.place else "--assume"
    return DataDependent(
        f"{what}\n{where}\nFormulas need it as a number, or in hyperparameters, as batch*seq: {give}.\n"
        "Or count single settings on real tensors: tensortide count --real, capture(..., real=True)"
    )


def shown(setting: Mapping[str, int]) -> str:
    """A setting as text."""
    return ", ".join(f"{name}={value}" for name, value in setting.items())
