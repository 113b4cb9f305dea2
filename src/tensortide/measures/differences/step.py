"""The difference of two steps: where it is, from the modules down to tensors at the peak."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import msgspec

from tensortide.differences import Pair
from tensortide.graph.model import OUTSIDE_PATH, ROOT_PATH
from tensortide.graph.module_paths import ranged
from tensortide.measures.differences.memory import Curves, PeakTensor, curves, peak_tensors
from tensortide.measures.differences.modules import join
from tensortide.measures.differences.ops import Group, OpChange, PhaseAmounts, by_kind, by_phase, changed_ops
from tensortide.measures.differences.side import WHOLE, ModulePair, Side
from tensortide.units import format_percent

JOINED = 0.4
"""Least share of the FLOPs of both steps in matched modules, on average, for the models to be of one structure."""

_ALWAYS = (WHOLE, ROOT_PATH, OUTSIDE_PATH)
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
        renamed = [" → ".join(names) for names in self.renamed]
        lists = (("under another name", renamed), (f"only in {one}", self.removed), (f"only in {other}", self.added))
        parts += [f"{len(names)} {where} ({_several(names)})" for where, names in lists if names]
        text = "; ".join([found, *parts])
        if self.joined:
            return f"{text}."
        a, b = map(format_percent, self.shares)
        what = f"{a} of {one}'s {'FLOPs' if self.by_flops else 'ops'} and {b} of {other}'s in modules"
        return f"The models hardly match: {what} are in what both have. {text}."


def _several(names: Iterable[str]) -> str:
    """List the first names, ranges of numbers as one, and say how many more there are."""
    listed = ranged(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")


@dataclass(frozen=True, eq=False)
class StepDifference:
    """Two steps beside each other, ``a`` the reference. Each part is computed when it is asked for."""

    a: Side
    b: Side
    letters: tuple[str, str] = ("A", "B")

    @cached_property
    def root(self) -> ModulePair:
        """All modules of both, joined; the root is the step as a whole."""
        return join(self.a, self.b)

    @cached_property
    def kinds(self) -> tuple[Group, ...]:
        """The ops of each name."""
        return by_kind(self.a, self.b)

    @cached_property
    def phases(self) -> tuple[Pair[PhaseAmounts], ...]:
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

    @cached_property
    def matching(self) -> Matching:
        """The modules that match, and those that do not; of an added or removed tree only the top."""
        pairs = [pair for pair in self.root.walk() if pair.path not in (WHOLE, OUTSIDE_PATH)]
        both = [pair for pair in pairs if pair.a and pair.b and not {pair.a.path, pair.b.path} <= {*_ALWAYS}]
        inner = {child for pair in pairs for child in pair.children if child.kind == pair.kind}
        kinds = [pair.kind for pair in both]
        added, removed = (
            [p.label for p in pairs if p.kind == kind and p not in inner] for kind in ("added", "removed")
        )
        flops, ops = (_InModules(self.root, name) for name in ("flops", "ops"))
        by_flops = all(flops.whole)
        return Matching(
            same=kinds.count("same"),
            renamed=tuple((p.a.label, p.b.label) for p in both if p.a and p.b and p.kind == "renamed"),
            changed=kinds.count("changed"),
            added=tuple(added),
            removed=tuple(removed),
            shares=(flops if by_flops else ops).shares,
            by_flops=by_flops,
            letters=self.letters,
        )


class _InModules:
    """FLOPs or ops of both steps in modules: the sums of all, and of those in modules that match or inside. The model
    itself, and what is outside, count as none: every step has them."""

    def __init__(self, root: ModulePair, name: str) -> None:
        self.name, self.whole, self.matched = name, [0, 0], [0, 0]
        self._add(root, inside=False)

    @property
    def shares(self) -> tuple[float, float]:
        """The shares of both steps that match; 1 where neither has modules, 0 where one has none."""
        a, b = (part / whole if whole else 0.0 for part, whole in zip(self.matched, self.whole, strict=True))
        return (a, b) if any(self.whole) else (1.0, 1.0)

    def _add(self, pair: ModulePair, *, inside: bool) -> None:
        for side, node in enumerate((pair.a, pair.b)):
            if node is not None and node.path not in _ALWAYS:
                self.whole[side] += getattr(node.own, self.name)
                self.matched[side] += getattr(node.own, self.name) if inside or pair.matched else 0
        partners = [child.matched for child in pair.children]
        inner = pair.matched and pair.path not in (WHOLE, ROOT_PATH) and (any(partners) or not partners)
        for child in pair.children:
            self._add(child, inside=inside or inner)
