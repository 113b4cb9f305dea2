"""Rules of exchanges between ranks: stand-ins, and collectives in place."""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.graph.collectives import COLLECTIVES, Held, ops_in
from tensortide.parallelism.exchange import AMONG
from tensortide.parallelism.rules.table import rule
from tensortide.parallelism.sites import Ref, Site, base_name, refs_in

_IN_PLACE = [
    base_name(name.replace("::", "."))
    for row in COLLECTIVES.values()
    if row.gets is Held.WHOLE and not row.divided
    for name, written in ops_in(row.torch)
    if written
]
"""Ops that leave a whole message in the tensors that they are given."""


def _sides(site: Site, ref: Ref, out: Ref, *dims: int) -> None:
    """Tie what goes in to what comes out, but for the ``dims`` that are exchanged. Once ranks are noted, no further
    axis divides these."""
    site.tie_all(ref, out, dims)
    if AMONG in site.arguments:
        site.whole(ref, *dims)
        site.whole(out, *dims)


@rule("gather_along", "scatter_along", "part_along", "mirrored_along")
def along_one(site: Site) -> None:
    """All dimensions are those of the inputs, but the one that is exchanged."""
    for ref, out in zip(refs_in(site.arguments["inputs"]), site.outputs, strict=True):
        _sides(site, ref, out, site.arguments["number"])


@rule("dispatch_slots", "combine_slots")
def slots(site: Site) -> None:
    """Experts and their slots are others on each side."""
    _sides(site, site.inputs[0], site.outputs[0], 0, 1)


@rule("dispatch_rows", "combine_rows")
def rows(site: Site) -> None:
    """Rows are others on each side."""
    _sides(site, site.inputs[0], site.outputs[0], 0)


def row_dimension(shape: Sequence[int]) -> int:
    """The dimension along which tokens of a tensor of ``shape`` are sent: the first of more than one element."""
    return next((dim for dim, size in enumerate(shape) if size > 1), 0)


@rule("dispatch_experts", "combine_experts")
def to_experts(site: Site) -> None:
    """Rows are others on each side, of every tensor."""
    for ref, out in zip(refs_in(site.arguments["inputs"]), site.outputs, strict=True):
        _sides(site, ref, out, row_dimension(site.tensor(ref).shape))


@rule("offsets")
def offsets(site: Site) -> None:
    """Offsets are those of other experts on each side."""


@rule(*_IN_PLACE)
def in_place(site: Site) -> None:
    """Every element is combined with the same of other ranks."""
