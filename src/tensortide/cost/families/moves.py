"""Families that compute nothing: they move bytes, or nothing at all."""

from __future__ import annotations

from tensortide.cost.access import Bytes, BytesRule, interface, nothing, selected_rows, size, writes_only
from tensortide.cost.families.table import family
from tensortide.cost.kinds import elements, kind_of, weights_of
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import FREE, Cost
from tensortide.cost.registry import Rule

COPIED = "0 FLOP: read and written"


def _no_work(op: OpCall) -> Cost:
    """Nothing is computed: bytes move."""
    del op
    return FREE


@family("free")
def free(meaning: str = "A renaming, control flow, an allocation or a question about a shape.") -> Rule:
    """Ops that move no bytes."""
    return Rule("", "0: no bytes move", _no_work, nothing, meaning, is_free=True)


@family("move")
def move(
    meaning: str = "A copy, in another order, layout, dtype or place.",
    *,
    formula: str = COPIED,
    bytes: BytesRule = interface,
) -> Rule:
    """Ops that read their inputs and write their outputs."""
    return Rule("", formula, _no_work, bytes, meaning)


@family("part")
def part(meaning: str = "A copy of a part.") -> Rule:
    """Ops that read what they take from a larger tensor."""
    formula = "0 FLOP: what is taken is read and written"
    return Rule("", formula, _no_work, lambda op: Bytes(size(op.outputs), size(op.outputs)), meaning)


@family("placed")
def placed(of: str = "0", meaning: str = "A tensor in a larger one.") -> Rule:
    """Ops that copy the operand ``of`` into a result of which the rest is filled or needs no reading."""
    return Rule("", COPIED, _no_work, lambda op: Bytes(size([op.operand(of)]), size(op.outputs)), meaning)


@family("fill")
def fill(meaning: str = "A fill.") -> Rule:
    """Ops that only write."""
    return Rule("", "0 FLOP: written", _no_work, writes_only, meaning)


@family("gather")
def gather(indices: str = "indices", meaning: str = "Rows by their indices.") -> Rule:
    """Ops that read ``indices`` (several names, or none) and the elements that they select."""
    return Rule("", "0 FLOP: indices and what they select", _no_work, selected_rows(*indices.split()), meaning)


@family("collective")
def collective(weights: str = "", divided: bool = True, meaning: str = "Data exchanged between devices.") -> Rule:
    """Exchanges between the ``group_size`` devices of a call.

    With ``weights`` elements are combined, each once for every other device, and a device does its share of that; not
    ``divided``: the result is its share.
    """
    if not weights:
        return Rule("", COPIED, _no_work, meaning=meaning)
    found = weights_of(weights)

    def work(op: OpCall) -> Cost:
        """A device's share of combining every element once per other device."""
        count = int(op.arg("group_size", 1))
        op.let(N=count)
        shared = sum(tensor.numel for tensor in op.outputs) * (count - 1)
        return elements(op, -(-shared // count) if divided else shared, found, kind_of(op.outputs))

    return Rule("", f"(N - 1) per element over N devices: {found.per('element')}", work, meaning=meaning)
