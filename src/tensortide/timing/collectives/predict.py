"""Predicted times of collectives: the surest rung that knows one, never below physics, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tensortide.errors import TensortideError
from tensortide.graph.collectives import Collective
from tensortide.graph.communication import kind
from tensortide.timing.collectives.bound import bound
from tensortide.timing.collectives.constants import constants_of, pool_of
from tensortide.timing.collectives.hierarchy import across, rate_of, within
from tensortide.timing.collectives.nodes import Group, Nodes, group
from tensortide.timing.estimates import Estimate, Provenance
from tensortide.timing.intervals import FLOOR_MEASURED, WIDE
from tensortide.units import whole


class CollectivePrediction(NamedTuple):
    """Prediction of one collective: ``below`` and ``above`` are half-widths in natural logarithms.

    ``algorithm`` is the way that was found fastest; ``model`` is the rung: ``sweep``, ``constants``, ``bound`` or
    ``hierarchy``. ``busbw`` is in bytes per nanosecond (1e9 bytes per second), comparable with the rate of a link.
    """

    kind: str
    nbytes: int
    ranks: int
    ns: float
    below: float
    above: float
    provenance: Provenance
    algorithm: str
    model: str
    busbw: float

    @property
    def estimate(self) -> Estimate:
        """The same as a value that adds; nothing for a single rank."""
        if not self.ns:
            return Estimate()
        return Estimate.of(self.ns, self.below, self.above, self.provenance, f"collective:{self.kind}")


def collective(
    name: str, nbytes: int, ranks: int | Sequence[int], nodes: Nodes, beside: Iterable[Sequence[int]] = ()
) -> Estimate:
    """The device time of a collective as a value that adds; arguments and errors as ``predict_collective``."""
    return predict_collective(name, nbytes, ranks, nodes, beside).estimate


def predict_collective(
    name: str, nbytes: int, ranks: int | Sequence[int], nodes: Nodes, beside: Iterable[Sequence[int]] = ()
) -> CollectivePrediction:
    """Predict a collective of ``nbytes`` (total) among ``ranks`` of ``nodes``.

    Args:
        name: a collective, as any source calls it (``graph.communication.find``).
        nbytes: of the message, as ``COLLECTIVES`` counts them.
        ranks: the ranks, or how many: then the first ones.
        beside: groups that communicate at the same time, and share the NICs that they use.

    Raises:
        TensortideError: unknown kind, sizes or ranks that are no whole numbers, negative bytes, bytes that the ranks do
            not divide evenly, or a group that the nodes do not have.

    Examples:
        >>> from tensortide.timing.collectives.nodes import nodes_of
        >>> predict_collective("all_reduce", 2**28, 8, nodes_of("H100-SXM-80GB")).provenance.name
        'INTERPOLATED'
    """
    row, nbytes = kind(name), whole(nbytes, f"{name} of {{}} bytes", 0)
    if not isinstance(ranks, Sequence):
        ranks = whole(ranks, f"{name} among {{}} ranks", 1)
    found = group(ranks, nodes, beside)
    if row.divided and nbytes % found.ranks:
        raise TensortideError(f"{name} of {nbytes} bytes in total: {found.ranks} ranks do not divide them evenly")
    if row.joins_two and found.ranks > 2:
        raise TensortideError(f"{name} among {found.ranks} ranks: it joins two")
    if found.ranks == 1:
        return CollectivePrediction(row.name, nbytes, 1, 0.0, 0.0, 0.0, Provenance.MEASURED, "none", "bound", 0.0)
    return _predict(row, nbytes, found, nodes)


def _predict(row: Collective, nbytes: int, group: Group, nodes: Nodes) -> CollectivePrediction:
    rung = _within_node if group.nodes == 1 else _between_nodes
    ns, half, provenance, algorithm, model = rung(row, nbytes, group, nodes)
    busbw = row.phi(group.ranks) * nbytes / ns
    return CollectivePrediction(row.name, nbytes, group.ranks, ns, *half, provenance, algorithm, model, busbw)


_Rung = tuple[float, tuple[float, float], Provenance, str, str]


def _within_node(row: Collective, nbytes: int, group: Group, nodes: Nodes) -> _Rung:
    ranks, rate, on, link = group.ranks, rate_of(group.link), nodes.device, group.link
    swept = nodes.sweeps[row.name].ns(ranks, nbytes) if row.name in nodes.sweeps else None
    if swept is not None:
        known = nodes.sweeps[row.name].measured(ranks, nbytes)
        provenance = Provenance.MEASURED if known else Provenance.INTERPOLATED
        near = pool_of(link.name, "swept" if ranks in nodes.sweeps[row.name].by_ranks else "interpolated").of(swept)
        widths = (FLOOR_MEASURED, FLOOR_MEASURED) if known else (near.below, near.above)
        return swept, widths, provenance, "as measured", "sweep"
    constants = constants_of(row, on, link.name)
    if constants is None:
        least = bound(row, ranks, nbytes, rate, link.latency_ns)
        return least.ns, (WIDE.all.below, WIDE.all.above), Provenance.PHYSICS, least.algorithm, "bound"
    ns = constants.ns(row, ranks, nbytes, rate)
    sure = not row.like and constants.covers(on.name, ranks, nbytes, rate)
    provenance = Provenance.INTERPOLATED if sure else Provenance.EXTRAPOLATED
    pool = WIDE if row.like else pool_of(link.name, provenance.name.lower())
    half = pool.of(ns)
    return ns, (half.below, half.above), provenance, "as measured", "constants"


def _between_nodes(row: Collective, nbytes: int, group: Group, nodes: Nodes) -> _Rung:
    """No sweep between nodes of more than 16 devices is public: constants of one network, and wide intervals."""
    way = across(row, nbytes, group, nodes)
    provenance = Provenance.EXTRAPOLATED if within(row, nodes, group.link).count else Provenance.PHYSICS
    return way.ns, (WIDE.all.below, WIDE.all.above), provenance, way.algorithm, "hierarchy"
