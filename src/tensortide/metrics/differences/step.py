"""The difference of two steps: where it is, from the modules down to tensors at the peak."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import msgspec

from tensortide.metrics.differences.curves import Curves, curves
from tensortide.metrics.differences.join import Pair, join
from tensortide.metrics.differences.ops import Group, OpChange, by_kind, by_phase, changed_ops
from tensortide.metrics.differences.paths import folded
from tensortide.metrics.differences.peak import PeakTensor, peak_tensors
from tensortide.metrics.differences.side import OUTSIDE, WHOLE, Side
from tensortide.units import format_percent

JOINED = 0.4
"""Least share of the FLOPs of both steps in matched modules, on average, for the models to be of one structure."""

_ALWAYS = (WHOLE, "", OUTSIDE)
"""Paths of the step, the model itself and what is outside, which match though nothing else does."""


class Matching(msgspec.Struct, frozen=True):
    """Modules of two steps by how they match, and the share of each step's modules in matched ones or inside.

    It is that of their FLOPs, or of their ops where one step has no known FLOPs in modules. The model itself, and what
    is outside, are counted nowhere.
    """

    same: int
    renamed: tuple[tuple[str, str], ...]
    changed: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    shares: tuple[float, float]
    by_flops: bool = True
    letters: tuple[str, str] = ("A", "B")

    @property
    def joined(self) -> bool:
        """True if much of both steps is in modules that match."""
        return sum(self.shares) / 2 >= JOINED

    def __str__(self) -> str:
        one, other = self.letters
        count = self.same + self.changed + len(self.renamed)
        found = "1 module matches" if count == 1 else f"{count or 'No'} modules match"
        if not (count or self.added or self.removed):
            return "There are no modules to match."
        parts = [f"{self.changed} of them changed"] if self.changed else []
        parts += [f"{len(self.renamed)} under another name ({_several(map(' → '.join, self.renamed))})"] * bool(
            self.renamed
        )
        parts += [f"{len(self.removed)} only in {one} ({_several(self.removed)})"] * bool(self.removed)
        parts += [f"{len(self.added)} only in {other} ({_several(self.added)})"] * bool(self.added)
        text = "; ".join([found, *parts])
        if self.joined:
            return f"{text}."
        a, b = map(format_percent, self.shares)
        what = f"{a} of {one}'s {'FLOPs' if self.by_flops else 'ops'} and {b} of {other}'s in modules"
        return f"The models hardly match: {what} are in what both have. {text}."


def _several(names: Iterable[str]) -> str:
    """List the first names, ranges of numbers as one, and say how many more there are."""
    listed = folded(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")


@dataclass(frozen=True, eq=False)
class StepDifference:
    """Two steps beside each other, ``a`` the reference. Each part is computed when it is asked for."""

    a: Side
    b: Side
    letters: tuple[str, str] = ("A", "B")

    @cached_property
    def root(self) -> Pair:
        """All modules of both, joined; the root is the step as a whole."""
        return join(self.a, self.b)

    @cached_property
    def kinds(self) -> tuple[Group, ...]:
        """The ops of each name."""
        return by_kind(self.a, self.b)

    @cached_property
    def phases(self) -> tuple[Group, ...]:
        """The phases, recomputation apart."""
        return by_phase(self.a, self.b)

    @cached_property
    def ops(self) -> tuple[OpChange, ...]:
        """The ops of matched modules that differ."""
        return changed_ops(self.a, self.b, self.root)

    @cached_property
    def peak(self) -> tuple[PeakTensor, ...]:
        """The tensors at both peaks."""
        return peak_tensors(self.a, self.b, self.root)

    @cached_property
    def curves(self) -> Curves | None:
        """Memory over both steps."""
        return curves(self.a, self.b)

    @property
    def timed(self) -> bool:
        """True if the times of both are known."""
        return self.a.durations is not None and self.b.durations is not None

    @cached_property
    def matching(self) -> Matching:
        """The modules that match, and those that do not; of an added or removed tree only the top."""
        pairs = [pair for pair in self.root.walk() if pair.path not in (WHOLE, OUTSIDE)]
        both = [pair for pair in pairs if pair.a and pair.b and not {pair.a.path, pair.b.path} <= {*_ALWAYS}]
        renamed = [(pair.a.label, pair.b.label) for pair in both if pair.a and pair.b and pair.kind == "renamed"]
        inner = {child for pair in pairs for child in pair.children if child.kind == pair.kind}
        alone = [pair for pair in pairs if pair not in inner]
        key = "flops" if all(_sums(_in_modules(pair, "flops") for pair in self.root.walk())) else "ops"
        return Matching(
            sum(pair.kind == "same" for pair in both),
            tuple(renamed),
            sum(pair.kind == "changed" for pair in both),
            tuple(pair.label for pair in alone if pair.kind == "added"),
            tuple(pair.label for pair in alone if pair.kind == "removed"),
            _shares(self.root, key),
            key == "flops",
            self.letters,
        )


def _matched(pair: Pair, key: str, *, inside: bool) -> Iterator[tuple[int, int]]:
    """Yield FLOPs or ops of both steps in modules that match, and in all modules inside those but the model itself."""
    both = pair.a is not None and pair.b is not None
    if both or inside:
        yield _in_modules(pair, key)
    partners = [child.a is not None and child.b is not None for child in pair.children]
    inner = both and pair.path not in (WHOLE, "") and (any(partners) or not partners)
    for child in pair.children:
        yield from _matched(child, key, inside=inside or inner)


def _in_modules(pair: Pair, key: str) -> tuple[int, int]:
    """FLOPs or ops of both sides, but those of the model itself and outside, which every step has."""
    sides = ((pair.a, pair.own[0]), (pair.b, pair.own[1]))
    a, b = (getattr(own, key) if node is not None and node.path not in _ALWAYS else 0 for node, own in sides)
    return a, b


def _shares(root: Pair, key: str) -> tuple[float, float]:
    """The shares of both steps in modules that match or inside; 1 where neither has modules, 0 where one has none."""
    whole = _sums(_in_modules(pair, key) for pair in root.walk())
    if not any(whole):
        return 1.0, 1.0
    a, b = (
        part / all_ if all_ else 0.0 for part, all_ in zip(_sums(_matched(root, key, inside=False)), whole, strict=True)
    )
    return a, b


def _sums(parts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    a, b = map(sum, zip((0, 0), *parts, strict=True))
    return a, b
