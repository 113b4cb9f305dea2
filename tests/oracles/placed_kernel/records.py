"""Records of the simulator of placed steps: flat arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints


class Exchanges(NamedTuple):
    """Collectives that run beside compute: their ``ops`` in recorded order with the ``nbytes`` of each, and by op of
    the step its ``number`` among them, or -1. Those of one ``stream``, of ``streams`` in all, fill buckets together,
    the first of which is full with ``first_bytes``, the others with ``limit_bytes``. ``size_ns``: by device, stream and
    one of the ``sizes`` the time of a bucket, flat, -1 where it is that of its ops one after the other. Ops from
    ``update`` on wait for all exchanges of their device. ``rate``: that of a device beside an exchange, per mille.

    ``sharers``: queues of transfers and exchanges, as ``Run.busy_end`` numbers them, that pass a ``channel`` which
    others pass, with ``flows`` on it at a time; ``channel_at`` bounds those of each.
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

    By op: ``unit``, ``ns`` (op times devices, flat), ``reads`` and ``writes`` (values), ``after`` (ops that use a view
    which the op makes), ``makes`` and ``touches`` (storages), ``workspace``. By value: ``writer``, ``storage_of``,
    ``before`` (the value that it replaces), ``copy_bytes``, ``readers``, ``free``; ``given``: values that exist before
    the step, in the order of their first readers. By storage: ``home`` (unit), ``nbytes``, ``users`` (how often it is
    touched before it may be released; -1: never released), ``early``: it exists before the step; after the storages of
    the graph come the buffers of exchanges. ``send_ns``: value times lane, flat. ``queue``: of each lane; ``route``:
    from device to device, flat. ``hosts``: whether issuing ops takes time; then by op times devices, flat, ``issue``,
    ``busy_after`` and ``waits``, by device ``launch``, by op ``listed`` (``hosts.HostTimes``). By handle of a library
    ``handle_units``, whose ops use it, and ``handle_bytes`` on each device that has one of these (handle times device,
    flat). ``exchanges``: what runs beside the ops of a device.
    """

    unit: Ints
    ns: Ints
    reads: Ints
    reads_at: Ints
    writes: Ints
    writes_at: Ints
    after: Ints
    after_at: Ints
    makes: Ints
    makes_at: Ints
    touches: Ints
    touches_at: Ints
    workspace: Ints
    writer: Ints
    storage_of: Ints
    before: Ints
    copy_bytes: Ints
    free: Ints
    readers: Ints
    readers_at: Ints
    given: Ints
    home: Ints
    nbytes: Ints
    users: Ints
    early: Ints
    send_ns: Ints
    queue: Ints
    lane_target: Ints
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
    to it. ``micro``: the micro-batch of each op of forward and backward passes, else -1. ``forward``: of the forward
    pass of one of several. ``first``: whether forward ops come before all others that are ready (else after).
    ``limit``: micro-batches in flight on each device; ``micro_batches``: in all."""

    rank: Ints
    by_rank: Ints
    strict: int
    micro: Ints
    forward: Ints
    first: int
    limit: Ints
    micro_batches: int


class Run(NamedTuple):
    """Results of a simulation. By op ``start``, ``end``, and when it was ``issued`` after ``issuing`` it; by transfer
    (over one lane) ``sent``: its value, ``send_lane``, ``send_target`` (its last device), ``send_start``, ``send_end``;
    by device ``peak``; by lane ``moved`` bytes; ``totals``: number of transfers, of ops that ran, makespan, free
    copies. The rest is scratch."""

    start: Ints
    end: Ints
    sent: Ints
    send_lane: Ints
    send_target: Ints
    send_start: Ints
    send_end: Ints
    peak: Ints
    moved: Ints
    totals: Ints
    device: Ints
    pending: Ints
    rest: Ints
    copies: Ints
    level: Ints
    heap: Ints
    heap_at: Ints
    heap_count: Ints
    later: Ints
    later_at: Ints
    later_count: Ints
    busy_end: Ints
    busy_item: Ints
    queue_head: Ints
    queue_tail: Ints
    next_send: Ints
    send_hop: Ints
    send_source: Ints
    left: Ints
    oldest: Ints
    bucket: Ints
    bucket_bytes: Ints
    bucket_ns: Ints
    bucket_left: Ints
    bucket_after: Ints
    bucket_turn: Ints
    due: Ints
    last_bucket: Ints
    open: Ints
    begun: Ints
    filled: Ints
    part: Ints
    whole: Ints
    load: Ints
    issued: Ints
    issuing: Ints
    host: Ints
    launch: Ints
    clear: Ints
    seen: Ints
