"""Telemetry of a run under a budget: tables by tensor, by storage and by op, and memory at every event.

Moments are numbers of events, in order: a clock would not tell events apart that take no time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Annotated, TypeAlias

from tensortide.replays.remat.observed import MOMENTS, Observed, Stop, observed
from tensortide.replays.remat.simulator import op_bytes
from tensortide.shown import Show

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tensortide.plans.remat.schedule import Schedule
    from tensortide.replays.remat.simulation import Simulation
    from tensortide.replays.remat.simulator import Simulator

    Columns: TypeAlias = Mapping[str, Sequence[int | str | None]]
    Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Telemetry:
    """Everything that happened in a run, in tables: columns of equal length by name.

    ``tensors``: one row per value of the Schedule: what an op writes into a storage, which every view of it shares. (By
    the rules of DTR's simulator each view is a value of its own; ``is_view``.) ``op`` makes it, as output ``index``;
    ``nbytes`` is what that allocates, ``compute_ns`` how long it takes. ``birth`` is the event that first made it and
    ``death`` the one in which it was last lost (None: it was never made; it is resident). A use is an op that reads it:
    in the step itself (``model``) or recomputed (``remat``); ``pinned_..._uses`` are those of them in which its storage
    could not be evicted. ``direct_remats``: it was recomputed because it was needed; ``collateral_remats``: because
    another output of its op was.

    ``storages``: ``root`` is the first tensor of each, ``graph_storage`` its number in the Graph; events as of a
    tensor. ``evictions`` are all, ``forced`` those of them that made room for something else; the others followed from
    the program's release. ``remats``: how often it became resident again. ``pinned`` and ``banished``: the event from
    which it had to stay (a sum of gradients: while anything else could go), and the one in which it went for good.

    ``ops``: ``graph_op`` is the number of each in the Graph (None: it stands for what exists before the step,
    ``constant``, or for an update that outputs do not depend on). ``nbytes`` is what its ``outputs`` tensors allocate;
    an ``is_aliasing`` op allocates none. ``runs`` is 0 for an op that a run which was given up never reached;
    ``recomputations`` are on top of it.

    ``moments``: every event, in order. ``kind`` is a ``Kind``; ``index`` the op that runs, or the storage that is
    evicted, dropped or pinned; ``for_op`` the op of the step that it happens for; ``clock_ns`` when it starts. Resident
    bytes are ``pinned`` (must stay), ``locked`` (in use by ops that run or wait, what the running op makes and its
    workspace) or ``evictable``: while an op runs, or just after any other event. ``pressure_bytes`` is how much more
    has to go before what is to run next fits.

    ``bottleneck_bytes``: the most that one op needs with its inputs. ``stop`` is None for a run that ended. ``forced``,
    ``direct_remats`` and ``collateral_remats`` are sums.
    """

    tensors: Columns
    storages: Columns
    ops: Columns
    moments: Mapping[str, Ints]
    bottleneck_bytes: Annotated[int, Show("most for one op", level=1)]
    stop: Stop | None
    forced: int
    direct_remats: int
    collateral_remats: int

    @property
    def recomputed_tensors(self) -> Annotated[int, Show("Recomputed")]:
        """Tensors recomputed."""
        return self.direct_remats + self.collateral_remats


def telemetry(simulator: Simulator, simulation: Simulation) -> Telemetry:
    """Collect the telemetry of ``simulation``, a run of ``simulator``, by replaying its trace.

    Linear in the trace, but for the upkeep of the plain engine. Raises PlanError if ``simulation`` is not a run of
    ``simulator``.
    """
    import numpy as np

    seen, schedule = observed(simulator, simulation), simulation.schedule
    storages = _storages(seen, schedule)
    ops = _ops(seen, schedule)
    moments = dict(zip(MOMENTS, np.array(seen.rows, np.int64).reshape(-1, len(MOMENTS)).T, strict=True))
    most = max(compress(op_bytes(schedule, simulator.compat), seen.runs), default=0)
    sums = (sum(seen.forced), sum(seen.direct), sum(seen.collateral))
    return Telemetry(_tensors(seen, schedule, storages, ops), storages, ops, moments, most, seen.stop, *sums)


def _tensors(seen: Observed, schedule: Schedule, storages: Columns, ops: Columns) -> Columns:
    roots, owner, made = schedule.root.tolist(), seen.storage, seen.op_of
    index = [value - seen.outputs[op][0] for value, op in enumerate(made)]
    return {
        "id": range(len(made)),
        "name": [storages["name"][s] or f"{ops['name'][op]}:{i}" for s, op, i in zip(owner, made, index, strict=True)],
        "op": made,
        "op_name": [ops["name"][op] for op in made],
        "index": index,
        "storage": owner,
        "is_view": [value != roots[s] and seen.replaces[value] < 0 for value, s in enumerate(owner)],
        "nbytes": seen.nbytes,
        "compute_ns": [seen.cost_ns[op] for op in made],
        **seen.value.columns(),
        "pinned_model_uses": seen.value.pinned[0],
        "pinned_remat_uses": seen.value.pinned[1],
        "direct_remats": seen.direct,
        "collateral_remats": seen.collateral,
    }


def _storages(seen: Observed, schedule: Schedule) -> Columns:
    origin = schedule.storage_origin.tolist()
    known = [schedule.graph.storages[i] for i in origin]
    return {
        "id": range(len(origin)),
        "root": schedule.root.tolist(),
        "graph_storage": origin,
        "name": [storage.name for storage in known],
        "role": [storage.role.value for storage in known],
        "nbytes": seen.storage_bytes,
        "tensors": list(map(len, seen.values)),
        **seen.stored.columns(),
        "evictions": seen.evictions,
        "forced": seen.forced,
        "remats": seen.remats,
        "pinned": seen.pins,
        "banished": seen.banishings,
    }


def _ops(seen: Observed, schedule: Schedule) -> Columns:
    graph, roots = schedule.graph, {*schedule.root.tolist()}
    origin = [None if op < 0 else op for op in schedule.origin.tolist()]
    nameless = ["update" if inputs else "constant" for inputs in seen.inputs]
    known = [None if op is None else graph.ops[op] for op in origin]
    return {
        "id": range(len(origin)),
        "graph_op": origin,
        "name": [graph.calls[op.call].op if op else name for op, name in zip(known, nameless, strict=True)],
        "module": [graph.module_path(op.module) if op else "" for op in known],
        "outputs": list(map(len, seen.outputs)),
        "compute_ns": seen.cost_ns,
        "nbytes": seen.totals,
        "is_aliasing": [bool(made) and roots.isdisjoint(made) for made in seen.outputs],
        "runs": seen.runs,
        "recomputations": seen.recomputations,
    }
