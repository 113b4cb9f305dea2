"""Ring attention as a script writes it: in a process for each rank, over blocks of keys and values that travel."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.utils.flop_counter import FlopCounterMode

Tensors = tuple[torch.Tensor, ...]


class Ran(NamedTuple):
    """Bytes that a rank has sent and its FLOPs, in the forward and the backward pass, and whether its results are those
    of attention to whole sequences."""

    sent_bytes: tuple[int, int]
    flops: tuple[int, int]
    is_equal: bool


class Ring:
    """Sends to the next rank, and counts the bytes."""

    def __init__(self, rank: int, world: int) -> None:
        self.after, self.before, self.sent = (rank + 1) % world, (rank - 1) % world, 0

    def passed(self, tensors: Tensors) -> Tensors:
        found = tuple(torch.empty_like(tensor) for tensor in tensors)
        work = [dist.isend(tensor.contiguous(), self.after) for tensor in tensors]
        for tensor in found:
            dist.recv(tensor, self.before)
        for each in work:
            assert each is not None
            each.wait()
        self.sent += sum(tensor.nbytes for tensor in tensors)
        return found


def attend(rank: int, world: int, shape: tuple[int, int, int, int], zigzag: bool) -> Ran:
    """Attend causally with queries, keys and values of ``shape`` (batch, heads, tokens, width), drawn by each rank."""
    torch.manual_seed(0)
    whole = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    gradient = torch.randn(shape, dtype=torch.float64)
    expected = torch.nn.functional.scaled_dot_product_attention(whole[0], whole[1], whole[2], is_causal=True)
    expected.backward(gradient)
    parts = torch.arange(shape[2]).chunk(2 * world if zigzag else world)
    places = [torch.cat([parts[n], parts[-1 - n]]) if zigzag else parts[n] for n in range(world)]
    own = places[rank]
    query, *block = (tensor.detach()[:, :, own] for tensor in whole)
    scale, ring = shape[3] ** -0.5, Ring(rank, world)
    out, sums = torch.zeros_like(query), torch.full(query.shape[:3], float("-inf"), dtype=query.dtype)
    first = tuple(block)
    with FlopCounterMode(display=False) as forward:
        for step in range(world):
            key, value = block
            rows, columns, mask = seen(own, places[(rank - step) % world])
            if len(rows):
                scores = query[:, :, rows] @ key[:, :, columns].mT * scale + mask
                part = scores.logsumexp(-1)
                total = torch.logaddexp(sums[:, :, rows], part)
                weights = (scores - total[..., None]).exp()
                kept = (sums[:, :, rows] - total).exp()[..., None]
                out[:, :, rows] = out[:, :, rows] * kept + weights @ value[:, :, columns]
                sums[:, :, rows] = total
            block = list(ring.passed((key, value))) if step < world - 1 else []
    sent, block, gathered = ring.sent, list(first), gradient[:, :, own]
    delta = (gathered * out).sum(-1, keepdim=True)
    of_query, of_block = torch.zeros_like(query), tuple(map(torch.zeros_like, first))
    with FlopCounterMode(display=False) as backward:
        for step in range(world):
            key, value = block
            rows, columns, mask = seen(own, places[(rank - step) % world])
            if len(rows):
                scores = query[:, :, rows] @ key[:, :, columns].mT * scale + mask
                weights = (scores - sums[:, :, rows, None]).exp()
                of_block[1][:, :, columns] += weights.mT @ gathered[:, :, rows]
                of_scores = weights * (gathered[:, :, rows] @ value[:, :, columns].mT - delta[:, :, rows]) * scale
                of_query[:, :, rows] += of_scores @ key[:, :, columns]
                of_block[0][:, :, columns] += of_scores.mT @ query[:, :, rows]
            block = list(ring.passed((key, value))) if step < world - 1 else []
            of_block = ring.passed(of_block)
    pairs = [(out, expected), *zip((of_query, *of_block), (tensor.grad for tensor in whole), strict=True)]
    is_equal = all(right is not None and torch.allclose(left, right[:, :, own]) for left, right in pairs)
    flops = forward.get_total_flops(), backward.get_total_flops()
    return Ran((sent, ring.sent - sent), flops, is_equal)


def seen(queries: torch.Tensor, keys: torch.Tensor) -> Tensors:
    """The queries that see a key of a block, the keys that a query sees, and a mask to add to their scores."""
    allowed = keys[None] <= queries[:, None]
    rows, columns = allowed.any(1).nonzero()[:, 0], allowed.any(0).nonzero()[:, 0]
    mask = torch.zeros(len(rows), len(columns), dtype=torch.float64)
    return rows, columns, mask.masked_fill(~allowed[rows][:, columns], float("-inf"))
