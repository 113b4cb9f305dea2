"""Exchanges between the processes of a divided step: messages, and reductions in the order of the ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from tensortide.errors import RunError
from tensortide.graph.model import Call, Const


class Exchange:
    """Communication of this process, in a process ``group`` of all ranks (default: that of the run).

    ``sent_bytes`` has the bytes that have left it, by the rank they went to.

    A reduction has a fixed order whatever the number of ranks: each rank adds up its part of all tensors, the parts of
    the ranks in ascending order, and hands it out. So every element of the result is ((r0 + r1) + r2) + ..., on all
    ranks the same, where an all-reduce of a library adds in an order of its own. Each rank sends 2 (n - 1) / n of the
    bytes, as a ring does.
    """

    def __init__(self, rank: int, group: dist.ProcessGroup | None = None) -> None:
        self.rank = rank
        self._group = group
        self.sent_bytes: Counter[int] = Counter()
        self._under_way: list[tuple[Any, torch.Tensor]] = []

    def send(self, tensor: torch.Tensor, target: int, tag: int) -> None:
        """Send a copy of ``tensor``; ``finish`` waits for it."""
        message = tensor.detach().clone(memory_format=torch.contiguous_format)
        self.sent_bytes[target] += message.nbytes
        handle = dist.isend(message, target, group=self._group, tag=tag)
        self._under_way.append((handle, message))

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> None:
        """Wait for ``tensor``, which may have any strides."""
        message = torch.empty(tensor.shape, dtype=tensor.dtype)
        dist.recv(message, source, group=self._group, tag=tag)
        tensor.copy_(message)

    def reduce(self, tensors: Sequence[torch.Tensor], ranks: Sequence[int], how: str) -> None:
        """Put the sum of ``tensors`` over ``ranks`` into all of them, or their mean or largest element."""
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            self._reduce([tensor for tensor in tensors if tensor.dtype == dtype], ranks, how)

    def _reduce(self, tensors: Sequence[torch.Tensor], ranks: Sequence[int], how: str) -> None:
        own = ranks.index(self.rank)
        flat = tensors[0].reshape(-1) if len(tensors) == 1 else torch.cat([tensor.reshape(-1) for tensor in tensors])
        parts = list(flat.tensor_split(len(ranks)))
        for place, rank in enumerate(ranks):
            if rank != self.rank:
                self.send(parts[place], rank, _REDUCED)
        arrived = [parts[own] if rank == self.rank else torch.empty_like(parts[own]) for rank in ranks]
        for part, rank in zip(arrived, ranks, strict=True):
            if rank != self.rank:
                self.receive(part, rank, _REDUCED)
        made = combined(arrived, how)
        for rank in ranks:
            if rank != self.rank:
                self.send(made, rank, _GATHERED)
        for place, rank in enumerate(ranks):
            if rank != self.rank:
                self.receive(parts[place], rank, _GATHERED)
        parts[own].copy_(made)
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view(tensor.shape))

    def finish(self) -> None:
        """Wait until everything that was sent has left."""
        for handle, _ in self._under_way:
            handle.wait()
        self._under_way.clear()


def reduction(call: Call) -> str:
    """The name of what an all-reduce does with the tensors of its ranks: ``sum``, ``avg``, ``max``."""
    how = dict(call.arguments).get("reduce_op")
    return how.value if isinstance(how, Const) else ""


def combined(parts: Sequence[torch.Tensor], how: str) -> torch.Tensor:
    """``parts`` of the ranks, combined in their order. Raises RunError for an operation other than sum, avg, max."""
    if how not in ("sum", "avg", "max"):
        raise RunError(f"ranks are combined by sum, avg and max, not by {how!r}")
    found = parts[0].clone()
    for part in parts[1:]:
        found = torch.maximum(found, part) if how == "max" else found.add_(part)
    return found.div_(len(parts)) if how == "avg" else found


_REDUCED, _GATHERED = 1 << 20, (1 << 20) + 1
"""Tags of the two halves of a reduction, above those of transfers between stages."""
