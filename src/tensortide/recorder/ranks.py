"""Capture of one of many processes: as rank 0 of a process group whose collectives move no data."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tensortide.errors import CaptureError
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import found


def _hooked(construct: Callable[..., None]) -> Callable[..., None]:
    """Wrap the constructor of DDP: its reduction becomes a hook, as the default one fails in a fake group."""

    def reduced(state: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        del state
        buffer = bucket.buffer().div_(dist.get_world_size())
        dist.all_reduce(buffer)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(buffer)
        return future

    reduced.__annotations__.clear()  # PyTorch checks annotations, and rejects those that are text

    @functools.wraps(construct)
    def constructed(model: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
        construct(model, *args, **kwargs)
        model.register_comm_hook(None, reduced)

    return constructed


@contextlib.contextmanager
def as_rank_0(of: int | None) -> Iterator[None]:
    """Be rank 0 ``of`` this many processes while active, whatever group the code asks for; None changes nothing.

    Raises CaptureError if the process is already in a group, or PyTorch has no distributed package.
    """
    if of is None:
        yield
        return
    if of < 1:
        raise CaptureError(f"--ranks (ranks=) takes a number of processes from 1 up, not {of}")
    store: Any = found("torch.testing._internal.distributed.fake_pg.FakeStore") if dist.is_available() else None
    if store is None:
        raise CaptureError("this PyTorch is built without torch.distributed, which --ranks (ranks=) needs")
    if dist.is_initialized():
        raise CaptureError(
            "this process already has a process group: capture with ranks before it is made, or in another process"
        )

    def joined(*args: Any, **kwargs: Any) -> None:
        del args, kwargs

    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(of), "LOCAL_WORLD_SIZE": str(of)}
    before = {name: os.environ.get(name) for name in ranks}
    hook = sys.excepthook
    dist.init_process_group("fake", store=store(), rank=0, world_size=of)
    sys.excepthook = hook  # PyTorch's hook would prefix every later traceback with the rank
    os.environ.update(ranks)
    try:
        with (
            replaced(dist, "init_process_group", joined),
            replaced(dist, "destroy_process_group", joined),
            replaced(DistributedDataParallel, "__init__", _hooked(DistributedDataParallel.__init__)),
        ):
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        dist.destroy_process_group()
