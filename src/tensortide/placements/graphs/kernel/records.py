"""Records of placed steps: flat arrays from which a placement is written as tasks."""

from __future__ import annotations

from typing import NamedTuple

from tensortide.placements.arrays import Ints
from tensortide.play.rates import Shares
from tensortide.play.ready import Hosts, Ready
from tensortide.play.tasks import Tasks


class Exchanges(NamedTuple):
    """Collectives that run beside compute.

    By collective:
        ops: Its op, ascending.
        nbytes: Bytes of the gradient.
        stream: Number of its kind and dtype; those of one stream fill buckets together.
    By op of the step:
        number: Its number among the collectives; -1: it is none.
    streams: The number of streams.
    sizes: Bytes of buckets, ascending, whose times are known.
    size_ns: By device, stream and size, flat, the time of a bucket; -1: it takes the times of its ops in turn.
    first_bytes: A stream's first bucket on a device is full with so many bytes.
    limit_bytes: Its later buckets are.
    update: Ops from this one on wait for all exchanges of their device.
    rate: Rate of a device beside an exchange, per mille.
    sharers, channel, channel_at, flows: The columns of ``play.rates.Shares``, for queues of transfers and for
        exchanges, as lanes of the player.
    """

    ops: Ints
    nbytes: Ints
    number: Ints
    stream: Ints
    streams: int
    sizes: Ints
    size_ns: Ints
    first_bytes: int
    limit_bytes: int
    update: int
    rate: int
    sharers: Ints
    channel: Ints
    channel_at: Ints
    flows: Ints


class Tables(NamedTuple):
    """Arrays of int64. ``*_at`` are the bounds of each entry's part of the array named before it.

    By op: ``unit``, ``ns`` (op times devices, flat), ``reads`` and ``writes`` (values), ``makers`` (ops that make a
    view which the op uses), ``workspace``, and ``taken``, the bytes that it takes when it starts. By value: ``writer``,
    ``storage_of``, ``before`` (the value that it replaces), ``copy_bytes``, ``free``, ``readers``; ``given``: values
    that exist before the step, in the order of their first readers; ``sending``: these, then those that ops write. By
    storage: ``home`` (unit), ``nbytes``, ``users`` (ops that touch it before it is released; none if it never is),
    ``early``: it exists before the step; after the storages of the graph come the buffers of
    exchanges. ``send_ns``: value times lane, flat. ``queue``: of each lane; ``route``: from device to device, flat.
    ``hosts``: whether issuing ops takes time; then by op times devices, flat, ``issue``, ``busy_after`` and ``waits``,
    by device ``launch``, by op ``listed`` (``hosts.HostTimes``). By handle of a library ``handle_units``, whose ops use
    it, and ``handle_bytes`` on each device that has one of these (handle times device, flat). ``exchanges``: what runs
    beside the ops of a device.
    """

    unit: Ints
    ns: Ints
    reads: Ints
    reads_at: Ints
    writes: Ints
    writes_at: Ints
    makers: Ints
    makers_at: Ints
    workspace: Ints
    taken: Ints
    writer: Ints
    storage_of: Ints
    before: Ints
    copy_bytes: Ints
    free: Ints
    readers: Ints
    readers_at: Ints
    given: Ints
    sending: Ints
    home: Ints
    nbytes: Ints
    users: Ints
    users_at: Ints
    early: Ints
    send_ns: Ints
    queue: Ints
    route: Ints
    route_at: Ints
    staged: int
    hosts: int
    issue: Ints
    busy_after: Ints
    waits: Ints
    launch: Ints
    listed: Ints
    handle_units: Ints
    handle_units_at: Ints
    handle_bytes: Ints
    exchanges: Exchanges


class Order(NamedTuple):
    """The order of a step's ops. ``rank``: of each op, a permutation; ``by_rank`` its inverse. ``strict``: devices keep
    to it. ``gated``: the micro-batch of each op of the forward pass of one of several, else -1. ``micro``: the ops of
    each micro-batch, bounded by ``micro_at``, where there are such. ``limit``: micro-batches in flight on each device.
    """

    rank: Ints
    by_rank: Ints
    strict: int
    gated: Ints
    micro: Ints
    micro_at: Ints
    limit: Ints


class Draft(NamedTuple):
    """Numbers that are known while a placement is written. By op its ``device`` and, in a strict order, the op
    ``before`` it there. ``arrival``: value times device, flat, the task that brings the value (-1: it is there). By
    transfer, as a task, ``send_lane`` and ``send_target``. By gradient of an exchange ``bucket``, the place of the
    first gradient in its bucket; by bucket ``bucket_bytes``, ``bucket_ns``, the next one (``bucket_after``) and its
    number as a task (``bucket_task``); by device the ``first_bucket`` and the ``last_bucket``; by stream of a device
    the ``open`` bucket, the first that it had (``begun``), and whether one was ``filled``. ``seen``: by device."""

    device: Ints
    before: Ints
    arrival: Ints
    send_lane: Ints
    send_target: Ints
    bucket: Ints
    bucket_bytes: Ints
    bucket_ns: Ints
    bucket_after: Ints
    bucket_task: Ints
    first_bucket: Ints
    last_bucket: Ints
    open: Ints
    begun: Ints
    filled: Ints
    seen: Ints


class Run(NamedTuple):
    """A placement as ``tasks``, whose first are the ops in recorded order, and their record."""

    tasks: Tasks
    draft: Draft
    record: Ready
    hosts: Hosts
    shares: Shares
