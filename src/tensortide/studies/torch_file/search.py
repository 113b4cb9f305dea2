"""Search for the modules to checkpoint, and the results to keep in them, that cost the least time within a budget."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tensortide.graph.module_paths import pattern
from tensortide.studies.torch_file.levels import Levels, Variant
from tensortide.studies.torch_file.regions import Modules, Region

Chosen: TypeAlias = "dict[str, frozenset[int]]"
"""Checkpointed modules by path, each with the ops whose results are kept."""

ROUNDS = 400
"""Random changes of a choice that fits, per search."""
_HALVINGS = 8
"""Halvings of the interval that holds the least peak."""
MOST_MOVES = 400
"""Most modules, or groups of them, that are compared for one change."""


@dataclass(frozen=True)
class Score:
    """Rating of a choice: bytes over the budget, summed over the step; then recomputation, then the peak."""

    over: int
    time_ns: int
    peak_bytes: int

    @property
    def fits(self) -> bool:
        return self.over == 0

    @property
    def rank(self) -> tuple[int, int, int]:
        """Smaller is better."""
        return self.over, self.time_ns, self.peak_bytes


class Search:
    """Choices among ``regions`` for ``budget_bytes``; ``extra`` are bytes that each checkpoint takes besides."""

    def __init__(
        self,
        levels: Levels,
        modules: Modules,
        regions: Sequence[Region],
        budget_bytes: int,
        extra: Mapping[str, int],
    ) -> None:
        self.levels, self.modules, self.budget_bytes, self.extra = levels, modules, budget_bytes, extra
        self.regions = {region.path: region for region in regions}
        self.groups = [group for group in _groups(regions) if len(group) > 1]
        self._variants: dict[tuple[str, frozenset[int]], Variant] = {}
        self._random = random.Random(0)

    def variant(self, path: str, kept: frozenset[int]) -> Variant:
        """A checkpointed module, derived once."""
        key = path, kept
        if key not in self._variants:
            self._variants[key] = self.levels.variant(self.regions[path], kept)
        return self._variants[key]

    def score(self, chosen: Chosen) -> Score:
        """Return how ``chosen`` does, as predicted."""
        variants = [self.variant(*item) for item in chosen.items()]
        level = self.levels.level(variants) + sum(self.extra.get(path, 0) for path in chosen)
        over = np.maximum(level - self.budget_bytes, 0)
        return Score(int(over.sum()), sum(each.time_ns for each in variants), int(level.max(initial=0)))

    def best(self, starts: Iterable[Chosen] = ()) -> Chosen:
        """The best choice of whole modules that was found, from nothing, ``starts`` and every group of modules."""
        found = [self._fitted(start) for start in ({}, *starts, *self._whole())]
        chosen = min(found, key=self._rank)
        return self._improved(chosen) if self.score(chosen).fits else chosen

    def with_kept(self, starts: Iterable[Chosen]) -> Chosen:
        """The best choice that was found with some results kept in checkpointed modules."""
        every = [*starts, *self._whole()]
        found = [self._kept(chosen) for chosen in (*every, *map(self._released, every))]
        return self._needed(min(found, key=self._rank))

    def _needed(self, chosen: Chosen) -> Chosen:
        """``chosen`` without the modules without which it fits, too."""
        for path in sorted(chosen, key=lambda path: -self.variant(path, chosen[path]).time_ns):
            less = {other: kept for other, kept in chosen.items() if other != path}
            if self.score(less).rank < self.score(chosen).rank:
                chosen = less
        return chosen

    def least(self) -> Chosen:
        """The choice of whole modules with the smallest peak that was found."""
        wanted = self.budget_bytes
        chosen = min((self._fitted(dict(start)) for start in ({}, *self._whole())), key=self._rank)
        low, high = 0, self.score(chosen).peak_bytes
        for _ in range(_HALVINGS):
            self.budget_bytes = (low + high) // 2
            found = min((self._fitted(dict(start)) for start in ({}, chosen)), key=self._rank)
            if self.score(found).fits:
                chosen, high = found, self.score(found).peak_bytes
            else:
                low = self.budget_bytes
        self.budget_bytes = wanted
        return chosen

    def everything(self) -> Chosen:
        """All modules: those of groups, and the outermost of the others."""
        chosen: Chosen = {}
        single = sorted(self.regions, key=lambda path: path.count("."))
        for path in (*(path for group in self.groups for path in group), *filter(None, single)):
            if not any(self.regions[path].overlaps(self.regions[other]) for other in chosen):
                chosen[path] = frozenset()
        return chosen

    def _whole(self) -> list[Chosen]:
        """Every module of a group of them."""
        return [dict.fromkeys(group, frozenset[int]()) for group in self.groups]

    def _rank(self, chosen: Chosen) -> tuple[int, int, int]:
        return self.score(chosen).rank

    # -- changes --------------------------------------------------------------------------------

    def _added(self, chosen: Chosen, paths: Iterable[str]) -> Chosen:
        """``chosen`` with the modules at ``paths``, without those inside or around them."""
        found = dict(chosen)
        for path in paths:
            for other in [each for each in found if self.regions[path].overlaps(self.regions[each])]:
                del found[other]
            found[path] = frozenset()
        return found

    def _moves(self, chosen: Chosen) -> Iterator[Chosen]:
        for group in (*self.groups, *([path] for path in self.regions))[:MOST_MOVES]:
            if not all(path in chosen for path in group):
                yield self._added(chosen, group)

    def _fitted(self, chosen: Chosen) -> Chosen:
        """``chosen`` with more modules until it fits, each time those that bring it closest for the time they take."""
        score = self.score(chosen)
        while not score.fits:
            found: list[tuple[float, Chosen, Score]] = []
            for moved in self._moves(chosen):
                after = self.score(moved)
                if after.over < score.over:
                    gained = score.over if after.fits else score.over - after.over
                    found.append((-gained / max(after.time_ns - score.time_ns, 1), moved, after))
            if not found:
                break
            _, chosen, score = min(found, key=lambda each: each[0])
        return chosen

    def _improved(self, chosen: Chosen) -> Chosen:
        """``chosen``, which fits, after changes that save time: modules left out, replaced, or made smaller."""
        chosen = self._needed(chosen)
        best = self.score(chosen)
        for _ in range(ROUNDS if chosen else 0):
            gone = set(self._random.sample([*chosen], min(len(chosen), self._random.choice((1, 1, 1, 2, 3)))))
            moved = {path: kept for path, kept in chosen.items() if path not in gone}
            for _ in range(self._random.choice((0, 1, 1, 2))):
                moved = self._added(moved, [self._random.choice([*self.regions])])
            if (score := self.score(moved)).fits and score.rank < best.rank:
                chosen, best = moved, score
        return chosen

    def _kept(self, chosen: Chosen) -> Chosen:
        """``chosen`` with the results kept that save most time per byte, as far as it still fits."""
        score = self.score(chosen)
        if not score.fits:
            return chosen
        for group in self._keepable(chosen):
            moved = dict(chosen)
            for path, ops in group:
                moved[path] = moved[path] | ops
            if (after := self.score(moved)).fits and after.time_ns < score.time_ns:
                chosen, score = moved, after
                continue
            for path, ops in group if len(group) > 1 else ():
                moved = {**chosen, path: chosen[path] | ops}
                if (after := self.score(moved)).fits and after.time_ns < score.time_ns:
                    chosen, score = moved, after
        return chosen

    def _released(self, chosen: Chosen) -> Chosen:
        """``chosen`` with all results kept but those without which it fits, each time those that bring it closest for
        the time they take."""
        left = self._keepable(chosen)
        chosen = {path: frozenset().union(*(ops for group in left for p, ops in group if p == path)) for path in chosen}
        score = self.score(chosen)
        while not score.fits and left:
            found: list[tuple[float, int, Chosen, Score]] = []
            for number, group in enumerate(left):
                moved = dict(chosen)
                for path, ops in group:
                    moved[path] = moved[path] - ops
                after = self.score(moved)
                gained = score.over if after.fits else score.over - after.over
                found.append((-gained / max(after.time_ns - score.time_ns, 1), number, moved, after))
            _, number, chosen, score = min(found, key=lambda each: each[:2])
            del left[number]
        return chosen

    def _keepable(self, chosen: Collection[str]) -> list[list[tuple[str, frozenset[int]]]]:
        """Ops whose results can be kept, in groups of equal time per byte: those that save most first."""
        groups: dict[tuple[float, str], list[tuple[str, frozenset[int]]]] = {}
        for path in chosen:
            region = self.regions[path]
            for value, ops in self.levels.keepable(region, self.modules.keys(region)):
                groups.setdefault((value, pattern(path)), []).append((path, ops))
        return [groups[key] for key in sorted(groups)]


def _groups(regions: Iterable[Region]) -> list[list[str]]:
    """Paths of regions that are alike."""
    groups: dict[str, list[str]] = {}
    for region in regions:
        groups.setdefault(region.group, []).append(region.path)
    return [*groups.values()]
