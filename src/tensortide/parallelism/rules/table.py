"""The table of sharding rules, and the shapes that most rules have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tensortide.errors import TensortideError
from tensortide.parallelism.sites import Ref, Site

Rule: TypeAlias = Callable[[Site], None]

RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule of the ops ``names``. Raises TensortideError for a second one."""

    def register(function: Rule) -> Rule:
        for name in names:
            if RULES.setdefault(name, function) is not function:
                raise TensortideError(f"the op {name} has two sharding rules")
        return function

    return register


def lettered(site: Site, operands: dict[Ref, str], outputs: dict[Ref, str]) -> None:
    """Tie dimensions that have one letter. An axis whose letter an output lacks is summed in it.

    A capital letter is an axis that the op needs whole; ``.`` is a dimension that is left alone.
    """
    first: dict[str, tuple[Ref, int]] = {}
    for ref, letters in [*operands.items(), *outputs.items()]:
        for dim, letter in enumerate(letters):
            if letter == ".":
                continue
            other = first.setdefault(letter, (ref, dim))
            if other != (ref, dim):
                site.tie(*other, ref, dim)
            if letter.isupper():
                site.whole(ref, dim)
    read = dict.fromkeys(letter for letters in operands.values() for letter in letters)
    for out, letters in outputs.items():
        for letter in read:
            if letter.islower() and letter not in letters:
                ref, dim = first[letter]
                site.partial(out, ref, [dim])
