"""Rules of exchanges between ranks: stand-ins, and collectives in place."""

from __future__ import annotations

from tensortide.parallelism.rules.table import rule
from tensortide.parallelism.sites import Site, refs_in


@rule("gather_along", "scatter_along", "part_along")
def along_one(site: Site) -> None:
    """All dimensions are those of the inputs, but the one that is exchanged."""
    for ref, out in zip(refs_in(site.arguments["inputs"]), site.outputs, strict=True):
        site.tie_all(ref, out, [site.arguments["dim"]])


@rule("allreduce", "allreduce_coalesced", "broadcast")
def in_place(site: Site) -> None:
    """Every element is combined with the same of other ranks."""
