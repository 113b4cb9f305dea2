"""The four figures of deeplite-profiler 1.2.5 beside ours, each with the reasons for the difference.

>>> for figure in figures(graph):  # doctest: +SKIP
...     print(figure.name, figure.ours, figure.theirs, figure.reasons)

Values are exact, in base units: multiply-accumulates, elements and bytes. The reasons of a figure add up to its
difference; a remainder is an error of ours and raises.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Annotated, TypeAlias

import msgspec

from tensortide.cost import count
from tensortide.cost.count import Count
from tensortide.dtypes import Kind, kind_of
from tensortide.errors import MetricError, Unavailable
from tensortide.graph.model import Graph, Role
from tensortide.measures.compat.charges import CHARGES, charge, footprint_reasons
from tensortide.measures.compat.liveness import live_nodes
from tensortide.measures.compat.nodes import NodeGraph, node_graph
from tensortide.measures.metric import Missing
from tensortide.shown import Show

Amount: TypeAlias = int | Fraction
KIB, MIB = 1 << 10, 1 << 20


class Reason(msgspec.Struct, frozen=True):
    """A part of the difference between two figures, in their unit."""

    text: Annotated[str, Show("Reason for the difference", fold=True)]
    amount: Annotated[Amount, Show("Amount", "count")]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure by our definition and by theirs. ``shown`` is theirs in the unit in which that tool has it.

    ``theirs`` is None where that tool fails: ``missing`` says why.
    """

    name: Annotated[str, Show("Figure")]
    unit: Annotated[str, Show("In")]
    ours: Annotated[int, Show("Ours")]
    theirs: Annotated[Amount | None, Show("Theirs", "count")]
    shown: float | None
    shown_unit: str
    reasons: tuple[Reason, ...] = ()
    missing: Missing | None = None

    @property
    def as_shown(self) -> Annotated[str, Show("As shown there")]:
        """Theirs in words."""
        return "not available" if self.shown is None else f"{self.shown:.10g} {self.shown_unit}"

    @property
    def difference(self) -> Annotated[Amount | None, Show("Difference", "count")]:
        """Theirs less ours."""
        return None if self.theirs is None else self.theirs - self.ours

    @property
    def ratio(self) -> Annotated[float | None, Show("Ratio")]:
        """Theirs over ours."""
        return None if self.theirs is None or not self.ours else float(self.theirs / Fraction(self.ours))

    @property
    def remainder(self) -> Amount:
        """Return what the reasons leave unexplained: 0."""
        return (self.difference or 0) - sum((reason.amount for reason in self.reasons), 0)


def figures(
    graph: Graph,
    *,
    batch: int = 1,
    keywords: bool = False,
    element_bytes: Mapping[str, int] | None = None,
    charged: Mapping[str, int] | None = None,
) -> tuple[Figure, ...]:
    """Compute the figures of the inference forward in ``graph``, which has ``batch`` samples.

    ``keywords``: the model takes its inputs by name alone, which that tool cannot call. ``element_bytes`` are the bytes
    per element that modules give for their own parameters (``param_size`` there), by parameter; ``charged`` the value
    of a module that gives its own (``compute_module_complexity``), by path: it counts once for each charged node.

    Raises Unavailable for a graph without composite calls, or with a backward.
    """
    traced, costs = node_graph(graph), count(graph)
    made = tuple(_figures(traced, costs, batch, element_bytes or {}, charged or {}))
    reason = _failure(traced, keywords)
    if reason:
        return tuple(
            msgspec.structs.replace(one, theirs=None, missing=Missing(reason), shown=None, reasons=()) for one in made
        )
    for one in made:
        if one.remainder:
            raise MetricError(f"{one.name}: {one.remainder} of the difference have no reason")
    return made


def samples(graph: Graph) -> int:
    """The batch size that the hyperparameters of a captured workload name; else 1."""
    found = graph.meta.hyperparameters.get("batch", graph.meta.hyperparameters.get("batch_size"))
    return found if isinstance(found, int) and found > 0 else 1


def _failure(traced: NodeGraph, keywords: bool) -> str:
    """Return why that tool computes nothing for this model; empty if it does."""
    if keywords:
        return "not available there: it passes inputs by position, and the model takes them by name alone"
    tensors = (traced.graph.tensors[named.tensor] for named in traced.graph.named if named.role is Role.INPUT)
    if any(kind_of(tensor.dtype) is Kind.COMPLEX for tensor in tensors):
        return "not available there: it makes no complex inputs"
    try:
        live_nodes(traced)
    except Unavailable as error:
        return str(error)
    return ""


def _figures(
    traced: NodeGraph, costs: Count, batch: int, element_bytes: Mapping[str, int], charged: Mapping[str, int]
) -> Iterator[Figure]:
    yield _flops(traced, costs, charged)
    yield _params(traced.graph)
    yield _size(traced.graph, element_bytes)
    yield _footprint(traced, batch)


def _figure(
    name: str, scale: tuple[int, str], unit: str, ours: int, theirs: Amount, reasons: Mapping[str, Amount]
) -> Figure:
    kept = tuple(Reason(text, _whole(amount)) for text, amount in reasons.items() if amount)
    shown = float(Fraction(theirs) / scale[0])
    return Figure(
        name=name, unit=unit, ours=ours, theirs=_whole(theirs), shown=shown, shown_unit=scale[1], reasons=kept
    )


def _whole(amount: Amount) -> Amount:
    return int(amount) if amount == int(amount) else amount


# -- flops -------------------------------------------------------------------------------------------


def _flops(traced: NodeGraph, costs: Count, charged: Mapping[str, int]) -> Figure:
    """The charge of every node against our MACs of the ops that it stands for."""
    macs = [cost.cost.macs if cost.cost is not None else 0 for cost in costs.costs]
    theirs = 0
    reasons: dict[str, int] = defaultdict(int)
    for node in traced.nodes:
        value, ours = charge(node), sum(macs[index] for index in node.ops)
        row = CHARGES.get(node.name)
        if row is not None and node.module in charged:
            reasons[f"{node.module}: gives its own value, once for each of its charged nodes"] += (
                charged[node.module] - ours
            )
            theirs += charged[node.module]
            continue
        theirs += value
        extra = row.extra(node) if row is not None and node.outputs else 0
        if extra and row is not None:
            reasons[f"{node.name}: {row.reason}"] += extra
        if value - extra != ours:
            text = "not charged" if row is None else "charged at the sizes of its output"
            reasons[f"{node.name}: {text}"] += value - extra - ours
    for node in traced.dead:
        reasons[f"{node.name}: its result is not read, and the traced graph leaves it out"] -= sum(
            macs[index] for index in node.ops
        )
    return _figure("flops", (10**9, "G"), "macs", sum(macs), theirs, reasons)


# -- parameters --------------------------------------------------------------------------------------


def _parameters(graph: Graph) -> dict[int, tuple[str, bool]]:
    """Each parameter, tied ones once, by its tensor: its first name, and whether it is trained."""
    found: dict[int, tuple[str, bool]] = {}
    for named in graph.named:
        if named.role is Role.PARAMETER:
            name, trained = found.get(named.tensor, (named.name, False))
            found[named.tensor] = name, trained or named.trainable
    return found


def _params(graph: Graph) -> Figure:
    found = [(graph.tensors[tensor].numel, trained) for tensor, (_, trained) in _parameters(graph).items()]
    ours = sum(elements for elements, _ in found)
    theirs = sum(elements for elements, trained in found if trained)
    frozen = -sum(elements for elements, trained in found if not trained)
    return _figure("total_params", (10**6, "M"), "amount", ours, theirs, {"frozen parameters are left out": frozen})


def _size(graph: Graph, element_bytes: Mapping[str, int]) -> Figure:
    ours = theirs = 0
    reasons: dict[str, int] = defaultdict(int)
    for index, (name, trained) in _parameters(graph).items():
        tensor = graph.tensors[index]
        own, counted = tensor.nbytes, tensor.numel * element_bytes.get(name, 4 if trained else 0)
        ours, theirs = ours + own, theirs + counted
        if name in element_bytes:
            reasons["bytes per element as the module gives them"] += counted - own
        elif trained:
            reasons[f"{tensor.dtype} counted as 4 bytes"] += counted - own
        else:
            reasons["frozen parameters are left out"] -= own
    return _figure("model_size", (MIB, "MiB"), "bytes", ours, theirs, reasons)


# -- footprint ---------------------------------------------------------------------------------------


def _footprint(traced: NodeGraph, batch: int) -> Figure:
    try:
        live = max((row.nbytes for row in live_nodes(traced)), default=0)
    except Unavailable:
        live = 0
    ours, reasons = footprint_reasons(traced, batch)
    return _figure("memory_footprint", (MIB, "MiB"), "bytes", ours, Fraction(4 * live, batch), reasons)


def scaled_flops(value: float) -> tuple[float, str]:
    """A value in units of 10^9 as that tool shows it: binary powers of a decimal unit."""
    if value > 1e-3:
        return value, "Giga"
    return (value * KIB, "Mega") if value > 1e-6 else (value * KIB**2, "Kilo")
