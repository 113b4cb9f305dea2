"""A workload run live under a budget, against ordinary steps of it."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tensortide.errors import RunError, TensortideError, WorkloadError
from tensortide.run.budget import Budget, Usage


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians over the steps of both kinds, and per step under the budget what happened; all times in nanoseconds."""

    target: str
    budget_bytes: int
    policy: str
    device: str
    steps: int
    peak_bytes: int
    before_bytes: int
    """Resident when the budget was opened."""
    plain_ns: int | None
    """None: there were no ordinary steps."""
    step_ns: int
    ops: int
    evictions: int
    recomputations: int
    base_ns: int
    recompute_ns: int
    arguments_ns: int
    """Time of putting together the arguments of recomputed ops."""
    search_ns: int
    """Time of choosing what to evict and making room, without recomputation."""
    overhead_ns: int
    """The rest of a step: the framework's own work between ops, and keeping books."""
    followed_steps: int = 0
    """With a plan: steps under the budget that followed it to their end, the warm-up step included."""
    left_steps: int = 0

    @property
    def slowdown(self) -> float | None:
        """Slowdown of a step against an ordinary one, if there was any."""
        return self.step_ns / self.plain_ns if self.plain_ns is not None else None


def measured(
    target: str,
    workload: Callable[..., Any],
    settings: Mapping[str, Any],
    budget: Budget,
    steps: int,
    *,
    plain: bool = True,
) -> Measured:
    """``steps`` steps under ``budget``, and if ``plain`` as many ordinary ones, each after one to warm up. The very
    first step runs under a budget too: what does not fit ends there, and what fits only so is never run otherwise."""
    if steps < 1:
        raise RunError(f"cannot measure over {steps} steps: it takes at least 1")
    step = _built(target, workload, settings)
    with Budget(budget.limit, budget.policy, device=budget.device, workspace=budget.workspace):
        _timed(target, step, budget.device, 1)
    gc.collect()
    with budget:
        before_bytes = budget.resident_bytes
        _timed(target, step, budget.device, 1)
        first = budget.usage
        times = _timed(target, step, budget.device, steps)
        last = budget.usage
    gc.collect()
    ordinary = _timed(target, step, budget.device, 1 + steps)[1:] if plain else None
    base, recompute, arguments, search = (
        _mean(first, last, name, steps) for name in ("base_ns", "recompute_ns", "arguments_ns", "search_ns")
    )
    step_ns = int(statistics.median(times))
    return Measured(
        target=target,
        budget_bytes=budget.budget_bytes,
        policy=budget.name,
        device=str(budget.device),
        steps=steps,
        peak_bytes=last.peak_bytes,
        before_bytes=before_bytes,
        plain_ns=int(statistics.median(ordinary)) if ordinary else None,
        step_ns=step_ns,
        ops=_mean(first, last, "ops", steps),
        evictions=_mean(first, last, "evictions", steps),
        recomputations=_mean(first, last, "recomputations", steps),
        base_ns=base,
        recompute_ns=recompute,
        arguments_ns=arguments,
        search_ns=search,
        overhead_ns=max(0, step_ns - base - recompute - arguments - search),
        followed_steps=last.followed_steps,
        left_steps=last.left_steps,
    )


def _built(target: str, workload: Callable[..., Any], settings: Mapping[str, Any]) -> Callable[[], Any]:
    try:
        step: Callable[[], Any] = workload(**settings)
    except TensortideError:
        raise
    except Exception as error:
        raise WorkloadError(f"{target} failed while it was being built: {type(error).__name__}: {error}") from error
    if not callable(step):
        raise WorkloadError(
            f"{target} returned a {type(step).__name__}: a live run needs a workload that returns a step"
        )
    return step


def _timed(target: str, step: Callable[[], Any], device: torch.device, count: int) -> list[int]:
    times = []
    for _ in range(count):
        began = time.perf_counter_ns()
        try:
            step()
        except TensortideError:
            raise
        except Exception as error:
            raise WorkloadError(f"a step of {target} failed: {type(error).__name__}: {error}") from error
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        times.append(time.perf_counter_ns() - began)
    return times


def _mean(first: Usage, last: Usage, name: str, steps: int) -> int:
    total: int = getattr(last, name) - getattr(first, name)
    return round(total / steps)
