"""Refusals that no comparison in the workload's code explains: a size that must not exceed another one, as a window
its sequence. All refused settings are beyond it, no legal one is; captures just there bear it out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from tensortide.expr import Condition, symbol
from tensortide.formulas.space import Setting, Space

Takes = Callable[[Setting], bool]
"""Tells whether the workload takes a setting."""
_ENOUGH = 2
"""Refused settings from which a comparison is guessed."""


def refused_comparison(
    space: Space, legal: Sequence[Setting], refused: Sequence[Setting], takes: Takes, tried: set[tuple[str, str]]
) -> Condition | None:
    """The comparison of two sizes that all ``refused`` settings fail and all ``legal`` ones meet, if the workload
    refuses settings just beyond it too. Pairs of sizes that were ``tried`` are added to these."""
    own = space.defaults
    for one, other in itertools.permutations([name for name in space.over if name not in space.turns], 2):
        beyond = len(refused) >= _ENOUGH and all(setting[one] > setting[other] for setting in refused)
        if not beyond or any(setting[one] > setting[other] for setting in (*legal, own)) or (one, other) in tried:
            continue
        tried.add((one, other))
        if not any(takes({**own, one: value}) for value in (own[other] + 1, 2 * own[other] + 1)):
            may_be_equal = takes({**own, one: own[other]})
            return Condition(symbol(other) - symbol(one), ">=" if may_be_equal else ">")
    return None
