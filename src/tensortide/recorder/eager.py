"""Eager execution of what ``torch.compile`` has compiled, as a step is recorded by default."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from msgspec.structs import replace

from tensortide.graph.model import Meta
from tensortide.recorder.context import Context
from tensortide.recorder.recorder import Recorder
from tensortide.recorder.surroundings import eagerly


class EagerStep:
    """Runs what ``torch.compile`` has compiled op by op, and notes whether a step calls any of it."""

    def __init__(self) -> None:
        self._called = False

    def recorder(self, context: Callable[[int], Context]) -> Recorder:
        """Make the recorder of a step."""
        return Recorder(context)

    def step(self) -> contextlib.AbstractContextManager[None]:
        """Have everything there that a step needs around it."""
        return eagerly(self._note)

    def told(self, meta: Meta) -> Meta:
        """``meta`` of the step, which says what its ops are."""
        return replace(meta, compiled=meta.compiled or self._called)

    def _note(self) -> None:
        self._called = True
