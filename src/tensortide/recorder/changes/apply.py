"""The table of changes, and their application to a step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tensortide.recorder.changes import (
    Accumulated,
    Autocast,
    Change,
    Checkpointed,
    ChunkedLoss,
    EightBit,
    Fused,
    SavedOnHost,
    Sharded,
    Written,
)
from tensortide.recorder.changes.accumulation import accumulated
from tensortide.recorder.changes.forward import autocast, checkpointed, saved_on_host
from tensortide.recorder.changes.loss import chunked_loss
from tensortide.recorder.changes.optimizers import eight_bit, fused, sharded
from tensortide.recorder.changes.written import written
from tensortide.recorder.found import Found

Step = Callable[[], Any]

TABLE: dict[type[Change], Callable[[Any, Step, Found], contextlib.AbstractContextManager[Step]]] = {
    EightBit: eight_bit,
    Fused: fused,
    Sharded: sharded,
    ChunkedLoss: chunked_loss,
    Written: written,
    SavedOnHost: saved_on_host,
    Checkpointed: checkpointed,
    Autocast: autocast,
    Accumulated: accumulated,
}
"""How each change is made; the first is the innermost. The context yields the changed step."""


@contextlib.contextmanager
def changed(step: Step, found: Found, changes: Iterable[Change]) -> Iterator[Step]:
    """Yield ``step`` with ``changes``; ``found`` are its modules and optimizers. They are undone at the end.

    Raises NotApplicable for a change that the step cannot have.
    """
    order = [*TABLE]
    with contextlib.ExitStack() as stack:
        for change in sorted(changes, key=lambda each: order.index(type(each))):
            step = stack.enter_context(TABLE[type(change)](change, step, found))
        yield step
