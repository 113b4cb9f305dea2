"""Changes of optimizers: fused updates, states of one byte, states that several devices share out."""

from __future__ import annotations

import contextlib
import copy
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tensortide.recorder.changes import EightBit, Fused, NotApplicable, Sharded
from tensortide.recorder.found import Found
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import fused_adamw_, fused_sgd_

Step = Callable[[], Any]


def _optimizers(found: Found) -> list[torch.optim.Optimizer]:
    if not found.optimizers:
        raise NotApplicable("the step has no optimizer of torch.optim")
    return [*found.optimizers.values()]


@contextlib.contextmanager
def fused(change: Fused, step: Step, found: Found) -> Iterator[Step]:
    """Let optimizers update by one fused kernel. Raises NotApplicable where they do, or have none."""
    del change
    others = [each for each in _optimizers(found) if "fused" not in each.defaults]
    if others:
        raise NotApplicable(f"{type(others[0]).__name__} has no fused variant")
    if all(group["fused"] for each in _optimizers(found) for group in each.param_groups):
        raise NotApplicable("the optimizer is fused")
    with contextlib.ExitStack() as stack:
        for each in _optimizers(found):
            for group in each.param_groups:
                stack.callback(group.update, dict(group))
                group.update(fused=True, foreach=False)
            each.state.clear()  # a fused optimizer keeps its counters on the device
        yield step


class _Compact(torch.optim.Optimizer):
    """Adam, or SGD with momentum, with states of one byte, for the parameters of ``optimizer``.

    Each state has a code per element and a scale per block. One kernel updates a parameter, without temporaries.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, moments: int, change: EightBit) -> None:
        self.__dict__.update(optimizer.__dict__)  # the same groups, so that schedules of rates go on
        self.state = defaultdict(dict)
        self._moments, self._change = moments, change

    def _made(self, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        small = parameter.numel() < self._change.least
        scales = -(-parameter.numel() // self._change.block)
        made: dict[str, torch.Tensor] = {}
        for number in range(1, self._moments + 1):
            made[f"state{number}"] = torch.zeros_like(parameter, dtype=torch.float32 if small else torch.uint8)
            if not small:
                made[f"absmax{number}"] = torch.zeros(scales, dtype=torch.float32, device=parameter.device)
        return made

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Make the states of what is new, and update each parameter that has a gradient."""
        del closure
        update: Any = fused_adamw_ if self._moments == 2 else fused_sgd_
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state.update(self._made(parameter))
                moments = [[state[f"state{number}"]] for number in range(1, self._moments + 1)]
                update([parameter], [parameter.grad], *moments, **_RATES[self._moments])


_RATES: dict[int, dict[str, Any]] = {
    1: {
        **dict.fromkeys(("weight_decay", "dampening"), 0.0),
        "momentum": 0.9,
        "lr": 1e-3,
        "nesterov": False,
        "maximize": False,
        "is_first_step": False,
    },
    2: {
        "max_exp_avg_sqs": [],
        "state_steps": [],
        "lr": 1e-3,
        "beta1": 0.9,
        "beta2": 0.999,
        "weight_decay": 0.0,
        "eps": 1e-8,
        "amsgrad": False,
        "maximize": False,
    },
}
"""Numbers that bytes and time do not depend on, by the number of states."""


def _moments(optimizer: torch.optim.Optimizer) -> int:
    """Count the states of each parameter. Raises NotApplicable for an optimizer without a counterpart of 8 bits."""
    if isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW):
        if any(group["amsgrad"] for group in optimizer.param_groups):
            raise NotApplicable("AMSGrad has no counterpart with states of 8 bits")
        return 2
    if isinstance(optimizer, torch.optim.SGD):
        if all(group["momentum"] for group in optimizer.param_groups):
            return 1
        raise NotApplicable("SGD without momentum has no state")
    raise NotApplicable(f"{type(optimizer).__name__} has no counterpart with states of 8 bits")


@contextlib.contextmanager
def _stepping(pairs: list[tuple[torch.optim.Optimizer, torch.optim.Optimizer]]) -> Iterator[None]:
    """Let ``step`` of the first of each pair be that of the second while active."""
    with contextlib.ExitStack() as stack:
        for old, new in pairs:
            old.state.clear()
            stack.enter_context(replaced(old, "step", new.step))
        yield


@contextlib.contextmanager
def eight_bit(change: EightBit, step: Step, found: Found) -> Iterator[Step]:
    """Replace optimizers by those with states of one byte."""
    with _stepping([(each, _Compact(each, _moments(each), change)) for each in _optimizers(found)]):
        yield step


@contextlib.contextmanager
def sharded(change: Sharded, step: Step, found: Found) -> Iterator[Step]:
    """Let optimizers update their share of the parameters alone; gradients are cleared for all of them."""
    pairs = []
    for each in _optimizers(found):
        part = copy.copy(each)
        shares = _shares([p for group in each.param_groups for p in group["params"]], change.devices)
        own = {id(parameter) for parameter in max(shares, key=lambda share: sum(p.numel() for p in share))}
        groups = [{**group, "params": [p for p in group["params"] if id(p) in own]} for group in each.param_groups]
        part.__dict__.update(state=defaultdict(dict), param_groups=groups)
        pairs.append((each, part))
    with _stepping(pairs):
        yield step


def _shares(parameters: list[torch.Tensor], devices: int) -> list[list[torch.Tensor]]:
    """Deal ``parameters`` out, the largest first, each to the device that has least."""
    shares: list[list[torch.Tensor]] = [[] for _ in range(devices)]
    sizes = [0] * devices
    for parameter in sorted(parameters, key=lambda each: -each.numel()):
        device = sizes.index(min(sizes))
        shares[device].append(parameter)
        sizes[device] += parameter.numel()
    return shares
