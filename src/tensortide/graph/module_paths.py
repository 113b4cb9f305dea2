"""Paths of modules: in few words, by pattern, and inside each other.

``[0-11]`` names modules one by one: ``blocks.[0-11]`` are twelve, and no other. ``*`` is any name: in a pattern, and
where paths differ in more than numbers.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Container, Iterable, Sequence
from itertools import groupby

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_RUNS = 3
"""Most runs of consecutive numbers that are written as ranges."""


def pattern(path: str) -> str:
    """``path`` with every number that is a whole name replaced by ``*``: equal for modules that are repeated."""
    return _NUMBER.sub("*", path)


def ranged(paths: Iterable[str]) -> list[str]:
    """Join paths that differ in one number to one with the range of these numbers, if that has few gaps.

    >>> ranged(["h.0.mlp", "h.1.mlp", "h.2.mlp", "h.4.mlp", "head"])
    ['h.[0-2,4].mlp', 'head']
    >>> ranged(["h.0.mlp", "h.1.mlp", "h.0.attn", "h.1.attn"])
    ['h.[0-1].mlp', 'h.[0-1].attn']
    """
    split = [tuple(path.split(".")) for path in dict.fromkeys(paths)]
    for place in reversed(range(max(map(len, split), default=0))):
        split = _joined(split, place)
    return list(map(".".join, split))


def as_one(paths: Sequence[str]) -> str:
    """Name modules that share a row: their path with ranges of numbers, ``*`` where they differ in more than that.

    >>> as_one(["h.2.mlp", "h.10.mlp", "h.3.mlp"]), as_one(["h.0.q", "h.0.k"]), as_one(["h.1", "h"])
    ('h.[2-3,10].mlp', 'h.0.*', 'h')
    """
    if len(found := ranged(paths)) == 1:
        return found[0]
    levels = zip(*(path.split(".") for path in paths), strict=False)
    return ".".join(names[0] if len(set(names)) == 1 else "*" for names in levels)


def _joined(paths: Sequence[tuple[str, ...]], place: int) -> list[tuple[str, ...]]:
    """Join paths that differ in the number at ``place`` alone."""
    groups: dict[object, list[tuple[str, ...]]] = {}
    for path in paths:
        numbered = len(path) > place and path[place].isdecimal()
        groups.setdefault((path[:place], path[place + 1 :]) if numbered else path, []).append(path)
    found: list[tuple[str, ...]] = []
    for group in groups.values():
        text = _range(sorted(int(path[place]) for path in group)) if len(group) > 1 else ""
        found += [(*group[0][:place], text, *group[0][place + 1 :])] if text else group
    return found


def _range(numbers: Sequence[int]) -> str:
    """Write numbers as ``[0-2,4]``; nothing if they are too scattered."""
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    texts = (f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"[{','.join(texts)}]" if len(runs) <= _RUNS else ""


def is_inside(path: str, wanted: str) -> bool:
    """Tell whether the pattern ``wanted`` matches a module, or one that it is inside; ``*`` matches dots too."""
    parts = path.split(".")
    return any(fnmatch.fnmatchcase(".".join(parts[:length]), wanted) for length in range(1, len(parts) + 1))


def within(path: str, module: str) -> bool:
    """Return whether ``path`` is that of ``module`` or of a module inside it; all are inside ``""``."""
    return not module or path == module or path.startswith(f"{module}.")


def named_after(name: str, known: Container[str]) -> str:
    """Return the longest of the dotted names ``known`` that ``name`` is or extends; empty if there is none.

    Examples:
        >>> named_after("fc.weight.exp_avg", {"fc.weight", "fc.bias"})
        'fc.weight'
    """
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def repeated(modules: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Modules, given as path and class, that are repeated, by their path with ``*`` for the number, outermost first.

    Examples:
        >>> repeated([("", "Net"), ("h.0", "Block"), ("h.0.ln", "Norm"), ("h.1", "Block")])
        {'h.*': ['h.0', 'h.1']}
    """
    found: dict[tuple[str, str], list[str]] = {}
    for path, kind in modules:
        parent, _, number = path.rpartition(".")
        if number.isdigit():
            found.setdefault((f"{parent}.*".lstrip("."), kind), []).append(path)
    kept = {key: paths for key, paths in found.items() if len(paths) > 1}
    ordered = sorted(kept.items(), key=lambda item: item[0][0].count("."))
    return {name: paths for (name, _), paths in ordered}
