"""Parameters of mixtures of experts that a token does not use: those of the experts that its router does not choose.

A router takes the ``k`` best of ``E`` scores. The experts stand in its module or in the one around it: as parameters
that stack ``E`` of them, or as ``E`` numbered modules with the same parameters.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping

from tensortide.graph.model import OUTSIDE, Graph, OpView, Role

_NUMBERED = re.compile(r"(.*)\.(\d+)\.(.*)")


def idle_shares(graph: Graph) -> dict[int, tuple[int, int]]:
    """By each tensor of experts how many of how many experts a token does not use."""
    paths = {entry.name: entry.tensor for entry in graph.named if entry.role is Role.PARAMETER}
    shares: dict[int, tuple[int, int]] = {}
    routers = [*_routers(graph)]
    first_read: dict[int, int] = {}
    for index, one in enumerate(graph.ops if routers else ()):
        for tensor in one.inputs:
            first_read.setdefault(graph.tensors[tensor].storage, index)
    for op in routers:
        every, chosen = int(op.inputs[0].shape[-1]), int(op.outputs[0].shape[-1])
        router = graph.modules[op.op.module].path
        read = {storage for storage, index in first_read.items() if index < op.index}
        for block in (router, router.rpartition(".")[0]):
            inside = {name: tensor for name, tensor in paths.items() if name.startswith(f"{block}." if block else "")}
            if found := {*_stacked(graph, inside, every, read), *_numbered(inside, every)}:
                shares.update(dict.fromkeys(found, (every - chosen, every)))
                break
    return shares


def _routers(graph: Graph) -> Iterator[OpView]:
    calls = {index for index, call in enumerate(graph.calls) if call.op.startswith("aten.topk.")}
    for index, op in enumerate(graph.ops):
        if op.call in calls and op.module != OUTSIDE and graph.tensors[op.inputs[0]].shape:
            yield graph[index]


def _stacked(graph: Graph, inside: Mapping[str, int], every: int, read: Container[int]) -> Iterator[int]:
    """Yield the tensors that stack parameters of ``every`` expert, in modules that have matrices of them, but those of
    the router, which it has ``read``."""
    first = {name: tensor for name, tensor in inside.items() if graph.tensors[tensor].shape[:1] == (every,)}
    modules = {name.rpartition(".")[0] for name, tensor in first.items() if len(graph.tensors[tensor].shape) > 2}
    for name, tensor in first.items():
        if name.rpartition(".")[0] in modules and graph.tensors[tensor].storage not in read:
            yield tensor


def _numbered(inside: Mapping[str, int], every: int) -> Iterator[int]:
    """Yield the tensors of ``every`` numbered module with the same parameters."""
    groups: dict[tuple[str, str], dict[int, int]] = {}
    for name, tensor in inside.items():
        if match := _NUMBERED.fullmatch(name):
            groups.setdefault((match[1], match[3]), {})[int(match[2])] = tensor
    for group in groups.values():
        if [*sorted(group)] == [*range(every)]:
            yield from group.values()
