"""The cost of an op: a frozen value with ``+`` and ``*``, so ops, modules, phases and trip counts compose."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Annotated

import msgspec

from tensortide.shown import Show

ALL = -1
"""Default of ``active_macs``: every multiply-accumulate is active."""


class Cost(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Cost of an op: exact integers, or a bound or convention where ``exact`` is false and ``reason`` says why.

    ``macs`` are the multiply-accumulates of products with dense operands; ``active_macs`` those that remain after
    structural sparsity that is known (None: it depends on values that are not). ``kernel_recompute_macs`` are issued by
    a kernel beyond what the mathematics needs (attention scores, anew in a fused backward) and are in no total;
    recomputed ops are ops as any other. Everything that is no product is in ``elementwise_flops``; ``transcendentals``
    and ``comparisons`` say how much of that is special functions and comparisons. Work on integers and booleans is no
    FLOP: it is in ``int_ops``.
    """

    macs: int = 0
    active_macs: int | None = ALL
    kernel_recompute_macs: int = 0
    elementwise_flops: Annotated[int, Show("elementwise", level=1)] = 0
    transcendentals: int = 0
    comparisons: int = 0
    int_ops: int = 0
    random_draws: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    exact: bool = True
    reason: str = ""

    def __post_init__(self) -> None:
        if self.active_macs == ALL:
            msgspec.structs.force_setattr(self, "active_macs", self.macs)

    @property
    def flops(self) -> int:
        """Two per multiply-accumulate, one for everything else."""
        return 2 * self.macs + self.elementwise_flops

    @property
    def bytes(self) -> int:
        """Bytes read and bytes written."""
        return self.read_bytes + self.written_bytes

    @property
    def product_flops(self) -> Annotated[int, Show("products", level=1, at_width=90)]:
        """FLOPs of multiply-accumulates."""
        return 2 * self.macs

    @property
    def active_flops(self) -> Annotated[int | None, Show("active", level=1)]:
        """FLOPs of active multiply-accumulates; None where these are unknown."""
        return None if self.active_macs is None else 2 * self.active_macs

    @property
    def kernel_recompute_flops(self) -> Annotated[int, Show("recomputed in kernels", level=1, if_any=True)]:
        """FLOPs that kernels issue to recompute, beside those of the ops."""
        return 2 * self.kernel_recompute_macs

    def __add__(self, other: Cost) -> Cost:
        return summed((self, other))

    def __mul__(self, times: int) -> Cost:
        if type(times) is int and times == 1:
            return self
        counts = {name: count * times for name, count in zip(_COUNTS, _counts(self), strict=True)}
        active = None if self.active_macs is None else self.active_macs * times
        return Cost(**counts, active_macs=active, exact=self.exact, reason=self.reason)

    __rmul__ = __mul__


_COUNTS = [name for name in Cost.__struct_fields__ if name not in ("active_macs", "exact", "reason")]
_counts = operator.attrgetter(*_COUNTS)

FREE = Cost()
"""No work and no bytes: a view."""


def summed(costs: Iterable[Cost]) -> Cost:
    """The sum of ``costs``, zero if there are none. It is exact if all are, and has their distinct reasons."""
    costs = tuple(costs)
    active = [cost.active_macs for cost in costs if cost.active_macs is not None]
    return Cost(
        **dict(zip(_COUNTS, map(sum, zip(*map(_counts, costs), strict=True)), strict=False)),
        active_macs=sum(active) if len(active) == len(costs) else None,
        exact=all(cost.exact for cost in costs),
        reason="; ".join(dict.fromkeys(part for cost in costs if cost.reason for part in cost.reason.split("; "))),
    )
