"""Costs: FLOPs, MACs and bytes of the step or the forward pass, what of them is known, and what is recomputed."""

from __future__ import annotations

from tensortide.cost.count import RECOMPUTE
from tensortide.errors import Unavailable
from tensortide.graph.model import Phase
from tensortide.measures.metric import Comparative, Metric
from tensortide.measures.registry import metric
from tensortide.measures.subject import Subject


@metric(
    Metric(
        "flops",
        "FLOPs",
        "flops",
        "algorithmic FLOPs of one step, or of one forward pass of a model, per batch",
        lower_bound=True,
    ),
    Metric(
        "macs", "MACs", "macs", "multiply-accumulates of matrix products and convolutions, per batch", lower_bound=True
    ),
    Metric(
        "elementwise_flops", "Elementwise FLOPs", "flops", "FLOPs that are no products, per batch", lower_bound=True
    ),
    Metric(
        "bytes",
        "Bytes accessed",
        "bytes",
        "bytes that ops must read and write, per batch; views move none",
        lower_bound=True,
    ),
    Metric("ops", "Ops", "count", "ops of the step, views among them", comparative=Comparative.DIFF),
)
def costs(subject: Subject, batch_size: int | None = None) -> dict[str, int]:
    """Count the ops; those without a rule are left out, which ``coverage`` tells."""
    total = subject.captured(batch_size).count.total
    elementwise = total.flops - 2 * total.macs
    return {
        "flops": total.flops,
        "macs": total.macs,
        "elementwise_flops": elementwise,
        "bytes": total.accessed_bytes,
        "ops": total.ops,
    }


@metric(
    Metric("coverage", "Coverage", "share", "share of ops whose cost is known", "higher", Comparative.DIFF),
    Metric("unknown_ops", "Ops without a rule", "count", "ops whose cost is not known", "lower", Comparative.DIFF),
)
def coverage(subject: Subject, batch_size: int | None = None) -> dict[str, float]:
    """Tell what the costs cover."""
    found = subject.captured(batch_size).count.coverage
    share = found.covered / found.ops if found.ops else 1.0
    return {"coverage": share, "unknown_ops": found.ops - found.covered}


@metric(
    Metric(
        "forward_flops",
        "FLOPs, forward",
        "flops",
        "FLOPs of the forward phase, recomputation left out",
        lower_bound=True,
    ),
    Metric(
        "backward_flops",
        "FLOPs, backward",
        "flops",
        "FLOPs of the backward phase, recomputation left out",
        lower_bound=True,
    ),
    Metric(
        "recomputed_flops",
        "FLOPs, recomputed",
        "flops",
        "FLOPs of ops that run again for the backward",
        lower_bound=True,
    ),
    Metric(
        "recomputed_ops", "Recomputed ops", "count", "ops that run again for the backward", "lower", Comparative.DIFF
    ),
    Metric("optimizer_flops", "FLOPs, optimizer", "flops", "FLOPs of the optimizer's update", lower_bound=True),
)
def phases(subject: Subject) -> dict[str, int]:
    """Count each phase of a step with a backward. Raises Unavailable for a forward pass."""
    if subject.kind == "forward":
        raise Unavailable("a forward pass has one phase: see flops")
    totals = subject.training().count.by_phase
    return {
        "forward_flops": totals[Phase.FORWARD].flops,
        "backward_flops": totals[Phase.BACKWARD].flops,
        "recomputed_flops": totals[RECOMPUTE].flops,
        "recomputed_ops": totals[RECOMPUTE].ops,
        "optimizer_flops": totals[Phase.OPTIMIZER].flops,
    }


@metric(
    Metric(
        "intensity",
        "Arithmetic intensity",
        "flops_per_byte",
        "FLOPs per byte accessed",
        "higher",
        Comparative.RECIPROCAL,
    )
)
def intensity(subject: Subject, batch_size: int | None = None) -> float:
    """Divide FLOPs by bytes. Raises Unavailable where nothing is accessed, or ops have no rule."""
    total = subject.captured(batch_size).count.total
    if total.unknown_ops:
        raise Unavailable(f"{total.unknown_ops} ops have no cost rule")
    if not total.accessed_bytes:
        raise Unavailable("no bytes are accessed")
    return total.flops / total.accessed_bytes
