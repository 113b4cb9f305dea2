"""The Graph of one rank, executed in a process of its own over gloo."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tensortide.graph import Graph
from tensortide.graph.communication import group_of
from tensortide.graph.model import TENSOR, Const, OpView
from tests.parallelism.divided import Divided
from tests.parallelism.lockstep import Rank
from tests.run.ranks import Ranks

Groups = Mapping[str, Sequence[Sequence[int]]]
_HOW = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}


class Spread(Divided):
    """A divided step whose ranks are ``processes``, which exchange files in ``folder`` with this one."""

    def __init__(self, processes: Ranks, folder: Path, graph: Graph, **degrees: Any) -> None:
        self.processes, self.folder = processes, folder
        super().__init__(graph, **degrees)

    def play(self, groups: Groups) -> None:
        own = {name: [tuple(ranks) for ranks in some] for name, some in groups.items()}
        for number, rank in enumerate(self.ranks):
            (self.folder / f"{number}.given").write_bytes(pickle.dumps((rank.graph, _plain(rank.bases), own)))
        self.processes.call("tests.parallelism.gloo_ranks:executed", str(self.folder))
        for number, rank in enumerate(self.ranks):
            found = pickle.loads((self.folder / f"{number}.found").read_bytes())
            rank.values |= {tensor: torch.from_numpy(value) for tensor, value in found.items()}


def _plain(tensors: Mapping[int, torch.Tensor]) -> dict[int, Any]:
    return {number: tensor.numpy() for number, tensor in tensors.items()}


def executed(rank: int, world: int, folder: str) -> None:
    """Execute the Graph that ``folder`` has for ``rank``, and leave the values of its named tensors there."""
    graph, bases, groups = pickle.loads(Path(folder, f"{rank}.given").read_bytes())
    own = Rank(graph, {})
    own.bases = {storage: torch.from_numpy(values) for storage, values in bases.items()}
    handles = {}  # every process makes every group, in the same order
    for name in sorted(groups):
        for ranks in dict.fromkeys(groups[name]):
            handle = dist.new_group(list(ranks))
            if rank in ranks:
                handles[name] = ranks, handle
    with torch.no_grad():
        for index in range(len(graph)):
            op = graph[index]
            if op.name.startswith("c10d."):
                _communicate(own, op, *handles[group_of(op)])
            else:
                own.run(index)
    last = [e.tensor for e in graph.named if graph.storages[graph.tensors[e.tensor].storage].death is None]
    Path(folder, f"{rank}.found").write_bytes(pickle.dumps(_plain({t: own.tensor(t).clone() for t in last})))
    dist.barrier()


def _communicate(own: Rank, op: OpView, ranks: Sequence[int], group: Any) -> None:
    """Do a collective as gloo has it; a reduce-scatter is a part of an all-reduce."""
    given: dict[str, Any] = dict(op.call.arguments)
    tensors = _tensors(own, op)
    how = given.get("reduce_op")
    reduction = how.value if isinstance(how, Const) else "sum"
    if op.name == "c10d.send.default":
        dist.send(tensors["tensors"][0].contiguous(), ranks[given["dst"]], group, tag=given["tag"])
    elif op.name == "c10d.recv_.default":
        received = torch.empty(tensors["tensors"][0].shape, dtype=tensors["tensors"][0].dtype)
        dist.recv(received, ranks[given["src"]], group, tag=given["tag"])
        tensors["tensors"][0].copy_(received)
    elif op.name.startswith("c10d.allreduce"):
        for tensor in tensors["tensors"]:
            tensor.copy_(_reduced(tensor, reduction, group, len(ranks)))
    elif op.name.startswith("c10d.alltoall"):
        sizes = (list(given[f"{end}_split_sizes"] or ()) or None for end in ("output", "input"))
        sent = tensors["input"][0].contiguous()
        received = torch.empty(tensors["output"][0].shape, dtype=sent.dtype)
        dist.all_to_all_single(received, sent, next(sizes), next(sizes), group)
        tensors["output"][0].copy_(received)
    else:
        for output, value in zip(tensors["outputs"], tensors["inputs"], strict=True):
            if op.name.startswith("c10d.reduce_scatter"):
                whole = _reduced(value.reshape(-1), reduction, group, len(ranks))
                output.copy_(whole.chunk(len(ranks))[dist.get_rank(group)].reshape(output.shape))
            else:
                parts = [torch.empty(value.shape, dtype=value.dtype) for _ in ranks]
                dist.all_gather(parts, value.contiguous(), group=group)
                output.copy_(torch.cat(parts).reshape(output.shape))


def _reduced(tensor: torch.Tensor, how: str, group: Any, ranks: int) -> torch.Tensor:
    found = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(found, _HOW[how], group)
    return found / ranks if how == "avg" else found


def _tensors(own: Rank, op: OpView) -> dict[str, list[torch.Tensor]]:
    """The tensors of each argument."""
    numbers = iter(op.op.inputs)
    found = {}
    for name, value in op.call.arguments:
        slots = value.count(TENSOR) if isinstance(value, tuple) else int(value is TENSOR)
        found[name] = [own.tensor(next(numbers)) for _ in range(slots)]
    return found
