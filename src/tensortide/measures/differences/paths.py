"""Paths of modules, those that differ in one number as a range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def folded(paths: Iterable[str]) -> list[str]:
    """Join paths that differ in one number, where the numbers have no gaps.

    >>> folded(["h.0.mlp", "h.1.mlp", "h.2.mlp", "h.4.mlp", "head"])
    ['h.0.mlp', 'h.1.mlp', 'h.2.mlp', 'h.4.mlp', 'head']
    >>> folded(["h.0.mlp", "h.1.mlp", "h.0.attn", "h.1.attn"])
    ['h.[0-1].mlp', 'h.[0-1].attn']
    """
    split = [tuple(path.split(".")) for path in paths]
    for place in reversed(range(max(map(len, split), default=0))):
        split = _ranges(split, place)
    return list(map(".".join, split))


def _ranges(paths: Sequence[tuple[str, ...]], place: int) -> list[tuple[str, ...]]:
    """Join paths that differ in the number at ``place`` alone."""
    groups: dict[object, list[tuple[str, ...]]] = {}
    for path in paths:
        numbered = len(path) > place and path[place].isdigit()
        groups.setdefault((path[:place], path[place + 1 :]) if numbered else path, []).append(path)
    found = []
    for group in groups.values():
        numbers = sorted(int(path[place]) for path in group) if len(group) > 1 else []
        if numbers and numbers[-1] - numbers[0] == len(numbers) - 1:
            found.append((*group[0][:place], f"[{numbers[0]}-{numbers[-1]}]", *group[0][place + 1 :]))
        else:
            found += group
    return found
