"""The Graph of one rank of a stage, timed: its passes, the exchange with other ranks, and the bytes it keeps."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tensortide.cost import Resolver
from tensortide.graph.communication import group_of, kind_of, moves_data, payload_bytes
from tensortide.graph.model import Graph, OpView, Phase, Role
from tensortide.parallelism import Degrees, Ranks
from tensortide.parallelism.accumulation import gradient_bytes, resident_bytes
from tensortide.parallelism.closed.configuration import Configuration
from tensortide.parallelism.context import GROUP as CONTEXT
from tensortide.parallelism.degrees import AXES
from tensortide.parallelism.ranks import joins_stages
from tensortide.parallelism.tensor_groups import ACROSS as BETWEEN
from tensortide.parallelism.tensor_groups import WITHIN
from tensortide.parallelism.tied import tied_group, tied_stages
from tensortide.parallelism.zero import ACROSS
from tensortide.studies.scale.ring import beside_attention
from tensortide.timelines.data_parallel import exposed_after_ns, queued
from tensortide.timelines.machines import with_times
from tensortide.timelines.step import StepTimeline, step_timeline
from tensortide.timing.catalogue import Device
from tensortide.timing.collectives import COLLECTIVES, Nodes, predict_collective
from tensortide.timing.collectives.constants import CONTENTION
from tensortide.timing.estimate import Known, estimate
from tensortide.timing.estimates import UNKNOWN, Estimate

INSIDE = {axis.name: axis.name for axis in AXES if axis.exchanged} | dict.fromkeys((WITHIN, BETWEEN), "tensor")
"""Groups that communicate within both passes, and the part of the time that is theirs."""
DATA = ("data", "expert_data", "zero", "zero_data")
"""Groups of ranks with the same parameters."""
_PASSES = (Phase.FORWARD, Phase.BACKWARD)


class Bucket(NamedTuple):
    """A collective of gradients or parameters: when its input is ready, in ns after the start, and how long it
    takes. ``once``: for all micro-batches, also where the others are after each."""

    ready_ns: int
    ns: float
    once: bool = False


class Peaks(NamedTuple):
    """Most bytes resident during the forward pass, the backward pass and the update, what exists before the step and
    gradients of earlier micro-batches not counted."""

    forward: int
    backward: int
    update: int


class Stage(NamedTuple):
    """One micro-batch through a stage, on one rank, and the update after all of them.

    ``between_ns`` are the collectives among stages that ``update_ns`` has: of tied gradients, and of their norm.
    ``inside_ns`` are collectives of its tensor, context and expert groups, part of both passes. ``buckets`` are
    exchanges of gradients in the backward pass; ``after_ns`` those of the update. ``exchange`` is the time of all
    collectives with its interval. ``again_ns`` is the part of the backward pass that recomputes, without collectives.
    ``given_bytes`` exist before the step; ``kept_bytes`` stay from the forward to the backward pass. ``peaks`` are of a
    step of one micro-batch, in which gradients may be views of their buckets; ``accumulating`` from the second on, in
    which all ``gradient_bytes`` are resident throughout. ``bucket_bytes`` are gradients that replicas average whole.
    ``library_bytes`` are workspaces of libraries, which every process has once.
    """

    forward_ns: int
    backward_ns: int
    update_ns: int
    between_ns: float
    again_ns: int
    inside_ns: Mapping[str, float]
    buckets: tuple[Bucket, ...]
    after_ns: float
    exchange: Estimate
    line: StepTimeline
    peaks: Peaks
    accumulating: Peaks
    gradient_bytes: int
    bucket_bytes: int
    given_bytes: int
    kept_bytes: int
    library_bytes: int


def stage(
    graph: Graph,
    one: Configuration,
    nodes: Nodes,
    device: Device,
    resolver: Resolver | None = None,
    known: Known | None = None,
) -> Stage:
    """Time the Graph of one rank on ``nodes``; ``known``: as ``timing.estimate`` has it. Where communication of data
    overlaps, keys and values of fused attention travel in a ring, beside its kernels."""
    durations = estimate(graph, device, resolver=resolver, known=known)
    times, apart = _collectives(graph, one, nodes)
    between = sum((found.time_ns for index, found in times.items() if joins_stages(group_of(graph[index]))), 0.0)
    if one.overlap_data and one.context > 1:
        times |= beside_attention(graph, times, durations.ns, one.context)
    line = step_timeline(graph, with_times(durations, times), device)
    ends = [int(ns) for ns in line.run_start_ns + line.run_ns]
    last = _last_forward(graph)
    forward = ends[last] if last >= 0 else 0
    backward = max((e for e, op in zip(ends, graph.ops, strict=True) if op.phase is Phase.BACKWARD), default=forward)
    during = [index for index in apart if graph.ops[index].phase in _PASSES]
    buckets = tuple(Bucket(ends[i], apart[i].time_ns, group_of(graph[i]) == ACROSS) for i in during)
    after = sum(found.time_ns for index, found in apart.items() if index not in during)
    again = [int(line.run_ns[op.index]) for op in graph if op.op.recompute and not moves_data(op.name)]
    views = _bucket_views(graph, during) if one.gradient_as_bucket_view else {}
    left = [graph.storages[storage] for storage in views if graph.storages[storage].birth is None]
    given_bytes = _given_bytes(graph) - sum(int(storage.nbytes) for storage in left)
    return Stage(
        forward_ns=forward,
        backward_ns=backward - forward,
        update_ns=max(0, line.makespan_ns - backward),
        between_ns=between,
        again_ns=sum(again),
        inside_ns=_inside_ns(graph, times),
        buckets=buckets,
        after_ns=after,
        exchange=sum((*times.values(), *apart.values()), Estimate()),
        line=line,
        peaks=_peaks(graph, 1, given_bytes, views),
        accumulating=_peaks(graph, 2, given_bytes),
        gradient_bytes=gradient_bytes(graph),
        bucket_bytes=0 if one.zero else sum(payload_bytes(graph[i]) for i in during),
        given_bytes=given_bytes,
        kept_bytes=_kept_bytes(graph),
        library_bytes=library_bytes(graph),
    )


def _collectives(graph: Graph, one: Configuration, nodes: Nodes) -> tuple[dict[int, Estimate], dict[int, Estimate]]:
    """Times of the ops that communicate, 0 for those that the step does not wait for in their place; and, apart from
    them, times of exchanges among ranks with the same parameters."""
    times: dict[int, Estimate] = {}
    apart: dict[int, Estimate] = {}
    for op in graph:
        if not moves_data(op.name):
            continue
        found, group = _collective(op, one, nodes), group_of(op)
        repeats = group in DATA and op.phase is not Phase.OPTIMIZER and _repeats(op)
        inside = group in INSIDE or joins_stages(group) or repeats
        times[op.index] = found if inside else Estimate()
        if group in DATA and not inside:
            apart[op.index] = found
    return times, apart


def _inside_ns(graph: Graph, times: Mapping[int, Estimate]) -> dict[str, float]:
    """Nanoseconds of collectives within both passes, by the part of the time that is theirs."""
    found = dict.fromkeys(INSIDE.values(), 0.0)
    for index, each in times.items():
        if (group := group_of(graph[index])) in INSIDE and graph.ops[index].phase in _PASSES:
            found[INSIDE[group]] += each.time_ns
    return found


def added_exchange_ns(found: Stage, one: Configuration) -> float:
    """Time that the exchange adds to a step: all of it, or if it overlaps what outlasts the backward pass of the last
    micro-batch, with each bucket as it is ready, one after the other; and what the rest slows down the computation that
    it runs beside.

    Gradients are exchanged once for all micro-batches, but after each where they stay sharded between (ZeRO 2, 3);
    parts are averaged over groups once.
    """
    times = one.micro_batches if one.zero > 1 else 1
    passes = found.forward_ns + found.backward_ns
    end = times * passes
    buckets = [
        (turn * passes + bucket.ready_ns, bucket.ns)
        for turn in range(times)
        for bucket in found.buckets
        if not bucket.once or turn == times - 1
    ]
    whole = sum(ns for _, ns in buckets)
    if not one.overlap_data:
        return whole + found.after_ns
    exposed = exposed_after_ns(queued(*zip(*buckets, strict=True)), end) if buckets else 0.0
    return exposed + CONTENTION * (whole - exposed) + found.after_ns


def transfers_ns(
    ranks: Ranks,
    one: Configuration,
    nodes: Nodes,
    *,
    target: int | None = None,
    forward: bool = True,
    update: bool = False,
) -> float:
    """Nanoseconds of the transfers to stage ``target`` in a pass, or of all in the ``update``."""
    inner = one.stage_ranks()
    found = 0.0
    for each in ranks.transfers:
        phase = (
            each.phase is Phase.OPTIMIZER if update else each.phase is (Phase.FORWARD if forward else Phase.BACKWARD)
        )
        ends = [stage % one.pipeline * inner for stage in (each.source, each.target)]
        if phase and ends[0] != ends[1] and target in (None, each.target):
            pair = _farthest(ends[0], ends[1], inner, nodes.devices_per_node)
            found += predict_collective("send_recv", each.nbytes, pair, nodes).ns
    return found


def _farthest(source: int, target: int, inner: int, per: int) -> tuple[int, int]:
    """The first of the ``inner`` pairs of ranks from ``source`` and ``target`` on that lies on two nodes of ``per``
    devices; if none does, the first."""
    pairs = [(source + rank, target + rank) for rank in range(min(inner, per))]
    return next((pair for pair in pairs if pair[0] // per != pair[1] // per), pairs[0])


def _repeats(op: OpView) -> bool:
    """True for a collective of data ranks that every micro-batch needs: gathered parameters. Gradients are reduced once
    for all micro-batches, or after each (``added_exchange_ns``)."""
    kind = kind_of(op.name)
    return kind is None or not COLLECTIVES[kind].reduces


def _collective(op: OpView, one: Configuration, nodes: Nodes) -> Estimate:
    """The time of a collective among the ranks of a group, beside the others of its kind: that of the slowest group."""
    kind, group = kind_of(op.name), group_of(op)
    if kind is None:
        return UNKNOWN
    layouts = _layouts(one.degrees, nodes.devices_per_node, tied_stages(group)).get(group, ())
    if not layouts or len(layouts[0].ranks) < 2:
        return Estimate()
    if COLLECTIVES[kind].joins_two:
        return _passed(op, layouts, nodes) if group == CONTEXT else Estimate()
    nbytes, ranks = payload_bytes(op), len(layouts[0].ranks)
    whole = COLLECTIVES[kind].padded(nbytes, ranks)
    found = [predict_collective(kind, whole, each.ranks, nodes, each.beside).estimate for each in layouts]
    return max(found, key=lambda each: each.time_ns)


def _passed(op: OpView, layouts: Sequence[Layout], nodes: Nodes) -> Estimate:
    """The time of a step of a ring, in which all ranks send and receive at once: between the neighbours farthest apart,
    and once for each pair of ops, where a rank receives."""
    if "src" not in dict(op.call.arguments):
        return Estimate()
    per, rings = nodes.devices_per_node, [each.ranks for each in layouts]
    pairs = [pair for ring in rings for pair in zip(ring, (*ring[1:], ring[0]), strict=True)]
    pair = max(pairs, key=lambda pair: pair[0] // per != pair[1] // per)
    return predict_collective("send_recv", payload_bytes(op), pair, nodes).estimate


class Layout(NamedTuple):
    """A group, and those of its kind on the same nodes, which communicate at the same time."""

    ranks: tuple[int, ...]
    beside: tuple[tuple[int, ...], ...]


@functools.lru_cache(maxsize=64)
def _layouts(degrees: Degrees, per: int, tied: tuple[int, ...] = ()) -> dict[str, tuple[Layout, ...]]:
    """One group of each dimension for every way in which groups lie on nodes of ``per`` devices: the step waits for
    the slowest. Stages that fill whole nodes, or lie within one, all lie alike. ``tied``: stages with tied gradients,
    chunks of a rank among them."""
    inner = degrees.stage_ranks()
    stages = 1 if inner % per == 0 or per % inner == 0 else degrees.pipeline
    every = {
        name: [tuple(stage * inner + rank for rank in ranks) for stage in range(stages) for ranks in first]
        for name, first in degrees.groups_of_stage().items()
    }
    every["pipeline"] = list(degrees.groups_of_stage()["pipeline"])
    ranks_of = dict.fromkeys(stage % degrees.pipeline for stage in tied)
    every[tied_group(tied)] = [degrees.across(rank, [*ranks_of]) for rank in range(inner)]
    found = {}
    for name, groups in every.items():
        nodes = [Counter(rank // per for rank in ranks) for ranks in groups]
        alike = {tuple(counts.values()): number for number, counts in reversed([*enumerate(nodes)])}
        made = []
        for one in sorted(alike.values()):
            beside = (i for i, counts in enumerate(nodes) if i != one and counts.keys() & nodes[one].keys())
            made.append(Layout(groups[one], tuple(groups[i] for i in beside)))
        found[name] = tuple(made)
    return found


def _last_forward(graph: Graph) -> int:
    """The last op of the forward pass; -1 if there is none. What runs after the backward pass, such as the detaching of
    the loss, is no part of it."""
    backward = next((i for i, op in enumerate(graph.ops) if op.phase is Phase.BACKWARD), len(graph.ops))
    return max((i for i, op in enumerate(graph.ops[:backward]) if op.phase is Phase.FORWARD), default=-1)


def _given_bytes(graph: Graph) -> int:
    return sum(int(each.nbytes) for each in graph.storages if each.birth is None)


def library_bytes(graph: Graph) -> int:
    """Bytes of the workspaces that libraries keep."""
    return sum(int(each.nbytes) for each in graph.storages if each.role is Role.LIBRARY)


def _bucket_views(graph: Graph, exchanges: Sequence[int]) -> dict[int, int]:
    """Storages of the gradients that ``exchanges`` average, and the op from which each is a view of its bucket: once it
    is complete. Gradients that the step before has left are views from the beginning."""
    views = {}
    for exchange in exchanges:
        for storage in {graph.tensors[tensor].storage for tensor in graph.ops[exchange].inputs}:
            views[storage] = max((op for op in graph.index.users[storage] if op < exchange), default=-1) + 1
    gradients = [(each.name, graph.tensors[each.tensor].storage) for each in graph.named if each.role is Role.GRADIENT]
    names = {name for name, storage in gradients if storage in views}
    left = [storage for name, storage in gradients if name in names and graph.storages[storage].birth is None]
    return views | dict.fromkeys(left, 0)


def _peaks(graph: Graph, micro_batches: int, given_bytes: int, views: Mapping[int, int] | None = None) -> Peaks:
    """The peaks of each pass, beyond ``given_bytes``, without storages once they are ``views`` of buckets."""
    found = resident_bytes(graph, micro_batches) - given_bytes
    for storage, first in (views or {}).items():
        held = graph.storages[storage]
        found[first : held.death] -= int(held.nbytes)
    if micro_batches > 1:
        found = found - gradient_bytes(graph)
    backward = [i for i, op in enumerate(graph.ops) if op.phase is Phase.BACKWARD]
    first, end = (backward[0], backward[-1] + 1) if backward else (len(graph), len(graph))
    return Peaks(*(int(part.max(initial=0)) for part in (found[:first], found[first:end], found[end:])))


def _kept_bytes(graph: Graph) -> int:
    """Bytes that stay from the forward to the backward pass."""
    last = _last_forward(graph)
    if last < 0 or not any(op.phase is Phase.BACKWARD for op in graph.ops):
        return 0
    return sum(
        int(storage.nbytes)
        for storage in graph.storages
        if storage.birth is not None and storage.birth <= last and (storage.death is None or storage.death > last + 1)
    )
