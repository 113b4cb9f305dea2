"""A file that was asked for, the forms tried for it, and the best of them."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from tensortide.graph.model import Graph
from tensortide.plans.model import Plan
from tensortide.plans.planned import Planned
from tensortide.plans.remat.schedule import Recording
from tensortide.recorder.changes import Change
from tensortide.shown import Show, Shown
from tensortide.studies.torch_file.choice import Choice
from tensortide.studies.torch_file.regions import Refusal
from tensortide.timing.links import Link

Again = Callable[[Sequence[Change]], Graph]
"""Captures the step again, with these changes."""


class Form(msgspec.Struct, frozen=True):
    """A file of one form. ``peak_bytes`` is what its captured step takes, ``step_ns`` that of the replay of ``plan``,
    which runs the same ops; ``fits`` if the peak is within the budget. ``reason``: why there is none, then the other
    fields are empty. ``gap_share``: how much longer the replay takes than every plan must."""

    name: Annotated[str, Show("Form")]
    choice: Choice = Choice()
    peak_bytes: Annotated[int | None, Show("Peak")] = None
    step_ns: Annotated[int | None, Show("Step")] = None
    plan: Plan | None = None
    fits: bool = False
    reason: str = ""
    gap_share: Annotated[float | None, Show("Gap")] = None


class TorchFile(Shown, msgspec.Struct, frozen=True, dict=True):
    """The forms tried for ``planned``, and the best that fits (None: no form does) with the ``text`` of its file, which
    is imported by ``name``.

    ``recorded_bytes``: what the step takes as it is. ``refused``: modules that cannot be checkpointed, and why.
    ``unmoved``: bytes that the plan moves and no file can, by what they are.
    """

    SECTION = "torch_file"
    planned: Planned
    forms: tuple[Form, ...]
    best: Form | None
    recorded_bytes: int
    refused: tuple[Refusal, ...]
    name: str
    text: str = ""
    unmoved: dict[str, int] = {}

    @property
    def budget_bytes(self) -> int:
        """The budget of the plan."""
        return self.planned.budget_bytes

    @property
    def needless(self) -> bool:
        """True if the step fits as it is."""
        return self.recorded_bytes <= self.budget_bytes


@dataclass(frozen=True)
class Asked:
    """A file, imported by ``name``, for the step ``recording``, for which ``planned`` was found; ``again`` captures the
    step. ``links``: to the host, if tensors may move. ``recompute``: whether ops may run again; ``keep_random``: those
    that draw random numbers may not. ``pinned``: storages that stay resident. ``target`` is how the command names the
    step."""

    recording: Recording
    planned: Planned
    again: Again
    links: tuple[Link, ...] = ()
    keep_random: bool = False
    name: str = "plan_torch"
    recompute: bool = True
    target: str = ""
    pinned: Container[int] = ()

    @property
    def graph(self) -> Graph:
        return self.recording.graph
