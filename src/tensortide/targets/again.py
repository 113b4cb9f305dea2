"""Captures of a target that is captured once more: with other settings, or with changes of the step."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensortide.importers.door import Built, File, Held
from tensortide.recorder import capture
from tensortide.recorder.script_command import Script
from tensortide.recorder.target import Workload, workload
from tensortide.targets.assumptions import assumed
from tensortide.targets.requests import CaptureRequest

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.recorder.changes import Change
    from tensortide.recorder.target import Scalar

    Capture = Callable[[Mapping[str, Scalar], Sequence[Change], bool], Graph]


def capture_again(found: Workload | Script | File, asked: CaptureRequest) -> tuple[Capture | None, str]:
    """A function that captures the step again, or why there is none."""
    if isinstance(found, Script):
        return None, "a script runs once: name a function that makes its step, FILE.py:FUNCTION"
    if isinstance(found, Built):
        return None, "changes are made to steps of PyTorch"
    if isinstance(found, Held):
        return None, "a Graph has no step to capture again: give the function that it was captured from"
    if isinstance(found, File):
        return None, "a file has no step to capture again: name the workload that it was captured from"
    if asked.real or asked.compiled:
        return None, "changes are made to eager steps on fake tensors: leave out --real and --compiled"
    return Again(found, asked), ""


@dataclass(frozen=True)
class Again:
    """Captures a workload once more; in another process it is found by its name."""

    workload: Workload
    asked: CaptureRequest

    def __reduce__(self) -> tuple[Callable[..., Again], tuple[str, CaptureRequest]]:
        return _named, (self.workload.name, self.asked)

    def __call__(self, settings: Mapping[str, Scalar], changes: Sequence[Change], first: bool) -> Graph:
        """Capture with these settings and changes; the very first step if ``first``. What the program warns of is known
        from the first capture."""
        asked = self.asked
        with warnings.catch_warnings(action="ignore"):
            return capture(
                self.workload.function,
                hyperparameters=settings,
                name=self.workload.name,
                changes=changes,
                first_step=first or asked.first_step,
                ranks=asked.ranks,
                rank=asked.rank,
                assume=assumed(asked.assume),
                device=asked.device,
                machine=asked.kernels,
            )


def _named(name: str, asked: CaptureRequest) -> Again:
    return Again(workload(name), asked)
