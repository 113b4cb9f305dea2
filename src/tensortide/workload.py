"""Declaration of a workload's legal settings, next to the definition of the workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tensortide.errors import check_argument

F = TypeVar("F", bound=Callable[..., Any])


def legal(*where: str, **values: Sequence[int]) -> Callable[[F], F]:
    """Declare conditions that legal settings of a workload meet, and the values of hyperparameters that have few.

    >>> @legal("hidden % heads == 0", "seq <= positions", depth=(18, 34, 50))
    ... def encoder(batch=8, seq=128, positions=512, hidden=768, heads=12, depth=18): ...

    Whoever tries settings of the workload (``symbolic``) then tries legal ones only. Nothing is checked when it is
    called; a declaration replaces an earlier one.
    """
    for text in where:
        check_argument("a condition", text, (str,), "a text such as 'seq <= positions'")
    for name, given in values.items():
        check_argument(name, given, (Sequence,), "a tuple of the values that it has")

    def declare(workload: F) -> F:
        vars(workload).update(where=where, values=values)
        return workload

    return declare
