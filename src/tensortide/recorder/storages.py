"""Stand-ins of real storages in fake tensors: programs that load checkpoints lazily make tensors of storages."""

from __future__ import annotations

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tensortide.recorder.torch_compat import by_op

SETS = by_op({"aten.set_.source_Storage": None, "aten.set_.source_Storage_storage_offset": None})
"""Ops that put a tensor on a storage."""


class Storages:
    """Storages without memory by the real ones that they stand for: tensors that share one do so as fake ones, too.

    Neither is kept here.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[StorageWeakRef, StorageWeakRef]] = {}

    def stand_in(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        """The storage without memory that stands for ``storage``."""
        real, known = self._known.get(storage._cdata, (None, None))
        made = None
        if real is not None and known is not None and not real.expired():
            made = torch.UntypedStorage._new_with_weak_ptr(known.cdata)
        if made is None:
            made = torch.UntypedStorage(storage.nbytes(), device="meta")
            self._known[storage._cdata] = StorageWeakRef(storage), StorageWeakRef(made)
        return made
