"""Compiled functions are refused: a memory budget sees nothing of what they read, write and allocate."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tensortide.errors import RunError
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import compiled_calls


@contextlib.contextmanager
def compiled_refused() -> Iterator[None]:
    """Refuse, in one line, to run what ``torch.compile`` has compiled, and to compile, while a budget is open. Under
    the stance ``force_eager`` such functions run op by op, and take part."""
    owner, name = compiled_calls()
    inductor: Any = sys.modules.get("torch._inductor.output_code")
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(owner, name, _eager(getattr(owner, name))))
        if inductor is not None:  # backward passes of what ran before
            stack.enter_context(replaced(inductor.CompiledFxGraph, "__call__", _refuse))
        yield


def _eager(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    by_stance = original.__name__ == "_callback_from_stance"

    def callback(given: Any) -> Any:
        if not by_stance and callable(given):
            _refuse()
        found = original(given)
        if by_stance and found is not None:
            _refuse()
        return found

    return callback


def _refuse(*_: Any) -> None:
    raise RunError(
        "what torch.compile has compiled hides its reads and writes from a memory budget: run it eagerly, "
        "`with torch.compiler.set_stance('force_eager')`, or outside of `with tensortide.budget(...)`"
    )
