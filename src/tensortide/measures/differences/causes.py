"""The modules that a difference is in: the few that have most of it, and whether all have their part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from tensortide.differences import Values
from tensortide.graph.model import ROOT_PATH
from tensortide.measures.differences.side import WHOLE, ModulePair

MOST = 0.75
"""Share of a difference that a module must have for the search for its cause to go on inside it."""
NAMED = 3
"""Most modules that are named as a cause."""
APART = 0.5
"""The modules that are named as a cause have each twice as much of the difference as any other."""
ALIKE = 0.2
"""Modules scale alike if their changes differ from that of the whole by no more than this part of it."""

Of: TypeAlias = Callable[[ModulePair], Values]
"""A figure of a pair with the modules inside it, on both sides."""


def total(pairs: Sequence[ModulePair], of: Of) -> int:
    """Sum the differences of a figure over modules."""
    return sum(of(pair).difference for pair in pairs)


def largest(pairs: Sequence[ModulePair], of: Of) -> list[ModulePair]:
    """Sort modules, the largest difference first."""
    return sorted(pairs, key=lambda one: -abs(of(one).difference))


def culprits(root: ModulePair, of: Of) -> list[ModulePair]:
    """Find the modules that a difference is in: into the one with most of it, as long as there is one; then the few
    inside it that have most of it together, unless they are most of it anyway. Modules that were added, or removed, are
    the cause if they have most of it, however many there are. Empty if it is spread over many."""
    if not root.matched:
        return [root]
    whole, parts = of(root).difference, [one for one in largest(root.children, of) if of(one).difference]
    for kind in ("added", "removed"):
        alone = [pair for pair in _outermost(root, kind) if of(pair).difference]
        if alone and _apart(root, alone, of) <= (1 - MOST) * abs(whole):
            return alone
    for count in range(1, min(NAMED, len(parts)) + 1 if whole else 0):
        chosen = parts[:count]
        apart = count == len(parts) or abs(of(parts[count]).difference) < APART * abs(of(chosen[-1]).difference)
        # several that were nearly all of it before: it changed as a whole
        all_of_it = count > 1 and sum(of(pair).a for pair in chosen) > 0.9 * of(root).a > 0
        if apart and total(chosen, of) / whole >= MOST and not all_of_it:
            return [inner for pair in chosen for inner in (culprits(pair, of) or [pair])]
    return [] if root.path in (ROOT_PATH, WHOLE) else [root]


def _apart(root: ModulePair, alone: Sequence[ModulePair], of: Of) -> int:
    """Sum the differences of modules but ``alone``, whatever their sign."""
    if root in alone:
        return 0
    own: int = of(root).difference - total(root.children, of)
    return abs(own) + sum(_apart(child, alone, of) for child in root.children)


def _outermost(root: ModulePair, kind: str) -> Iterator[ModulePair]:
    """Yield the modules of a kind that stand in none of this kind."""
    for child in root.children:
        if child.kind == kind:
            yield child
        else:
            yield from _outermost(child, kind)


def inside(pair: ModulePair, of: Of) -> tuple[str, list[tuple[str, float]]]:
    """Find where in a module its difference is: the way to the inner module that has most of it, numbered ones as one;
    and the names in there with their shares, the largest first."""
    whole, within, prefix = of(pair).difference or 1, [pair], ""
    while (ordered := _named_parts(within, of)) and total(ordered[0][1], of) / whole >= MOST:
        name, within = ordered[0]
        prefix += f"{name}." if name else ""
    return prefix, [(prefix + name, total(some, of) / whole) for name, some in ordered if name]


def _named_parts(within: Sequence[ModulePair], of: Of) -> list[tuple[str, list[ModulePair]]]:
    """Group the modules inside several by name, numbered ones together; the largest part of a difference first."""
    groups: dict[str, list[ModulePair]] = {}
    for child in (child for one in within for child in one.children):
        groups.setdefault("" if child.name.isdigit() else child.name, []).append(child)
    return sorted(groups.items(), key=lambda group: -abs(total(group[1], of)))


def alike(root: ModulePair, name: str) -> bool:
    """True if nearly all of a figure is in modules that scale like the whole."""
    whole = root.values(name)
    if not whole.a or not whole.b:
        return False
    ratio, close = whole.b / whole.a, 0
    for own in (pair.values(name, own=True) for pair in root.walk()):
        close += own.a if own.a and abs(own.b / own.a - ratio) <= ALIKE * min(abs(ratio - 1), ratio) else 0
    return bool(close >= 0.9 * whole.a)


def unequal(root: ModulePair) -> Iterator[ModulePair]:
    """Yield the outermost modules whose figures, with those of the modules inside, differ."""
    if root.whole[0] != root.whole[1]:
        yield root
    else:
        for child in root.children:
            yield from unequal(child)
