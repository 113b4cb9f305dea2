"""Copies of memory that others may write unseen: what an op has computed from it is recomputed from the copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tensortide.plans.immovable import SMALL
from tensortide.replays.remat.simulation import OutOfMemory
from tensortide.run.block import Recomputable, Storage, Value, storage_of, stored, tensors_of
from tensortide.run.sizes import Room
from tensortide.run.torch_compat import NoModes
from tensortide.run.writers import written_unseen

if TYPE_CHECKING:
    from tensortide.run.runtime import Runtime


def reading_copies(runtime: Runtime, call: Recomputable, result: Any) -> Recomputable | None:
    """``call``, which has just run and given ``result``, as one that reads copies in place of what others may write;
    None if these take more than what it has made, and are not small: then it is cheaper to keep that."""
    found = {value: _latest(value) for value in call.inputs if value is not None and written_unseen(value.block)}
    lacking = [value for value, copy in found.items() if copy is None]
    storages = {storage._cdata: storage for storage in map(storage_of, stored(tensors_of((result,))))}
    made = sum(storage.nbytes() for key, storage in storages.items() if key not in runtime.known)
    if sum(value.block.nbytes for value in lacking) > max(made, SMALL) or any(
        value.block.bytes().device != runtime.device for value in lacking
    ):
        return None
    if lacking and not _room(runtime, made + sum(value.block.nbytes for value in lacking)):
        return None
    copies = {value: copy if copy is not None else _copied(value) for value, copy in found.items()}
    known = {value: runtime.storages.of(copy) for value, copy in copies.items()}
    call.inputs = [known.get(value, value) if value is not None else None for value in call.inputs]
    call.held = [*call.held, *copies.values()]
    return call


def keep_result(runtime: Runtime, result: Any) -> None:
    """Keep the storages of ``result`` for what is computed from them, also when the program has released them."""
    for tensor in stored(tensors_of((result,))):
        value = runtime.known.get(storage_of(tensor)._cdata)
        if value is not None:
            value.block.stays = True


def _latest(value: Value) -> Storage | None:
    """The latest copy of ``value``, if it still is one."""
    copy = value.block.writers.copy if value.block.writers is not None else None
    return copy if copy is not None and _equal(copy, value.block.bytes()) else None


def _equal(one: Storage, other: Storage) -> bool:
    with NoModes():
        first, second = (torch.empty(0, dtype=torch.uint8, device=s.device).set_(s) for s in (one, other))
        return torch.equal(first, second)


def _copied(value: Value) -> Storage:
    given, writers = value.block.bytes(), value.block.writers
    with NoModes():
        copy = torch.UntypedStorage(given.nbytes(), device=given.device).copy_(given)
    if writers is not None:
        writers.copy = copy
    return copy


def _room(runtime: Runtime, nbytes: int) -> bool:
    """Make room; False if there is none."""
    try:
        runtime.engine.abandon(runtime.ready((), [], (), True, Room(nbytes)))
    except OutOfMemory:
        return False
    return True
