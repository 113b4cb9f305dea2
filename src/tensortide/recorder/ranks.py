"""A step of many processes, captured in one: as rank 0 of a process group whose collectives move nothing."""

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
    """The constructor of DDP, with its reduction as a hook: the default one fails in a group that moves nothing."""

    def reduced(state: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        del state
        buffer = bucket.buffer().div_(dist.get_world_size())
        dist.all_reduce(buffer)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(buffer)
        return future

    reduced.__annotations__.clear()  # PyTorch checks them, and does not take their text

    @functools.wraps(construct)
    def constructed(model: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
        construct(model, *args, **kwargs)
        model.register_comm_hook(None, reduced)

    return constructed


@contextlib.contextmanager
def as_rank_0(of: int | None) -> Iterator[None]:
    """Be rank 0 ``of`` so many while active, whatever process group the code asks for. None: leave things as they are.

    Raises CaptureError if the process is in a group already, or this PyTorch has no distributed package.
    """
    if of is None:
        yield
        return
    if of < 1:
        raise CaptureError(f"ranks is a number of processes, not {of}")
    store: Any = found("torch.testing._internal.distributed.fake_pg.FakeStore") if dist.is_available() else None
    if store is None:
        raise CaptureError("this PyTorch is built without torch.distributed: ranks needs it")
    if dist.is_initialized():
        raise CaptureError("a process group exists already: ranks makes one of its own, in a process without")

    def joined(*args: Any, **kwargs: Any) -> None:
        del args, kwargs

    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(of), "LOCAL_WORLD_SIZE": str(of)}
    before = {name: os.environ.get(name) for name in ranks}
    hook = sys.excepthook
    dist.init_process_group("fake", store=store(), rank=0, world_size=of)
    sys.excepthook = hook  # PyTorch's would prefix every traceback of the process with the rank, for good
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
