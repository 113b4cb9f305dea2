"""Placements in which devices share layers: their scores, and lower bounds that hold with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tensortide.placements.arrays import Ints
from tensortide.placements.bounds import Bounds
from tensortide.placements.nets.net import Devices, Net
from tensortide.placements.nets.sharding import expand, most_devices, shards_of
from tensortide.placements.simulator.bounds import kind_times, of_parts, speeds, weighed
from tensortide.placements.simulator.kernel import Record, over_use, run
from tensortide.placements.simulator.settings import Settings
from tensortide.placements.simulator.state import for_runs, new_state
from tensortide.placements.simulator.tables import Tables, tables
from tensortide.timing.clusters import Cluster

_MOST_KEPT = 1000
"""Divisions of a net whose tables are kept."""


class _Divided(NamedTuple):
    """A net in which so many devices share each layer, whichever they are: its tables, and for each of its layers the
    place of its device among those of all layers of the net, one after the other."""

    tables: Tables
    place: Ints


@dataclass(frozen=True)
class SharedRuns:
    """Runs of ``net`` with layers that several devices share. Tables depend on how many share a layer, not on which."""

    net: Net
    cluster: Cluster
    settings: Settings
    _known: dict[tuple[int, ...], _Divided] = field(default_factory=dict, compare=False)

    def __reduce__(self) -> tuple[type[SharedRuns], tuple[Net, Cluster, Settings]]:
        """Travel to other processes without what is derived."""
        return SharedRuns, (self.net, self.cluster, self.settings)

    def score(self, devices: Sequence[Devices], record: Record) -> tuple[float, float]:
        """The score, ms with the penalty of over-use, and the over-use, bytes, with layers on ``devices``."""
        divided = self._divided(tuple(map(len, devices)))
        state = new_state(divided.tables)
        state.device[:] = np.array([one for of in devices for one in of], np.int64)[divided.place].tolist()
        makespan = run(divided.tables, state, record)
        over = over_use(divided.tables, state)
        return makespan + over * divided.tables.penalty, over

    def bounds(self, whole: Tables, where: Ints) -> Bounds:
        """Bound the makespan on the devices ``where``, whatever layers they share; ``whole``: the tables of ``net``.

        A part ends with the last of its shards, each on its fastest device, and is as much work as all of them. Every
        number of shards is tried. Joining shards is taken to be free.
        """
        times = kind_times(whole, where)
        weights = speeds(whole, times)
        least, work = times.min(axis=2), weighed(whole, times, weights).min(axis=2)
        most = most_devices(self.net)
        for count in range(2, min(len(where), max(most, default=1)) + 1):
            shared = [layer for layer, limit in enumerate(most) if limit >= count]
            net = expand(self.net, [tuple(range(count if limit >= count else 1)) for limit in most]).net
            shards = kind_times(tables(net, self.cluster, self.settings), where)
            for layer in shared:
                own = shards[:, [net.index[name] for name in shards_of(self.net.order[layer], count)]]
                least[:, layer] = np.minimum(least[:, layer], own.min(axis=2).max(axis=1))
                work[:, layer] = np.minimum(work[:, layer], weighed(whole, own, weights).min(axis=2).sum(axis=1))
        return of_parts(whole, least, work)

    def _divided(self, counts: tuple[int, ...]) -> _Divided:
        found = self._known.get(counts)
        if found is None:
            ends = np.cumsum(counts).tolist()
            places = [tuple(range(end - count, end)) for count, end in zip(counts, ends, strict=True)]
            net, place = expand(self.net, places)
            found = _Divided(for_runs(tables(net, self.cluster, self.settings)), np.array(place, np.int64))
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[counts] = found
        return found
