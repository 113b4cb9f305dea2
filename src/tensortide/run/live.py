"""Functions that DTR lets a program call while it runs, by DTR's names, for the open memory budget (docs/run.md).

All raise RunError if no budget is open.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace

from tensortide.errors import RunError
from tensortide.graph.model import Call, Meta, Op, Phase
from tensortide.importers.dtrlog.write import write_log
from tensortide.plans.remat.policies import Heuristic, Sampled
from tensortide.plans.remat.schedule import CONSTANT
from tensortide.recorder.recorder import Recorder
from tensortide.recorder.schema import schema_of
from tensortide.recorder.torch_compat import current_graph_task_id
from tensortide.replays.remat.simulation import UNLIMITED
from tensortide.run.block import ORDINARY, storage_of
from tensortide.run.budget import current
from tensortide.run.limit import budget_bytes
from tensortide.run.operators import Operator
from tensortide.run.sizes import NO_ROOM
from tensortide.run.usage import Usage
from tensortide.write import check_writable

if TYPE_CHECKING:
    from tensortide.run.runtime import Runtime


def checkpoint(tensor: torch.Tensor) -> torch.Tensor:
    """Count ``tensor`` against the budget from now on, instead of from its first use; returns it."""
    _runtime().storage(_strided(tensor))
    return tensor


def is_checkpoint(tensor: torch.Tensor) -> bool:
    """True if ``tensor`` counts against the budget."""
    return storage_of(_strided(tensor))._cdata in _runtime().known


def decheckpoint(tensor: torch.Tensor) -> torch.Tensor:
    """Bring ``tensor`` back if it is away; it stays as long as the program holds it. Returns it."""
    _runtime().access.pin(_strided(tensor))
    return tensor


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """As ``decheckpoint``, and discard its history: storages that only recomputation needs are freed. Returns it."""
    runtime = _runtime()
    runtime.alone(lambda _: _fix(runtime, runtime.storage(_strided(tensor))), "pin")
    return tensor


def clear_checkpointpool() -> None:
    """``pin`` everything that the program holds: histories end here. Raises BudgetInfeasible if it does not fit."""
    runtime = _runtime()

    def fix_all(_: str) -> None:
        runtime.promote()
        for value in list(runtime.known.values()):
            if not runtime.engine.fixed[value.block.storage]:
                _fix(runtime, value.block.storage)

    runtime.alone(fix_all, "clear_checkpointpool")


def set_memory_budget(limit: float | str) -> None:
    """Change the limit of the open budget, and evict at once what is too much; it may be written as for ``budget``.

    Raises BudgetInfeasible if what cannot be evicted is more; then the limit stays what it was.
    """
    runtime = _runtime()
    _limit(budget_bytes(limit, current().device, runtime.engine.memory, runtime.graph))


def unset_memory_budget() -> None:
    """No limit until it is set again."""
    _limit(UNLIMITED)


def toggle_sampling(on: bool) -> None:
    """Switch sampling: the policy looks at a sample of the candidates only (``+sqrt``)."""
    _decide(sqrt=on)


def ignore_small_tensors(on: bool) -> None:
    """Switch the neglect of small tensors: the policy skips those below 1 % of the mean size (``+large``)."""
    _decide(small=on)


def usage() -> Usage:
    """Totals since the budget was opened, or since ``reset_profile``."""
    return current().usage


def reset_profile() -> None:
    """Counters start at zero again."""
    current().reset()


def toggle_log(to: str | os.PathLike[str] | bool) -> None:
    """Record a DTR log of what follows, to be written to the path ``to``; False: write it now, else when the budget is
    left. It is kept in memory until then. Raises OutputError if it cannot be written."""
    budget = current()
    runtime = _runtime()
    if to is True:
        raise RunError("a log needs a file: toggle_log('step.log')")
    if to is not False:
        if budget.log is not None:
            raise RunError(f"{budget.log.path} is being recorded already: toggle_log(False) ends it")
        budget.log = LiveLog(runtime, to)
        runtime.watchers.append(budget.log.around)
    elif budget.log is not None:
        recorded, budget.log = budget.log, None
        runtime.watchers.remove(recorded.around)
        recorded.write()


def _runtime() -> Runtime:
    runtime = current().runtime
    assert runtime is not None
    return runtime


def _strided(tensor: Any) -> torch.Tensor:
    if type(tensor) not in ORDINARY or tensor.layout is not torch.strided:
        raise RunError(f"a {type(tensor).__name__} is no plain, strided tensor: only those are under a memory budget")
    return tensor  # type: ignore[no-any-return]


def _fix(runtime: Runtime, storage: int) -> None:
    runtime.bring(storage)
    runtime.engine.fix(storage)


def _limit(nbytes: int) -> None:
    budget, runtime = current(), _runtime()
    engine, before = runtime.engine, runtime.engine.budget
    engine.budget, engine.overrun_bytes, runtime.lowered_from = nbytes, 0, 0
    try:
        runtime.alone(lambda _: runtime.ready([], [], [], False, NO_ROOM), "set_memory_budget")
    except BaseException:
        engine.budget = before
        raise
    budget.budget_bytes = nbytes


def _decide(**switches: Any) -> None:
    budget = current()
    policy = budget.policy if isinstance(budget.policy, Sampled) else None
    of = budget.policy if policy is None else policy.of
    if not isinstance(of, Heuristic):
        raise RunError(f"the policy {of.name} compares no scores of tensors: there is nothing to sample or to skip")
    sampled = dataclasses.replace(policy or Sampled(of, sqrt=False), **switches)
    budget.policy = sampled if sampled.sqrt or sampled.small else of
    budget.policy.begin()
    _runtime().engine.policy = budget.policy


class LiveLog(Recorder):
    """Records the ops that ``runtime`` runs, until it is written to ``path``.

    What is in memory when it begins is a constant there, and so is what comes from outside later, from its first use
    on. Raises OutputError for a path that cannot be written.
    """

    def __init__(self, runtime: Runtime, path: str | os.PathLike[str]) -> None:
        super().__init__(lambda index: (Phase.FORWARD if current_graph_task_id() < 0 else Phase.BACKWARD,))
        self.path = check_writable(path)
        self.durations_ns: list[int] = []
        self._runtime = runtime
        self._action: Callable[..., Any] | None = None
        self._operator: Operator | None = None
        self.calls.append(Call("dtr.constant", tags=(CONSTANT,)))
        runtime.promote()
        for value in list(runtime.known.values()):
            handle = value.block()
            if handle is not None:  # its bytes may be away
                self._add_storage(handle, value.block.key, value.block.nbytes, str(handle.device))

    def around(
        self, action: Callable[..., Any], operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        self._action, self._operator = action, operator
        return self.record(operator.func, schema_of(operator.func), args, kwargs)

    def run(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        assert self._action is not None
        engine = self._runtime.engine
        before_ns = engine.base_ns
        result = self._action(self._operator, args, kwargs)
        self.durations_ns.append(engine.base_ns - before_ns)
        return result

    def _add_storage(self, handle: Any, key: int, nbytes: int, device: str) -> int:
        if self._now is not None:
            return super()._add_storage(handle, key, nbytes, device)
        self._now = len(self.ops)  # no op made it: it is resident from now on
        self.ops.append(Op(0, (), (), Phase.FORWARD))
        self.durations_ns.append(0)
        try:
            return super()._add_storage(handle, key, nbytes, device)
        finally:
            self._now = None

    def write(self) -> Path:
        """Write the log, with the memory of the budget's device alone. Raises OutputError."""
        device = self._runtime.device
        counted = (s if torch.device(s.device) == device else replace(s, nbytes=0) for s in self.storages)
        graph = self.graph(counted, meta=Meta(captured_on="real"))
        return write_log(graph, self.durations_ns, self.path)
