"""Programs that are run live: workloads at their settings, built anew, and their steps timed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tensortide.errors import ProgramFailed, TensortideError, WorkloadError


@dataclass(frozen=True, slots=True)
class Program:
    """A ``workload`` at its ``settings``; ``target`` is its name in messages. What fails in it is ProgramFailed."""

    target: str
    workload: Callable[..., Any]
    settings: Mapping[str, Any]

    def build(self) -> Callable[[], Any]:
        """Return a step of the workload, built anew."""
        with _failing(f"{self.target} failed while it was being built"):
            step: Callable[[], Any] = self.workload(**self.settings)
        if not callable(step):
            raise WorkloadError(
                f"{self.target} returned a {type(step).__name__}: a live run needs a workload that returns a step"
            )
        return step

    def timed(
        self, step: Callable[[], Any], device: torch.device, count: int, returned: list[Any] | None = None
    ) -> list[int]:
        """Run ``step``, built before, ``count`` times. Returns the times. What the last run returns is put into
        ``returned``."""
        times = []
        for number in range(count):
            began = time.perf_counter_ns()
            with _failing(f"a step of {self.target} failed"):
                result = step()
            if returned is not None and number == count - 1:
                returned.append(result)
            del result
            if device.type != "cpu":
                torch.accelerator.synchronize(device)
            times.append(time.perf_counter_ns() - began)
        return times


@contextlib.contextmanager
def _failing(what: str) -> Iterator[None]:
    try:
        yield
    except TensortideError:
        raise
    except Exception as error:
        raise ProgramFailed(f"{what}: {type(error).__name__}: {error}") from error


def current_device(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """A context in which tensors are made on ``device`` unless the program says otherwise."""
    return device if device.type != "cpu" else contextlib.nullcontext()
