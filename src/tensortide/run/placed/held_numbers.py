"""Numbers of a step that change from one step to the next, such as a learning rate, held at those of the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tensortide.recorder.recorder import Mode
from tensortide.recorder.torch_compat import pytree

Made = TypeVar("Made")


class HeldNumbers:
    """Calls of one step whose ops all get the numbers of the first call, as the ops of a captured step do.

    A learning rate that follows a schedule is a number of an op, not a tensor. ``changed`` names the ops whose numbers
    were to change, with the first and the next number, in the order in which they were seen. A call with other ops than
    the first one is left as it is from there on.
    """

    def __init__(self, step: Callable[[], Made]) -> None:
        self.step = step
        self.changed: dict[str, tuple[float, float]] = {}
        self._first: list[tuple[Any, list[Any]]] | None = None

    def __call__(self) -> Any:
        """Run the step once."""
        mode = _Numbers(self._first, self.changed)
        with mode:
            made = self.step()
        if self._first is None:
            self._first = mode.seen
        return made


class _Numbers(Mode):
    """Records the numbers of each op, or gives each op those of the ``first`` call and names what differed."""

    supports_higher_order_operators = True

    def __init__(self, first: list[tuple[Any, list[Any]]] | None, changed: dict[str, tuple[float, float]]) -> None:
        super().__init__()
        self.seen: list[tuple[Any, list[Any]]] = []
        self._first, self._changed, self._same = first, changed, True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves, form = pytree.tree_flatten((args, kwargs or {}))
        numbers = [leaf if type(leaf) in (int, float) else None for leaf in leaves]
        if self._first is not None and self._same:
            leaves = self._held(func, leaves, numbers)
        self.seen.append((func, numbers))
        args, kwargs = pytree.tree_unflatten(leaves, form)
        return func(*args, **kwargs)

    def _held(self, func: Any, leaves: list[Any], numbers: list[Any]) -> list[Any]:
        """``leaves`` with the numbers of the first call; integers alone (sizes, axes) stay."""
        assert self._first is not None
        at = len(self.seen)
        before, first = self._first[at] if at < len(self._first) else (None, [])
        self._same = before is func and len(first) == len(leaves)
        if not self._same:
            return leaves
        held = list(leaves)
        for place, (old, new) in enumerate(zip(first, numbers, strict=True)):
            if (
                old is None
                or new is None
                or float not in (type(old), type(new))
                or float(old).hex() == float(new).hex()
            ):
                continue
            held[place] = old
            self._changed.setdefault(str(func), (old, new))
        return held
