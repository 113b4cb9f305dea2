"""The other way round: which value of a hyperparameter makes a total what it should be."""

from __future__ import annotations

import msgspec

from tensortide.errors import ExpressionError, NoSolution, Unsearched
from tensortide.formulas.formulas import Formulas
from tensortide.formulas.search import EVERY, Search, Unlimited, number
from tensortide.formulas.solution import Reached, Solution, Want
from tensortide.formulas.target import target_of


def solve(formulas: Formulas, symbol: str, target: str, /, *, want: Want | None = None, **fixed: int) -> Solution:
    """The value of ``symbol`` that meets ``target``; other symbols are ``fixed`` or have their defaults.

    ``want`` is the ``largest`` or the ``smallest`` such value: by default the one that there is, as the target holds
    up to or from some value on. ``=`` asks for the nearest. Formulas of the other sides of thresholds are searched too.
    Values at which no formulas hold do not count.

    >>> solve(formulas, "batch", "peak_bytes <= 24GiB", seq=1024).value  # doctest: +SKIP

    Raises ExpressionError for names that are unknown, and NoSolution if no value meets the target.
    """
    formulas.check(symbol, formulas.symbols, "symbol")
    if symbol in fixed:
        raise ExpressionError(f"{symbol} cannot be solved for and fixed at once")
    setting = formulas.setting(fixed)
    searches, refused = _searches(formulas, symbol, target, setting)
    if not searches:
        raise refused[0]
    kind = want if want and searches[0].kind != "nearest" else searches[0].kind
    found: list[tuple[Search, Solution]] = []
    for search in searches:
        try:
            found.append((search, search.solution(kind)))
        except Unlimited:
            raise
        except ExpressionError as error:
            refused.append(error)
    if not found and kind == "nearest":  # the target may be in the jump from one piece to the next
        ends = [(search, above, end) for search in searches for above, end in search.ends()]
        found = [(search, end) for search, _, end in ends] if len({above for _, above, _ in ends}) == 2 else []
    if not found:
        if unsearched := _unsearched(searches, symbol):
            raise Unsearched(f"{refused[0]}\nNot checked everywhere: {unsearched}")
        raise NoSolution(str(refused[0])) if any(isinstance(one, NoSolution) for one in refused) else refused[0]
    search, best = min(found, key=lambda pair: (pair[0].rank(pair[1]), pair[1].value))
    best = _next_to(best, search, [other for other in searches if other is not search])
    shape = best.by_shape and all(other.gap.direction for other in searches)
    past = next((t for t in search.formulas.thresholds if best.limited_by == search.said(t.condition)), None)
    limited_by = f"{best.limited_by} ({past})" if past else best.limited_by
    return msgspec.structs.replace(
        best, by_shape=shape, limited_by=limited_by, extrapolated=formulas.extrapolated(best.setting)
    )


def _searches(
    formulas: Formulas, symbol: str, target: str, setting: dict[str, int]
) -> tuple[list[Search], list[ExpressionError]]:
    """A search in every piece that has the target's totals and holds for some value, and why others have none."""
    searches, refused = [], []
    for piece in (formulas, *formulas.others):
        try:
            searches.append(Search(piece, symbol, target_of(target, piece), setting))
        except ExpressionError as error:
            refused.append(error)
    return searches, refused


def _unsearched(searches: list[Search], symbol: str) -> str:
    """The values of the symbol that were not looked at, as text; nothing if all were, or the shape decides."""
    reached = 0
    for search in sorted((search for search in searches if search.complete), key=lambda search: search.low):
        reached = max(reached, search.high) if search.low <= reached + 1 else reached
    said = []
    if reached < max(search.limit for search in searches):
        pieces = dict.fromkeys(" and ".join(search.conditions) for search in searches if search.conditions)
        said = [f"the formulas hold for {symbol} only where {', or where '.join(pieces)}"]
    if not all(search.gap.direction for search in searches):
        said.append(f"beyond {EVERY:,} values of {symbol} were looked at in steps of 1 %")
    return "; ".join(said)


def _next_to(best: Solution, search: Search, others: list[Search]) -> Solution:
    """The solution with its neighbour in other formulas, where its own end there without a gap."""
    if not best.limited_by or best.kind == "nearest":
        return best
    step = 1 if best.kind == "largest" else -1
    for other in others:
        n = other.beside(best.value, step)
        if n is not None and abs(n * other.stride - best.value) <= max(search.stride, other.stride):
            neighbour = Reached(n * other.stride, number(other.reached(n)))
            return msgspec.structs.replace(best, neighbour=neighbour, limited_by="", skipped=None)
    return best
