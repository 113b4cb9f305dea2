"""The compiled core, on while a budget is open."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch

from tensortide.plans.immovable import SMALL
from tensortide.plans.remat.policies import Heuristic, Policy, Work
from tensortide.recorder.recorder import Mode
from tensortide.recorder.surroundings import replaced
from tensortide.run.block import Block, Recomputable, Value
from tensortide.run.core.build import library
from tensortide.run.core.facts import facts_of
from tensortide.run.runtime import MOST_WRITES
from tensortide.run.sizes import NO_ROOM, Room
from tensortide.run.storages import NEVER, SELDOM
from tensortide.run.threads import active, take_off
from tensortide.run.torch_compat import dispatcher, modes, pop_mode, push_mode

if TYPE_CHECKING:
    from tensortide.run.runtime import Runtime


class Hooks:
    """Classes and functions of Python that the core uses: an instance of each class, to make others from."""

    def __init__(self, runtime: Runtime) -> None:
        storages = runtime.storages
        self.block = Block.of(torch.UntypedStorage(0), 0, lambda _: None)
        self.value = Value(self.block, None, 0)
        self.call = Recomputable(None, (), {}, [], 0, False, settings=runtime.engine.settings)
        runtime.prototypes.append(self.call)
        self.room = Room(0)
        self.most_writes = MOST_WRITES
        self.generator = torch.default_generator
        self.by_work, self.by_size, self.by_staleness = searched_by(runtime.engine.policy) or (0, 0, 0)
        self.clock = None if runtime.clock is time.perf_counter_ns else runtime.clock
        self.facts_of, self.detach = facts_of, torch.ops.aten.detach.default
        self.dropped, self.fresh = storages.dropped, storages.fresh
        self.over = functools.partial(runtime.alone, runtime.exceeded)
        self.ready, self.abandon = functools.partial(runtime.alone, runtime.prepared), runtime.engine.abandon
        self.note_write, self.gradient, self.no_room = runtime.note_write, runtime.access.gradient, NO_ROOM
        self.small, self.never, self.seldom = SMALL, NEVER, SELDOM


def searched_by(policy: Policy) -> tuple[int, int, int] | None:
    """The work, and the factors size and staleness, of a policy that the core can search by; None for others."""
    if type(policy) is not Heuristic or policy.work not in (Work.ONE, Work.LOCAL, Work.CLASSES):
        return None
    return policy.work, policy.size, policy.staleness


@contextlib.contextmanager
def switched_on(runtime: Runtime) -> Iterator[None]:
    """Let the compiled core handle the ops of this thread under ``runtime``, the topmost mode, if there is one."""
    found = library() if runtime.device.type == "cpu" else None
    core = found.module() if found is not None else None
    if core is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        runtime.storages.when_dropped = core.open(runtime, Hooks(runtime))
        stack.callback(core.close)
        runtime.gradient_came, runtime.pending.search = core.gradient, core.sweep
        runtime.unwatch = core.unwatch
        stack.callback(setattr, runtime, "unwatch", None)
        stack.callback(setattr, runtime.pending, "search", None)
        if searched_by(runtime.engine.policy) is not None:
            runtime.engine.search = core.choose
            stack.callback(setattr, runtime.engine, "search", None)
        stack.callback(core.own_pages, False)
        core.own_pages(True)
        stack.enter_context(
            replaced(dispatcher, "key_extractor", functools.partial(core.apart, dispatcher.key_extractor))
        )
        if _arm(core, runtime):
            stack.callback(runtime.disarm)
        yield


class _Bottom(Mode):
    """Passes every op on. Below the mode of the budget, it keeps PyTorch from switching modes on and off with every op
    that the upper one handles: the core is there instead."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        return func(*args, **(kwargs or {}))


def _arm(core: Any, runtime: Runtime) -> bool:
    """Let ``core`` have the ops before ``runtime``; False if other modes are on."""
    if modes() != 1:
        return False
    bottom = _Bottom()
    top = pop_mode(None)
    push_mode(bottom)
    push_mode(top)
    vars(runtime)["__torch_dispatch__"] = core.entry(runtime)
    runtime.disarm = functools.partial(_disarm, core, runtime, bottom)
    core.arm()
    return True


def _disarm(core: Any, runtime: Runtime, bottom: Mode) -> None:
    """Take the core away, in the thread that opened the budget only."""
    if get_ident() == runtime.thread and active(bottom):
        vars(runtime).pop("__torch_dispatch__", None)
        take_off(bottom)
        core.disarm()
