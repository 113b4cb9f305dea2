"""Runs of a step, plain and under a budget, and everything that they leave behind."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tensortide.errors import BudgetInfeasible
from tensortide.recorder.surroundings import replaced
from tensortide.run import allocations
from tensortide.run.budget import Budget
from tensortide.run.sizes import sizes_on
from tensortide.run.usage import Usage

UNLIMITED = 1 << 60


@dataclass
class Left:
    """What some steps leave behind: losses, state, generator; how much of memory the budget covered at first; the most
    that any kernel is known to take."""

    tensors: list[torch.Tensor]
    generator: torch.Tensor
    before_bytes: int = 0
    usage: Usage | None = None
    workspace_bytes: int = 0

    def same(self, other: Left) -> bool:
        pairs = zip(self.tensors, other.tensors, strict=True)
        return all(map(identical, *zip(*pairs, strict=True))) and torch.equal(self.generator, other.generator)


def identical(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit for bit."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    raw = [x.detach().resolve_conj().resolve_neg().contiguous().reshape(-1) for x in (one, other)]
    return torch.equal(*[x.view(torch.uint8) if x.numel() else x for x in raw])


def counting() -> Callable[[], int]:
    """A clock by which every op takes as long: decisions repeat."""
    now = 0

    def clock() -> int:
        nonlocal now
        now += 1000
        return now

    return clock


def run(build: Callable[[], Any], limit: int | None, policy: str = "dtr-eq", warm: int = 1, steps: int = 2) -> Left:
    """``warm`` ordinary steps, then ``steps`` under a budget of ``limit`` more than is there by then."""
    gc.collect()
    torch.manual_seed(0)
    step = build()
    for _ in range(warm):
        step()
    losses: list[torch.Tensor] = []

    def steps_of_it() -> None:
        for _ in range(steps):
            result = step()
            if isinstance(result, torch.Tensor):
                losses.append(result.detach().clone())

    if limit is None:
        steps_of_it()
        return Left(losses + list(state(step)), torch.get_rng_state())
    if limit < UNLIMITED:
        with Budget(UNLIMITED) as probe:
            limit += probe.resident_bytes
    budget = Budget(limit, policy, clock=counting())
    workspace = [0]

    def stop(device: torch.device, kept: Any) -> int:
        workspace.append(original(device, kept))
        return workspace[-1]

    original = allocations.stop
    with replaced(allocations, "stop", stop), budget:
        assert budget.runtime is not None
        before = budget.runtime.engine.memory
        steps_of_it()
        workspace += [room.workspace_bytes for room in budget.runtime.sizes._known.values()]
    return Left(losses + list(state(step)), torch.get_rng_state(), before, budget.usage, max(workspace))


def state(thing: Any, seen: dict[int, Any] | None = None) -> Iterator[torch.Tensor]:
    """Copies of all tensors that ``thing`` leads to: parameters, gradients, buffers, optimizer state, inputs."""
    seen = {} if seen is None else seen
    if id(thing) in seen:
        return
    seen[id(thing)] = thing
    if isinstance(thing, torch.Tensor):
        yield thing.detach().clone()
        if thing.is_leaf and thing.grad is not None:
            yield thing.grad.detach().clone()
    elif isinstance(thing, float):
        yield torch.tensor(thing, dtype=torch.float64)
    else:
        for inside in _inside(thing):
            yield from state(inside, seen)


def _inside(thing: Any) -> Iterable[Any]:
    if isinstance(thing, nn.Module):
        return (*thing.parameters(), *thing.buffers())
    if isinstance(thing, torch.optim.Optimizer):
        return list(thing.state.values())
    if isinstance(thing, dict):
        return list(thing.values())
    if isinstance(thing, (list, tuple)):
        return thing
    if inspect.isfunction(thing):
        return [cell.cell_contents for cell in thing.__closure__ or ()]
    if inspect.ismethod(thing):
        return [thing.__self__]
    if isinstance(thing, torch.amp.GradScaler) or type(thing).__module__.startswith("tests."):
        return list(vars(thing).values())
    return ()


def squeezed(
    build: Callable[[], Any],
    policy: str,
    shares: Iterable[float],
    *,
    warm: int = 1,
    steps: int = 2,
    recomputes: bool = False,
) -> Left:
    """Runs ``build`` plain, without a limit, and under the first of ``shares`` of what it needs beyond what is there at
    first that suffices: all leave the same behind, and the last one had to make room (and to recompute, if it
    ``recomputes``).

    Fails where no budget suffices, or the one that does is not tight.
    """
    sizes_on.cache_clear()  # other programs have kernels of other sizes
    plain, free = run(build, None, warm=warm, steps=steps), run(build, UNLIMITED, warm=warm, steps=steps)
    assert plain.same(free)
    assert free.usage is not None
    assert free.usage.search_ns == free.usage.recomputations == 0
    for share in shares:
        limit = int((free.usage.peak_bytes - free.before_bytes) * share)
        try:
            tight = run(build, limit, policy, warm=warm, steps=steps)
        except BudgetInfeasible:
            continue
        assert plain.same(tight)
        assert tight.usage is not None
        assert tight.usage.peak_bytes <= tight.before_bytes + limit + tight.workspace_bytes
        assert tight.usage.search_ns > 0
        assert tight.usage.recomputations > 0 or not recomputes
        return tight
    raise AssertionError(f"no budget of {list(shares)} suffices: nothing was tested")
