"""Records of a run under a budget: one per tensor, storage and op, and memory at every event.

Moments are numbers of events, in order: a clock would not tell events apart that take no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]


class TensorRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One value of the Schedule: what an op writes into a storage, which every view of it shares. (By the rules of
    DTR's simulator each view is a value of its own; ``is_view``.)

    ``op`` makes it, as output ``index``; ``nbytes`` is what that allocates, ``compute_ns`` how long it takes. ``birth``
    is the event that first made it and ``death`` the one in which it was last lost (None: it was never made; it is
    resident). A use is an op that reads it: in the step itself (``model``) or recomputed (``remat``);
    ``pinned_..._uses`` are those of them in which its storage could not be evicted. ``direct_remats``: it was
    recomputed because it was needed; ``collateral_remats``: because another output of its op was.
    """

    id: int
    name: str
    op: int
    op_name: str
    index: int
    storage: int
    is_view: bool
    nbytes: int
    compute_ns: int
    birth: int | None
    death: int | None
    last_model_use: int | None
    last_remat_use: int | None
    model_uses: int
    remat_uses: int
    pinned_model_uses: int
    pinned_remat_uses: int
    direct_remats: int
    collateral_remats: int


class StorageRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One storage. ``root`` is its first tensor, ``graph_storage`` its number in the Graph; events as of a tensor.

    ``evictions`` are all, ``forced`` those of them that made room for something else; the others followed from the
    program's release. ``remats``: how often it became resident again. ``pinned`` and ``banished``: the event from
    which it had to stay (a sum of gradients: while anything else could go), and the one in which it went for good, if
    there is one.
    """

    id: int
    root: int
    graph_storage: int
    name: str
    role: str
    nbytes: int
    tensors: int
    birth: int | None
    death: int | None
    last_model_use: int | None
    last_remat_use: int | None
    model_uses: int
    remat_uses: int
    evictions: int
    forced: int
    remats: int
    pinned: int | None
    banished: int | None


class OpRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One op. ``graph_op`` is its number in the Graph (None: it stands for what exists before the step,
    ``constant``, or for an update that outputs do not depend on).

    ``nbytes`` is what its ``outputs`` tensors allocate; an ``is_aliasing`` op allocates none. ``runs`` is 0 for an op
    that a run which was given up never reached; ``recomputations`` are on top of it.
    """

    id: int
    graph_op: int | None
    name: str
    module: str
    outputs: int
    compute_ns: int
    nbytes: int
    is_aliasing: bool
    runs: int
    recomputations: int


class Moments(msgspec.Struct, frozen=True, eq=False):
    """Every event of a run, in order, and memory at it; int64 arrays of equal length.

    ``kinds`` are values of ``Kind``; ``indexes`` the op that runs, or the storage that is evicted, dropped or
    pinned. ``goal`` is the op of the step that it happens for. ``clock_ns`` is when it starts. Resident bytes are
    ``pinned`` (must stay), ``locked`` (in use by ops that run or wait, what the running op makes and its workspace) or
    ``evictable``: while an op runs, or just after any other event. ``pressure_bytes`` is how much more has to go before
    what is to run next fits.
    """

    kinds: Ints
    indexes: Ints
    goal: Ints
    clock_ns: Ints
    pinned_bytes: Ints
    locked_bytes: Ints
    evictable_bytes: Ints
    pressure_bytes: Ints

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def total_bytes(self) -> Ints:
        """Bytes resident."""
        return self.pinned_bytes + self.locked_bytes + self.evictable_bytes

    @property
    def ran(self) -> Ints:
        """The events in which an op runs, or runs again."""
        return (self.kinds <= Kind.RECOMPUTE).nonzero()[0]

    @property
    def most_locked(self) -> int:
        """The first event with the most bytes locked (-1: there is none)."""
        return int(self.locked_bytes.argmax()) if len(self) else -1

    @property
    def most_pinned(self) -> int:
        """The first event with the most bytes pinned (-1: there is none)."""
        return int(self.pinned_bytes.argmax()) if len(self) else -1


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a run's work.

    ``evaluations`` of candidates, ``accesses`` to storages in the search; ``evictions``, ``forced`` of them to make
    room; ``banished``: dropped for good while resident. ``direct_remats`` are tensors recomputed because they were
    needed, ``collateral_remats`` those recomputed along with them. ``bottleneck_bytes``: the most that one op
    needs with its inputs; ``constant_bytes``: storages that cannot be recomputed.
    """

    evaluations: int
    accesses: int
    evictions: int
    forced: int
    banished: int
    direct_remats: int
    collateral_remats: int
    bottleneck_bytes: int
    constant_bytes: int


class Held(msgspec.Struct, frozen=True, gc=False):
    """A storage that was resident when a run was given up; ``pinned`` (it had to stay) or in use by what waited."""

    storage: int
    nbytes: int
    pinned: bool


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Point at which a run was given up: ``op`` was to run next, for the sake of op ``goal`` of the step; numbers of
    the Schedule.

    ``waiting`` ops had their inputs, or some, in use meanwhile, the outermost first. ``asked_bytes`` is what it needed
    on top of what was ``held`` (largest first).
    """

    op: int
    goal: int
    waiting: tuple[int, ...]
    asked_bytes: int
    held: tuple[Held, ...]


class Telemetry(msgspec.Struct, frozen=True, eq=False):
    """All records of a run. ``stop`` is None for a run that ended."""

    tensors: tuple[TensorRecord, ...]
    storages: tuple[StorageRecord, ...]
    ops: tuple[OpRecord, ...]
    moments: Moments
    counters: Counters
    stop: Stop | None
