"""Links as arrays, and lists of ops and transfers as arrays, which compiled functions take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensortide.plans.instance import Instance
from tensortide.plans.model import Compute, Copy, Fetch
from tensortide.plans.under_budget.sequence import Token
from tensortide.plans.under_budget.tables import Ints

RUN, OUT, BACK = 0, 1, 2
"""Kinds of tokens: an op, a copy to a tier, a fetch."""
UNLIMITED = 1 << 61
"""Capacity of a tier without a limit."""
HERE = -1
"""The home of a storage that is on the device before the step."""


class Links(NamedTuple):
    """Links by number: ``out_ns[link, storage]`` and ``back_ns`` of a transfer, ``capacity`` of the tier in bytes.

    Per storage: ``persistent``; ``movable``: it has bytes, and is not pinned.
    """

    out_ns: Ints
    back_ns: Ints
    capacity: Ints
    persistent: Ints
    movable: Ints


class Tokens(NamedTuple):
    """A list of tokens: ``kind``, ``which`` op or storage, over which ``link``; and the ``home`` of each storage."""

    kind: Ints
    which: Ints
    link: Ints
    home: Ints


def links_of(instance: Instance) -> Links:
    """The links of ``instance``."""
    shape = len(instance.links), len(instance.storages)
    out, back = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for number, link in enumerate(instance.links):
        known: dict[int, tuple[int, int]] = {}
        for s, storage in enumerate(instance.storages):
            size = storage.nbytes
            if size not in known:
                known[size] = link.transfer_ns(size), link.transfer_ns(size, inwards=True)
            out[number, s], back[number, s] = known[size]
    limits = (UNLIMITED if x.capacity_bytes is None else x.capacity_bytes for x in instance.links)
    return Links(
        out,
        back,
        np.fromiter(limits, np.int64),
        np.array([x.persistent for x in instance.storages], np.int64),
        np.array([x.nbytes > 0 and not x.pinned for x in instance.storages], np.int64),
    )


def told(instance: Instance, found: Tokens) -> list[Token]:
    """``found`` as tokens."""
    names = [link.name for link in instance.links]
    rows = zip(found.kind.tolist(), found.which.tolist(), found.link.tolist(), strict=True)
    return [
        Compute(which) if kind == RUN else (Copy if kind == OUT else Fetch)(which, names[link])
        for kind, which, link in rows
    ]


def homes_of(instance: Instance, found: Tokens) -> dict[int, str]:
    """The tiers that are the home of a storage in ``found``."""
    names = [link.name for link in instance.links]
    return {s: names[link] for s, link in enumerate(found.home.tolist()) if link != HERE}
