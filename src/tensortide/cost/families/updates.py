"""Families that write by indices, draw random numbers or count."""

from __future__ import annotations

import math
from collections.abc import Callable

from tensortide.cost.access import Bytes, BytesRule, interface, reads, size, writes_only
from tensortide.cost.families.table import family
from tensortide.cost.kinds import COMPARISON, Kind, chosen, elements, kind_of, weights_of
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Rule


@family("scatter")
def scatter(weights: str = "", *, updates: str = "updates", into: str = "copy", unless: str = "") -> Rule:
    """Updates written at indices, or combined by ``weights`` with what is there.

    ``into``: a ``copy`` of the tensor, ``zeros``, or the tensor itself in ``place``, of which then only the rows named
    are touched. ``unless``: an attribute whose value ``none`` means written.
    """
    found = weights_of(weights) if weights else None

    def work(op: OpCall) -> Cost:
        """One operation per element of the updates, if they are combined."""
        if found is None or (unless and op.arg(unless, "none") == "none"):
            return Cost()
        return elements(op, op.operand(updates).numel, found)

    def in_place(op: OpCall) -> Bytes:
        given = op.operand(updates)
        read = size([given, *op.tensors("indices")])
        return Bytes(read + (0 if found is None else given.nbytes), given.nbytes)

    ways: dict[str, BytesRule] = {"copy": interface, "zeros": reads("indices", *updates.split()), "place": in_place}
    moved = chosen("into", into, ways)
    return Rule("", "0 FLOP: written" if found is None else "1 per element of the updates", work, moved)


@family("segment")
def segment(weights: str = "arithmetic", *, mean: bool = False, bytes: BytesRule = interface) -> Rule:
    """Rows of equal segment combined; ``mean``: and divided."""
    found = weights_of(weights)

    def work(op: OpCall) -> Cost:
        """Rows of equal segment combined."""
        count = op.inputs[0].numel + (op.out.numel if mean else 0)
        return elements(op, count, found) + Cost(exact=False, reason="bound: equal segments are not seen")

    return Rule("", "1 per element (bound: distinct segments need one less)", work, bytes)


@family("random")
def random(*, of: str = "out", compared: bool = False, bytes: BytesRule = writes_only) -> Rule:
    """One draw for every element of ``of``; ``compared``: with a probability."""

    def work(op: OpCall) -> Cost:
        """One draw per element."""
        count = op.operand(of).numel
        op.let(E=count)
        tests = count if compared else 0
        return Cost(random_draws=count, elementwise_flops=tests, comparisons=tests)

    return Rule("", "E random draws" + " and comparisons" * compared, work, bytes)


@family("random")
def sampled(of: str = "0") -> Rule:
    """Samples from rows of weights."""

    def work(op: OpCall) -> Cost:
        """Samples from rows of weights: normalized running sums, searched."""
        shape, samples = op.operand(of).shape, op.out.numel
        searched = samples * (shape[-1].bit_length() if shape else 0)
        return Cost(
            elementwise_flops=2 * math.prod(shape) + searched, comparisons=searched, random_draws=samples
        )  # fmt: skip

    return Rule("", "2 n per row; per sample one random draw and log2 n comparisons", work)


@family("integer")
def integer(of: str = "out", *, meaning: str = "Work on booleans, bits and shapes.") -> Rule:
    """One integer operation for every element of ``of``, of all ``inputs`` or of all ``outputs``."""

    def work(op: OpCall) -> Cost:
        """Work on booleans, bits and shapes."""
        groups = {"inputs": op.inputs, "outputs": op.outputs}
        counted = groups[of] if of in groups else (op.operand(of),)
        return Cost(int_ops=sum(tensor.numel for tensor in counted))

    shape = "broadcast" if of == "out" else ""
    return Rule("", "1 integer op per element", work, meaning=meaning, shape=shape)


@family("fill")
def numbered(*, bytes: BytesRule = writes_only) -> Rule:
    """Start plus index times step, for every element."""

    def work(op: OpCall) -> Cost:
        """Start plus index times step."""
        if kind_of([op.out]) is Kind.INTEGER:
            return Cost(int_ops=op.out.numel)
        return Cost(elementwise_flops=2 * op.out.numel)

    return Rule("", "1 integer op (2 FLOP if floating) per element", work, bytes)


@family("selection")
def selected(meaning: str = "Elements that are not zero, or distinct ones.") -> Rule:
    """A test of every element; the size of the result depends on values."""

    def work(op: OpCall) -> Cost:
        """A test of every element, as if every one were selected."""
        cost = elements(op, op.inputs[0].numel, COMPARISON, kind_of(op.inputs))
        return cost + Cost(exact=False, reason="bound: as if every element were selected")

    return Rule("", "1 per element (bound)", work, meaning=meaning)


@family("selection")
def histogram(family: str = "") -> Rule:
    """A bin of each element (subtract, divide, round down), and how many elements are in each."""

    def work(op: OpCall) -> Cost:
        """A bin of each element and a count."""
        count = op.inputs[0].numel
        return Cost(elementwise_flops=3 * count, transcendentals=count, comparisons=count, int_ops=count)

    return Rule("", "3 per element and an integer add", work, family=family)


@family("optimizer")
def update(
    flops: int, special: int, text: str, *, of: str, more: Callable[[OpCall], int] | None = None, also: str = "",
    reason: str = "", bytes: BytesRule = interface,
) -> Rule:  # fmt: skip
    """A step of an optimizer on every element ``of`` an operand. ``more``: FLOPs per element that attributes ask for,
    which ``also`` tells; ``reason``: why the cost is no exact one."""

    def work(op: OpCall) -> Cost:
        """One step per element."""
        count, each = op.operand(of).numel, flops + (0 if more is None else more(op))
        op.let(elements=count, per_element=each)
        cost = Cost(elementwise_flops=each * count, transcendentals=special * count)
        return cost + Cost(exact=False, reason=reason) if reason else cost

    return Rule("", f"{flops} per element{also}", work, bytes, f"One step per element: {text}.")
