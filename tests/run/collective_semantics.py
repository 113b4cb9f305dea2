"""Real collectives on numbers that tell where each part came from.

Part p of the message of rank r is 10 ** r * (p + 1), so that sums tell whose parts are in them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from tensortide.graph.collectives import Collective
from tests.graph.collective_runs import after

UNTOUCHED = -1


def number(origin: int, part: int) -> int:
    """A part of the message of a rank."""
    return int(10**origin) * (part + 1)


def message(rank: int, world: int) -> torch.Tensor:
    """The whole message of a rank, each part of it two elements."""
    return torch.tensor([number(rank, part) for part in range(2 * world)])


def part_of(rank: int, world: int) -> torch.Tensor:
    """The part of a rank, of its own message."""
    return message(rank, world)[2 * rank : 2 * rank + 2].clone()


def blank(size: int) -> torch.Tensor:
    """Memory for a result."""
    return torch.full((size,), UNTOUCHED)


def expected(row: Collective, world: int) -> list[list[int] | None]:
    """The result on each rank as the table says: its atoms as numbers, by part, or by origin where parts come from
    each; None where it says nothing."""
    found: list[list[int] | None] = []
    for atoms in after(row, world):
        if row.reduces:
            parts = sorted({part for _, part in atoms})
            numbers = [sum(number(*atom) for atom in atoms if atom[1] == part) for part in parts]
        else:
            numbers = [number(*atom) for atom in sorted(atoms)]
        found.append(numbers or None)
    return found


def results(rank: int, world: int) -> dict[str, list[list[int] | None]]:
    """What each op leaves on this rank, by the name of its collective; None where it is not asked for a result."""
    root, size = rank == 0, 2 * world
    whole, part = message(rank, world), part_of(rank, world)

    def several(count: int) -> list[torch.Tensor]:
        return [blank(count) for _ in range(world)]

    def parts(tensor: torch.Tensor) -> list[torch.Tensor]:
        return [each.clone() for each in tensor.split(2)]

    reduced, sent, gathered, scattered, exchanged = whole.clone(), whole.clone(), blank(size), blank(2), blank(size)
    dist.all_reduce(reduced)
    listed, given, taken, halves = several(2), several(2), several(2), blank(2)
    dist.all_gather(listed, part)
    dist.all_gather_into_tensor(gathered, part)
    dist.reduce_scatter(halves, parts(whole))
    dist.reduce_scatter_tensor(scattered, whole)
    dist.all_to_all(taken, parts(whole))
    dist.all_to_all_single(exchanged, whole)
    dist.broadcast(sent, 0)
    summed = whole.clone()
    dist.reduce(summed, 0)
    dist.gather(part, given if root else None, 0)
    own = blank(2)
    dist.scatter(own, parts(whole) if root else None, 0)
    arrived = blank(size)
    if root:
        dist.send(whole, 1)
    elif rank == 1:
        dist.recv(arrived, 0)
    return {
        "all_reduce": [_list([reduced])],
        "all_gather": [_list(listed), _list([gathered])],
        "reduce_scatter": [_list([halves]), _list([scattered])],
        "all_to_all": [_list(taken), _list([exchanged])],
        "broadcast": [_list([sent])],
        "reduce": [_list([summed]) if root else None],
        "gather": [_list(given) if root else None],
        "scatter": [_list([own])],
        "send_recv": [_list([arrived]) if rank == 1 else None],
    }


def titles(rank: int, world: int) -> list[str]:
    """The titles that PyTorch's profiler gives to collectives."""
    from tests.run.collective_calls import calls

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        results(rank, world)
        for call in calls(rank, world).values():
            works = call()
            for work in works if isinstance(works, list) else [works]:
                work.wait()
    return sorted({event.name for event in profiler.events() if event.name.startswith("gloo:")})


def _list(tensors: Sequence[torch.Tensor]) -> list[int]:
    found: list[int] = torch.cat(list(tensors)).tolist()
    return found
