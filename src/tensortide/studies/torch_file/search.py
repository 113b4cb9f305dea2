"""Search for the modules to checkpoint, and the results to keep in them, that cost the least time within a budget."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tensortide.studies.torch_file.levels import Levels, Variant
from tensortide.studies.torch_file.regions import Modules, Region

Chosen: TypeAlias = "dict[str, frozenset[int]]"
"""Checkpointed modules by path, each with the ops whose results are kept."""

ROUNDS = 400
"""Random changes of a choice that fits, per search."""
_HALVINGS = 8
"""Halvings of the interval that holds the least peak."""
MOST_STARTS = 10
"""Most groups of modules, all checkpointed, from which a search begins."""
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
        self._random = random.Random(0)

    def variants(self, chosen: Chosen) -> list[Variant]:
        """The checkpointed modules that are in no other one, each with those inside it."""
        found = []
        for path, kept in chosen.items():
            region, others = self.regions[path], self.modules.overlapping[path].intersection(chosen)
            inner = sorted(other for other in others if self.regions[other].ops < region.ops)
            if len(inner) == len(others):
                found.append(self.levels.variant(region, kept, [self.regions[other] for other in inner]))
        return found

    def score(self, chosen: Chosen) -> Score:
        """Return how ``chosen`` does, as predicted."""
        variants = self.variants(chosen)
        level = self.levels.level(variants) + sum(self.extra.get(path, 0) for path in chosen)
        over = np.maximum(level - self.budget_bytes, 0)
        return Score(int(over.sum()), sum(each.time_ns for each in variants), int(level.max(initial=0)))

    def best(self, starts: Iterable[Chosen] = ()) -> Chosen:
        """The best choice of whole modules that was found, from nothing, ``starts`` and every group of modules."""
        found = [self._fitted(start) for start in ({}, *self._known(starts), *self._whole())]
        chosen = self._fitted(min(found, key=self._rank), nested=True)
        return self._improved(chosen) if self.score(chosen).fits else chosen

    def with_kept(self, starts: Iterable[Chosen]) -> Chosen:
        """The best choice that was found with some results kept in checkpointed modules."""
        every = [*self._known(starts), *self._whole()]
        found = [self._kept(chosen) for chosen in (*every, *map(self._released, every))]
        return self._needed(min(found, key=self._rank))

    def _needed(self, chosen: Chosen) -> Chosen:
        """``chosen`` without the modules without which it fits, too."""
        for path in sorted(chosen, key=lambda path: -self.levels.variant(self.regions[path], chosen[path]).time_ns):
            less = {other: kept for other, kept in chosen.items() if other != path}
            if self.score(less).rank < self.score(chosen).rank:
                chosen = less
        return chosen

    def least(self) -> Chosen:
        """The choice of whole modules with the smallest peak that was found; if that fits, one that saves time."""
        wanted = self.budget_bytes
        chosen = self._fitted(min(map(self._fitted, ({}, *self._whole())), key=self._rank), nested=True)
        low, high = 0, self.score(chosen).peak_bytes
        for _ in range(_HALVINGS):
            self.budget_bytes = (low + high) // 2
            found = min((self._fitted(start, nested=True) for start in ({}, chosen)), key=self._rank)
            if self.score(found).fits:
                chosen, high = found, self.score(found).peak_bytes
            else:
                low = self.budget_bytes
        self.budget_bytes = wanted
        return self._improved(chosen) if self.score(chosen).fits else chosen

    def everything(self) -> Chosen:
        """All modules: those of groups, and the outermost of the others."""
        chosen: Chosen = {}
        single = sorted(self.regions, key=lambda path: path.count("."))
        for path in (*(path for group in self.groups for path in group), *filter(None, single)):
            if self.modules.overlapping[path].isdisjoint(chosen):
                chosen[path] = frozenset()
        return chosen

    def _whole(self) -> list[Chosen]:
        """Every module of a group of them, of the groups that do best alone."""
        found: list[Chosen] = [self._added({}, group) for group in self.groups]
        return sorted(found, key=self._rank)[:MOST_STARTS]

    def _known(self, starts: Iterable[Chosen]) -> list[Chosen]:
        """``starts`` without modules that have turned out not to be checkpointed."""
        return [{path: kept for path, kept in start.items() if path in self.regions} for start in starts]

    def _rank(self, chosen: Chosen) -> tuple[int, int, int]:
        return self.score(chosen).rank

    # -- changes --------------------------------------------------------------------------------

    def _added(self, chosen: Chosen, paths: Iterable[str], *, nested: bool = False) -> Chosen:
        """``chosen`` with the modules at ``paths``, without those inside or around them; with those, if ``nested``, as
        long as none is in one that is in another."""
        found = dict(chosen)
        for path in paths:
            ops, others = self.regions[path].ops, self.modules.overlapping[path].intersection(found)
            around = [other for other in others if ops < self.regions[other].ops]
            inside = [other for other in others if self.regions[other].ops < ops]
            stays = (around or inside) if nested else []
            for other in others:
                alone = self.modules.overlapping[other].isdisjoint(stays)
                if other not in stays or not alone:
                    del found[other]
            found[path] = frozenset()
        return found

    def _moves(self, chosen: Chosen, *, nested: bool) -> Iterator[Chosen]:
        for group in (*self.groups, *([path] for path in self.regions))[:MOST_MOVES]:
            touches = nested <= any(not self.modules.overlapping[path].isdisjoint(chosen) for path in group)
            if touches and not all(path in chosen for path in group):
                yield self._added(chosen, group, nested=nested)

    def _fitted(self, chosen: Chosen, *, nested: bool = False) -> Chosen:
        """``chosen`` with more modules until it fits, each time those that bring it closest for the time they take; at
        last modules inside others and around them, if ``nested``."""
        score, inside = self.score(chosen), False
        while not score.fits:
            found: list[tuple[float, Chosen, Score]] = []
            for moved in self._moves(chosen, nested=inside):
                after = self.score(moved)
                if after.over < score.over:
                    gained = score.over if after.fits else score.over - after.over
                    found.append((-gained / max(after.time_ns - score.time_ns, 1), moved, after))
            if found:
                _, chosen, score = min(found, key=lambda each: each[0])
            elif inside or not nested:
                break
            inside = not found
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
            if not self.modules.overlapping[path].isdisjoint(chosen):
                continue
            for value, ops in self.levels.keepable(region, self.modules.keys(region)):
                groups.setdefault((value, region.groups[-1]), []).append((path, ops))
        return [groups[key] for key in sorted(groups)]


def _groups(regions: Iterable[Region]) -> list[list[str]]:
    """Paths of regions that are alike."""
    groups: dict[str, list[str]] = {}
    for region in regions:
        for key in region.groups:
            groups.setdefault(key, []).append(region.path)
    return [*groups.values()]
