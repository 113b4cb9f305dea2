"""Capture of one of many processes: as one rank of a process group whose collectives move no data."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tensortide.errors import CaptureError, TorchUnavailable
from tensortide.recorder.messages import Messages
from tensortide.recorder.peers import answering
from tensortide.recorder.replicas import replicas
from tensortide.recorder.script_launch import ADDRESS, Place, rank_variables
from tensortide.recorder.surroundings import replaced, wrapped_in
from tensortide.recorder.torch_compat import GROUPS, WHOLE_SHAPES, current_modes, forget_shardings, found

_NO_WAIT = timedelta(seconds=1)
"""Time after which a key that another rank would put in the store is missing."""


def _refused(join: Callable[..., Any]) -> Callable[..., Any]:
    """``init_process_group``, but one that would wait for other processes is an error."""

    @functools.wraps(join)
    def joined(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(join).bind(*args, **kwargs).arguments
        size = given.get("world_size", -1)
        size = int(os.environ.get("WORLD_SIZE", "0")) if size is None or int(size) < 0 else int(size)
        by_environment = given.get("store") is None and str(given.get("init_method") or "env://").startswith("env://")
        lacks = by_environment and not {"RANK", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()
        if size > 1 or (lacks and given.get("backend") != "fake"):
            others, number = "processes that torchrun starts", "N"
            if size > 1:
                others, number = f"{size - 1} other process{'es' * (size > 2)}", str(size)
            raise CaptureError(
                f"init_process_group waits for {others}: --ranks {number} (ranks={number}) captures this one as "
                f"rank 0 of {number}, alone"
            )
        return join(*args, **kwargs)

    return joined


def _spawning(rank: int) -> Callable[..., None]:
    """Return a stand-in for ``torch.multiprocessing.spawn`` that runs the function of a process as the ``rank``."""

    def spawned(function: Callable[..., Any], args: Sequence[Any] = (), *_: Any, **__: Any) -> None:
        function(rank, *args)

    return spawned


def _not_spawned(function: Callable[..., Any], args: Any = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
    """Refuse to start processes, whose steps would not be seen."""
    del args
    name = getattr(function, "__name__", "a function")
    number = nprocs if nprocs > 0 else "N"
    raise CaptureError(
        f"torch.multiprocessing.spawn runs {name} in other processes: --ranks {number} (ranks={number}) runs it in "
        f"this one, as rank 0 of {number}"
    )


def _pretended(make: Callable[..., Any]) -> Callable[..., Any]:
    """``new_group`` of whatever backend, without data and without others to wait for."""

    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(make).bind(*args, **kwargs).arguments
        return make(**{**given, "backend": "fake", "pg_options": None})

    return made


@contextlib.contextmanager
def as_rank(place: Place | None, note: Callable[[str], None], messages: Messages | None = None) -> Iterator[None]:
    """Be the process at ``place`` while active, whatever process group the code asks for. None: a process alone, and
    code that waits for others is an error. ``note`` receives what is assumed of the other ranks; ``messages`` has what
    those that ran have sent, and receives what this one sends.

    Raises CaptureError if the process is already in a group, TorchUnavailable without PyTorch's distributed package.
    """
    if place is None:
        waits = replaced(dist, "init_process_group", _refused(dist.init_process_group)) if dist.is_available() else None
        with waits or contextlib.nullcontext(), replaced(torch.multiprocessing, "spawn", _not_spawned):
            yield
        return
    if not dist.is_available() or found("torch.testing._internal.distributed.fake_pg.FakeStore") is None:
        raise TorchUnavailable("this PyTorch is built without torch.distributed, which --ranks (ranks=) needs")
    if dist.is_initialized():
        raise CaptureError(
            "this process already has a process group: capture with ranks before it is made, or in another process"
        )

    def joined(*args: Any, **kwargs: Any) -> None:
        del args, kwargs

    ranks = {**rank_variables(place), **{name: os.environ[name] for name in ADDRESS if name in os.environ}}
    before = {name: os.environ.get(name) for name in ranks}
    hook = sys.excepthook
    store = found("torch.distributed.HashStore")()
    store.set_timeout(_NO_WAIT)
    dist.init_process_group("fake", store=store, rank=place.rank, world_size=place.ranks)
    sys.excepthook = hook  # PyTorch's hook would prefix every later traceback with the rank
    os.environ.update(ranks)
    messages = Messages() if messages is None else messages
    messages.begin(place.rank)
    forget_shardings()
    try:
        with (
            replaced(dist, "init_process_group", joined),
            replaced(dist, "destroy_process_group", joined),
            replaced(dist, "new_group", _pretended(dist.new_group)),
            replaced(torch.multiprocessing, "spawn", _spawning(place.local)),
            replicas(),
            wrapped_in(*WHOLE_SHAPES, _unrecorded),
            answering(note, messages),
        ):
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        dist.destroy_process_group()


def _unrecorded(propagate: Callable[..., Any]) -> Callable[..., Any]:
    """``propagate``, but the ops that it runs to learn a shape are none of the step's."""

    def unrecorded(*args: Any) -> Any:
        recorders: list[Any] = [mode for mode in current_modes() if getattr(mode, "paused", None) is False]
        for recorder in recorders:
            recorder.paused = True
        try:
            return propagate(*args)
        finally:
            for recorder in recorders:
                recorder.paused = False

    return unrecorded


def group_name(value: torch.ScriptObject) -> str | None:
    """The name of the process group that ``value`` holds; None if it holds something else."""
    if not dist.is_available():
        return None
    try:
        return str(dist.ProcessGroup.unbox(value).group_name)
    except RuntimeError:
        return None


def process_groups() -> dict[str, tuple[int, ...]]:
    """The ranks of the process groups that this process is in, by name, in the order in which they were made."""
    if not dist.is_available() or not dist.is_initialized():
        return {}
    groups = getattr(GROUPS, "pg_group_ranks", {}).items()
    return {
        group.group_name: tuple(sorted(ranks, key=ranks.__getitem__))
        for group, ranks in groups
        if isinstance(group, dist.ProcessGroup)
    }
