"""Accumulation of gradients: the step several times, one update at the end."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.utils import clip_grad

from tensortide.recorder.changes import Accumulated, NotApplicable
from tensortide.recorder.found import Found
from tensortide.recorder.surroundings import replaced

Step = Callable[[], Any]


class _Turns:
    """The turns of a step: which runs, and whether its update is due or past."""

    def __init__(self, turns: int) -> None:
        self.turns, self.turn, self._updated = turns, 0, False

    def run(self, step: Step) -> Any:
        """Run all of them."""
        result = None
        for turn in range(self.turns):
            self.turn, self._updated = turn, False
            result = None  # released, as that of a function that is called again
            result = step()
        return result

    @property
    def _last(self) -> bool:
        return self.turn == self.turns - 1

    def update(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, which updates, in the last turn alone."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            self._updated = True
            return function(*args, **kwargs) if self._last else None

        return run

    def clear(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, which clears gradients, before the first turn's or after the last turn's update alone."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            due = self._last if self._updated else self.turn == 0
            return function(*args, **kwargs) if due else None

        return run

    def clip(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, which clips gradients, in the last turn alone."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs) if self._last else torch.zeros(())

        return run

    def mean(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        """``backward`` of a loss, of which each turn contributes its share."""

        @functools.wraps(backward)
        def run(loss: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            return backward(loss / self.turns, *args, **kwargs)

        return run


@contextlib.contextmanager
def accumulated(change: Accumulated, step: Step, found: Found) -> Iterator[Step]:
    """Run the step in turns. Raises NotApplicable for a step that does not update."""
    if not found.optimizers:
        raise NotApplicable("the step has no optimizer of torch.optim")
    turns = _Turns(change.turns)
    with contextlib.ExitStack() as stack:
        for each in found.optimizers.values():
            stack.enter_context(replaced(each, "step", turns.update(each.step)))
            stack.enter_context(replaced(each, "zero_grad", turns.clear(each.zero_grad)))
        for root in found.roots().values():
            stack.enter_context(replaced(root, "zero_grad", turns.clear(root.zero_grad)))
        for owner in (torch.nn.utils, clip_grad):
            stack.enter_context(replaced(owner, "clip_grad_norm_", turns.clip(clip_grad.clip_grad_norm_)))
        stack.enter_context(replaced(torch.Tensor, "backward", turns.mean(torch.Tensor.backward)))
        yield functools.partial(turns.run, step)
